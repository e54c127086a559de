// Gradients of attention on Hopper's copy engine and tensor cores. A block owns 128 keys of a
// key-value head and walks over the queries of all heads that see them, so that dk and dv are added
// up in registers; sums of dq are added up in device memory, by atomic additions or in the order of
// the keys. Scores are multiplied with a row for each key: what a consumer then holds of weights
// and of gradients of scores is an operand of its next products as it is.
//
// Launch: `prepare` and `convert`: a block of kFlashPlainThreads threads for each block of queries
// of each head and sequence. `run`, between the two: blocks of flash_threads(2) threads with
// flash_backward_sizes().bytes of dynamic shared memory; any number of blocks, which take items
// from a counter. With slices, `merge` comes last: a block of kFlashPlainThreads threads for each
// block of keys.
#pragma once

#include "tessera/device/cuda/fmha/flash_backward_wide.h"

namespace tessera::device {

// A warpgroup with 64 keys. All control that leads to a wgmma depends on what is equal in the whole
// warpgroup.
template <class C>
class FlashBackwardConsumer {
  using Block = FlashBackwardBlock<C>;
  using T = typename C::In;
  using Keys = typename Block::Keys;
  using KeysAcross = typename Block::KeysAcross;
  using Queries = typename Block::Queries;
  using QueriesAcross = typename Block::QueriesAcross;
  using Gradients = typename Block::Gradients;
  static constexpr FlashBackwardSizes kSizes = Block::kSizes;
  static constexpr int kQueries = Block::kQueries;
  static constexpr int kHdim = Block::kHdim;
  static constexpr int kDepth = kHdim / 16;            // steps of scores
  static constexpr int kSteps = kQueries / 16;         // steps of dk and dv
  static constexpr int kKeySteps = Block::kKeys / 16;  // steps of dq
  static constexpr int kScores = kQueries / 2;         // of a thread
  static constexpr int kSums = kHdim / 2;
  static constexpr int kParts = kFlashPartFloats / kGroupThreads;  // of a thread's dq
  // Whether dv is multiplied while gradients of scores are made. More queries leave no registers
  // for that.
  static constexpr bool kEarly = kQueries == 64;
  static constexpr int kAlone = 5;  // named barriers, of each consumer
  static constexpr bool kEqual = Block::kEqual;
  using MultiplyTokens = Wgmma<T, T, kQueries, WgmmaFrom::k_lines, WgmmaFrom::k_lines>;
  using MultiplyWeights = Wgmma<T, T, kHdim, WgmmaFrom::registers, WgmmaFrom::row_lines>;
  using MultiplyKeys = Wgmma<T, T, 64, WgmmaFrom::row_lines, WgmmaFrom::row_lines>;

  const FlashBackwardArguments& a;
  const Block block;
  const int group, thread, lane, warp;
  const float unit;  // of scores, in powers of 2

  Ring<Block::kStages> ring;  // of queries and of gradients of outputs
  u32 turn = 0;               // of the buffers of gradients of scores
  FlashItem item = {};
  FlashWalk<C> walk;
  float dk[kSums], dv[kSums], scores[kScores], slopes[kScores], dq[kParts];
  u32 weights[kSteps][4], gradients[kSteps][4];

  // ---- products ----

  // Products of the consumer's tokens with a stage's tokens.
  static __device__ __forceinline__ void multiply_tokens(u32 own, u32 others,
                                                         float (&to)[kScores]) {
    const u64 p = Keys::descriptor(own), q = Queries::descriptor(others);
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      MultiplyTokens::multiply(to, p + Keys::descriptor_offset(0, step),
                               q + Queries::descriptor_offset(0, step), step > 0);
    }
    wgmma_commit();
  }
  static __device__ __forceinline__ void add_product(const u32 (&by)[kSteps][4], u32 tokens,
                                                     float (&to)[kSums]) {
    const u64 q = QueriesAcross::descriptor(tokens);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      MultiplyWeights::multiply(to, by[step], q + QueriesAcross::descriptor_offset(0, step), 1);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ u32 own_rows(u32 tokens) const {
    return tokens + static_cast<u32>(group) * kWgmmaRows * kLineBytes;
  }
  __device__ __forceinline__ void start_scores(u32 stage) {
    multiply_tokens(own_rows(block.keys()), block.queries(stage), scores);
  }
  // dq of the consumer's 64 queries or 64 elements, from all keys of the block.
  __device__ __forceinline__ void start_dq() {
    constexpr bool kByQueries = kQueries > kWgmmaRows;
    const u64 p =
        Gradients::descriptor(block.gradients(buffer()) +
                              static_cast<u32>(kByQueries ? group : 0) * Gradients::kSlabBytes);
    const u64 q = KeysAcross::descriptor(block.keys() + static_cast<u32>(kByQueries ? 0 : group) *
                                                            KeysAcross::kSlabBytes);
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
      MultiplyKeys::multiply(dq, p + Gradients::descriptor_offset(0, step),
                             q + KeysAcross::descriptor_offset(0, step), step > 0);
    }
    wgmma_commit();
  }

  // ---- scores ----

