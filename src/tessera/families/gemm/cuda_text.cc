// The text around the configuration of a kernel for CUDA targets.
#include <fmt/format.h>

#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

std::string shapes(const Algorithm& a) {
  return fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {};\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {}, kWarpTileK = {};\n"
      "  static constexpr int kStages = {}, kClusterM = {}, kClusterN = {};\n"
      "  static constexpr int kSplits = {}, kSlices = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n, a.warp_tile.k,
      a.stages, a.cluster_m, a.cluster_n, a.splits, a.slices);
}

std::string flags(const GemmSignature& s, const Algorithm& a, bool transpose_a, bool transpose_b) {
  return fmt::format(
      "  static constexpr bool kPingpong = {}, kSwapAb = {}, kDirectStore = {};\n"
      "  static constexpr bool kAtomicSplit = {}, kPersistent = {}, kStreamK = {};\n"
      "  static constexpr bool kAKContiguous = {}, kBKContiguous = {}, kPreshuffled = {};\n"
      "  static constexpr bool kTransposeA = {}, kTransposeB = {};\n",
      yes_no(a.scheduler == Scheduler::pingpong), yes_no(a.swap_ab),
      yes_no(a.store == Store::direct), yes_no(a.split_k == SplitK::atomic), yes_no(a.persistent),
      yes_no(a.streamk), yes_no(a_is_row_major(s.layout) || transpose_a),
      yes_no(!b_is_row_major(s.layout) || transpose_b), yes_no(s.preshuffled_b),
      yes_no(transpose_a), yes_no(transpose_b));
}

}  // namespace

std::string cuda_tile_text(const KernelSpec& spec, bool transpose_a, bool transpose_b) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  return shapes(a) + flags(s, a, transpose_a, transpose_b) +
         fmt::format("  static constexpr int kSharedBytes = {};\n", shared_memory(s, a).all) +
         scale_fields(s);
}

Source cuda_source(const KernelSpec& spec, const CudaTemplate& from, const std::string& shapes,
                   const std::string& before, const std::string& more_kernels) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const std::string name = name_of(spec);
  std::string text = banner(spec, "cuda");
  text += fmt::format("#include \"tessera/device/cuda/gemm/{}\"\n\n{}", from.header, before);
  text += fmt::format(
      "using namespace tessera::device;\n"
      "\n"
      "{0}"
      "\n"
      "using Kernel = {1}<Config>;\n"
      "\n"
      "extern \"C\" {{\n"
      "__device__ extern const int {2}_abi =\n"
      "    {3};\n"
      "__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kMinBlocks)\n"
      "{2}(\n"
      "    const __grid_constant__ {4} arguments) {{\n"
      "  Kernel::run(arguments);\n"
      "}}\n",
      "struct Config {\n" + gpu_types_text(s) + shapes + tile::epilogue_fields(s.epilogue) + "};\n",
      from.name, name, kAbi, has_scales(s) ? scaled_arguments_name(s) : from.arguments);
  text += more_kernels + "}\n";
  return gpu_source(spec, std::move(text), ".cu", from.prepares);
}

}  // namespace tessera::gemm
