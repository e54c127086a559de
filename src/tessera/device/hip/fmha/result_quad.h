// Four results of a row that are neighbours, rounded to any type; results of 8 bits have a factor.
#pragma once

#include "tessera/device/hip/eight_bits.h"
#include "tessera/device/hip/fmha/mfma_arguments.h"

namespace tessera::device {

template <class C>
__device__ __forceinline__ Quad<typename C::Out> result_quad(const FmhaArguments& g, Float4 x) {
  using Out = typename C::Out;
  if constexpr (sizeof(Out) != 1) {
    return round_quad<Out>(x);
  } else {
    if constexpr (C::kQscale != FmhaQscale::none) x *= *g.scale_o;
    Quad<Out> quad = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) quad[0] |= u32{bits<u8>(rounded<Out>(x[i]))} << i * 8;
    return quad;
  }
}

// The sums of a lane's row times `share`, of which so many elements exist from `to` on. Sums lie as
// Mfma leaves them.
template <class C, int kBlocks>
__device__ __forceinline__ void store_quads(typename C::Out* to,
                                            const Vec<float, 16> (&sums)[kBlocks], float share,
                                            int elements) {
  using Out = typename C::Out;
  const FmhaArguments& g = fresh_arguments<MfmaFmhaArguments>().fmha;
#pragma unroll
  for (int i = 0; i < kBlocks * 4; ++i) {
    const Vec<float, 16>& all = sums[i / 4];
    const int s = i % 4 * 4;
    const Float4 quad = {all[s], all[s + 1], all[s + 2], all[s + 3]};
    if (i * 8 >= elements) return;
    *(__attribute__((address_space(1))) Quad<Out>*)bits<u64>(to + i * 8) =
        result_quad<C>(g, quad * share);
  }
}

}  // namespace tessera::device
