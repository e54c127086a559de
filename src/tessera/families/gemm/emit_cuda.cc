// The text of a kernel for CUDA targets.
#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/headers.h"

namespace tessera::gemm {
namespace {

// The storage type of an operand in src/tessera/device/cuda/types.h. Outputs of tf32 kernels are
// fp32.
std::string_view operand_type(DType dtype) {
  if (dtype == DType::fp32) return "float";
  if (dtype == DType::int32) return "int";
  return to_string(dtype);
}
std::string_view output_type(DType dtype) {
  return operand_type(dtype == DType::tf32 ? DType::fp32 : dtype);
}

std::string types(const GemmSignature& s) {
  return fmt::format(
      "  using A = {};\n"
      "  using B = {};\n"
      "  using Acc = {};\n"
      "  using Out = {};\n"
      "  using D = {};\n",
      operand_type(s.a), operand_type(s.b), operand_type(s.acc), output_type(s.out),
      output_type(s.d));
}

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

std::string flags(const GemmSignature& s, const Algorithm& a) {
  const bool tmaws = a.pipeline == Pipeline::tmaws;
  const bool transpose_a = tmaws && tmaws_a(s, a).transposed;
  const bool transpose_b = tmaws && tmaws_b(s, a).transposed;
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

std::string tile_text(const GemmSignature& s, const Algorithm& a) {
  return shapes(a) + flags(s, a) +
         fmt::format("  static constexpr int kSharedBytes = {};\n", shared_memory(s, a).all);
}

std::string stream_text(const Algorithm& a) {
  return fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveN = {}, kWaveK = {};\n"
      "  static constexpr int kWarpTileN = {}, kWarpTileK = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.n, a.wave.k, a.warp_tile.n, a.warp_tile.k);
}

std::string config_text(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  std::string text = "struct Config {\n" + types(s);
  text += a.pipeline == Pipeline::stream ? stream_text(a) : tile_text(s, a);
  text += fmt::format("  static constexpr int kNumSteps = {}, kNumD = {};\n", num_ops(s.epilogue),
                      int{s.epilogue.num_d});
  const std::string steps = tile::epilogue_text(s.epilogue);
  if (!steps.empty()) text += fmt::format("  static constexpr Step kSteps[] = {{{}}};\n", steps);
  return text + "};\n";
}

// Which template of src/tessera/device/cuda/gemm/ a kernel comes from.
struct Template {
  std::string_view header;
  std::string_view name;
};
Template template_of(const KernelSpec& spec) {
  if (spec.algorithm.pipeline == Pipeline::tmaws) return {"tma_gemm.h", "TmaGemm"};
  if (spec.algorithm.pipeline == Pipeline::stream) return {"stream_gemm.h", "StreamGemm"};
  if (std::get<GemmSignature>(spec.signature).a == DType::fp32) return {"fma_gemm.h", "FmaGemm"};
  return {"mma_gemm.h", "MmaGemm"};
}

}  // namespace

Source emit_cuda(const KernelSpec& spec, const Target&) {
  const std::string name = name_of(spec);
  const Template from = template_of(spec);
  std::string text = banner(spec, "cuda");
  text += fmt::format("#include \"tessera/device/cuda/gemm/{}\"\n\n", from.header);
  const bool tmaws = spec.algorithm.pipeline == Pipeline::tmaws;
  if (tmaws) text += wgmma_text(spec) + "\n";
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
      "    const __grid_constant__ CudaGemmArguments arguments) {{\n"
      "  Kernel::run(arguments);\n"
      "}}\n",
      config_text(spec), from.name, name, kAbi);
  if (std::get<GemmSignature>(spec.signature).preshuffled_b) text += pack_kernel_text(spec);
  if (tmaws && tmaws_prepares(spec.algorithm)) text += prepare_kernel_text(spec);
  text += "}\n";
  const std::shared_ptr<const Headers> headers = headers_of(text);
  return {.name = name,
          .extension = ".cu",
          .text = std::move(text),
          .headers = headers,
          .abi = kAbi,
          .entries = entries_of(spec)};
}

}  // namespace tessera::gemm
