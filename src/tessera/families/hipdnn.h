// Kernels as data for AMD's hipDNN: which graphs a kernel serves, and how it is launched, as
// expressions over the graph. docs/decisions/cdna.md says what was decided about the format.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/answers.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera::hipdnn {

// An expression of hipDNN's RFC 0018 as JSON: {"ceil_div": ["$a.dims[1]", "$kernel.tile_m"]}.
struct Formula {
  std::string json;
};
Formula text(std::string_view word);  // "BFLOAT16", or a reference: "$a.dtype"
Formula number(std::int64_t value);
Formula call(std::string_view op, std::initializer_list<Formula> arguments);
Formula all_of(const std::vector<Formula>& conditions);

// The word of a graph for elements of this type on the target; empty: graphs have none.
std::string_view type_word(DType dtype, const Target& target);

// A value that every kernel of an engine states of itself; expressions read it as $kernel.<name>.
struct Field {
  std::string_view name;
  std::string_view type;  // "string", "int" or "bool"
};

// A parameter of a kernel. Parameters lie one after the other, each at a multiple of its size.
enum class Parameter : std::uint8_t { pointer, i64, i32 };
std::string_view to_string(Parameter type);
constexpr std::size_t size_of(Parameter type) { return type == Parameter::i32 ? 4 : 8; }
struct Argument {
  std::string_view name;
  Parameter type;
  Formula value;  // of a pointer: the tensor, "$a"
};

// What the kernels of an operation have in common.
struct Engine {
  std::string_view name;  // "gemm"
  std::string nodes;      // JSON: the pattern of the graph, which names the tensors
  std::vector<Field> fields;
  Formula criteria;         // whether a kernel serves the graph
  Formula blocks, threads;  // of a launch, along x; y and z are 1
  std::vector<Argument> arguments;
};

struct Kernel {
  std::string refusal;  // a sentence that says what the format cannot express; empty: nothing
  std::vector<Formula> values;  // of the engine's fields
  Source source;                // its parameters are the engine's arguments
  std::vector<Problem> usual;   // what kernels are ranked by
};

// What a family says. Only kernels without a refusal have an engine.
struct Export {
  Engine (*engine)() = nullptr;
  Kernel (*kernel)(const KernelSpec&, const Target&) = nullptr;
};

}  // namespace tessera::hipdnn
