// Attention forward on Hopper's copy engine and tensor cores: Q K^T of a block of keys is
// multiplied together with P V of the block before, be that of the same tile or not, and the
// softmax of a block runs beside P V. In the steady state no maxima are taken, see flash_rows.h.
//
// Launch: blocks of flash_threads(wave_m) threads with flash_sizes().bytes of dynamic shared
// memory; any number of blocks, which take tiles from a counter.
#pragma once

#include "tessera/device/cuda/fmha/flash_producer.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
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
  static constexpr int kDepth = C::kTileK / 16;  // steps of Q K^T
  static constexpr int kSteps = kKeys / 16;      // steps of P V
  static constexpr int kScores = kKeys / 2;      // of a thread
  static constexpr int kSums = C::kHdimV / 2;
  static constexpr int kTurns = 4;      // named barriers: consumers take turns to multiply
  static constexpr int kWaryTiles = 8;  // for which a consumer expects further repairs
  using MultiplyKeys = Wgmma<T, T, kKeys, kInRegisters ? WgmmaFrom::registers : WgmmaFrom::k_lines,
                             WgmmaFrom::k_lines>;
  using MultiplyValues = Wgmma<T, T, C::kHdimV, WgmmaFrom::registers, WgmmaFrom::row_lines>;

  const FlashArguments& a;
  const Block block;
  const int group, thread, lane, warp;
  const float unit;  // of scores, in powers of 2

  Ring<C::kStages> ring;
  Ring<Block::kBuffers> buffers;
  u32 buffer = 0;  // of this tile's queries
  u32 values = 0;  // the stage of the values that are being multiplied
  FlashTile tile = {0, 0, 0, 0};
  int index = 0;  // the block whose weights are held
  FlashRows rows;
  float sums[kSums], scores[kScores];
  u32 weights[kSteps][4];
  u32 queries[kInRegisters ? kDepth : 1][4];

  // A repair costs as much as several blocks. So the warps of a consumer tell each other of repairs
  // by two flags that hold the tile's number, one for every other block; what is written beside one
  // product is read after the turn of the next one.
  u32 parity = 0;
  int number = 0;
  int wary = 0;  // tiles for which all blocks take their maxima

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
    if (__any_sync(~0U, jumped)) wary = kWaryTiles;
    parity ^= 1;
    wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < kScores; ++i) wgmma_done(scores[i]);
    barrier_arrive_if(block.empty(keys), thread == 0);
  }
  __device__ __forceinline__ void finish() {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kSums; ++i) wgmma_done(sums[i]);
#pragma unroll
    for (int i = 0; i < kScores; ++i) wgmma_done(scores[i]);
    barrier_arrive_if(block.empty(values), thread == 0);
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      weights[i / 4][i % 4] = round_pair<T>(scores[2 * i], scores[2 * i + 1]);
    }
  }
  __device__ __forceinline__ void release_queries() const {
    barrier_arrive_if(block.queries_empty(buffer), lane == 0 && index == 0);
  }

  // ---- blocks ----

  // Whether a block has masked keys; with one key more, also whether the one behind it is the first
  // that has some. In all other blocks every query has a reference.
  __device__ __forceinline__ bool is_cut(int i, int more) const {
    const int end = (i + 1) * kKeys;
    return end > a.fmha.seqlen_k || (C::kMasked && end + more > tile.row + a.shift);
  }
  __device__ __forceinline__ bool is_edge(int i) const { return wary > 0 || is_cut(i, 1); }

  // The blocks of a tile that have neither masks nor a mean jump of the scores. True: this warp's
  // scores jumped in the last one, and are to be weighed anew.
  __device__ __forceinline__ bool steady(int& adds) {
    if (index == 0 || is_edge(index - 1)) return false;
#pragma unroll 1
    do {
      multiply(adds);
      adds = 1;
      --index;
      const float before[2] = {rows.total[0], rows.total[1]};
      weigh(scores, unit, rows);
      const bool has_room = FlashRange<T>::has_room(before[0], rows.total[0]) &&
                            FlashRange<T>::has_room(before[1], rows.total[1]);
      if (__any_sync(~0U, !has_room)) {
        repair();
        rows.total[0] = before[0];
        rows.total[1] = before[1];
        return true;
      }
      release_queries();
      finish();
      pack();
    } while (index > 0 && wary == 0);
    return false;
  }

  __device__ __forceinline__ void repair() {
    const FmhaArguments& g = a.fmha;
    const i64 head = tile.head / static_cast<int>(g.heads / g.heads_kv);
    const T* const keys = static_cast<const T*>(g.k) + tile.batch * g.k_stride[kTokenBatch] +
                          head * g.k_stride[kTokenHead] + i64{index} * kKeys * g.k_stride[kToken];
    const FlashTokens<T> tokens = {keys, g.k_stride[kToken], static_cast<int>(g.hdim)};
    multiply_again<C::kTileK>(
        tokens, lane, [this](int step, u32(&words)[4]) { load_fragment(step, words); }, scores);
    store_shared_if(flag(parity ^ 1), number, lane == 0);
  }

  __device__ __forceinline__ void open_tile() {
    buffer = static_cast<u32>(group) * Block::kBuffers + buffers.stage;
    barrier_wait(block.queries_full(buffer), buffers.phase);
    buffers.next();
    load_shared(block.place(buffer), tile.row, tile.head, tile.batch, tile.blocks);
    tile.row = uniform(tile.row);
    tile.blocks = uniform(tile.blocks);
    if constexpr (kInRegisters) {
#pragma unroll
      for (int step = 0; step < kDepth; ++step) load_fragment(step, queries[step]);
    }
    index = tile.blocks;
    rows.clear();
    ++number;
    if (wary > 0) --wary;
  }

  __device__ __forceinline__ void mask() {
    if (!is_cut(index, 0)) return;
    const int first = index * kKeys + lane % 4 * 2;
    const int left = static_cast<int>(a.fmha.seqlen_k) - first;
    const int seen = tile.row + warp * 16 + lane / 4 + a.shift - first;
    hide(scores, C::kMasked ? min(left, seen) : left, C::kMasked ? min(left, seen + 8) : left);
  }

  // ---- results ----

  // Each warp stores its rows by itself, through staging of its own.
  __device__ __forceinline__ void store(const FlashTile& done, const FlashRows& its) const {
    float factor[2], lse[2];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float total = sum_of_row(its.total[x]);
      factor[x] = total == 0 ? 0.0F : reciprocal(total);
      lse[x] = total == 0 ? minus_infinity()
                          : its.reference[x] * a.fmha.scale +
                                (__log2f(total) + FlashRange<T>::kShift) * 0.69314718056F;
    }
    const int row = done.row + warp * 16;
    if (C::kLse && lane % 4 == 0) store_lse(done, row + lane / 4, lse);
    const u32 staging = block.shared + kSizes.out + static_cast<u32>(group) * kSizes.out_bytes +
                        static_cast<u32>(warp) * kSizes.out_slabs * kFlashStoredRows * kLineBytes;
