// The warpgroups of a flash kernel with products of 8 bits that multiply.
#pragma once

#include "tessera/device/cuda/fmha/flash8_rows.h"
#include "tessera/device/cuda/fmha/flash8_store.h"
#include "tessera/device/cuda/fmha/flash8_sums.h"
#include "tessera/device/cuda/fmha/flash_factors.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

// A warpgroup with 64 queries. All control that leads to a wgmma depends on what is equal in the
// whole warpgroup; a warp may leave for a repair, and meets the others at the same wgmma again.
template <class C>
class Flash8Consumer {
  using Block = Flash8Block<C>;
  using Seen = FlashSeen<C>;
  using T = typename C::In;
  using Queries = typename Block::Queries;
  using Keys = typename Block::Keys;
  using Turned = typename Block::Turned;
  static constexpr Flash8Sizes kSizes = Block::kSizes;
  static constexpr int kKeys = C::kTileN;
  static constexpr bool kInRegisters = kSizes.queries_in_registers;
  // Steps of Q K^T and of P V; scores of a thread.
  static constexpr int kDepth = C::kTileK / kWgmmaBytesK;
  static constexpr int kSteps = kKeys / kWgmmaBytesK;
  static constexpr int kScores = kKeys / 2;
  static constexpr int kSums = C::kHdimV / 2;
  static constexpr bool kSameRing = Block::kStages == kFlash8Turned;
  static_assert(kFlash8Turned == 2, "values() knows the stage before");
  // Blocks between two sums in fp32, as a divisor.
  static constexpr bool kHasLevels = C::kBetween > 0;
  static constexpr int kBetween = kHasLevels ? C::kBetween : 1;
  // Named barriers: consumers take turns to multiply; a consumer.
  static constexpr int kTurns = 4, kAlone = 8;
  static constexpr bool kEqual = Block::kEqual;
  using MultiplyKeys = Wgmma<T, T, kKeys, kInRegisters ? WgmmaFrom::registers : WgmmaFrom::k_lines,
                             WgmmaFrom::k_lines>;
  using MultiplyValues = Wgmma<fp8, T, C::kHdimV, WgmmaFrom::registers, WgmmaFrom::k_lines>;

  const FlashArguments& a;
  const Block block;
  const int group, thread, lane, warp;
  FlashFactors<C> factors;

  Ring<Block::kStages> ring;   // of keys
  Ring<kFlash8Turned> turned;  // of values, the same where there are as many stages of keys
  Ring<Block::kBuffers> buffers;
  u32 buffer = 0;  // of this tile's queries
  FlashTile tile = {0, 0, 0, 0, 0, 0, 0, 0};
  int index = 0;  // the block whose weights are held
  int first = 0;  // the tile's first block
  int stop = 0;   // the blocks in front of this one have keys before some query's window
  int right = 0;  // query i sees the keys below i + right
  Flash8Rows rows;
  float added[2];  // this thread's sums of the weights of the block
  Flash8Sums<C> parts;
  float sums[kSums], scores[kScores];
  u32 weights[kSteps][4];
  u32 queries[kInRegisters ? kDepth : 1][4];

  // A repair costs as much as several blocks. So the warps of a consumer tell each other of a
  // second one by two flags, see flash_consumer.h.
  u32 parity = 0;
  int number = 0;
  int wary = 0;     // whether the tile's further blocks take their maxima
  int repairs = 0;  // of this warp in the tile

  __device__ __forceinline__ u32 flag(u32 which) const {
    return block.shared + kSizes.flags + static_cast<u32>(group) * 8 + which * 4;
  }

