// The code that CPU kernels share. It consists of explicit instantiations of templates in
// src/tessera/device/cpu/. Each is compiled once and linked into every kernel that needs it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/headers.h"

namespace tessera::gemm {
namespace {

// result function<arguments>(parameters)
struct Instantiation {
  std::string result;
  std::string function;
  std::string arguments;
  std::string parameters;
};

struct Object {
  std::string_view header;
  std::vector<Instantiation> functions;
};

std::string name_of_object(const Object& object) {
  const Instantiation& first = object.functions.front();
  std::string name = "object_" + first.function;
  bool in_word = false;
  for (const unsigned char c : first.arguments) {
    const bool is_word = std::isalnum(c) != 0;
    if (is_word && !in_word) name += '_';
    if (is_word) name += static_cast<char>(c);
    in_word = is_word;
  }
  return name;
}

std::string instantiations(const Object& object, std::string_view keyword) {
  std::string text = fmt::format("#include \"tessera/device/cpu/{}\"\n\n", object.header);
  text += "namespace tessera::device {\n\n";
  for (const Instantiation& f : object.functions) {
    text += fmt::format("{} {} {}<{}>({});\n", keyword, f.result, f.function, f.arguments,
                        f.parameters);
  }
  return text + "\n}  // namespace tessera::device\n";
}

// The functions of a driver. Their first template argument is the kernel's shape.
Object driver(std::string_view kind, const CpuTypes& t, const GemmSignature& s,
              const std::vector<Instantiation>& functions) {
  const std::string types =
      fmt::format("OperandTypes<{}, {}, {}, {}, {}>", t.a, t.b, t.math,
                  yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)));
  Object object{.header = kind == "Packed" ? "gemm/packed_gemm.h" : "gemm/stream_gemm.h",
                .functions = functions};
  for (Instantiation& f : object.functions) {
    f.arguments = types;
    f.parameters = fmt::format("const {}Shape<{}>&, const void*{}", kind, types, f.parameters);
  }
  return object;
}

std::vector<Object> stream_objects(const CpuTypes& t, const GemmSignature& s) {
  const auto strip = [&](std::string_view type, bool k_contiguous) {
    return Object{
        .header = "stream_strip.h",
        .functions = {{.result = "void",
                       .function = "multiply_strip",
                       .arguments = fmt::format("{}, {}, {}", type, t.math, yes_no(k_contiguous)),
                       .parameters = fmt::format("const StripTask<{}>&", type)}}};
  };
  return {driver("Stream", t, s,
                 {{"void", "stream_run", "", ", const CpuThread&"},
                  {"i64", "stream_workspace_bytes", "", ", int"}}),
          strip(t.a, a_is_row_major(s.layout)), strip(t.b, !b_is_row_major(s.layout))};
}

// A register block, and a variant that converts its sums to a 16-bit output.
std::vector<Object> block_objects(const KernelSpec& spec, const CpuTypes& t, const GemmSignature& s,
                                  int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  const std::string arguments =
      fmt::format("{}, {}, {}, {}", t.math, a.warp_tile.m, a.warp_tile.n * 4 / vector_bytes,
                  packs_a(a.pipeline) ? a.warp_tile.m : 0);
  std::vector<Object> objects = {
      {"block.h", {{"void", "multiply_any", arguments, "const BlockTask&, i64, int"}}}};
  if (s.a != DType::int8 && size_of(s.out) == 2 && tile::epilogue_text(s.epilogue).empty()) {
    objects.push_back({"block.h",
                       {{"void", "multiply_block", fmt::format("{}, {}", arguments, t.out),
                         "const BlockTask&"}}});
  }
  return objects;
}

std::vector<Object> packed_objects(const KernelSpec& spec, const CpuTypes& t,
                                   const GemmSignature& s, int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  const auto panel = [](std::string_view function, std::string_view type, std::string arguments) {
    return Object{.header = "pack.h",
                  .functions = {{.result = "void",
                                 .function = std::string(function),
                                 .arguments = std::move(arguments),
                                 .parameters = fmt::format("const PanelSource<{}>&, u32*", type)}}};
  };
  std::vector<Object> objects = block_objects(spec, t, s, vector_bytes);
  objects.push_back(driver("Packed", t, s,
                           {{"void", "packed_run", "", ", const CpuThread&"},
                            {"i64", "packed_workspace_bytes", "", ", int"},
                            {"i64", "packed_b_bytes", "", ""},
                            {"void", "packed_b", "", ", void*"}}));
  objects.push_back(
      panel("pack_a_panel", t.a,
            fmt::format("{}, {}, {}, {}, {}", t.a, t.math, a.warp_tile.m,
                        yes_no(packs_a(a.pipeline)), yes_no(a_is_row_major(s.layout)))));
  objects.push_back(panel("pack_b_panel", t.b,
                          fmt::format("{}, {}, {}, {}", t.b, t.math, a.warp_tile.n,
                                      yes_no(!b_is_row_major(s.layout)))));
  return objects;
}

}  // namespace

void add_cpu_objects(const KernelSpec& spec, const CpuTypes& types, int vector_bytes,
                     Source& source) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  std::vector<Object> objects = spec.algorithm.pipeline == Pipeline::stream
                                    ? stream_objects(types, signature)
                                    : packed_objects(spec, types, signature, vector_bytes);
  for (const Object& object : objects) {
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

}  // namespace tessera::gemm
