// A node of ONNX as plain data, and its reading through ONNX Runtime's C API.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ort_abi.h"

namespace tessera_ort {

// One dimension as a graph knows it: a size, or -1 and perhaps a name for it.
struct Dim {
  int64_t size = -1;
  std::string name;
};

struct Value {
  bool is_given = false;  // an optional input or output may be left out
  std::string name;
  std::string type;  // Tessera's word; "" for all others
  bool has_shape = false;
  std::vector<Dim> shape;
};

struct Attribute {
  std::vector<int64_t> ints;  // of one number, too
  double number = 0;
  std::string text;
};

struct Node {
  std::string name, op, domain;
  int since = 0;  // the version of the operator's definition
  std::vector<Value> inputs, outputs;
  std::map<std::string, Attribute> attributes;  // those that are given
};

using Shape = std::vector<int64_t>;

// Throws std::runtime_error with the status's sentence, and gives the status back.
void check(const OrtApi& api, OrtStatus* status);

Node read_node(const OrtApi& api, const OrtNode* node);

// Tessera's word for a type; "" where it knows none.
std::string word_of(ONNXTensorElementDataType type);

Shape shape_of(const OrtApi& api, const OrtValue* value);

int64_t int_or(const Node& node, const char* name, int64_t otherwise);
double number_or(const Node& node, const char* name, double otherwise);
std::string text_or(const Node& node, const char* name, const char* otherwise);
// One number for each of `count` dimensions.
Shape ints_or(const Node& node, const char* name, size_t count, int64_t otherwise);

}  // namespace tessera_ort
