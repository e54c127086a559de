// The warpgroup of latent attention that multiplies queries with keys and makes weights of the
// scores.
#pragma once

#include "tessera/device/cuda/fmha/latent_block.h"

namespace tessera::device {

// A thread has parts of two rows of scores, as flash_rows.h has them. While it weighs a block, the
// tensor cores multiply the next one.
template <class C>
class LatentScores {
  using Block = LatentBlock<C>;
  using Half = typename Block::Half;
  static constexpr int kScores = kLatentKeys / 2;
  static constexpr int kDepth = kLatentHead / 16;
  // Steps of the depth whose queries a thread keeps. An instruction that finds queries and keys in
  // shared memory takes half as long again as its products.
  static constexpr int kKept = 16;
  using Multiply = Wgmma<Half, Half, kLatentKeys, WgmmaFrom::k_lines, WgmmaFrom::k_lines>;
  using MultiplyKept = Wgmma<Half, Half, kLatentKeys, WgmmaFrom::registers, WgmmaFrom::k_lines>;

  const FmhaArguments& g;
  const LatentWork<C>& work;
  const Block block;
  const int thread, lane;
  const SplitKeys all;  // the keys that all rows see
  SplitRow row[2];
  u32 queries[kKept][4];
  float most[2], total[2];  // total: of this thread's keys
  typename Block::Stages stages;
  typename Block::Slots slots;

  __device__ __forceinline__ void multiply(float (&x)[kScores]) {
    const u64 q = Block::Queries::descriptor(block.shared);
    const u64 k = Block::Keys::descriptor(block.stage(stages.stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const u64 keys = k + Block::Keys::descriptor_offset(0, step);
      if (step < kKept) {
        MultiplyKept::multiply(x, queries[step < kKept ? step : 0], keys, step > 0);
      } else {
        Multiply::multiply(x, q + Block::Queries::descriptor_offset(0, step), keys, step > 0);
      }
    }
    wgmma_commit();
    stages.next();
    if (!work.in_keys) stages.next();
  }

  static __device__ __forceinline__ void finish(float (&x)[kScores]) {
    wgmma_wait<0>();
    wgmma_done(x);
  }

  // Makes scores of the products of the block from `first` on; minus infinity where a row does not
  // see the key.
  __device__ __forceinline__ void score(int first, float (&x)[kScores]) const {
    const int last = first + kLatentKeys;
    const SplitTile<C> tile = work.item.tile(g);
    const int own = first + lane % 4 * 2;
    const bool whole = last <= all.sink || (first >= all.begin && last <= all.end);
    if (C::kBias != FmhaBias::elementwise && whole) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        x[i] = tile.score(x[i], row[i / 2 % 2], own + i / 4 * 8 + i % 2);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const SplitRow& r = row[i / 2 % 2];
      const int key = own + i / 4 * 8 + i % 2;
      x[i] = whole || r.keys.has(key) ? tile.score(x[i], r, key) : minus_infinity();
    }
  }

  // Makes weights of scores, and the factors of what was added up before. A NaN never becomes the
  // maximum, but it makes its weight NaN, and so does +inf.
  __device__ __forceinline__ void weigh(float (&x)[kScores], float (&factor)[2]) {
    float top[2] = {most[0], most[1]};
    float offset[2];
#pragma unroll
    for (int i = 0; i < kScores; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], x[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = most_of_row(top[r]);
      offset[r] = split_reference<C::kBias>(top[r]);
      factor[r] = top[r] == most[r] ? 1.0F : split_weight<C::kBias>(most[r], offset[r]);
      total[r] *= factor[r];
      most[r] = top[r];
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      x[i] = split_weight<C::kBias>(x[i], offset[i / 2 % 2]);
      total[i / 2 % 2] += x[i];
    }
  }

  __device__ __forceinline__ void hand_over(const float (&x)[kScores], const float (&factor)[2]) {
    u32 weights[kLatentKeys / 16][4];
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      weights[i / 4][i % 4] = round_pair<Half>(x[2 * i], x[2 * i + 1]);
    }
    barrier_wait(block.taken(slots.stage), slots.phase ^ 1);
    block.store_weights(slots.stage, thread, weights, factor);
    barrier_arrive(block.ready(slots.stage));
    slots.next();
  }

 public:
  __device__ __forceinline__ LatentScores(const FmhaArguments& arguments,
                                          const LatentWork<C>& of_work, const Block& of)
      : g(arguments),
        work(of_work),
        block(of),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(thread % 32),
        all(work.item.tile(g).seen_by_all()) {
    const SplitTile<C> tile = work.item.tile(g);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int index = thread / 32 * 16 + lane / 4 + 8 * r;
      row[r] = tile.row(index);
      if constexpr (Block::kBytes) {
        row[r].scale = tile.scale_of(row[r]);
        if (kSame<typename C::In, bf16>) row[r].scale *= block.scale_of(index);
      }
      most[r] = minus_infinity();
      total[r] = 0;
    }
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
      block.load_queries(thread / 32, lane, step, queries[step]);
    }
  }

  // Behind the last block whatever lies in the stage is multiplied, because the compiler lets
  // products run on only where no branch leads around them.
  __device__ __forceinline__ void attend() {
    if (work.part.first >= work.part.last) return;
    float products[kScores];
#pragma unroll
    for (int i = 0; i < kScores; ++i) products[i] = 0;
    block.wait_for_stage(stages);
    multiply(products);
    finish(products);
#pragma unroll 1
    for (int index = work.part.first; index < work.part.last; ++index) {
      float x[kScores], factor[2];
#pragma unroll
      for (int i = 0; i < kScores; ++i) x[i] = products[i];
      if (index + 1 < work.part.last) block.wait_for_stage(stages);
      multiply(products);
      score(work.first_key(index), x);
      weigh(x, factor);
      hand_over(x, factor);
      finish(products);
    }
  }

  // Leaves the largest scores and the sums of weights.
  __device__ __forceinline__ void leave(float* heads) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = thread / 32 * 16 + lane / 4 + 8 * r;
      const float sum = sum_of_row(total[r]);
      if (lane % 4 == 0) heads[2 * at] = most[r], heads[2 * at + 1] = sum;
    }
  }
};

}  // namespace tessera::device
