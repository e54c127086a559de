// The warpgroups of a flash kernel of attention that multiply.
#pragma once

#include "tessera/device/cuda/fmha/flash_dropout.h"
#include "tessera/device/cuda/fmha/flash_factors.h"
#include "tessera/device/cuda/fmha/flash_pages.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/cuda/fmha/flash_scores.h"
#include "tessera/device/cuda/fmha/flash_store.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

// A warpgroup with 64 queries. All control that leads to a wgmma depends on what is equal in the
// whole warpgroup; a warp may leave for a repair, and meets the others at the same wgmma again.
template <class C>
class FlashConsumer {
  using Block = FlashBlock<C>;
  using T = typename C::In;
  using Queries = typename Block::Queries;
  using Keys = typename Block::Keys;
  using Values = typename Block::Values;
  static constexpr FlashSizes kSizes = Block::kSizes;
  static constexpr int kKeys = C::kTileN;
  static constexpr bool kInRegisters = kSizes.queries_in_registers;
  using Weight = typename Block::Weight;
  // Steps of Q K^T and of P V; scores of a thread.
  static constexpr int kDepth = C::kTileK * static_cast<int>(sizeof(T)) / kWgmmaBytesK;
  static constexpr int kSteps = kKeys / 16;
  static constexpr int kScores = kKeys / 2;
  static constexpr int kSums = C::kHdimV / 2;
  // Named barriers: consumers take turns to multiply; all consumers; a consumer.
  static constexpr int kTurns = 4, kTogether = 7, kAlone = 8;
  static constexpr bool kEqual = Block::kEqual;
  static constexpr bool kBends = Block::kBends;
  static constexpr bool kEightBits = Block::kConverts;
  using MultiplyKeys = Wgmma<T, T, kKeys, kInRegisters ? WgmmaFrom::registers : WgmmaFrom::k_lines,
                             WgmmaFrom::k_lines>;
  using MultiplyValues =
      Wgmma<Weight, Weight, C::kHdimV, WgmmaFrom::registers, WgmmaFrom::row_lines>;

  const FlashArguments& a;
  const Block block;
  const int group, thread, lane, warp;
  FlashFactors<C> factors;

  Ring<C::kStages> ring;
  Ring<Block::kBuffers> buffers;
  u32 buffer = 0;  // of this tile's queries
  u32 values = 0;  // the stage of the values that are being multiplied
  FlashTile tile = {0, 0, 0, 0, 0, 0, 0, 0};
  int index = 0;  // the block whose weights are held
  int first = 0;  // the tile's first block
  int stop = 0;   // the blocks in front of this one have keys before some query's window
  int right = 0;  // query i sees the keys below i + right
  FlashRows rows;
  float sums[kSums], scores[kScores];
  u32 weights[kSteps][4];
  u32 biases[Block::kFetchesBias ? kScores / 2 : 1];  // of the next block, in pairs
  u32 queries[kInRegisters ? kDepth : 1][4];

  FlashDropout<kKeys> dropout;

  // A repair costs as much as several blocks. So the warps of a consumer tell each other of repairs
  // by two flags that hold the tile's number, one for every other block; what is written beside one
  // product is read after the turn of the next one. A tile learns nothing from the tiles before it:
  // which ones these are differs from launch to launch, and the bits of a tile must not.
  u32 parity = 0;
  int number = 0;
  int wary = 0;  // whether the tile's further blocks take their maxima

  __device__ __forceinline__ u32 flag(u32 which) const {
    return block.shared + kSizes.flags + static_cast<u32>(group) * 8 + which * 4;
  }

  // ---- products ----

  __device__ __forceinline__ void load_fragment(int step, u32 (&words)[4]) const {
    const int row = warp * 16 + lane % 16;
    const int chunk = step % 4 * 2 + lane / 16;
    load_matrices<false>(block.queries(buffer) + step / 4 * Queries::kSlabBytes + row * kLineBytes +
                             ((chunk ^ (row & 7)) << 4),
                         words);
  }

