// Gradients of attention on Hopper's copy engine and tensor cores, with heads of more than 128
// elements, or with scores that are more than products. A block owns 64 keys of a key-value head,
// because more do not leave registers for long heads, or for what bends scores. Its two consumers
// share the work by slabs of 64 elements: each multiplies scores of its half of the queries, both
// tell each other weights and gradients of scores through shared memory, and each adds up its slabs
// of dk, dv and dq.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_plain.h"
#include "tessera/device/cuda/fmha/flash_backward_producer.h"
#include "tessera/device/cuda/fmha/flash_backward_store.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

// Slabs of a sum, from `begin` on.
struct FlashSlabs {
  int begin, count;
};

// Which slabs a consumer adds up. The three products of a slab take equally long, so that the
// consumers have equally many where that is possible: the first takes the larger half of dk and dq,
// and as many slabs of dv as it then lacks.
struct FlashShare {
  FlashSlabs keys, values;  // of dk and dq; of dv
};
constexpr FlashShare flash_share(int slabs, int slabs_v, int group) {
  const int own = (slabs + 1) / 2, lacks = (2 * slabs + slabs_v) / 2 - 2 * own;
  const int own_v = lacks < 0 ? 0 : lacks;
  if (group == 0) return {{0, own}, {0, own_v}};
  return {{own, slabs - own}, {own_v, slabs_v - own_v}};
}

// A warpgroup. All control that leads to a wgmma depends on what is equal in the whole warpgroup.
template <class C, int kGroup>
class FlashWideConsumer {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  using Keys = typename Block::Keys;
  using KeysAcross = typename Block::KeysAcross;
  using Values = typename Block::Values;
  using Queries = typename Block::Queries;
  using QueriesAcross = typename Block::QueriesAcross;
  using Douts = typename Block::Douts;
  using DoutsAcross = typename Block::DoutsAcross;
  using Gradients = typename Block::Gradients;
  using GradientsAcross = typename Block::GradientsAcross;
  static constexpr int kQueries = Block::kQueries;
  static constexpr int kHalf = kQueries / kFlashOwnConsumers;  // queries whose scores it multiplies
  static constexpr int kSlabs = Block::kHdim / kFlashSlab, kSlabsV = Block::kHdimV / kFlashSlab;
  static constexpr FlashShare kShare = flash_share(kSlabs, kSlabsV, kGroup);
  static constexpr int kScores = kHalf / 2;  // of a thread
  static constexpr int kSteps = kHalf / 16;  // of the queries whose weights it stores
  static constexpr int kSums = kShare.keys.count * 32;
  static constexpr int kSumsV = kShare.values.count * 32;
  // Whether the next scores are multiplied while dq is added: sums of 256 elements leave no
  // registers for that.
  static constexpr bool kAhead = 2 * kSums + kSumsV + kScores <= 200;
  static constexpr int kAlone = 5;  // named barriers, of each consumer
  static constexpr int kTold = 7;   // named barrier of both: weights are read, and told
  static constexpr int kBoth = kFlashOwnConsumers * kGroupThreads;
  static constexpr bool kEqual = Block::kEqual;
  using MultiplyTokens = Wgmma<T, T, kHalf, WgmmaFrom::k_lines, WgmmaFrom::k_lines>;

  const FlashBackwardArguments& a;
  const Block block;
  const int thread, lane, warp;
  const float unit;  // turns products, or bent scores, into powers of 2

  Ring<Block::kStages> ring;  // of queries and of gradients of outputs
  FlashItem item = {};
  FlashWalk<C> walk;
  FlashBends<C> bends;
  float dk[kSums > 0 ? kSums : 1], dq[kSums > 0 ? kSums : 1], dv[kSumsV > 0 ? kSumsV : 1];
  float scores[kScores], slopes[kScores];

  // ---- products ----

