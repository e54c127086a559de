// The results of a tile as numbers over scales, one for each row of out and all of the tile's
// columns, where operands are swapped: columns of out are wgmma's rows, so that those of a row lie
// in all warps of all consumers (tma_store.h says where).
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/tma_store.h"
#include "tessera/device/norm.h"

namespace tessera::device {

template <class Out, int kBlocks, int kRows, int kConsumers>
struct QuantisedTile {
  static constexpr int kThreads = kConsumers * kGroupThreads;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kBytes = kWarps * kRows * 4;
  static_assert(kRows <= kGroupThreads, "a thread writes a row's scale");

  u32 memory;   // address in shared memory of kBytes, which others use before and behind
  int barrier;  // named barrier of all consumers
  int thread;   // of all consumers

  // store(row, scale) is called once for each row of the tile. All consumers call this.
  template <class Acc, class Store>
  __device__ __forceinline__ void quantise(Acc (&results)[kBlocks][kRows / 2],
                                           const Store& store) const {
    threads_sync(barrier, kThreads);  // what was here has been read
    put_mosts(results);
    threads_sync(barrier, kThreads);
    const int lane = thread & 31;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      float x, y;
      most_of_all(i * 8 + (lane & 3) * 2, x, y);
      x = 1.0F / quant_scale(x, kLargest), y = 1.0F / quant_scale(y, kLargest);
#pragma unroll
      for (int j = 0; j < kBlocks * 2; ++j) {
        results[j / 2][i * 4 + j % 2 * 2] *= x;
        results[j / 2][i * 4 + j % 2 * 2 + 1] *= y;
      }
    }
    if (thread < kRows) {
      float x, y;
      most_of_all(thread & ~1, x, y);
      store(thread, quant_scale(thread % 2 == 0 ? x : y, kLargest));
    }
    threads_sync(barrier, kThreads);  // before others write here
  }

 private:
  static constexpr float kLargest = kSame<Out, fp8> ? 448.0F : 57344.0F;

  // Each warp's greatest magnitudes; NaN does not count.
  template <class Acc>
  __device__ __forceinline__ void put_mosts(const Acc (&results)[kBlocks][kRows / 2]) const {
    const int lane = thread & 31;
    const u32 to = memory + thread / 32 * kRows * 4 + (lane & 3) * 8;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      float x = 0, y = 0;
#pragma unroll
      for (int j = 0; j < kBlocks * 2; ++j) {
        x = fmaxf(x, fabsf(results[j / 2][i * 4 + j % 2 * 2]));
        y = fmaxf(y, fabsf(results[j / 2][i * 4 + j % 2 * 2 + 1]));
      }
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, distance));
        y = fmaxf(y, __shfl_xor_sync(0xffffffffU, y, distance));
      }
      if (lane < 4) store_shared(to + i * 32, x, y);
    }
  }

  // The greatest magnitudes of two rows, the first of an even number.
  __device__ __forceinline__ void most_of_all(int row, float& x, float& y) const {
    x = y = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      float a, b;
      load_shared(memory + (warp * kRows + row) * 4, a, b);
      x = fmaxf(x, a), y = fmaxf(y, b);
    }
  }
};

// Stores of such results in 8 bits, each row at its place, 8 bytes at a time where that is aligned.
// A store area holds them (tma_store.h).
template <class Store>
struct QuantisedRows {
  using Out = typename Store::Out;
  static constexpr int kPairs = 4;                              // of a thread, in a row
  static constexpr int kAcross = Store::kWidth / (2 * kPairs);  // threads of a row
  using Run = Neighbours<PairBits<Out>, kPairs>;

  const Store& store;

  // row_of(row) is the output's row of a product's row, or -1.
  template <class RowOf>
  __device__ __forceinline__ void finish(const StorePlace& place, const RowOf& row_of) const {
    const int column = store.thread % kAcross * (2 * kPairs);
    const int left = static_cast<int>(columns_of(store.g)) - place.column - column;
#pragma unroll 1
    for (int row = store.thread / kAcross; row < Store::kHeight; row += kGroupThreads / kAcross) {
      const bool is = place.row + row < rows_of(store.g);
      const i64 named = is ? row_of(place.row + row) : -1;
      if (named < 0) continue;
      Run run;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        float x, y;
        load_shared(store.area + Store::Raw::offset(row, column + 2 * pair), x, y);
        run.x[pair] = round_output<Out>(x, y);
      }
      put(static_cast<Out*>(store.g.out) + named * store.g.ld_out + place.column + column, run,
          left);
    }
  }

 private:
  static __device__ __forceinline__ void put(Out* to, const Run& run, int left) {
    if (left >= 2 * kPairs && reinterpret_cast<u64>(to) % sizeof(Run) == 0) {
      *reinterpret_cast<Run*>(to) = run;
      return;
    }
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      if (i < left) to[i] = Out{static_cast<u8>(run.x[i / 2] >> i % 2 * 8)};
    }
  }
};

}  // namespace tessera::device
