// Values of 8 bits in a flash kernel: three warps convert each block to fp16, which is exact, in
// the layout in which the tensor cores read values. The tensor cores could read values of 8 bits
// only if the keys of an element were neighbours.
#pragma once

#include "tessera/device/cuda/fmha/flash_block.h"
#include "tessera/device/cuda/fragments.h"

namespace tessera::device {

// What is said of a block that waits: whether there are values, and whether it is the last one.
inline constexpr int kRawIsThere = 1, kRawIsLast = 2;

// A block has a line of kHdimV bytes for each key. The converted ones are slabs of 64 elements with
// a swizzled line of 128 bytes for each key. A piece of 16 elements becomes two of 16 bytes.
template <class C>
class FlashConverter {
  using Block = FlashBlock<C>;
  using T = typename C::In;
  using Values = typename Block::Values;
  static constexpr int kWarps = Block::kConverters;
  static constexpr int kBarrier = 11;                // of these warps
  static constexpr int kQuarters = kFlashSlab / 16;  // pieces of a key in a slab
  static constexpr int kSlabs = Values::kSlabs;
  static constexpr int kTurns = C::kTileN * kSlabs * kQuarters / 32;  // of a warp, for a block
  static_assert(C::kTileN % 8 == 0, "a turn has whole pairs of keys");

  const Block block;
  const int warp, lane;

  // A lane's piece in a turn. Four lanes have the pieces of a key and a slab. The next four have
  // the other key of a pair and another slab: so the eight lanes that load, or store, 16 bytes each
  // at a time find all banks.
  struct Piece {
    int key, slab, quarter;
  };
  __device__ __forceinline__ Piece piece_of(int turn) const {
    const int group = turn * 8 + lane / 4;
    const int odd = group % 2;
    return {group / (2 * kSlabs) * 2 + odd, (group / 2 % kSlabs) ^ (kSlabs > 1 ? odd : 0),
            lane % 4};
  }

  __device__ __forceinline__ void load(u32 raw, int turn, u32 (&words)[4]) const {
    const Piece p = piece_of(turn);
    load_words(raw + p.key * C::kHdimV + p.slab * kFlashSlab + p.quarter * 16, words);
  }
  __device__ __forceinline__ void store(u32 stage, int turn, const u32 (&words)[4]) const {
    const Piece p = piece_of(turn);
    const u32 line = stage + p.slab * Values::kSlabBytes + p.key * kLineBytes;
    u32 halves[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      halves[2 * i] = halves_of<T>(words[i]);
      halves[2 * i + 1] = halves_of<T>(words[i] >> 16);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 to = line + (((p.quarter * 2 + i) ^ (p.key & 7)) << 4);
      store_words(to, &halves[4 * i]);
    }
  }

  __device__ __forceinline__ void convert(u32 raw, u32 stage) const {
    u32 words[4];
    load(raw, warp, words);
#pragma unroll 1
    for (int turn = warp; turn < kTurns; turn += kWarps) {
      u32 next[4] = {0, 0, 0, 0};
      if (turn + kWarps < kTurns) load(raw, turn + kWarps, next);
      store(stage, turn, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = next[i];
    }
  }

 public:
  // `index`: of the warp, of three.
  __device__ __forceinline__ FlashConverter(const Block& shared, int index)
      : block(shared), warp(index), lane(static_cast<int>(threadIdx.x) % 32) {}

  // Keys and values take stages in turn, the keys first.
  __device__ __forceinline__ void run() {
    Ring<C::kStages> ring;
    Ring<kFlashRaws> raws;
    ring.next();
#pragma unroll 1
    for (;;) {
      barrier_wait(block.raw_full(raws.stage), raws.phase);
      // Lane 0 reads, since it is lane 0 that passes the block on.
      int state = 0;
      if (lane == 0) state = static_cast<int>(load_word(block.raw_state(raws.stage)));
      state = uniform(state);
      barrier_wait(block.empty(ring.stage), ring.phase ^ 1);
      if ((state & kRawIsThere) != 0) convert(block.raw(raws.stage), block.stage(ring.stage));
      copy_engine_fence();
      threads_sync(kBarrier, kWarps * 32);
      barrier_arrive_if(block.full(ring.stage), warp == 0 && lane == 0);
      barrier_arrive_if(block.raw_empty(raws.stage), lane == 0);
      if ((state & kRawIsLast) != 0) break;
      raws.next();
      ring.next();
      ring.next();
    }
  }
};

}  // namespace tessera::device