  // Products of the block's tokens with the consumer's half of a stage's tokens.
  template <class Own, class Others>
  static __device__ __forceinline__ void multiply_tokens(u32 own, u32 others,
                                                         float (&to)[kScores]) {
    const u64 p = Own::descriptor(own);
    const u64 q = Others::descriptor(others + kGroup * kHalf * kLineBytes);
#pragma unroll
    for (int step = 0; step < Own::kDepth / 16; ++step) {
      MultiplyTokens::multiply(to, p + Own::descriptor_offset(0, step),
                               q + Others::descriptor_offset(0, step), step > 0);
    }
    wgmma_commit();
  }
  // Adds the product of weights, or of gradients of scores, and a stage's tokens.
  template <class Across, int kFirst, int kCount>
  static __device__ __forceinline__ void add_product(u32 by, u32 tokens, float (&to)[kCount * 32]) {
    using Multiply = Wgmma<T, T, kCount * kFlashSlab, WgmmaFrom::k_lines, WgmmaFrom::row_lines>;
    const u64 p = GradientsAcross::descriptor(by), q = Across::descriptor(tokens);
#pragma unroll
    for (int step = 0; step < kQueries / 16; ++step) {
      Multiply::multiply(to, p + GradientsAcross::descriptor_offset(0, step),
                         q + Across::descriptor_offset(kFirst, step), 1);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void start_dq() {
    using Multiply =
        Wgmma<T, T, kShare.keys.count * kFlashSlab, WgmmaFrom::row_lines, WgmmaFrom::row_lines>;
    const u64 p = Gradients::descriptor(gradients()), q = KeysAcross::descriptor(block.keys());
#pragma unroll
    for (int step = 0; step < Block::kKeys / 16; ++step) {
      Multiply::multiply(dq, p + Gradients::descriptor_offset(0, step),
                         q + KeysAcross::descriptor_offset(kShare.keys.begin, step), step > 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void start_scores(u32 stage) {
    multiply_tokens<Keys, Queries>(block.keys(), block.queries(stage), scores);
  }
  __device__ __forceinline__ u32 weights() const { return block.gradients(0); }
  __device__ __forceinline__ u32 gradients() const { return block.gradients(1); }

  // ---- scores ----

  // Query i sees the keys from i + left on and below i + right.
  __device__ __forceinline__ int left() const { return a.left + Block::diagonal(a, item); }
  __device__ __forceinline__ int right() const { return a.right + Block::diagonal(a, item); }
  __device__ __forceinline__ u32 stats() const {
    return block.stats(ring.stage) + static_cast<u32>(kGroup * kHalf + lane % 4 * 2) * 4;
  }

  // A thread's element i belongs to key i / 2 % 2 * 8 and to query i / 4 * 8 + i % 2, counted from
  // its first ones.
  __device__ __forceinline__ void mask() {
    const int first_query = walk.block * kQueries + kGroup * kHalf;
    const int keys = Block::keys_of(a, item);
    const bool is_cut = C::kMasked && (first_query + right() < item.key + Block::kKeys ||
                                       first_query + kHalf - 1 + left() > item.key);
    if (!is_cut && item.key + Block::kKeys <= keys) return;
    const int key = item.key + warp * 16 + lane / 4;
    const int query = first_query + lane % 4 * 2;
    int end = 2 * kQueries, end_below = 2 * kQueries;
    if constexpr (C::kMasked) {
      const int begin = key - right() + 1 - query;
      hide_before(scores, begin, begin + 8);
      if (key >= a.sink) end = key - left() + 1 - query;
      if (key + 8 >= a.sink) end_below = key + 8 - left() + 1 - query;
    }
    hide(scores, key < keys ? end : 0, key + 8 < keys ? end_below : 0);
  }
  // What is known of the queries of elements i and i + 1, from part `part` of the stage's stats on.
  __device__ __forceinline__ void load_stats(int part, int i, float (&x)[2]) const {
    load_shared(stats() + part * kQueries * 4 + i * 8, x[0], x[1]);
  }
  // What is subtracted from scores comes in powers of 2, or as scores are.
  __device__ __forceinline__ float power(float score, float lse) const {
    return Block::kBends ? (score - lse) * unit : score * unit - lse;
  }
  __device__ __forceinline__ void weigh() {
    // The vote tells the compiler that all threads go the same way.
    const u32 flags = block.stats(ring.stage) + static_cast<u32>(lane % 4) * 8;
    const bool renews = __any_sync(~0U, load_word(flags + 3 * kQueries * 4) != 0);
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float lse[2];
      load_stats(0, i, lse);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] = exp2_fast(power(scores[i + e], lse[e % 2]));
    }
    if (!renews) return;
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float factor[2];
      load_stats(2, i, factor);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] *= factor[e % 2];
    }
  }
  __device__ __forceinline__ void differentiate() {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float delta[2];
      load_stats(1, i, delta);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float dweight = slopes[i + e] * bends.factor(i + e);
        slopes[i + e] = scores[i + e] * (dweight - delta[e % 2]);
      }
    }
    if constexpr (C::kDbias) {
      bends.store_dbias(a.backward.dbias, Block::bias_sums_of(a), slopes);
    }
    if constexpr (C::kSoftCap) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) slopes[i] *= bends.cap(i);
    }
  }
  __device__ __forceinline__ void tell_weights() const {
    if constexpr (!C::kDropout) return tell(weights(), scores);
    float kept[kScores];
#pragma unroll
    for (int i = 0; i < kScores; ++i) kept[i] = scores[i] * bends.factor(i);
    tell(weights(), kept);
  }
  __device__ __forceinline__ FlashScorePlace place() const {
    return {item.batch,
            walk.head,
            walk.block * kQueries + kGroup * kHalf + lane % 4 * 2,
            item.key + warp * 16 + lane / 4,
            Block::queries_of(a, item),
            Block::keys_of(a, item)};
  }
  // Stores weights or gradients of scores for both consumers: a line of 64 queries for each key.
  __device__ __forceinline__ void tell(u32 to, const float (&from)[kScores]) const {
    const u32 row = static_cast<u32>(lane) % 16;
    const u32 line = to + static_cast<u32>(warp * 16 + lane % 16) * kLineBytes;
#pragma unroll
    for (u32 step = 0; step < kSteps; ++step) {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = round_pair<T>(from[step * 8 + 2 * i], from[step * 8 + 2 * i + 1]);
      }
      const u32 chunk = (kGroup * kSteps + step) * 2 + static_cast<u32>(lane) / 16;
      store_matrices<false>(line + ((chunk ^ (row & 7)) << 4), words);
    }
  }

  __device__ __forceinline__ void add_dq(const FlashWalk<C>& at) const {
    float* const to =
        Block::sums_of(a, at.index()) + kShare.keys.begin * kFlashPartFloats + thread * 4;
    if constexpr (C::kOrdered) {
      threads_sync(FlashTurns<C>::kGo + kGroup, FlashTurns<C>::kThreads);
    }
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const float four[4] = {dq[i], dq[i + 1], dq[i + 2], dq[i + 3]};
      add_global(to + i * kGroupThreads, four);
    }
    if constexpr (C::kOrdered) {
      threads_arrive(FlashTurns<C>::kDone + kGroup, FlashTurns<C>::kThreads);
    }
  }

  // ---- steps ----

  // What lies behind a sequence's tokens is cleared by each consumer, which waits for itself alone:
  // both write the same zeros.
  template <int kCount, int kRows>
  __device__ __forceinline__ void clear(u32 tokens, int from) const {
    if (kEqual || from >= kRows) return;
    clear_rows<kCount, kRows>(tokens, max(0, from), thread, kGroupThreads);
    threads_sync(kAlone + kGroup, kGroupThreads);
  }
  __device__ __forceinline__ int queries_from(const FlashWalk<C>& at) const {
    return Block::queries_of(a, item) - at.block * kQueries;
  }
  __device__ __forceinline__ void open_scores() {
    barrier_wait(block.queries_full(ring.stage), ring.phase);
    clear<kSlabs, kQueries>(block.queries(ring.stage), queries_from(walk));
    wgmma_fence();
    start_scores(ring.stage);
  }

  // A block of queries, whose scores may be on their way; the products that read the buffers of
  // weights before are done.
  template <bool kLast>
  __device__ __forceinline__ void step() {
    if constexpr (!kAhead) open_scores();
    if constexpr (Block::kBends) bends.fetch(place());
    barrier_wait(block.douts_full(ring.stage), ring.phase);
    clear<kSlabsV, kQueries>(block.douts(ring.stage), queries_from(walk));
    wgmma_wait<0>();
    wgmma_done(scores);
    wgmma_fence();
    multiply_tokens<Values, Douts>(block.values(), block.douts(ring.stage), slopes);
    if constexpr (Block::kBends) bends.bend(scores);
    mask();
    weigh();
    threads_sync(kTold, kBoth);  // the other consumer has read weights and gradients of before
    tell_weights();
    wgmma_wait<0>();
    wgmma_done(slopes);
    differentiate();
    tell(gradients(), slopes);
    copy_engine_fence();
    threads_sync(kTold, kBoth);
    wgmma_fence();
    if constexpr (kSums > 0) {
      start_dq();
      add_product<QueriesAcross, kShare.keys.begin, kShare.keys.count>(
          gradients(), block.queries(ring.stage), dk);
    }
    if constexpr (kSumsV > 0) {
      add_product<DoutsAcross, kShare.values.begin, kShare.values.count>(
          weights(), block.douts(ring.stage), dv);
    }
    finish<kLast>();
  }

  // dq is added while the other products go on.
  template <bool kLast>
  __device__ __forceinline__ void finish() {
    constexpr bool kStarts = !kLast && kAhead;
    const FlashWalk<C> now = walk;
    const Ring<Block::kStages> used = ring;
    ring.next();
    walk.next(a.query_blocks);
    if constexpr (kStarts) open_scores();
    if constexpr (kSums > 0) {
      wgmma_wait<(kSumsV > 0 ? 2 : 1) + (kStarts ? 1 : 0)>();
      wgmma_done(dq);
    }
    add_dq(now);
    wgmma_wait<kStarts ? 1 : 0>();
    if constexpr (kSums > 0) wgmma_done(dk);
    if constexpr (kSumsV > 0) wgmma_done(dv);
    barrier_arrive(block.queries_empty(used.stage));
    barrier_arrive(block.douts_empty(used.stage));
  }

  // The keys of an item.
  __device__ __forceinline__ void run_item(u32 phase) {
    const int there = Block::keys_of(a, item) - item.key;
    walk = FlashWalk<C>(a, item);
#pragma unroll
    for (int i = 0; i < kSums; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < kSumsV; ++i) dv[i] = 0;
    clear<kSlabs, Block::kKeys>(block.keys(), there);
    barrier_wait(block.values_full(), phase);
    clear<kSlabsV, Block::kKeys>(block.values(), there);
    if (walk.left > 0) {
      if constexpr (kAhead) open_scores();
#pragma unroll 1
      while (walk.left > 1) step<false>();
      step<true>();
    }
    item = block.told(lane);
    barrier_arrive_if(block.keys_empty(), lane == 0);
    barrier_arrive_if(block.values_empty(), lane == 0);
    const FlashBackwardStore<C> store = {a, block, 0, kGroup, warp, lane, item};
    const FmhaBackwardArguments& g = a.backward;
    if constexpr (C::kSlices > 1) {
      if constexpr (kSums > 0) store.keep(kShare.keys.begin, dk);
      if constexpr (kSumsV > 0) store.keep(kSlabs + kShare.values.begin, dv);
      return;
    }
    if constexpr (kSums > 0) {
      store.store(&a.dk_map, g.dk, g.dk_stride, g.forward.hdim, kShare.keys.begin, g.forward.scale,
                  dk);
    }
    if constexpr (kSumsV > 0) {
      store.store(&a.dv_map, g.dv, g.dv_stride, g.forward.hdim_v, kShare.values.begin, 1.0F, dv);
    }
  }

 public:
  __device__ __forceinline__ FlashWideConsumer(const FlashBackwardArguments& arguments,
                                               const Block& shared)
      : a(arguments),
        block(shared),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(uniform(thread / 32)),
        unit((Block::kBends ? 1.0F : arguments.backward.forward.scale) * 1.44269504F),
        bends(arguments.backward.forward, lane) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (u32 phase = 0;; phase ^= 1) {
      barrier_wait(block.keys_full(), phase);
      item = block.told(lane);
      if (item.number == 0) break;
      run_item(phase);
    }
    stores_wait_all();
  }
};

}  // namespace tessera::device
