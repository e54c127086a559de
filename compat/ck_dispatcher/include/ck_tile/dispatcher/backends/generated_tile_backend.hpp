// The backend of this folder: Tessera's kernels, under the name of the original's.
#pragma once

#include <string>

#include "ck_tile/dispatcher/backends/tessera_gemm.hpp"
#include "ck_tile/dispatcher/backends/tessera_gemm_sets.hpp"

namespace ck_tile::dispatcher {

namespace backends {

// The kernel of a key. Types: those of a kernel of CK's, which is not run; the key says what runs.
template <class... Types>
KernelInstancePtr create_generated_tile_kernel(const KernelKey& key, const std::string& name) {
  detail::changes_nothing("Types", sizeof...(Types) > 0,
                          "the kernel of create_generated_tile_kernel() is Tessera's for the key");
  return gemm_kernel_of(key, name);
}

}  // namespace backends

using backends::create_generated_tile_kernel;

}  // namespace ck_tile::dispatcher
