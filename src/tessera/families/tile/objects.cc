#include "tessera/families/tile/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/text.h"
#include "tessera/families/headers.h"

namespace tessera::tile {
namespace {

std::string name_of_object(const CpuObject& object) {
  const Instantiation& first = object.functions.front();
  std::string name = "object_" + first.function;
  bool in_word = false;
  for (const char c : first.arguments) {
    const bool is_word = is_alphanumeric(c);
    if (is_word && !in_word) name += '_';
    if (is_word) name += c;
    in_word = is_word;
  }
  return name;
}

std::string instantiations(const CpuObject& object, std::string_view keyword) {
  std::string text = fmt::format("#include \"tessera/device/cpu/{}\"\n\n", object.header);
  text += "namespace tessera::device {\n\n";
  for (const Instantiation& f : object.functions) {
    text += fmt::format("{} {} {}<{}>({});\n", keyword, f.result, f.function, f.arguments,
                        f.parameters);
  }
  return text + "\n}  // namespace tessera::device\n";
}

}  // namespace

void add_objects(std::span<const CpuObject> objects, Source& source) {
  for (const CpuObject& object : objects) {
    const std::string name = name_of_object(object);
    const auto has_name = [&name](const Source& other) { return other.name == name; };
    // A and B share it
    if (std::any_of(source.objects.begin(), source.objects.end(), has_name)) continue;
    std::string text = instantiations(object, "template");
    const std::shared_ptr<const Headers> headers = headers_of(text);
    source.objects.push_back({.name = name,
                              .extension = source.extension,
                              .text = std::move(text),
                              .headers = headers,
                              .is_object = true,
                              .abi = source.abi});
    source.declarations += instantiations(object, "extern template");
  }
}

std::string_view math_type(DType operand, int per_word) {
  constexpr int kLeastTileDepth = 32;  // of k, in a row of a tile
  if (per_word >= kLeastTileDepth) {
    return operand == DType::int8 ? "MathTilesInt8" : "MathTilesBf16";
  }
  if (operand == DType::int8) {
    return per_word == 4 ? "MathVnni" : per_word == 2 ? "MathI16" : "MathI32";
  }
  return per_word == 2 ? "MathBf16" : "MathF32";
}

}  // namespace tessera::tile
