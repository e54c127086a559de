// For a K that is split over the blocks of a cluster: the blocks add up their sums through each
// other's shared memory.
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

// The sums of a thread: kBlocks rows of accumulators for kColumns columns. Every block sends its
// partial sums to their owners. Each owner adds up a part of the columns, in the order of the ranks
// that follow its own. kVectorBytes is the size of 4 accumulators of all threads.
template <class Acc, int kBlocks, int kColumns, int kOwners, int kSplits, int kVectorBytes>
struct ClusterSums {
  static constexpr int kOwn = kColumns / kOwners / 2;
  static constexpr int kVectors = kOwn / 4;
  static constexpr int kOwnVectors = kBlocks * kVectors;
  static constexpr u32 kSource = kOwnVectors * kVectorBytes;  // bytes from one block

  u32 mine;  // the address at which this thread's first vector from the first other block arrives
  u32 arrived;  // the barrier that counts their bytes
  int split;    // this block's rank

  // True for owners; `own` then holds the sums.
  __device__ __forceinline__ bool add(const Acc (&sums)[kBlocks][kColumns / 2],
                                      Acc (&own)[kBlocks][kOwn]) const {
    cluster_wait();
#pragma unroll
    for (int owner = 0; owner < kOwners; ++owner) {
      if (split == owner) {
#pragma unroll
        for (int i = 0; i < kBlocks * kOwn; ++i) {
          own[i / kOwn][i % kOwn] = sums[i / kOwn][owner * kOwn + i % kOwn];
        }
        continue;
      }
      send(sums, owner);
    }
    if (split >= kOwners) return false;
    barrier_wait(arrived, 0);
    add_others(own);
    return true;
  }

  __device__ __forceinline__ void send(const Acc (&sums)[kBlocks][kColumns / 2], int owner) const {
    const u32 slot = (split + kSplits - owner - 1) % kSplits;
    const u32 to = in_block(mine + slot * kSource, owner);
    const u32 barrier = in_block(arrived, owner);
#pragma unroll
    for (int i = 0; i < kOwnVectors; ++i) {
      store_remote(to + i * kVectorBytes, &sums[i / kVectors][owner * kOwn + i % kVectors * 4],
                   barrier);
    }
  }

  __device__ __forceinline__ void add_others(Acc (&own)[kBlocks][kOwn]) const {
#pragma unroll
    for (int source = 0; source < kSplits - 1; ++source) {
#pragma unroll
      for (int i = 0; i < kOwnVectors; ++i) {
        const u32 from = mine + source * kSource + i * kVectorBytes;
        Acc* to = &own[i / kVectors][i % kVectors * 4];
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          Acc x, y;
          load_shared(from + j * 4, x, y);
          to[j] += x;
          to[j + 1] += y;
        }
      }
    }
  }
};

}  // namespace tessera::device
