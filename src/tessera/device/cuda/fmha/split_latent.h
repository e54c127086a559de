// Attention with split keys for heads of up to 576 elements and values of up to 512, which mostly
// are the first elements of their keys: latent attention. Its 64 rows of sums fill the registers of
// two warpgroups, so that the warpgroups of a block share its keys and divide the work: one
// multiplies keys and makes weights, two fetch and add up 256 columns of values each.
//
// Launch: as split_fmha.h has it, but with blocks of kLatentThreads threads and
// latent_sizes().bytes of dynamic shared memory.
#pragma once

#include "tessera/device/cuda/fmha/check_pages.h"
#include "tessera/device/cuda/fmha/latent_block.h"
#include "tessera/device/cuda/fmha/latent_bytes.h"
#include "tessera/device/cuda/fmha/latent_fetch.h"
#include "tessera/device/cuda/fmha/latent_scores.h"
#include "tessera/device/cuda/fmha/split_store.h"

namespace tessera::device {

// A warpgroup that adds up values. A thread has sums of two rows, as flash_rows.h has scores.
template <class C>
class LatentSums {
  using Block = LatentBlock<C>;
  using Values = typename Block::Values;
  using Half = typename Block::Half;
  using Multiply = Wgmma<Half, Half, kLatentProduct, WgmmaFrom::registers, WgmmaFrom::row_lines>;
  static constexpr int kProducts = kLatentColumns / kLatentProduct;
  static constexpr int kSums = kLatentProduct / 2;  // of a product
  static constexpr int kHalves = 2;                 // named barriers of the warpgroups

  const Block block;
  const int half, thread, lane;
  float sums[kProducts][kSums];

  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(~0U, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < kProducts * kSums; ++i) sums[i / kSums][i % kSums] *= factor[i / 2 % 2];
  }

  __device__ __forceinline__ void multiply(u32 stage, const u32 (&weights)[kLatentKeys / 16][4]) {
    const u64 v = Values::descriptor(block.stage(stage) + half * Values::kBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kLatentKeys / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
        const int at = Values::descriptor_offset(i * kLatentProduct / kWgmmaRows, step);
        Multiply::multiply(sums[i], weights[step], v + at, 1);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kProducts * kSums; ++i) wgmma_done(sums[i / kSums][i % kSums]);
  }

 public:
  __device__ __forceinline__ LatentSums(const Block& of, int of_half)
      : block(of),
        half(of_half),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(thread % 32) {
#pragma unroll
    for (int i = 0; i < kProducts * kSums; ++i) sums[i / kSums][i % kSums] = 0;
  }

  template <class Fetch>
  __device__ __forceinline__ void attend(const LatentWork<C>& work, Fetch& fetch) {
    typename Block::Stages stages;
    typename Block::Slots slots;
#pragma unroll 1
    for (int i = work.part.first; i < work.part.last; ++i) {
      u32 weights[kLatentKeys / 16][4];
      float factor[2];
      barrier_wait(block.ready(slots.stage), slots.phase);
      block.load_weights(slots.stage, thread, weights, factor);
      barrier_arrive(block.taken(slots.stage));
      slots.next();
      rescale(factor);
      if (!work.in_keys) stages.next();
      block.wait_for_stage(stages);
      multiply(stages.stage, weights);
      stages.next();
      threads_sync(kHalves + half, kGroupThreads);
      fetch.next();
    }
  }

  // Leaves the sums in shared memory.
  __device__ __forceinline__ void leave(float* rows) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float* const to = rows + (thread / 32 * 16 + lane / 4 + 8 * r) * Block::kSizes.sum_pitch +
                        half * kLatentColumns + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kProducts * kSums / 4; ++i) {
        const float* const x = &sums[4 * i / kSums][4 * i % kSums + 2 * r];
        *reinterpret_cast<float2*>(to + 8 * i) = {x[0], x[1]};
      }
    }
  }
};

template <class C>
class SplitLatent {
  using Block = LatentBlock<C>;
  struct Area {
    static constexpr int kTeams = 1, kThreads = kLatentThreads, kBarrier = 0;
    static constexpr int kSumPitch = Block::kSizes.sum_pitch, kHeads = Block::kSizes.heads;
  };
  using Store = SplitStore<C, Area>;
  using Fetch = typename If<Block::kBytes, LatentBytes<C>, LatentFetch<C>>::Type;
  static constexpr int kTogether = 1;  // named barrier

  // Waits until all threads' queries are there.
  static __device__ __forceinline__ void meet(const Block& block) {
    block.wait_for_queries();
    threads_sync(kTogether, kLatentThreads);
    if constexpr (kSame<typename C::In, bf16> && Block::kBytes) {
      block.scale_queries(static_cast<int>(threadIdx.x));
      threads_sync(kTogether, kLatentThreads);
    }
  }

  // All rows of the part. Their sums take the place of what was fetched, which all warpgroups have
  // read by then.
  static __device__ __forceinline__ void attend(const FmhaArguments& g, const LatentWork<C>& work,
                                                const Block& block, unsigned char* memory) {
    const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
    block.fetch_queries(work.item.tile(g), static_cast<int>(threadIdx.x));
    if (group == 0) {
      meet(block);
      LatentScores<C> scores(g, work, block);
      scores.attend();
      threads_sync(kTogether, kLatentThreads);
      scores.leave(reinterpret_cast<float*>(memory + Block::kSizes.heads));
    } else {
      Fetch fetch(g, work, block, group - 1);
      fetch.begin();
      meet(block);
      LatentSums<C> sums(block, group - 1);
      sums.attend(work, fetch);
      threads_sync(kTogether, kLatentThreads);
      sums.leave(reinterpret_cast<float*>(memory));
    }
    threads_sync(kTogether, kLatentThreads);
  }

 public:
  static __device__ __forceinline__ void run(const SplitArguments& a) {
    extern __shared__ __align__(1024) unsigned char latent_memory[];
    if (C::kPages != FmhaPages::none && has_bad_page(a.fmha)) return;
    unsigned char* const memory = latent_memory;
    const Block block = {shared_address(memory)};
    auto& work = *reinterpret_cast<LatentWork<C>*>(memory + Block::kSizes.work);
    const LatentWork<C> own(a);
    if (own.is_empty()) return;
    if (threadIdx.x == 0) {
      block.init();
      work = own;
    }
    threads_sync(kTogether, kLatentThreads);
    attend(a.fmha, work, block, memory);
    const SplitTile<C> tile = work.item.tile(a.fmha);
    Store{a, tile, memory, static_cast<int>(threadIdx.x)}.store(work.item.number, work.part,
                                                                work.item.index);
  }

  static __device__ __forceinline__ void check(const SplitArguments& a) {
    check_pages<C::kLengths, C::kPages>(a.fmha);
  }
};

}  // namespace tessera::device