  // The stage of the values that are being multiplied.
  __device__ __forceinline__ u32 values() const {
    return (kSameRing ? ring.stage : turned.stage) ^ 1;
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
    const u64 k = Keys::descriptor(block.keys(ring.stage));
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
    barrier_wait(block.keys_full(ring.stage), ring.phase);
    threads_sync(kTurns + group, 2 * kGroupThreads);
    wgmma_fence();
    start_keys();
    wgmma_commit();
    if constexpr (kSameRing) turned.stage = ring.stage, turned.phase = ring.phase;
    ring.next();
    barrier_wait(block.turned_full(turned.stage), turned.phase);
    const u64 v = Turned::descriptor(block.turned(turned.stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      MultiplyValues::multiply(sums, weights[step], v + Turned::descriptor_offset(step),
                               step > 0 ? 1 : adds);
    }
    wgmma_commit();
    threads_arrive(kTurns + (group + 1 == Block::kConsumers ? 0 : group + 1), 2 * kGroupThreads);
    if constexpr (!kSameRing) turned.next();
    // The vote tells the compiler that all threads go the same way.
    const bool jumped = static_cast<int>(load_word(flag(parity))) == number;
    if (__any_sync(~0U, jumped)) wary = 1;
    parity ^= 1;
    wgmma_wait<1>();
    wgmma_done(scores);
    barrier_arrive_if(block.keys_empty(keys), thread == 0);
  }
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
    wgmma_done(sums);
    wgmma_done(scores);
    barrier_arrive_if(block.turned_empty(values()), thread == 0);
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < kScores; i += 8) {
      u32* const to = &weights[i / 16][i / 8 % 2 * 2];
      const float* const s = &scores[i];
      to[0] = pack8(s[0], s[1], s[4], s[5]);
      to[1] = pack8(s[2], s[3], s[6], s[7]);
    }
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
    return end > Seen::keys_of(a, tile) || (C::kMasked && end + more > tile.row + right);
  }
  __device__ __forceinline__ bool is_edge(int i) const { return wary != 0 || is_cut(i, 1); }

  // Whether the sums go to the second level before the next block is added.
  __device__ __forceinline__ void raise_sums(int& adds) {
    if (!kHasLevels || adds == 0 || index <= first || index % kBetween != 0) return;
    parts.add(sums, factors.of_sums());
    adds = 0;
  }

  // The blocks of a tile that have neither masks nor a mean jump of the scores, up to the next sum.
  // True: some weights of this warp may be too large in the last one.
  __device__ __forceinline__ bool steady(int& adds) {
    if (index <= stop || is_edge(index - 1)) return false;
    const int to = kHasLevels ? max(stop, (index - 1) / kBetween * kBetween) : stop;
#pragma unroll 1
    do {
      factors.fetch(a, index - 1);
      multiply(adds);
      adds = 1;
      --index;
      weigh8(scores, factors.of_products(), rows, added);
      const bool has_room = added[0] <= kFlash8Most && added[1] <= kFlash8Most;
      if (__any_sync(~0U, !has_room)) return true;
      rows.add(added);
      release_queries();
      finish();
      factors.turn(sums, scores, true);
      pack();
    } while (index > to && wary == 0);
    return false;
  }

  // Scores in powers of 2.
  __device__ __forceinline__ void raise() {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] *= factors.of_products();
  }
  __device__ __forceinline__ void multiply_again() {
    const FmhaArguments& g = a.fmha;
    const i64 head = tile.head / static_cast<int>(g.heads / g.heads_kv);
    const i64 token = i64{index} * kKeys + (kEqual ? 0 : tile.first_key);
    const T* const keys = static_cast<const T*>(g.k) + tile.batch * g.k_stride[kTokenBatch] +
                          head * g.k_stride[kTokenHead] + token * g.k_stride[kToken];
    const FlashTokens<T> tokens = {keys, g.k_stride[kToken], static_cast<int>(g.hdim)};
    multiply_bytes_again<C::kTileK>(
        tokens, lane, [this](int step, u32(&words)[4]) { load_fragment(step, words); }, scores);
  }

  // A steady block whose weights may be too large for e4m3. The weights in fp32 are still there,
  // and only where they are too large for that, too, scores are multiplied again.
  __device__ __forceinline__ void repair(float (&factor)[2]) {
    const bool is_huge = !(added[0] + added[1] < kFlash8Huge);
    if (__any_sync(~0U, is_huge)) {
      multiply_again();
      raise();
      refer8(scores, rows, factor);
      weigh8(scores, 1, rows, added);
      repairs = 1;
    } else {
      shrink8(scores, rows, added, factor);
    }
    store_shared_if(flag(parity), number, lane == 0 && repairs > 0);
    ++repairs;
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
    wary = repairs = 0;
  }

  // Which blocks the tile sees, and which of them are cut on the left.
  __device__ __forceinline__ void open_window() {
    const int left = a.left + Seen::diagonal(a, tile);
    right = a.right + Seen::diagonal(a, tile);
    first = Seen::first_block(a, tile, tile.row - group * kWgmmaRows);
    stop = max(first, min((tile.row + kWgmmaRows - 1 + left + kKeys - 1) / kKeys, tile.blocks));
  }
  __device__ __forceinline__ void clear_queries() const {
    const int there = max(0, tile.queries - tile.row);
    if (there >= kWgmmaRows || tile.blocks == 0) return;
    clear_rows<Queries::kSlabs, kWgmmaRows>(block.queries(buffer), there, thread, kGroupThreads);
    threads_sync(kAlone + group, kGroupThreads);
  }

  __device__ __forceinline__ void mask() {
    const int key = index * kKeys + lane % 4 * 2;
    const int row = tile.row + warp * 16 + lane / 4;
    if (is_cut(index, 0)) {
      const int there = Seen::keys_of(a, tile) - key;
      const int seen = row + right - key;
      hide(scores, C::kMasked ? min(there, seen) : there,
           C::kMasked ? min(there, seen + 8) : there);
    }
    if (C::kMasked && index < stop) {
      const int unseen = row + a.left + Seen::diagonal(a, tile) - key;
      hide_before(scores, unseen, unseen + 8);
    }
  }

  // What was added up before has other references than the weights of the block.
  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
    if (!__any_sync(~0U, factor[0] != 1.0F || factor[1] != 1.0F)) return;
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] *= factor[i / 2 % 2];
    if constexpr (kHasLevels) parts.scale(factor);
  }
  __device__ __forceinline__ void store(const FlashTile& done, const Flash8Rows& its, float unit) {
    if (done.blocks == 0) return;
    if constexpr (kHasLevels) parts.give(sums, unit);
    Flash8Store<C>{a, block, group, warp, lane}.store(done, its, sums, unit);
  }

 public:
  __device__ __forceinline__ Flash8Consumer(const FlashArguments& arguments, const Block& shared,
                                            int warpgroup)
      : a(arguments),
        block(shared),
        group(warpgroup),
        thread(static_cast<int>(threadIdx.x) % kGroupThreads),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(uniform(thread / 32)),
        factors(arguments),
        parts(shared, group, warp, lane) {
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
      raise_sums(adds);
      const bool repairs_block = steady(adds);
      if (kHasLevels && !repairs_block && adds == 1 && index > first && index % kBetween == 0) {
        continue;
      }
      const bool opens = index == first && !repairs_block;
      const Flash8Rows before = rows;
      const FlashTile done = tile;
      const float unit_of_sums = factors.of_sums();
      float factor[2];
      if (repairs_block) {
        repair(factor);
      } else {
        if (opens) open_tile();
        --index;
        factors.fetch(a, index);
        multiply(adds);
        raise();
        mask();
        refer8(scores, rows, factor);
        weigh8(scores, 1, rows, added);
      }
      level8(scores, rows, added, factor);
      rows.add(added);
      release_queries();
      finish();
      if (!opens) rescale(factor);
      factors.turn(sums, scores, !opens);
      pack();
      if (opens) {  // behind pack(): results need the registers of the scores
        store(done, before, unit_of_sums);
        if (tile.blocks == 0) break;
      }
      adds = opens ? 0 : 1;
    }
    stores_wait_all();
  }
};

}  // namespace tessera::device
