// The text of a kernel for short calls, and the code that it shares with others.
#include <fmt/format.h>

#include "tessera/families/gemm/small_internal.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

using tile::CpuObject;

std::string_view word_of_kind(SmallKind kind) {
  return kind == SmallKind::blocks ? "blocks" : kind == SmallKind::dots ? "dots" : "rows";
}

std::string_view stored_type(DType dtype) {
  return is_fp32(dtype) ? "float" : dtype == DType::int32 ? "int" : to_string(dtype);
}

std::string small_config(const KernelSpec& spec, const Target& target, std::string_view math) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::string steps = tile::epilogue_text(s.epilogue);
  std::string text = fmt::format(
      "struct Config {{\n"
      "  using A = {};\n"
      "  using B = {};\n"
      "  using Out = {};\n"
      "  using D = {};\n"
      "  using Math = {};\n",
      stored_type(s.a), stored_type(s.b), stored_type(s.out), stored_type(s.d), math);
  text += fmt::format(
      "  static constexpr int kAbiVersion = {};\n"
      "  static constexpr int kVectorBytes = {};\n"
      "  static constexpr SmallKind kKind = SmallKind::{};\n"
      "  static constexpr int kTileM = {}, kWarpTileM = {}, kWarpTileN = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {};  // 0: the caller's limit\n"
      "  static constexpr bool kBKContiguous = {}, kPreshuffled = false;\n"
      "  static constexpr int kNumSteps = {}, kNumD = {};\n",
      kAbi, target.vector_bytes, word_of_kind(small_kind(a, target)), a.tile.m, a.warp_tile.m,
      a.warp_tile.n, a.wave.m, a.wave.n, yes_no(!b_is_row_major(s.layout)), num_ops(s.epilogue),
      int{s.epilogue.num_d});
  if (!steps.empty()) text += fmt::format("  static constexpr Step kSteps[] = {{{}}};\n", steps);
  return text + "};\n";
}

// A driver serves the kernels of one kind, whatever their types.
CpuObject small_driver(SmallKind kind) {
  constexpr std::string_view kArguments = "GemmArguments";
  return {
      .header = "gemm/small_gemm.h",
      .functions = {{"void", fmt::format("small_run_{}", word_of_kind(kind)),
                     std::string(kArguments), "const SmallShape&, const void*, const CpuThread&"}}};
}
CpuObject small_workspace() {
  return {.header = "gemm/small_gemm.h",
          .functions = {{"i64", "small_workspace_bytes", "GemmArguments",
                         "const SmallShape&, const void*, int"}}};
}
CpuObject small_function(std::string_view header, std::string_view function, std::string arguments,
                         std::string_view parameter) {
  return {.header = header,
          .functions = {{"void", std::string(function), std::move(arguments),
                         fmt::format("const {}&", parameter)}}};
}

// The register blocks of panels of so many vectors, as in small_kernel.h.
void add_blocks(const KernelSpec& spec, std::string_view math, int vectors, int lanes,
                std::vector<CpuObject>& objects) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool transposes = !b_is_row_major(s.layout);
  const auto add = [&](std::string_view source, bool transposed) {
    objects.push_back(small_function("small_block.h", "small_block",
                                     fmt::format("{}, {}, {}, {}", math, source, vectors,
                                                 device::small_rows(vectors, transposed, lanes)),
                                     "SmallTask"));
  };
  const std::string_view by_rows = words_in_memory(s.a) == 1 ? "PackedWords" : "RowWords";
  add(transposes ? "ColumnWords" : by_rows, transposes);
  if (keeps_panel(spec.algorithm)) add("PackedWords", false);
}

std::vector<CpuObject> small_objects(const KernelSpec& spec, const Target& target,
                                     std::string_view math) {
  const Algorithm& a = spec.algorithm;
  const SmallKind kind = small_kind(a, target);
  std::vector<CpuObject> objects = {small_driver(kind), small_workspace()};
  const int rows = a.warp_tile.m;
  if (kind == SmallKind::blocks) {
    const int lanes = target.vector_bytes / 4;
    for (int vectors = a.warp_tile.n / lanes; vectors > 0; --vectors) {
      add_blocks(spec, math, vectors, lanes, objects);
    }
  } else if (kind == SmallKind::dots) {
    for (const int count : {rows, 2}) {
      if (count == rows || rows == 3) {
        objects.push_back(small_function("small_dots.h", "small_dots",
                                         fmt::format("{}, {}, {}", math, count, a.warp_tile.n),
                                         "SmallDots"));
      }
    }
  } else {
    for (const std::string_view function : {"small_strip", "small_axpy"}) {
      objects.push_back(
          small_function("small_rows.h", function, fmt::format("{}", rows), "SmallRows"));
    }
  }
  if (std::get<GemmSignature>(spec.signature).a == DType::int8) {
    objects.push_back({.header = "row_starts.h",
                       .functions = {{"void", "row_starts", std::string(math),
                                      "const u8*, i64, i64, i64, int*"}}});
  }
  return objects;
}

}  // namespace

Source emit_small(const KernelSpec& spec, const Target& target) {
  const auto& signature = std::get<GemmSignature>(spec.signature);
  const std::string name = name_of(spec);
  const std::string_view math = tile::math_type(signature.a, words_in_memory(signature.a));
  std::string text = banner(spec, "cpu");
  text += fmt::format(
      "#include \"tessera/device/cpu/gemm/small_kernel.h\"\n"
      "\n"
      "namespace {{\n"
      "\n"
      "using namespace tessera::device;\n"
      "\n"
      "{}"
      "\n"
      "}}  // namespace\n"
      "\n"
      "extern \"C\" {{\n"
      "[[gnu::visibility(\"default\")]] extern const CpuKernel {};\n"
      "const CpuKernel {} = SmallKernel<Config>::kernel();\n"
      "}}\n",
      small_config(spec, target, math), name, name);
  Source source{.name = name,
                .extension = ".cc",
                .text = std::move(text),
                .headers = {},
                .abi = kAbi,
                .entries = entries_of(spec)};
  const std::vector<CpuObject> objects = small_objects(spec, target, math);
  tile::add_objects(objects, source);
  source.headers = headers_of(source.text + source.declarations);
  return source;
}

}  // namespace tessera::gemm
