#include <fmt/format.h>

#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

using nlohmann::json;

// The types that follow from the first operand's, so that JSON written by hand can leave them out.
void set_default_types(GemmSignature& s, DType a) {
  s.a = s.b = a;
  s.acc = default_accumulator(a);
  s.out = s.d = default_output(a);
}

void set_default_types(NormSignature& s, DType in) {
  s.in = s.weight = in;
  s.out = default_output(in);
}

void set_default_types(ConvSignature& s, DType in) {
  s.in = s.weight = in;
  s.acc = default_accumulator(in);
  s.out = s.d = default_output(in);
}

void set_default_types(FmhaSignature& s, DType in) {
  s.in = s.dtype_bias = in;
  s.out = default_output(in);
}

template <class S>
S read_signature(const json& value, const JsonPlace& place, const char* first_type) {
  S signature;
  if (value.is_object() && value.contains(first_type)) {
    set_default_types(signature, read_json_word<DType>(value[first_type], place.key(first_type)));
  }
  if constexpr (requires { signature.d; }) {
    if (value.is_object() && value.contains("out")) {
      signature.d = read_json_word<DType>(value["out"], place.key("out"));
    }
  }
  read_json(value, place, kOptional, signature);
  return signature;
}

Signature read_signature(Op op, const json& value, const JsonPlace& place) {
  if (op == Op::gemm) return read_signature<GemmSignature>(value, place, "a");
  if (op == Op::norm) return read_signature<NormSignature>(value, place, "in");
  if (op == Op::conv) return read_signature<ConvSignature>(value, place, "in");
  return read_signature<FmhaSignature>(value, place, "in");
}

// A spec that has no name, for example because its target contains a blank, is refused.
std::string name_at(const KernelSpec& spec, const JsonPlace& place) {
  try {
    return name_of(spec);
  } catch (const Error& error) {
    const std::string where = place.path.empty() ? place.what : place.what + ": " + place.path;
    throw Error(ErrorCode::parse_error, where + ": " + error.what());
  }
}

}  // namespace

nlohmann::ordered_json json_of(const KernelSpec& spec) {
  auto object = nlohmann::ordered_json::object();
  object["name"] = name_of(spec);
  object["op"] = to_string(op_of(spec));
  object["signature"] = std::visit(
      [](const auto& fields) { return write_json(fields, Defaults::write); }, spec.signature);
  object["algorithm"] = write_json(spec.algorithm, Defaults::write);
  object["target"] = spec.target;
  return object;
}

KernelSpec kernel_spec_from(const json& value, const JsonPlace& place) {
  check_keys(value, place, {"name", "op", "signature", "algorithm", "target"});
  for (const char* key : {"op", "signature", "algorithm", "target"}) {
    if (!value.contains(key)) missing_json(place.key(key));
  }
  const Op op = read_json_word<Op>(value["op"], place.key("op"));
  KernelSpec spec;
  spec.signature = read_signature(op, value["signature"], place.key("signature"));
  read_json(value["algorithm"], place.key("algorithm"), kOptional, spec.algorithm);
  read_json(value["target"], place.key("target"), kOptional, spec.target);
  // The name is for readers. If it does not fit the fields, one of the two is a mistake.
  const std::string name = name_at(spec, place);
  if (value.contains("name") && value["name"] != name) {
    refuse_json(place.key("name"), fmt::format("{}, the name of the fields beside it", name),
                value["name"]);
  }
  return spec;
}

std::string to_json(const KernelSpec& spec) { return dump_json(json_of(spec)); }

KernelSpec kernel_spec_from_json(std::string_view text) {
  return kernel_spec_from(parse_json(text, "kernel spec"), {"kernel spec", ""});
}

}  // namespace tessera
