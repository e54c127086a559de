// Kernels for groups of unequal sizes: the dense ones, whose workgroups find their tiles by
// grouped_walk.h and compute each as a tile of the dense product of its group.
//
// Config has kGrouping in addition to what mfma_gemm.h describes.
#pragma once

#include "tessera/device/hip/gemm/general_gemm.h"
#include "tessera/device/hip/gemm/grouped_check.h"
#include "tessera/device/hip/gemm/grouped_walk.h"
#include "tessera/device/hip/gemm/mfma_gemm.h"

namespace tessera::device {

template <class T>
__device__ __forceinline__ const void* moved_by(const void* pointer, i64 elements) {
  const u64 bytes = static_cast<u64>(elements) * sizeof(T);
  return reinterpret_cast<const void*>(uniform(bits<u64>(pointer) + bytes));
}

// Lists: the matrix of a group, which the kernel may not need, and the distance of its rows.
__device__ __forceinline__ const void* listed_matrix(const void* pointers, i64 group) {
  if (pointers == nullptr) return nullptr;
  const u64 address = bits<u64>(static_cast<const void* const*>(pointers)[group]);
  return reinterpret_cast<const void*>(uniform(address));
}
__device__ __forceinline__ i64 listed_ld(const int* lds, i64 group, i64 ld) {
  return lds == nullptr ? ld : group_number(lds, group);
}
template <class C>
__device__ __forceinline__ GemmArguments listed_product(const GroupArguments& x, i64 group) {
  const GemmArguments& all = x.gemm;
  GemmArguments g = all;
  g.m = clamped(group_number(x.sizes[0], group), 0, all.m);
  g.n = clamped(group_number(x.sizes[1], group), 0, all.n);
  g.k = clamped(group_number(x.sizes[2], group), 0, all.k);
  g.a = listed_matrix(all.a, group);
  g.b = listed_matrix(all.b, group);
  g.c = listed_matrix(all.c, group);
  g.out = const_cast<void*>(listed_matrix(all.out, group));
  g.ld_a = listed_ld(x.lds[0], group, all.ld_a);
  g.ld_b = listed_ld(x.lds[1], group, all.ld_b);
  g.ld_c = listed_ld(x.lds[2], group, all.ld_c);
  g.ld_out = listed_ld(x.lds[3], group, all.ld_out);
#pragma unroll
  for (int i = 0; i < C::kNumD; ++i) {
    g.d[i] = listed_matrix(all.d[i], group);
    g.ld_d[i] = listed_ld(x.lds[4 + i], group, all.ld_d[i]);
  }
  g.batch_stride_a = g.batch_stride_b = g.batch_stride_c = g.batch_stride_out = 0;
  return g;
}

// The arguments of a part as one product: its matrices as operands, its size as m or k.
template <class C>
__device__ __forceinline__ GemmArguments grouped_product(const GroupArguments& x,
                                                         const GroupPart& part) {
  if constexpr (C::kGrouping == Grouping::lists) return listed_product<C>(x, part.group);
  const GemmArguments& all = x.gemm;
  GemmArguments g = all;
  (C::kGrouping == Grouping::along_k ? g.k : g.m) = part.size;
  const auto at = [&](i64 stride, i64 step) __attribute__((always_inline)) {
    return part.group * stride + part.begin * step;
  };
  g.a = moved_by<typename C::A>(all.a, at(all.batch_stride_a, x.step_a));
  g.b = moved_by<typename C::B>(all.b, at(all.batch_stride_b, x.step_b));
  g.c = moved_by<typename C::Out>(all.c, at(all.batch_stride_c, x.step_c));
#pragma unroll
  for (int i = 0; i < C::kNumD; ++i) {
    g.d[i] = moved_by<typename C::D>(all.d[i], at(all.batch_stride_d[i], x.step_d[i]));
  }
  g.out =
      const_cast<void*>(moved_by<typename C::Out>(all.out, at(all.batch_stride_out, x.step_out)));
  g.pointer_arrays = 0;
  return g;
}

// Whether the entry `_check` found a number that does not fit.
__device__ __forceinline__ bool has_bad_group(const GroupArguments& x) {
  return x.bad_group != nullptr && group_number(x.bad_group, 0) != 0;
}

template <class C>
struct HipGroups {
  static constexpr bool kAny = true;
  using Arguments = HipGroupedArguments;
  using Part = GroupPart;
  using Tile = GroupedTile;
  using Walk = GroupedWalk<C>;
  static __device__ __forceinline__ bool refused() {
    return has_bad_group(fresh_arguments<HipGroupedArguments>().groups);
  }
  static __device__ __forceinline__ GemmArguments product(const GroupPart& part) {
    return grouped_product<C>(fresh_arguments<HipGroupedArguments>().groups, part);
  }
};

template <class C>
using GroupedGeneralGemm = GeneralGemm<C, HipGroups<C>>;
template <class C>
using GroupedMfmaGemm = MfmaGemm<C, GemmOperands<C>, HipGroups<C>>;

}  // namespace tessera::device