  __device__ __forceinline__ u32 buffer() const { return turn % kFlashGradientBuffers; }
  // Query i sees the keys from i + left on and below i + right.
  __device__ __forceinline__ int left() const { return a.left + Block::diagonal(a, item); }
  __device__ __forceinline__ int right() const { return a.right + Block::diagonal(a, item); }
  __device__ __forceinline__ u32 stats() const {
    return block.stats(ring.stage) + static_cast<u32>(lane % 4) * 8;
  }

  // A thread's element i belongs to key i / 2 % 2 * 8 and to query i / 4 * 8 + i % 2, counted from
  // its first ones.
  __device__ __forceinline__ void mask() {
    const int first_key = item.key + group * kWgmmaRows, first_query = walk.block * kQueries;
    const int keys = Block::keys_of(a, item);
    const bool is_cut = C::kMasked && (first_query + right() < first_key + kWgmmaRows ||
                                       first_query + kQueries - 1 + left() > first_key);
    if (!is_cut && first_key + kWgmmaRows <= keys) return;
    const int key = first_key + warp * 16 + lane / 4;
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
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float lse[2];
      load_shared(stats() + i * 8, lse[0], lse[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] = exp2_fast(scores[i + e] * unit - lse[e % 2]);
    }
    // The vote tells the compiler that all threads go the same way.
    const u32 renewed = load_word(stats() + 3 * kQueries * 4);
    if (__any_sync(~0U, renewed != 0)) normalise();
  }
  // Multiplies the weights of a block whose sums the plain step has made again.
  __device__ __forceinline__ void normalise() {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float factor[2];
      load_shared(stats() + 2 * kQueries * 4 + i * 8, factor[0], factor[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[i + e] *= factor[e % 2];
    }
  }
  __device__ __forceinline__ void differentiate() {
#pragma unroll
    for (int i = 0; i < kScores; i += 4) {
      float delta[2];
      load_shared(stats() + kQueries * 4 + i * 8, delta[0], delta[1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) slopes[i + e] = scores[i + e] * (slopes[i + e] - delta[e % 2]);
    }
  }
  static __device__ __forceinline__ void pack(const float (&from)[kScores], u32 (&to)[kSteps][4]) {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      to[i / 4][i % 4] = round_pair<T>(from[2 * i], from[2 * i + 1]);
    }
  }
  // Gives the consumer's gradients of scores to both consumers.
  __device__ __forceinline__ void share_gradients() const {
    const u32 row = static_cast<u32>(lane) % 16;
    const u32 line = block.gradients(buffer()) +
                     static_cast<u32>(group * kWgmmaRows + warp * 16 + lane % 16) * kLineBytes;
#pragma unroll
    for (u32 step = 0; step < kSteps; ++step) {
      const u32 chunk = step % 4 * 2 + static_cast<u32>(lane) / 16;
      store_matrices<false>(line + step / 4 * Gradients::kSlabBytes + ((chunk ^ (row & 7)) << 4),
                            gradients[step]);
    }
    copy_engine_fence();
    __syncwarp();
    barrier_arrive_if(block.gradients_full(buffer()), lane == 0);
  }

  __device__ __forceinline__ void add_dq(const FlashWalk<C>& at) const {
    float* const to = Block::sums_of(a, at.index()) + group * kFlashPartFloats + thread * 4;
    if constexpr (C::kOrdered) {
      threads_sync(FlashTurns<C>::kGo + group, FlashTurns<C>::kThreads);
    }
#pragma unroll
    for (int i = 0; i < kParts; i += 4) {
      const float four[4] = {dq[i], dq[i + 1], dq[i + 2], dq[i + 3]};
      add_global(to + i * kGroupThreads, four);
    }
    if constexpr (C::kOrdered) {
      threads_arrive(FlashTurns<C>::kDone + group, FlashTurns<C>::kThreads);
    }
  }

  // ---- steps ----

  // What lies behind a sequence's tokens is cleared by each consumer, which waits for itself alone:
  // both write the same zeros.
  template <int kRows>
  __device__ __forceinline__ void clear(u32 tokens, int from) const {
    if (kEqual || from >= kRows) return;
    clear_rows<kHdim / kFlashSlab, kRows>(tokens, max(0, from), thread, kGroupThreads);
    threads_sync(kAlone + group, kGroupThreads);
  }
  __device__ __forceinline__ int queries_from(const FlashWalk<C>& at) const {
    return Block::queries_of(a, item) - at.block * kQueries;
  }

  // A block of queries, whose scores are on their way. The next ones are started, unless there are
  // none.
  template <bool kLast>
  __device__ __forceinline__ void step() {
    barrier_wait(block.douts_full(ring.stage), ring.phase);
    clear<kQueries>(block.douts(ring.stage), queries_from(walk));
    wgmma_wait<0>();
    wgmma_done(scores);
    wgmma_fence();
    multiply_tokens(own_rows(block.values()), block.douts(ring.stage), slopes);
    mask();
    weigh();
    pack(scores, weights);
    if constexpr (kEarly) {
      wgmma_fence();
      add_product(weights, block.douts(ring.stage), dv);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_done(slopes);
    differentiate();
    pack(slopes, gradients);
    share_gradients();
    wgmma_fence();
    if constexpr (!kEarly) add_product(weights, block.douts(ring.stage), dv);
    add_product(gradients, block.queries(ring.stage), dk);
    barrier_wait(block.gradients_full(buffer()), turn / kFlashGradientBuffers % 2);
    wgmma_fence();
    start_dq();
    finish<kLast>();
  }

  template <bool kLast>
  __device__ __forceinline__ void finish() {
    const FlashWalk<C> now = walk;
    const Ring<Block::kStages> used = ring;
    ring.next();
    ++turn;
    walk.next(a.query_blocks);
    if constexpr (kLast) {
      wgmma_wait<0>();
    } else {
      wgmma_wait<1>();
      barrier_wait(block.queries_full(ring.stage), ring.phase);
      clear<kQueries>(block.queries(ring.stage), queries_from(walk));
      wgmma_fence();
      start_scores(ring.stage);
      wgmma_wait<1>();
    }
    wgmma_done(dq);
    barrier_arrive(block.queries_empty(used.stage));
    barrier_arrive(block.douts_empty(used.stage));
    add_dq(now);
  }

  // The keys of an item.
  __device__ __forceinline__ void run_item(u32 phase) {
    const int there = Block::keys_of(a, item) - item.key;
    walk = FlashWalk<C>(a, item);
#pragma unroll
    for (int i = 0; i < kSums; ++i) dk[i] = dv[i] = 0;
    clear<Block::kKeys>(block.keys(), there);
    barrier_wait(block.values_full(), phase);
    clear<Block::kKeys>(block.values(), there);
    if (walk.left > 0) {
      barrier_wait(block.queries_full(ring.stage), ring.phase);
      clear<kQueries>(block.queries(ring.stage), queries_from(walk));
      wgmma_fence();
      start_scores(ring.stage);
#pragma unroll 1
      while (walk.left > 1) step<false>();
      step<true>();
    }
    wgmma_done(dk);
    wgmma_done(dv);
    item = block.told(lane);
    barrier_arrive_if(block.keys_empty(), lane == 0);
    barrier_arrive_if(block.values_empty(), lane == 0);
    const FlashBackwardStore<C> store = {a, block, group * kWgmmaRows, group, warp, lane, item};
    const FmhaBackwardArguments& g = a.backward;
    if constexpr (C::kSlices > 1) {
      constexpr int kSlabs = kHdim / kFlashSlab;
      store.keep(group * kSlabs, dk);
      store.keep((kFlashOwnConsumers + group) * kSlabs, dv);
      return;
    }
    store.store(&a.dk_map, g.dk, g.dk_stride, g.forward.hdim, 0, g.forward.scale, dk);
    store.store(&a.dv_map, g.dv, g.dv_stride, g.forward.hdim_v, 0, 1.0F, dv);
  }

 public:
  __device__ __forceinline__ FlashBackwardConsumer(const FlashBackwardArguments& arguments,
                                                   const Block& shared, int warpgroup)
      : a(arguments),
        block(shared),
        group(warpgroup),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(uniform(thread / 32)),
        unit(arguments.backward.forward.scale * 1.44269504F) {}

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

template <class C>
struct FlashBackward {
  using Block = FlashBackwardBlock<C>;

  static __device__ __forceinline__ void run(const FlashBackwardArguments& arguments) {
    extern __shared__ __align__(1024) unsigned char flash_memory[];
    const Block block = {shared_address(flash_memory)};
    const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
    if (threadIdx.x == 0) block.init();
    __syncthreads();
    if (group == kFlashOwnConsumers) {
      registers_shrink<flash_fetch_registers(kFlashOwnConsumers)>();
      const int warp = uniform(static_cast<int>(threadIdx.x) % kGroupThreads / 32);
      if (warp == 0) {
        if (elect_one()) FlashBackwardProducer<C>(arguments, block).run();
      } else if (C::kOrdered && warp <= kFlashOwnConsumers) {
        FlashTurns<C>::run(arguments, block, warp - 1);
      }
    } else {
      registers_grow<flash_registers(kFlashOwnConsumers)>();
      consume(arguments, block, group);
    }
  }

  static __device__ __forceinline__ void prepare(const FlashBackwardArguments& arguments) {
    FlashBackwardPlain<C>(arguments).prepare();
  }
  static __device__ __forceinline__ void convert(const FlashBackwardArguments& arguments) {
    FlashBackwardPlain<C>(arguments).convert();
  }
  static __device__ __forceinline__ void merge(const FlashBackwardArguments& arguments) {
    FlashBackwardMerge<C>::merge(arguments);
  }

 private:
  static __device__ __forceinline__ void consume(const FlashBackwardArguments& arguments,
                                                 const Block& block, int group) {
    if constexpr (!Block::kWide) {
      FlashBackwardConsumer<C>(arguments, block, group).run();
    } else if (group == 0) {
      FlashWideConsumer<C, 0>(arguments, block).run();
    } else {
      FlashWideConsumer<C, 1>(arguments, block).run();
    }
  }
};

}  // namespace tessera::device
