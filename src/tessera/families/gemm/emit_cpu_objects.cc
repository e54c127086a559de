// The compiled code that GEMMs for CPU targets share.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

using Object = tile::CpuObject;
using tile::Instantiation;

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
  tile::add_objects(objects, source);
}

}  // namespace tessera::gemm
