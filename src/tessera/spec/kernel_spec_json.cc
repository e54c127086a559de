#include <fmt/format.h>

#include "tessera/spec/json_internal.h"

namespace tessera {
namespace {

using nlohmann::json;

// Fields that follow another are set with it, so that JSON written by hand can leave them out.
template <class S>
void read_signature(const json& value, const JsonPlace& place, S& signature) {
  const auto one = [&](const auto& row) {
    const std::string key(row.key);
    if (!has_followers(row.member) || !value.is_object() || !value.contains(key)) return;
    auto given = signature.*row.member;
    read_json(value[key], place.key(key), kOptional, given);
    set_with_followers(signature, row.member, given);
  };
  Fields<S>::kAll([&](const auto&... rows) { (one(rows), ...); });
  read_json(value, place, kOptional, signature);
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
  spec.signature = blank_signature(op);
  std::visit([&](auto& s) { read_signature(value["signature"], place.key("signature"), s); },
             spec.signature);
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
