// See ../../dispatcher.hpp.
#pragma once
#include "ck_tile/core.hpp"
#include "ck_tile/dispatcher.hpp"
#include "ck_tile/host.hpp"
#include "ck_tile/ops/gemm.hpp"

namespace ck_tile::dispatcher::backends {

// Instantiates what the dispatcher reads of a kernel, and its launch of a plain product.
template <class Kernel, class A, class B, class C, class Acc>
std::shared_ptr<KernelInstance> create_generated_tile_kernel(const KernelKey& key,
                                                             const std::string& name) {
  static_assert(Kernel::TileM > 0 && Kernel::WarpPerBlock_M > 0 && Kernel::WarpTileM > 0);
  static_assert(Kernel::BlockSize > 0 && Kernel::kPadM && Kernel::kPadN && Kernel::kPadK);
  static_assert(sizeof(A) > 0 && sizeof(B) > 0 && sizeof(C) > 0 && sizeof(Acc) > 0);
  const auto launch = [](const GemmHostArgs& arguments, const stream_config& stream) {
    return Kernel::launch(arguments, stream);
  };
  (void)launch;
  return std::make_shared<KernelInstance>(KernelInstance{key, name});
}

}  // namespace ck_tile::dispatcher::backends
