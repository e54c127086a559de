// Which of the two ways of storing a kernel uses, see tma_store.h.
// src/tessera/families/tile/tmaws.cc has the same rules for the host.
#pragma once

#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// Whether the copy engine can write the output: it writes rows in pieces of 16 bytes, and batches
// at equal distances.
template <class Out, class Arguments>
__device__ __forceinline__ bool tma_writes(const Arguments& g) {
  if (g.pointer_arrays != 0) return false;
  const u64 elements = columns_of(g) | g.ld_out | (g.batch > 1 ? g.batch_stride_out : 0);
  return ((reinterpret_cast<u64>(g.out) | elements * sizeof(Out)) & 15) == 0;
}

// Whether the epilogue is computed where the accumulators are, with separate code for every
// accumulator. The steps may read at most a bias and matrices that have the output's shape. All but
// the cheapest steps also need enough registers besides the accumulators.
template <class C>
constexpr bool finishes_in_place(int accumulators) {
  constexpr int kWithRoom = 160;
  constexpr DRoles kRoles = d_roles<C>();
  if constexpr (C::kNumSteps > 0) {
    for (const Step step : C::kSteps) {
      const bool cheap = step == Step::relu || step == Step::clamp;
      if (!cheap && accumulators > kWithRoom) return false;
    }
  }
  return !kRoles.others && (kRoles.matrices == 0 || sizeof(typename C::D) == 2);
}

// Whether the copy engine may store the output.
template <class C>
constexpr bool may_copy_out(int accumulators) {
  if (sizeof(typename C::Out) != 2 || C::kDirectStore) return false;
  return C::kSwapAb ? C::kNumSteps == 0 : finishes_in_place<C>(accumulators);
}

// How many D tensors the copy engine brings to the store area. A consumer has barriers for them.
template <class C>
constexpr int copied_matrices(int accumulators) {
  return may_copy_out<C>(accumulators) ? d_roles<C>().matrices : 0;
}

// Whether, in all batches, the copy engine can read these D tensors and pairs of the bias are
// aligned to words.
template <class C, class Arguments>
__device__ __forceinline__ bool tma_reads_d(const Arguments& g) {
  constexpr DRoles kRoles = d_roles<C>();
  constexpr u64 kSize = sizeof(typename C::D);
  const auto bits = [&g](int index, i64 ld) {
    const u64 elements = ld | (g.batch > 1 ? g.batch_stride_d[index] : 0);
    return reinterpret_cast<u64>(g.d[index]) | elements * kSize;
  };
  u64 all = 0;
#pragma unroll
  for (int i = 0; i < kRoles.matrices; ++i) all |= bits(kRoles.matrix[i], g.ld_d[kRoles.matrix[i]]);
  const u64 bias = kRoles.bias < 0 ? 0 : bits(kRoles.bias < 0 ? 0 : kRoles.bias, 0);
  return (all & 15) == 0 && bias % (2 * kSize) == 0;
}

}  // namespace tessera::device
