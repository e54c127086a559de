#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/registry/kernel_set_internal.h"
#include "tessera/registry/registry_json_internal.h"
#include "tessera/spec/json_internal.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using nlohmann::json;

// Every string of a list. A single string counts as a list of one.
std::vector<std::string> read_words(const json& value, const JsonPlace& place) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) refuse_json(place, "a string or a list of strings", value);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < value.size(); ++i) {
    words.push_back(read_json_string(value[i], place.item(i)));
  }
  return words;
}

std::vector<std::string> read_words_at(const json& object, const JsonPlace& place,
                                       std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  return read_words(*found, place.key(key));
}

// A receipt's number may be a number.
std::vector<std::string> read_receipts(const json& object, const JsonPlace& place) {
  const auto found = object.find("receipt");
  if (found != object.end() && found->is_number_integer()) return {found->dump()};
  return read_words_at(object, place, "receipt");
}

// The operation of a group. When it is left out, "gemm": older files do not name it.
Op read_op(const json& group, const JsonPlace& place) {
  const auto found = group.find("op");
  if (found == group.end()) return all_families().front()->op;
  return read_json_word<Op>(*found, place.key("op"));
}

// Every key but "op" is a field that wishes name.
void add_group(KernelSetBuilder& builder, const json& value, const JsonPlace& place) {
  if (!value.is_object()) refuse_json(place, "an object", value);
  const Op op = read_op(value, place);
  const std::vector<std::string> fields = wish_fields(family_of(op));
  std::vector<std::string> known = fields;
  known.emplace_back("op");
  check_keys(value, place, known);
  builder.op(op);
  for (const std::string& field : fields) {
    for (const std::string& word : read_words_at(value, place, field)) builder.where(field, word);
  }
}

// A kernel by name, or as an object with every field.
KernelSpec read_kernel(const json& value, const JsonPlace& place) {
  if (value.is_object()) return kernel_spec_from(value, place);
  if (!value.is_string()) refuse_json(place, "a kernel name or an object", value);
  try {
    return parse_name(value.get_ref<const std::string&>());
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}: {}", place.what, place.path, error.what()));
  }
}

bool needs_target(const json& value) {
  constexpr std::array kDeclarations = {"groups", "preselected", "receipt", "problems"};
  return std::any_of(kDeclarations.begin(), kDeclarations.end(),
                     [&](const char* key) { return value.contains(key); });
}

// The groups, sets and problems, which the builder expands for the target that the file names.
std::vector<KernelSpec> read_declarations(const std::string& name, const json& value,
                                          const JsonPlace& place) {
  if (!needs_target(value)) return {};
  if (!value.contains("target")) missing_json(place.key("target"));
  KernelSetBuilder builder(name, read_json_string(value["target"], place.key("target")));
  if (const auto groups = value.find("groups"); groups != value.end()) {
    if (!groups->is_array()) refuse_json(place.key("groups"), "a list", *groups);
    for (std::size_t i = 0; i < groups->size(); ++i) {
      add_group(builder, (*groups)[i], place.key("groups").item(i));
    }
  }
  for (const std::string& set : read_words_at(value, place, "preselected")) {
    builder.preselected(set);
  }
  for (const std::string& receipt : read_receipts(value, place)) builder.receipt(receipt);
  for (const std::string& line : read_words_at(value, place, "problems")) {
    builder.for_problem(parse_problem(line));
  }
  return builder.build().specs;
}

}  // namespace

KernelSet read_kernel_set(const json& value, const JsonPlace& place) {
  if (!value.contains("name")) missing_json(place.key("name"));
  const std::string name = read_json_string(value["name"], place.key("name"));
  std::vector<KernelSpec> specs = read_declarations(name, value, place);
  if (const auto kernels = value.find("kernels"); kernels != value.end()) {
    if (!kernels->is_array()) refuse_json(place.key("kernels"), "a list", *kernels);
    for (std::size_t i = 0; i < kernels->size(); ++i) {
      specs.push_back(read_kernel((*kernels)[i], place.key("kernels").item(i)));
    }
  }
  return {name, unique_by_name(std::move(specs))};
}

nlohmann::ordered_json kernel_set_json(const KernelSet& set) {
  nlohmann::ordered_json value;
  value["name"] = set.name;
  value["kernels"] = nlohmann::ordered_json::array();
  for (const KernelSpec& spec : set.specs) value["kernels"].push_back(name_of(spec));
  return value;
}

std::string to_json(const KernelSet& set) { return dump_json(kernel_set_json(set)); }

KernelSet kernel_set_from_json(std::string_view text) {
  const json value = parse_json(text, "kernel set");
  const JsonPlace place{"kernel set", ""};
  check_keys(value, place,
             {"name", "target", "groups", "preselected", "receipt", "problems", "kernels"});
  return read_kernel_set(value, place);
}

}  // namespace tessera
