// The gradients of attention: what kernels of every backend and the reference share.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// The one argument of every kernel of gradients. Plain C layout; a change here raises the family's
// ABI number (kAbi in src/tessera/families/fmha/fmha.h). Strides count elements.
struct FmhaBackwardArguments {
  FmhaArguments forward;  // out and lse are read
  const void* dout;
  void *dq, *dk, *dv, *dbias;
  i64 dout_stride[kTokenStrides], dq_stride[kTokenStrides];
  i64 dk_stride[kTokenStrides], dv_stride[kTokenStrides];
};

// Where lse of a query lies. `token` counts through packed sequences.
inline i64 offset_of_lse(const FmhaArguments& g, i64 batch, i64 head, i64 token) {
  return batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2];
}

// A score's gradient: `weight` is exp(score - lse), `kept` what dropout multiplies it with,
// `dweight` the product of dout and v, `delta` that of dout and out.
template <class T>
inline T score_gradient(T weight, T kept, T dweight, T delta) {
  return weight * (kept * dweight - delta);
}

// The slope of the soft cap where it gives `capped`.
template <class T, class Scalar>
inline T cap_gradient(T capped, Scalar soft_cap) {
  const T share = capped / soft_cap;
  return 1 - share * share;
}

// ---- the bias's gradient ----

// Sizes of dbias, {batch, head, query, key}: one index where all share the bias.
struct FmhaBiasSizes {
  i64 of[kTokenStrides];
};
inline FmhaBiasSizes sizes_of_dbias(const FmhaArguments& g) {
  FmhaBiasSizes sizes = {{g.batch, g.heads, g.seqlen_q, g.seqlen_k}};
  for (int i = 0; i < kTokenStrides; ++i) {
    if (g.bias_stride[i] == 0 && sizes.of[i] > 1) sizes.of[i] = 1;
  }
  return sizes;
}
inline i64 offset_of_dbias(const FmhaBiasSizes& sizes, i64 batch, i64 head, i64 query, i64 key) {
  return ((batch * sizes.of[1] + head) * sizes.of[2] + query) * sizes.of[3] + key;
}

}  // namespace tessera::device
