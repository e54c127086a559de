// silu_mul, gelu_mul, gelu_tanh_mul and copy of the runs of a row on an AMD GPU: a function of the
// gates times what they stand beside, or what was read.
#pragma once

#include "tessera/device/hip/math.h"
#include "tessera/device/hip/norm/row_part.h"
#pragma clang force_cuda_host_device begin
#include "tessera/device/norm.h"
#pragma clang force_cuda_host_device end

namespace tessera::device {

template <class C, class Part, int kVectors, int kVector>
struct ElementwiseRuns {
  using In = typename C::In;

  static __device__ __forceinline__ float gated(float gate, float up) {
    if constexpr (C::kKind == NormKind::silu_mul) {
      return silu(gate) * up;
    } else if constexpr (C::kKind == NormKind::gelu_mul) {
      return gelu(gate) * up;
    } else {
      return gelu_tanh(gate) * up;
    }
  }

  // row: its first element. The part's place is set; its columns become the results, and 0 behind
  // the last one.
  static __device__ __forceinline__ void read(const NormArguments& g, Global<In> row, Part& part) {
    if constexpr (!is_gated(C::kKind)) {
      read_copies(g, row + part.begin, part);
    } else if constexpr (C::kInterleaved) {
      read_pairs(g, row + 2 * part.begin, part);
    } else {
      read_halves(g, row + part.begin, part);
    }
    part.pad(0);
  }
  static __device__ __forceinline__ void read_copies(const NormArguments& g, Global<In> from,
                                                     Part& part) {
    Neighbours<In, kVector> runs[kVectors];
    part.template load<In>(from, g.is_aligned != 0, runs);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) part.x[v][i] = runs[v].at(i);
    }
  }
  static __device__ __forceinline__ void read_halves(const NormArguments& g, Global<In> gates,
                                                     Part& part) {
    const bool aligned = g.is_aligned != 0;
    Neighbours<In, kVector> gate[kVectors], up[kVectors];
    part.template load<In>(gates, aligned, gate);
    part.template load<In>(gates + g.columns, aligned && g.columns % kVector == 0, up);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) part.x[v][i] = gated(gate[v].at(i), up[v].at(i));
    }
  }
  static __device__ __forceinline__ void read_pairs(const NormArguments& g, Global<In> pairs,
                                                    Part& part) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto run = load_neighbours<2 * kVector, In>(pairs, 2 * not_ahead(part.offset(v)),
                                                        2 * part.width, g.is_aligned != 0);
#pragma unroll
      for (int i = 0; i < kVector; ++i) part.x[v][i] = gated(run.at(2 * i), run.at(2 * i + 1));
    }
  }
};

}  // namespace tessera::device
