// Factors of numbers of 8 bits in the general kernel of attention: a lane has one key of a block.
#pragma once

#include "tessera/device/cuda/math.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// What a lane multiplies the products of its key by, and its weights before the values.
struct LaneFactors {
  float score, value;
};

// A lane behind the last key has the factors of that one; there is at least one key.
template <FmhaQscale kQscale, FmhaPages kPages, class In>
__device__ __forceinline__ LaneFactors lane_factors(const FmhaArguments& g, const FmhaSequence& s,
                                                    i64 batch, i64 head_kv, i64 key) {
  const float score = score_factor<kQscale, In>(g);
  if constexpr (scales_keys(kQscale)) {
    const i64 last = key < s.keys ? key : s.keys - 1;
    const i64 place = key_factor_place<kQscale, kPages>(g, s, batch, head_kv, last);
    return {score * g.descale_k[place], g.descale_v[place]};
  } else {
    return {score, 1};
  }
}

// What stands in place of the weight of a key that is masked. A factor may be negative, so that
// weights with factors need a mark of their own: they are finite or NaN.
template <FmhaQscale kQscale>
__device__ __forceinline__ float unseen() {
  return scales_keys(kQscale) ? minus_infinity() : -1.0F;
}
template <FmhaQscale kQscale>
__device__ __forceinline__ bool is_unseen(float weight) {
  return scales_keys(kQscale) ? weight == minus_infinity() : weight < 0;
}

}  // namespace tessera::device
