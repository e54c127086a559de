// Values on their way to the tensor cores, which read 8 bits only where the keys of an element are
// neighbours: three warps turn each block.
//
// Both orders are free, because sums over keys have any order and columns are put right when they
// are stored:
//   place 4 t + 2 h + e of 16 keys holds key 8 h + 2 t + e: so weights are packed as a thread has
//   them, see flash8_rows.h;
//   line n of 16 elements holds element 2 n (n < 8) or 2 (n - 8) + 1: so the eight lines of an 8x8
//   matrix have different swizzles.
#pragma once

#include "tessera/device/cuda/fmha/flash8_block.h"
#include "tessera/device/cuda/fmha/flash_rows.h"

namespace tessera::device {

// What is said of a block of values: whether it is there, and whether it is the last one.
inline constexpr int kFlash8IsThere = 1, kFlash8IsLast = 2;

template <class C>
class Flash8Turner {
  using Block = Flash8Block<C>;
  using Turned = typename Block::Turned;
  using Raw = typename Block::Raw;
  static constexpr int kKeys = Block::kKeys;
  static constexpr int kWarps = kFlash8Turners;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBarrier = 11;  // of these warps
  static constexpr int kAcross = kKeys / 32;
  static constexpr int kAtATime = kAcross % 3 == 0                    ? 3
                                  : C::kWaveM < 3 && kAcross % 4 == 0 ? 4
                                  : kAcross % 2 == 0                  ? 2
                                                                      : 1;

  const Block block;
  const int warp, lane;

  // Units of 32 keys by 16 elements. A matrix that is loaded has 8 keys, and pairs of elements in
  // the place of elements of 16 bits.
  __device__ __forceinline__ void turn(u32 raw, u32 turned) const {
    const int line = (lane >> 3 & 1) * 8 + (lane & 7);
    u32 places[kAcross];
#pragma unroll
    for (int k = 0; k < kAcross; ++k) places[k] = Turned::place(line, 2 * k + (lane >> 4));
    const u32 from = raw + lane * kLineBytes;
#pragma unroll 1
    for (int i = warp; i < C::kHdimV / 16; i += kWarps) {
      const u32 column = from + i / 8 * Raw::kSlabBytes + ((i % 8 ^ (lane & 7)) << 4);
      const u32 to = turned + i * 16 * Turned::kLine;
#pragma unroll
      for (int k = 0; k < kAcross; k += kAtATime) {
        u32 words[kAtATime][4];
#pragma unroll
        for (int j = 0; j < kAtATime; ++j) {
          load_matrices<true>(column + (k + j) * 32 * kLineBytes, words[j]);
        }
#pragma unroll
        for (int j = 0; j < kAtATime; ++j) {
          const u32(&w)[4] = words[j];
          const u32 lines[4] = {__byte_perm(w[0], w[1], 0x6420), __byte_perm(w[0], w[1], 0x7531),
                                __byte_perm(w[2], w[3], 0x6420), __byte_perm(w[2], w[3], 0x7531)};
          store_matrices<false>(to + places[k + j], lines);
        }
      }
    }
  }

  // What lies behind a sequence may be NaN, and 0 times that, too.
  __device__ __forceinline__ void clear(u32 raw, int keys) const {
    clear_rows<Raw::kSlabs, kKeys>(raw, keys, warp * 32 + lane, kThreads);
    threads_sync(kBarrier, kThreads);
  }

 public:
  // `index`: of the warp, of three.
  __device__ __forceinline__ Flash8Turner(const Block& shared, int index)
      : block(shared), warp(index), lane(static_cast<int>(threadIdx.x) % 32) {}

  __device__ __forceinline__ void run() {
    Ring<Block::kRaws> raws;
    Ring<kFlash8Turned> ring;
#pragma unroll 1
    for (;;) {
      barrier_wait(block.raw_full(raws.stage), raws.phase);
      // Lane 0 reads, since it is lane 0 that passes the block on.
      int state = 0, keys = 0;
      if (lane == 0) load_shared(block.state(raws.stage), state, keys);
      state = uniform(state);
      keys = uniform(keys);
      const u32 raw = block.raw(raws.stage), turned = block.turned(ring.stage);
      barrier_wait(block.turned_empty(ring.stage), ring.phase ^ 1);
      if ((state & kFlash8IsThere) != 0) {
        if (!Block::kEqual && keys < kKeys) clear(raw, keys);
        turn(raw, turned);
      }
      copy_engine_fence();
      __syncwarp();
      barrier_arrive_if(block.turned_full(ring.stage), lane == 0);
      barrier_arrive_if(block.raw_empty(raws.stage), lane == 0);
      if ((state & kFlash8IsLast) != 0) break;
      raws.next();
      ring.next();
    }
  }
};

}  // namespace tessera::device
