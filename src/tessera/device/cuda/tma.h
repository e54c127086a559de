// The instructions of the copy engine (TMA), one function each. The copy engine moves boxes of
// tensors that a map describes, and runs of bytes.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// Hints how long L2 should keep loaded data.
constexpr u64 kEvictNormal = 0x1000000000000000;
constexpr u64 kEvictFirst = 0x12F0000000000000;
constexpr u64 kEvictLast = 0x14F0000000000000;

// A box by its first element, innermost coordinate first. Tensors have 3 to 5 dimensions.
template <int kRank>
struct TmaBox {
  static_assert(kRank >= 3 && kRank <= 5, "boxes have 3 to 5 dimensions");
  const CudaTensorMap* map;
  int at[kRank];
};

// The destination of a load: the same address in every block of the mask, each with its own
// barrier.
struct TmaTarget {
  u32 to, barrier;
  u16 mask;
  u64 policy;
};

__device__ __forceinline__ void tma_prefetch(const CudaTensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
template <bool kMulticast, int kRank>
__device__ __forceinline__ void tma_load(const TmaTarget& t, const TmaBox<kRank>& box) {
  if constexpr (kRank == 3 && kMulticast) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(t.barrier), "h"(t.mask),
        "l"(t.policy)
        : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(t.barrier), "l"(t.policy)
        : "memory");
  } else if constexpr (kRank == 4 && kMulticast) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7, %8;" ::"r"(
            t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]),
        "r"(t.barrier), "h"(t.mask), "l"(t.policy)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]),
        "r"(t.barrier), "l"(t.policy)
        : "memory");
  } else if constexpr (kRank == 5 && kMulticast) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;" ::"r"(
            t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]),
        "r"(box.at[4]), "r"(t.barrier), "h"(t.mask), "l"(t.policy)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(t.to),
        "l"(box.map), "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]),
        "r"(box.at[4]), "r"(t.barrier), "l"(t.policy)
        : "memory");
  }
}
// Loads a run of `bytes` bytes, a multiple of 16.
template <bool kMulticast>
__device__ __forceinline__ void bulk_load(const TmaTarget& t, const void* from, u32 bytes) {
  if constexpr (kMulticast) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(t.to),
        "l"(from), "r"(bytes), "r"(t.barrier), "h"(t.mask), "l"(t.policy)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(t.to),
        "l"(from), "r"(bytes), "r"(t.barrier), "l"(t.policy)
        : "memory");
  }
}
// Loads a box into L2 only.
template <int kRank>
__device__ __forceinline__ void tma_fetch(const TmaBox<kRank>& box) {
  if constexpr (kRank == 3) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(box.map),
                 "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2])
                 : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(box.map),
        "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];" ::"l"(box.map),
        "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "r"(box.at[4])
        : "memory");
  }
}
template <int kRank>
__device__ __forceinline__ void tma_store(const TmaBox<kRank>& box, u32 from) {
  if constexpr (kRank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
            box.map),
        "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(from)
        : "memory");
  } else if constexpr (kRank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            box.map),
        "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "r"(from)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::
            "l"(box.map),
        "r"(box.at[0]), "r"(box.at[1]), "r"(box.at[2]), "r"(box.at[3]), "r"(box.at[4]), "r"(from)
        : "memory");
  }
}
__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last `kPending` groups have left shared memory.
template <int kPending>
__device__ __forceinline__ void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void stores_wait_all() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Makes this thread's ordinary stores to shared memory visible to the copy engine.
__device__ __forceinline__ void copy_engine_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace tessera::device
