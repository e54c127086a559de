// Stores of rows that lie anywhere in the output, 16 bytes at a time where that is aligned. A store
// area holds raw accumulators (tma_store.h).
#pragma once

#include "tessera/device/cuda/tma_store.h"
#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

template <class Store>
struct NamedRows {
  using Out = typename Store::Out;
  using Acc = typename Store::Acc;
  using Finishing = typename Store::Finishing;
  static constexpr int kPairs = 4;                              // of a thread, in a row
  static constexpr int kAcross = Store::kWidth / (2 * kPairs);  // threads of a row
  static constexpr int kApart = kGroupThreads / kAcross;        // rows between two of a thread
  static constexpr int kAll = (Store::kHeight + kApart - 1) / kApart;
  // Rows that a thread handles at a time: the registers besides the accumulators limit them.
  static constexpr int kMost = Store::kSpare < 64 ? 1 : Store::kSpare <= 96 ? 2 : 4;
  static constexpr int kAtOnce = least_of(kMost, kAll);
  using Run = Neighbours<PairBits<Out>, kPairs>;

  const Store& store;

  // Finishes what the area holds for `place`. row_of(row) is the output's row of a product's row,
  // or -1. All loads of kAtOnce rows come before the first store.
  template <class RowOf>
  __device__ __forceinline__ void finish(const StorePlace& place, const RowOf& row_of) const {
    const Finishing finishing(store.g, 0);
    const int column = store.thread % kAcross * (2 * kPairs);
    const int left = static_cast<int>(columns_of(store.g)) - place.column - column;
    const bool is_whole = left >= 2 * kPairs && is_aligned();
#pragma unroll 1
    for (int first = store.thread / kAcross; first < Store::kHeight; first += kAtOnce * kApart) {
      i64 rows[kAtOnce];
      Run done[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * kApart;
        const bool is = row < Store::kHeight && place.row + row < rows_of(store.g);
        rows[i] = is ? row_of(place.row + row) : -1;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (rows[i] < 0) continue;
        done[i] =
            finished(finishing, first + i * kApart, column, {rows[i], place.column + column, left});
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (rows[i] < 0) continue;
        Out* const to = finishing.address({rows[i], place.column + column, 0});
        if (is_whole) {
          *reinterpret_cast<Run*>(to) = done[i];
        } else {
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair) {
            finishing.store(to + 2 * pair, done[i].x[pair], left - 2 * pair);
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ bool is_aligned() const {
    return ((reinterpret_cast<u64>(store.g.out) | store.g.ld_out * sizeof(Out)) & 15) == 0;
  }

  // `at` is the place of the first pair; its count is that of the whole row.
  __device__ __forceinline__ Run finished(const Finishing& finishing, int row, int column,
                                          Place at) const {
    Run run;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      Acc x, y;
      load_shared(store.area + Store::Raw::offset(row, column + 2 * pair), x, y);
      run.x[pair] = finishing.finish(at, x, y);
      at.column += 2;
      at.count -= 2;
    }
    return run;
  }
};

}  // namespace tessera::device
