// The text of a kernel for HIP targets.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

// The storage type of an operand in src/tessera/device/hip/types.h. Outputs of tf32 kernels are
// fp32.
std::string_view hip_operand(DType dtype) {
  if (dtype == DType::fp32) return "float";
  if (dtype == DType::int32) return "int";
  return to_string(dtype);
}
std::string_view hip_output(DType dtype) {
  return hip_operand(dtype == DType::tf32 ? DType::fp32 : dtype);
}

std::string hip_types(const GemmSignature& s) {
  return fmt::format(
      "  using A = {};\n"
      "  using B = {};\n"
      "  using Acc = {};\n"
      "  using Out = {};\n"
      "  using D = {};\n",
      hip_operand(s.a), hip_operand(s.b), hip_operand(s.acc), hip_output(s.out), hip_output(s.d));
}

std::string hip_shapes(const Algorithm& a) {
  const tile::MfmaTiles tiles = tile::mfma_tiles(a);
  return fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {};\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {}, kWarpTileK = {};\n"
      "  static constexpr int kBuffers = {}, kPrefetch = {};\n"
      "  static constexpr bool kDirectToLds = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n, a.warp_tile.k,
      tiles.buffers, tiles.prefetch, yes_no(a.pipeline == Pipeline::async));
}

std::string hip_flags(const GemmSignature& s, const Algorithm& a, const Target& target) {
  return fmt::format(
      "  static constexpr int kSlices = {};\n"
      "  static constexpr bool kAtomicSplit = {}, kPersistent = {};\n"
      "  static constexpr bool kAKContiguous = {}, kBKContiguous = {}, kPreshuffled = {};\n"
      "  static constexpr int kXcds = {};\n",
      a.slices, yes_no(a.split_k == SplitK::atomic), yes_no(a.persistent),
      yes_no(a_is_row_major(s.layout)), yes_no(!b_is_row_major(s.layout)), yes_no(s.preshuffled_b),
      target.xcds);
}

std::string hip_config(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  std::string text = "struct Config {\n" + hip_types(s) + hip_shapes(spec.algorithm) +
                     hip_flags(s, spec.algorithm, target);
  text += fmt::format("  static constexpr int kNumSteps = {}, kNumD = {};\n", num_ops(s.epilogue),
                      int{s.epilogue.num_d});
  const std::string steps = tile::epilogue_text(s.epilogue);
  if (!steps.empty()) text += fmt::format("  static constexpr Step kSteps[] = {{{}}};\n", steps);
  return text + "};\n";
}

// The entry that packs a preshuffled B. Its second parameter is the packed B's address.
std::string hip_pack_text(const std::string& name) {
  return fmt::format(
      "__attribute__((global, amdgpu_flat_work_group_size(HipPackedB<Config>::kThreads,\n"
      "                                                   HipPackedB<Config>::kThreads)))\n"
      "void {}_pack(HipGemmArguments arguments, void* packed) {{\n"
      "  HipPackedB<Config>::pack(arguments, packed);\n"
      "}}\n",
      name);
}

}  // namespace

Source emit_hip(const KernelSpec& spec, const Target& target) {
  const std::string name = name_of(spec);
  const bool is_general = spec.algorithm.pipeline == Pipeline::direct;
  std::string text = banner(spec, "hip");
  text += fmt::format("#include \"tessera/device/hip/gemm/{}\"\n\n",
                      is_general ? "general_gemm.h" : "mfma_gemm.h");
  text += fmt::format(
      "using namespace tessera::device;\n"
      "\n"
      "{0}"
      "\n"
      "using Kernel = {1}<Config>;\n"
      "\n"
      "extern \"C\" {{\n"
      "__attribute__((device, used)) extern const int {2}_abi =\n"
      "    {3};\n"
      "__attribute__((global, amdgpu_flat_work_group_size(Kernel::kThreads, Kernel::kThreads),\n"
      "               amdgpu_waves_per_eu(Kernel::kMinWaves, Kernel::kMaxWaves)))\n"
      "void {2}(\n"
      "    HipGemmArguments arguments) {{\n"
      "  Kernel::run(arguments);\n"
      "}}\n",
      hip_config(spec, target), is_general ? "GeneralGemm" : "MfmaGemm", name, kAbi);
  if (std::get<GemmSignature>(spec.signature).preshuffled_b) text += hip_pack_text(name);
  text += "}\n";
  const std::shared_ptr<const Headers> headers = headers_of(text);
  return {.name = name,
          .extension = ".hip",
          .text = std::move(text),
          .headers = headers,
          .abi = kAbi,
          .entries = entries_of(spec)};
}

}  // namespace tessera::gemm
