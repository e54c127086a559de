// The parts of the text that only tmaws kernels have: one wgmma instruction, and the entries that
// pack B and prepare operands.
#include <fmt/format.h>

#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/families/tile/wgmma.h"

namespace tessera::gemm {

std::string wgmma_text(const KernelSpec& spec) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const TmawsOperand p = a.swap_ab ? tmaws_b(s, a) : tmaws_a(s, a);
  const TmawsOperand q = a.swap_ab ? tmaws_a(s, a) : tmaws_b(s, a);
  const auto from = [](const TmawsOperand& o) {
    return o.k_contiguous ? tile::WgmmaFrom::k_lines : tile::WgmmaFrom::row_lines;
  };
  const tile::Wgmma instruction{p.dtype, q.dtype, a.tile.n, from(p), from(q)};
  return tile::wgmma_text(std::span(&instruction, 1));
}

std::string pack_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(PackedB<Config>::kThreads)\n"
      "{}_pack(const __grid_constant__ CudaGemmArguments arguments, void* packed) {{\n"
      "  PackedB<Config>::pack(arguments, packed);\n"
      "}}\n",
      name_of(spec));
}

std::string prepare_kernel_text(const KernelSpec& spec) {
  return fmt::format(
      "__global__ void __launch_bounds__(TmaPrepare<Config>::kThreads, "
      "TmaPrepare<Config>::kMinBlocks)\n"
      "{}_prepare(const __grid_constant__ CudaGemmArguments arguments) {{\n"
      "  TmaPrepare<Config>::run(arguments);\n"
      "}}\n",
      name_of(spec));
}

}  // namespace tessera::gemm