  __device__ __forceinline__ void start_keys() {
    const u64 q = Queries::descriptor(block.queries(buffer));
    const u64 k = Keys::descriptor(block.stage(ring.stage));
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      const u64 keys = k + Keys::descriptor_offset(0, step);
      if constexpr (kInRegisters) {
        MultiplyKeys::multiply(scores, queries[step], keys, step > 0);
      } else {
        MultiplyKeys::multiply(scores, q + Queries::descriptor_offset(0, step), keys, step > 0);
      }
    }
  }

  // Scores of the next block; sums of the last one, added where `adds` is set. Returns when the
  // scores are there.
  __device__ __forceinline__ void multiply(int adds) {
    const u32 keys = ring.stage;
    barrier_wait(block.full(ring.stage), ring.phase);
    threads_sync(kTurns + group, 2 * kGroupThreads);
    wgmma_fence();
    start_keys();
    wgmma_commit();
    ring.next();
    barrier_wait(block.full(ring.stage), ring.phase);
    values = ring.stage;
    const u64 v = Values::descriptor(block.stage(values));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      MultiplyValues::multiply(sums, weights[step], v + Values::descriptor_offset(0, step),
                               step > 0 ? 1 : adds);
    }
    wgmma_commit();
    threads_arrive(kTurns + (group + 1 == Block::kConsumers ? 0 : group + 1), 2 * kGroupThreads);
    ring.next();
    // The vote tells the compiler that all threads go the same way.
    const bool jumped = static_cast<int>(load_word(flag(parity))) == number;
    if (__any_sync(~0U, jumped)) wary = 1;
    parity ^= 1;
    wgmma_wait<1>();
    wgmma_done(scores);
    barrier_arrive_if(block.empty(keys), thread == 0);
  }
  __device__ __forceinline__ void finish() {
    if constexpr (C::kDropout) {
      const int row = tile.row + warp * 16 + lane / 4;
      dropout.draw(a.fmha, dropout_row(a.fmha, tile.batch, tile.head, row), index * kKeys, lane);
    }
    wgmma_wait<0>();
    wgmma_done(sums);
    wgmma_done(scores);
    barrier_arrive_if(block.empty(values), thread == 0);
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      weights[i / 4][i % 4] = round_pair<Weight>(scores[2 * i], scores[2 * i + 1]);
    }
    if constexpr (C::kDropout) dropout.drop(&weights[0][0], lane);
  }
  __device__ __forceinline__ void release_queries() const {
    barrier_arrive_if(block.queries_empty(buffer), lane == 0 && index == first);
  }

  // ---- blocks ----

  // Whether block i has keys that some query of the tile does not see, or that are not there. With
  // `more` of 1 also whether the first query sees none behind the block: blocks are taken from the
  // last one on, and this query then meets its first keys. In all others every query has a
  // reference.
  __device__ __forceinline__ bool is_cut(int i, int more) const {
    const int end = (i + 1) * kKeys;
    return end > Block::Seen::keys_of(a, tile) || (C::kMasked && end + more > tile.row + right);
  }
  __device__ __forceinline__ bool is_edge(int i) const { return wary != 0 || is_cut(i, 1); }

  // The blocks of a tile that have neither masks nor a mean jump of the scores. True: this warp's
  // scores jumped in the last one, and are to be weighed anew.
  __device__ __forceinline__ bool steady(int& adds) {
    // A bias may hide all keys of a block: then a query has no reference.
    if (C::kBias == FmhaBias::elementwise || index <= stop || is_edge(index - 1)) return false;
#pragma unroll 1
    do {
      factors.fetch(a, index - 1);
      multiply(adds);
      adds = 1;
      --index;
      bend();
      const float before[2] = {rows.total[0], rows.total[1]};
      weigh(scores, unit(), rows);
      const bool has_room = FlashRange<Weight>::has_room(before[0], rows.total[0]) &&
                            FlashRange<Weight>::has_room(before[1], rows.total[1]);
      if (__any_sync(~0U, !has_room)) {
        repair();
        rows.total[0] = before[0];
        rows.total[1] = before[1];
        return true;
      }
      release_queries();
      finish();
      factors.turn(sums, scores, true);
      pack();
    } while (index > stop && wary == 0);
    return false;
  }

  __device__ __forceinline__ void repair() {
    const FmhaArguments& g = a.fmha;
    const i64 head = tile.head / static_cast<int>(g.heads / g.heads_kv);
    const auto fragment = [this](int step, u32(&words)[4]) { load_fragment(step, words); };
    if constexpr (Block::kPaged) {
      int words[4];  // read once more: to keep it would take one register too many
      load_shared_if(block.place(buffer) + 16, words, true);
      const FlashTile at = {0, 0, 0, 0, 0, 0, 0, words[3]};
      const FlashPagedKeys<T, kKeys> keys(g, at, head, index * kKeys, lane);
      if constexpr (kEightBits) {
        keys.template multiply_bytes_again<C::kTileK>(fragment, scores);
      } else {
        keys.template multiply_again<C::kTileK>(fragment, scores);
      }
    } else {
      const i64 token = i64{index} * kKeys + (kEqual ? 0 : tile.first_key);
      const T* const keys = static_cast<const T*>(g.k) + tile.batch * g.k_stride[kTokenBatch] +
                            head * g.k_stride[kTokenHead] + token * g.k_stride[kToken];
      const FlashTokens<T> tokens = {keys, g.k_stride[kToken], static_cast<int>(g.hdim)};
      if constexpr (kEightBits) {
        multiply_bytes_again<C::kTileK>(tokens, lane, fragment, scores);
      } else {
        multiply_again<C::kTileK>(tokens, lane, fragment, scores);
      }
    }
    bend();
    raise();
    store_shared_if(flag(parity), number, lane == 0);
  }

  __device__ __forceinline__ void open_tile() {
    buffer = static_cast<u32>(group) * Block::kBuffers + buffers.stage;
    barrier_wait(block.queries_full(buffer), buffers.phase);
    buffers.next();
    // Lane 0 reads, since it is lane 0 that releases the buffer.
    int words[4];
    load_shared_if(block.place(buffer), words, lane == 0);
    tile.row = uniform(words[0]), tile.head = uniform(words[1]);
    tile.batch = uniform(words[2]), tile.blocks = uniform(words[3]);
    if constexpr (!kEqual) {
      load_shared_if(block.place(buffer) + 16, words, lane == 0);
      tile.queries = uniform(words[0]), tile.keys = uniform(words[1]);
      tile.first_query = uniform(words[2]), tile.first_key = uniform(words[3]);
    }
    if constexpr (C::kMasked) open_window();
    if constexpr (!kEqual) clear_queries();
    if constexpr (kInRegisters) {
#pragma unroll
      for (int step = 0; step < kDepth; ++step) load_fragment(step, queries[step]);
    }
    factors.open(a, tile);
    index = tile.blocks;
    rows.clear();
    ++number;
    wary = 0;
  }

  // Which blocks the tile sees, and which of them are cut on the left.
  __device__ __forceinline__ void open_window() {
    const int left = a.left + Block::Seen::diagonal(a, tile);
    right = a.right + Block::Seen::diagonal(a, tile);
    first = Block::Seen::first_block(a, tile, tile.row - group * kWgmmaRows);
    stop = max(first, min((tile.row + kWgmmaRows - 1 + left + kKeys - 1) / kKeys, tile.blocks));
  }

  // Makes scores of products times the scale, where these are not all.
  __device__ __forceinline__ void bend() {
    if constexpr (kBends) {
      const FlashScores<C> bent = bent_scores();
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const float product = kEightBits ? scores[i] * factors.of_products() : scores[i];
        scores[i] = bent.score(product, i / 2 % 2 * 8, i / 4 * 8 + i % 2);
        if constexpr (Block::kFetchesBias)
          scores[i] += half_of<typename C::Bias>(biases[i / 2], i % 2);
      }
    }
  }
  __device__ __forceinline__ FlashScores<C> bent_scores() const {
    return FlashScores<C>(a, tile, warp * 16 + lane / 4, index * kKeys + lane % 4 * 2);
  }
  // What turns scores, or products where these are all, into powers of 2.
  __device__ __forceinline__ float unit() const {
    return kEightBits && kBends ? factors.of_compared() : factors.of_products();
  }
  // Products of 8 bits in powers of 2, where they are compared.
  __device__ __forceinline__ void raise() {
    if constexpr (kEightBits && !kBends) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) scores[i] *= unit();
    }
  }
  // The biases arrive while the tensor cores multiply.
  __device__ __forceinline__ void fetch_biases() {
    if constexpr (Block::kFetchesBias) bent_scores().fetch(biases);
  }

  __device__ __forceinline__ void mask() {
    const int key = index * kKeys + lane % 4 * 2;
    const int row = tile.row + warp * 16 + lane / 4;
    if (is_cut(index, 0)) {
      const int there = Block::Seen::keys_of(a, tile) - key;
      const int seen = row + right - key;
      hide(scores, C::kMasked ? min(there, seen) : there,
           C::kMasked ? min(there, seen + 8) : there);
    }
    if (C::kMasked && index < stop) {
      const int unseen = row + a.left + Block::Seen::diagonal(a, tile) - key;
      hide_before(scores, unseen, unseen + 8);
    }
  }

  // ---- sequences with lengths of their own ----

  __device__ __forceinline__ void clear_queries() const {
    const int rows = max(0, tile.queries - tile.row);
    if (rows >= kWgmmaRows || tile.blocks == 0) return;
    clear_rows<Queries::kSlabs, kWgmmaRows>(block.queries(buffer), rows, thread, kGroupThreads);
    threads_sync(kAlone + group, kGroupThreads);
  }
  // Clears the values behind the keys' end in the tile's last block, which is not multiplied before
  // the next keys are there.
  __device__ __forceinline__ void clear_values() const {
    const int rows = tile.keys - (tile.blocks - 1) * kKeys;
    if (rows >= kKeys || tile.blocks == 0) return;
    Ring<C::kStages> at = ring;
    at.next();
    barrier_wait(block.full(at.stage), at.phase);
    clear_rows<Values::kSlabs, kKeys>(block.stage(at.stage), rows, group * kGroupThreads + thread,
                                      Block::kConsumers * kGroupThreads);
    threads_sync(kTogether, Block::kConsumers * kGroupThreads);
  }

 public:
  __device__ __forceinline__ FlashConsumer(const FlashArguments& arguments, const Block& shared,
                                           int warpgroup)
      : a(arguments),
        block(shared),
        group(warpgroup),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(uniform(thread / 32)),
        factors(arguments) {
    rows.clear();
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0;
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] = 0;
#pragma unroll
    for (int i = 0; i < kSteps * 4; ++i) weights[i / 4][i % 4] = 0;
  }

  __device__ __forceinline__ void run() {
    int adds = 0;  // whether the sums hold something
    if (group == Block::kConsumers - 1) threads_arrive(kTurns, 2 * kGroupThreads);
#pragma unroll 1
    for (;;) {
      const bool repaired = steady(adds);
      const bool opens = index == first && !repaired;
      const FlashRows before = rows;
      const FlashTile done = tile;
      const float scale_of_sums = factors.of_sums();
      if (!repaired) {
        if (opens) open_tile();
        --index;
        fetch_biases();
        factors.fetch(a, index);
        multiply(adds);
        bend();
        raise();
        mask();
      }
      float factor[2];
      constexpr bool kLow = C::kBias == FmhaBias::elementwise;
      const bool moved = refer<Weight, kLow>(scores, factors.of_compared(), rows, factor);
      weigh(scores, factors.of_compared(), rows);
      release_queries();
      finish();
      if (opens) {
        if (done.blocks > 0) {
          FlashStore<C>{a, block, group, warp, lane}.store(done, before, sums, scale_of_sums);
        }
        if (tile.blocks == 0) break;
      } else if (moved) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] *= factor[i / 2 % 2];
      }
      factors.turn(sums, scores, !opens);
      pack();
      if (!kEqual && opens) clear_values();
      adds = opens ? 0 : 1;
    }
    stores_wait_all();
  }
};

}  // namespace tessera::device
