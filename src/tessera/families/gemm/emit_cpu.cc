// The text of a kernel for CPU targets.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/gemm/small_internal.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

// The storage type of a dtype in src/tessera/device/cpu/numeric.h.
std::string_view storage_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
    case DType::tf32:
      return "float";
    case DType::int32:
      return "int";
    default:
      return to_string(dtype);
  }
}

std::string config(const KernelSpec& spec, const GemmSignature& s, const CpuTypes& types,
                   const Target& target) {
  const Algorithm& a = spec.algorithm;
  const std::string steps = tile::epilogue_text(s.epilogue);
  std::string text = fmt::format(
      "struct Config {{\n"
      "  using A = {};\n"
      "  using B = {};\n"
      "  using Out = {};\n"
      "  using D = {};\n"
      "  using Math = {};\n",
      types.a, types.b, types.out, storage_type(s.d), types.math);
  text += fmt::format(
      "  static constexpr int kAbiVersion = {};\n"
      "  static constexpr int kVectorBytes = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {}, kWaveK = {};  // 0: the caller's limit\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {};\n",
      kAbi, target.vector_bytes, a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.wave.k,
      a.warp_tile.m, a.warp_tile.n);
  text += fmt::format(
      "  static constexpr bool kAKContiguous = {}, kBKContiguous = {};\n"
      "  static constexpr bool kPackA = {}, kPackB = {}, kPreshuffled = {};\n"
      "  static constexpr int kNumSteps = {}, kNumD = {};\n",
      yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)),
      yes_no(packs_a(a.pipeline)), yes_no(packs_b(a.pipeline)), yes_no(s.preshuffled_b),
      num_ops(s.epilogue), int{s.epilogue.num_d});
  if (!steps.empty()) text += fmt::format("  static constexpr Step kSteps[] = {{{}}};\n", steps);
  return text + "};\n";
}

// The template of a pipeline: the beginning of its header's name, and of its own.
struct CpuTemplate {
  std::string_view file, name;
};
CpuTemplate cpu_template(Pipeline pipeline) {
  if (pipeline == Pipeline::stream) return {"stream", "Stream"};
  if (pipeline == Pipeline::amx) return {"tile", "Tile"};
  return {"packed", "Packed"};
}

std::string_view math_type(const GemmSignature& s, const Algorithm& a) {
  if (biased_side(s.a, a) == BiasedSide::b) return "MathVnniB";
  return tile::math_type(s.a, a.warp_tile.k);
}

}  // namespace

Source emit_cpu(const KernelSpec& spec, const Target& target) {
  if (spec.algorithm.pipeline == Pipeline::small) return emit_small(spec, target);
  const auto& signature = std::get<GemmSignature>(spec.signature);
  const std::string name = name_of(spec);
  const CpuTemplate kernel = cpu_template(spec.algorithm.pipeline);
  const CpuTypes types{.a = storage_type(signature.a),
                       .b = storage_type(signature.b),
                       .out = storage_type(signature.out),
                       .math = math_type(signature, spec.algorithm)};
  std::string text = banner(spec, "cpu");
  text += fmt::format(
      "#include \"tessera/device/cpu/gemm/{}_kernel.h\"\n"
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
      "const CpuKernel {} = {}Kernel<Config>::kernel();\n"
      "}}\n",
      kernel.file, config(spec, signature, types, target), name, name, kernel.name);
  Source source{.name = name,
                .extension = ".cc",
                .text = std::move(text),
                .headers = {},
                .abi = kAbi,
                .entries = entries_of(spec)};
  add_cpu_objects(spec, types, target.vector_bytes, source);
  source.headers = headers_of(source.text + source.declarations);
  return source;
}

}  // namespace tessera::gemm