#pragma unroll
    for (int slab = 0; slab < C::kHdimV / kFlashSlab; slab += kSizes.out_slabs) {
      stores_wait_read<0>();  // only lane 0 has stores to wait for
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kSizes.out_slabs; ++i) {
        stage_slab(staging + i * kFlashStoredRows * kLineBytes, &sums[(slab + i) * 32], factor);
      }
      copy_engine_fence();
      __syncwarp();
      if (lane != 0 || row >= a.fmha.seqlen_q) continue;
#pragma unroll
      for (int i = 0; i < kSizes.out_slabs; ++i) {
        tma_store(TmaBox<4>{&a.out_map, {(slab + i) * kFlashSlab, row, done.head, done.batch}},
                  staging + i * kFlashStoredRows * kLineBytes);
      }
      stores_commit();
    }
  }
  __device__ __forceinline__ void store_lse(const FlashTile& done, int row,
                                            const float (&lse)[2]) const {
    const FmhaArguments& g = a.fmha;
    float* const to = g.lse + done.batch * g.lse_stride[0] + done.head * g.lse_stride[1];
    if (row < g.seqlen_q) to[row * g.lse_stride[2]] = lse[0];
    if (row + 8 < g.seqlen_q) to[(row + 8) * g.lse_stride[2]] = lse[1];
  }
  // 16 rows of 64 elements, from 32 sums of each lane.
  __device__ __forceinline__ void stage_slab(u32 to, const float* from,
                                             const float (&factor)[2]) const {
    const int row = lane % 16;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float* const f = from + i * 4;
      const u32 words[4] = {round_pair<T>(f[0] * factor[0], f[1] * factor[0]),
                            round_pair<T>(f[2] * factor[1], f[3] * factor[1]),
                            round_pair<T>(f[4] * factor[0], f[5] * factor[0]),
                            round_pair<T>(f[6] * factor[1], f[7] * factor[1])};
      store_matrices<false>(to + row * kLineBytes + (((i + lane / 16) ^ (row & 7)) << 4), words);
    }
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
        unit(arguments.fmha.scale * 1.44269504F) {
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
      const bool opens = index == 0 && !repaired;
      const FlashRows before = rows;
      const FlashTile done = tile;
      if (!repaired) {
        if (opens) open_tile();
        --index;
        multiply(adds);
        mask();
      }
      float factor[2];
      const bool moved = refer<T>(scores, unit, rows, factor);
      weigh(scores, unit, rows);
      release_queries();
      finish();
      if (opens) {
        if (done.blocks > 0) store(done, before);
        if (tile.blocks == 0) break;
      } else if (moved) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] *= factor[i / 2 % 2];
      }
      pack();
      adds = opens ? 0 : 1;
    }
    stores_wait_all();
  }
};

template <class C>
struct FlashFmha {
  using Block = FlashBlock<C>;

  static __device__ __forceinline__ void run(const FlashArguments& arguments) {
    extern __shared__ __align__(1024) unsigned char flash_memory[];
    constexpr int kConsumers = Block::kConsumers;
    const Block block = {shared_address(flash_memory)};
    const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
    if (threadIdx.x == 0) block.init();
    __syncthreads();
    if (group == kConsumers) {
      registers_shrink<kConsumers == 3 ? 32 : 24>();
      const int warp = uniform(static_cast<int>(threadIdx.x) % kGroupThreads / 32);
      if (warp == 0 && elect_one()) FlashProducer<C>(arguments, block).run();
    } else {
      registers_grow<flash_registers(kConsumers)>();
      FlashConsumer<C>(arguments, block, group).run();
    }
  }
};

}  // namespace tessera::device
