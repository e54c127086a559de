// The compiled code that GEMMs for CPU targets share.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

using Object = tile::CpuObject;
using tile::Instantiation;

// The functions of a driver. Their first template argument is the kernel's shape.
Object driver(std::string_view kind, std::string_view header, const CpuTypes& t,
              const GemmSignature& s, const std::vector<Instantiation>& functions) {
  const std::string types =
      fmt::format("OperandTypes<{}, {}, {}, {}, {}>", t.a, t.b, t.math,
                  yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)));
  Object object{.header = header, .functions = functions};
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
  return {driver("Stream", "gemm/stream_gemm.h", t, s,
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

Object packed_driver(std::string_view header, const CpuTypes& t, const GemmSignature& s) {
  return driver("Packed", header, t, s,
                {{"void", "packed_run", "", ", const CpuThread&"},
                 {"i64", "packed_workspace_bytes", "", ", int"},
                 {"i64", "packed_b_bytes", "", ""},
                 {"void", "packed_b", "", ", void*"}});
}

// The function that packs a panel of an operand.
Object panel(std::string_view header, std::string_view function, std::string_view type,
             std::string arguments) {
  return {.header = header,
          .functions = {{.result = "void",
                         .function = std::string(function),
                         .arguments = std::move(arguments),
                         .parameters = fmt::format("const PanelSource<{}>&, u32*", type)}}};
}

std::vector<Object> packed_objects(const KernelSpec& spec, const CpuTypes& t,
                                   const GemmSignature& s, int vector_bytes) {
  const Algorithm& a = spec.algorithm;
  std::vector<Object> objects = block_objects(spec, t, s, vector_bytes);
  objects.push_back(packed_driver("gemm/packed_gemm.h", t, s));
  objects.push_back(
      panel("pack.h", "pack_a_panel", t.a,
            fmt::format("{}, {}, {}, {}, {}", t.a, t.math, a.warp_tile.m,
                        yes_no(packs_a(a.pipeline)), yes_no(a_is_row_major(s.layout)))));
  objects.push_back(panel("pack.h", "pack_b_panel", t.b,
                          fmt::format("{}, {}, {}, {}", t.b, t.math, a.warp_tile.n,
                                      yes_no(!b_is_row_major(s.layout)))));
  return objects;
}

std::vector<Object> tile_objects(const CpuTypes& t, const GemmSignature& s) {
  const auto arguments = [&](std::string_view type, bool k_contiguous) {
    return fmt::format("{}, {}, {}", type, t.math, yes_no(k_contiguous));
  };
  return {{"tile_block.h",
           {{"void", "multiply_tiles", std::string(t.math), "const BlockTask&, i64, int"}}},
          packed_driver("gemm/tile_kernel.h", t, s),
          panel("tile_block.h", "pack_a_tiles", t.a, arguments(t.a, a_is_row_major(s.layout))),
          panel("tile_block.h", "pack_b_tiles", t.b, arguments(t.b, !b_is_row_major(s.layout)))};
}

std::vector<Object> objects_of(const KernelSpec& spec, const CpuTypes& t, int vector_bytes) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  if (spec.algorithm.pipeline == Pipeline::stream) return stream_objects(t, signature);
  if (spec.algorithm.pipeline == Pipeline::amx) return tile_objects(t, signature);
  return packed_objects(spec, t, signature, vector_bytes);
}

}  // namespace

void add_cpu_objects(const KernelSpec& spec, const CpuTypes& types, int vector_bytes,
                     Source& source) {
  tile::add_objects(objects_of(spec, types, vector_bytes), source);
}

}  // namespace tessera::gemm
