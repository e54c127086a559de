// silu_mul, gelu_mul, gelu_tanh_mul and copy: a function of the gates times what they stand beside,
// or what was read. The tiles of a row have blocks of their own, unless all of the row shares a
// scale that is written.
#pragma once

#include "tessera/device/cuda/norm/held_rows.h"

namespace tessera::device {

template <class C, class Math, int kWidth>
struct ElementwiseRows {
  using H = HeldRows<C, Math, kWidth>;
  using In = typename C::In;
  using Out = typename C::Out;
  using Place = typename H::Place;
  using Run = Neighbours<In, kWidth>;
  static constexpr int kRuns = H::kRuns;
  // So many runs of a thread are asked for before the first one is used.
  static constexpr int kAtOnce = kWidth == 1 ? 8 : 2;

  static __device__ __forceinline__ float gated(float gate, float up) {
    if constexpr (C::kKind == NormKind::silu_mul) return silu(gate) * up;
    if constexpr (C::kKind == NormKind::gelu_mul) return gelu(gate) * up;
    return gelu_tanh(gate) * up;
  }

  // A run of gates and one of what they multiply, or with kInterleaved two runs of pairs.
  struct Pair {
    Run first, second;
    __device__ __forceinline__ float of(int i) const {
      if constexpr (C::kInterleaved) {
        if constexpr (kWidth == 1) {
          return gated(to_float(first.x[0]), to_float(second.x[0]));
        } else {
          const Run& from = 2 * i < kWidth ? first : second;
          return gated(to_float(from.x[2 * i % kWidth]), to_float(from.x[2 * i % kWidth + 1]));
        }
      } else {
        return gated(to_float(first.x[i]), to_float(second.x[i]));
      }
    }
  };
  static __device__ __forceinline__ Pair pair_at(const In* row, i64 columns, int column) {
    const In* const from = row + i64{C::kInterleaved ? 2 : 1} * column;
    const i64 distance = C::kInterleaved ? kWidth : columns;
    return {load_run<kWidth>(from, true, kWidth), load_run<kWidth>(from + distance, true, kWidth)};
  }

  static __device__ __forceinline__ void read_gated(const NormArguments& g, const Place& p,
                                                    float (&x)[kRuns][kWidth]) {
    const In* const row = static_cast<const In*>(g.in) + p.row * g.ld_in;
#pragma unroll
    for (int begin = 0; begin < kRuns; begin += kAtOnce) {
      Pair pairs[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce && begin + i < kRuns; ++i) {
        if (p.has(begin + i)) {
          pairs[i] = pair_at(row, g.columns, p.first + Place::offset(begin + i));
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce && begin + i < kRuns; ++i) {
#pragma unroll
        for (int n = 0; n < kWidth; ++n) {
          x[begin + i][n] = p.has(begin + i) ? pairs[i].of(n) : 0.0F;
        }
      }
    }
  }

  static __device__ __forceinline__ void run(const NormArguments& g) {
    const Place p = H::place_of(g);
    float x[kRuns][kWidth];
    if constexpr (is_gated(C::kKind)) {
      read_gated(g, p, x);
    } else {
      H::read(g, p, x);
    }
    Out* const out = H::template at<Out>(g.out, p, g.ld_out);
    if constexpr (H::kQuantised) {
      QuantisedRows<C, H, kWidth>::write(g, p, out, x);
    } else {
#pragma unroll
      for (int v = 0; v < kRuns; ++v) {
        if (p.has(v)) H::store(out + Place::offset(v), x[v]);
      }
    }
    // A block's shared memory must last until the others have read it.
    if constexpr (C::kSplits > 1) cluster_sync();
  }
};

}  // namespace tessera::device
