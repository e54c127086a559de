#include "node.h"

#include <stdexcept>

namespace tessera_ort {

void check(const OrtApi& api, OrtStatus* status) {
  if (status != nullptr) {
    const std::string sentence = api.GetErrorMessage(status);
    api.ReleaseStatus(status);
    throw std::runtime_error(sentence);
  }
}

std::string word_of(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
      return "fp32";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
      return "fp16";
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16:
      return "bf16";
    default:
      return "";
  }
}

namespace {

// The attributes that the operations of works.cc read.
constexpr const char* kAttributes[] = {"transA",
                                       "transB",
                                       "alpha",
                                       "beta",
                                       "strides",
                                       "pads",
                                       "dilations",
                                       "group",
                                       "auto_pad",
                                       "axis",
                                       "epsilon",
                                       "stash_type",
                                       "is_causal",
                                       "q_num_heads",
                                       "kv_num_heads",
                                       "scale",
                                       "softcap",
                                       "softmax_precision",
                                       "qk_matmul_output_mode"};

std::vector<Dim> dims_of(const OrtApi& api, const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  check(api, api.GetDimensionsCount(info, &rank));
  Shape sizes(rank);
  std::vector<const char*> names(rank);
  check(api, api.GetDimensions(info, sizes.data(), rank));
  check(api, api.GetSymbolicDimensions(info, names.data(), rank));
  std::vector<Dim> dims(rank);
  for (size_t i = 0; i < rank; ++i) {
    dims[i] = {sizes[i], names[i] == nullptr ? "" : names[i]};
  }
  return dims;
}

Value read_value(const OrtApi& api, const OrtValueInfo* info) {
  Value value;
  if (info == nullptr) {
    return value;
  }
  const char* name = nullptr;
  check(api, api.GetValueInfoName(info, &name));
  value.name = name;
  value.is_given = !value.name.empty();
  const OrtTypeInfo* type = nullptr;
  check(api, api.GetValueInfoTypeInfo(info, &type));
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  check(api, api.CastTypeInfoToTensorInfo(type, &tensor));
  if (tensor == nullptr) {  // a sequence or a map
    return value;
  }
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  check(api, api.GetTensorElementType(tensor, &element));
  value.type = word_of(element);
  value.has_shape = api.TensorTypeAndShape_HasShape(tensor);
  if (value.has_shape) {
    value.shape = dims_of(api, tensor);
  }
  return value;
}

// Numbers and texts alike: ONNX Runtime says how many bytes it needs.
template <typename Element>
std::vector<Element> list_of(const OrtApi& api, const OrtOpAttr* attribute, OrtOpAttrType type) {
  size_t bytes = 0;
  OrtStatus* too_small = api.ReadOpAttr(attribute, type, nullptr, 0, &bytes);
  if (too_small != nullptr) {
    api.ReleaseStatus(too_small);
  }
  std::vector<Element> list(bytes / sizeof(Element));
  if (!list.empty()) {
    check(api, api.ReadOpAttr(attribute, type, list.data(), bytes, &bytes));
  }
  return list;
}

Attribute read_attribute(const OrtApi& api, const OrtOpAttr* given) {
  Attribute attribute;
  OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
  check(api, api.OpAttr_GetType(given, &type));
  size_t bytes = 0;
  if (type == ORT_OP_ATTR_FLOAT) {
    float number = 0;
    check(api, api.ReadOpAttr(given, type, &number, sizeof(number), &bytes));
    attribute.number = number;
  } else if (type == ORT_OP_ATTR_INT) {
    attribute.ints.resize(1);
    check(api, api.ReadOpAttr(given, type, attribute.ints.data(), sizeof(int64_t), &bytes));
  } else if (type == ORT_OP_ATTR_INTS) {
    attribute.ints = list_of<int64_t>(api, given, type);
  } else if (type == ORT_OP_ATTR_STRING) {
    const std::vector<char> text = list_of<char>(api, given, type);
    attribute.text.assign(text.begin(), text.end());
    attribute.text.resize(attribute.text.find('\0') == std::string::npos
                              ? attribute.text.size()
                              : attribute.text.find('\0'));
  }
  return attribute;
}

template <typename Count, typename Get>
std::vector<Value> read_values(const OrtApi& api, const OrtNode* node, Count count, Get get) {
  size_t size = 0;
  check(api, count(node, &size));
  std::vector<const OrtValueInfo*> infos(size);
  check(api, get(node, infos.data(), size));
  std::vector<Value> values;
  for (const OrtValueInfo* info : infos) {
    values.push_back(read_value(api, info));
  }
  return values;
}

}  // namespace

Node read_node(const OrtApi& api, const OrtNode* given) {
  Node node;
  const char* text = nullptr;
  check(api, api.Node_GetName(given, &text));
  node.name = text;
  check(api, api.Node_GetOperatorType(given, &text));
  node.op = text;
  check(api, api.Node_GetDomain(given, &text));
  node.domain = text;
  check(api, api.Node_GetSinceVersion(given, &node.since));
  node.inputs = read_values(api, given, api.Node_GetNumInputs, api.Node_GetInputs);
  node.outputs = read_values(api, given, api.Node_GetNumOutputs, api.Node_GetOutputs);
  for (const char* name : kAttributes) {
    const OrtOpAttr* attribute = nullptr;
    OrtStatus* missing = api.Node_GetAttributeByName(given, name, &attribute);
    if (missing != nullptr) {
      api.ReleaseStatus(missing);
    } else if (attribute != nullptr) {
      node.attributes[name] = read_attribute(api, attribute);
    }
  }
  return node;
}

Shape shape_of(const OrtApi& api, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api, api.GetTensorTypeAndShape(value, &info));
  size_t rank = 0;
  OrtStatus* status = api.GetDimensionsCount(info, &rank);
  Shape shape(rank);
  if (status == nullptr) {
    status = api.GetDimensions(info, shape.data(), rank);
  }
  api.ReleaseTensorTypeAndShapeInfo(info);
  check(api, status);
  return shape;
}

int64_t int_or(const Node& node, const char* name, int64_t otherwise) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() || found->second.ints.empty() ? otherwise
                                                                      : found->second.ints[0];
}

double number_or(const Node& node, const char* name, double otherwise) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? otherwise : found->second.number;
}

std::string text_or(const Node& node, const char* name, const char* otherwise) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() ? otherwise : found->second.text;
}

Shape ints_or(const Node& node, const char* name, size_t count, int64_t otherwise) {
  const auto found = node.attributes.find(name);
  return found == node.attributes.end() || found->second.ints.empty() ? Shape(count, otherwise)
                                                                      : found->second.ints;
}

}  // namespace tessera_ort
