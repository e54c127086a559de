// New keys and values into a cache on a GPU, turned by their positions: any stride and alignment,
// pieces of 16 bytes where the rows allow them. Every element is read once and written once, so
// that memory sets the time; the tables come from the caches, because all heads of a token read the
// same row.
//
// Launch: blocks of 32 * wave_m threads, which append_block() shares out; grid {blocks of tokens of
// the longest sequence, blocks of a token's rows, batch}. A block takes further ones where a side
// of the grid is shorter.
#pragma once

#include "tessera/device/cuda/fmha/append_bytes.h"
#include "tessera/device/cuda/fmha/check_pages.h"
#include "tessera/device/fmha_append.h"

namespace tessera::device {

template <class C>
class FmhaAppendKernel {
  using T = typename C::In;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kThreadBits = bits_for(32 * C::kWaveM, 10);
  static_assert(1 << kThreadBits == 32 * C::kWaveM, "threads are a power of two");
  using Row = FmhaQueryRowOf<C>;  // or of a cache of the same type
  using Run = Neighbours<T, kVector>;

  template <int kBytes>
  static __device__ __forceinline__ bool is_aligned(const void* p) {
    return reinterpret_cast<u64>(p) % kBytes == 0;
  }

  // The first `left` of a run's elements. `to` may be `from`: nothing is read ahead of the writes
  // of another thread, because a thread writes what it alone reads.
  static __device__ __forceinline__ Run load(const Row& row, i64 element, i64 left) {
    const T* const p = row.from + element * row.from_stride;
    const int count = left < kVector ? static_cast<int>(left) : kVector;
    if (row.from_stride == 1) return load_run<kVector>(p, is_aligned<16>(p), count);
    Run run = {};
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < count) run.x[i] = p[i * row.from_stride];
    }
    return run;
  }

  static __device__ __forceinline__ void store(const Row& row, i64 element, i64 left,
                                               const Run& run) {
    constexpr bool kInRuns = Row::kTo == FmhaCacheLayout::vectorized;
    T* const p = row.to_element(element);
    const bool is_whole = row.to_stride == 1 && left >= kVector && is_aligned<16>(p);
    if (is_whole && (!kInRuns || element % kVector == 0)) {
      *reinterpret_cast<Run*>(p) = run;
      return;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < left) *(kInRuns ? row.to_element(element + i) : p + i * row.to_stride) = run.x[i];
    }
  }

  // Rounded where they were turned.
  static __device__ __forceinline__ Run rounded_run(const float (&x)[kVector]) {
    Run run;
#pragma unroll
    for (int i = 0; i < kVector; ++i) run.x[i] = rounded<T>(x[i]);
    return run;
  }

  // kCount neighbours of a table.
  template <int kCount>
  static __device__ __forceinline__ Neighbours<float, kCount> angles(const float* p, i64 left) {
    constexpr int kBytes = static_cast<int>(alignof(Neighbours<float, kCount>));
    const int count = left < kCount ? static_cast<int>(left) : kCount;
    return load_constants<kCount>(p, is_aligned<kBytes>(p), count);
  }

  // Elements i and i + half of the turned ones.
  static __device__ __forceinline__ void turn_halves(const Row& row, i64 i, const float* cos,
                                                     const float* sin) {
    const i64 half = row.turned / 2, left = half - i;
    const Run first = load(row, i, left), second = load(row, i + half, left);
    const auto c = angles<kVector>(cos + i, left), s = angles<kVector>(sin + i, left);
    float x[kVector], y[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const auto both = turned(to_float(first.x[j]), to_float(second.x[j]), c.x[j], s.x[j]);
      x[j] = both.x, y[j] = both.y;
    }
    store(row, i, left, rounded_run(x));
    store(row, i + half, left, rounded_run(y));
  }

  // Pairs of neighbours.
  static __device__ __forceinline__ void turn_neighbours(const Row& row, i64 i, const float* cos,
                                                         const float* sin) {
    constexpr int kPairs = kVector / 2;
    const i64 left = row.turned - i;
    const Run run = load(row, i, left);
    const auto c = angles<kPairs>(cos + i / 2, left / 2), s = angles<kPairs>(sin + i / 2, left / 2);
    float x[kVector];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const auto both = turned(to_float(run.x[2 * j]), to_float(run.x[2 * j + 1]), c.x[j], s.x[j]);
      x[2 * j] = both.x, x[2 * j + 1] = both.y;
    }
    store(row, i, left, rounded_run(x));
  }

  // Pieces of a row, those that are turned first.
  static __device__ __forceinline__ void move(const FmhaAppendArguments& g, const Row& row,
                                              i64 position, int thread, int threads) {
    i64 turned_pieces = 0;
    if constexpr (C::kRotary != FmhaRotary::none) {
      turned_pieces = append_pieces(C::kRotary, row.turned, row.turned, kVector);
      const float* const cos = g.cos + position * (g.rotary_dim / 2);
      const float* const sin = g.sin + position * (g.rotary_dim / 2);
#pragma unroll 1
      for (i64 piece = thread; piece < turned_pieces; piece += threads) {
        if constexpr (C::kRotary == FmhaRotary::half) turn_halves(row, piece * kVector, cos, sin);
        if constexpr (C::kRotary == FmhaRotary::interleaved) {
          turn_neighbours(row, piece * kVector, cos, sin);
        }
      }
    }
    // The first of the pieces that are left goes to the thread behind the last turned one.
    const i64 skipped = (thread - turned_pieces) & (threads - 1);
#pragma unroll 1
    for (i64 i = row.turned + skipped * kVector; i < row.count; i += i64{threads} * kVector) {
      store(row, i, row.count - i, load(row, i, row.count - i));
    }
  }

 public:
  static __device__ __forceinline__ void run(const FmhaAppendArguments& g) {
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const FmhaAppendBlock block = append_block(g, C::kRotary, C::kRotateQ, kVector, kThreadBits);
    const int threads = 1 << block.thread_bits, rows = 1 << block.row_bits;
    const int index = static_cast<int>(threadIdx.x);
    const int thread = index & (threads - 1);
    const int row_of_block = index >> block.thread_bits & (rows - 1);
    const int token_of_block = index >> (block.thread_bits + block.row_bits);
    const i64 all_rows = rows_of_token(g, C::kRotateQ);
#pragma unroll 1
    for (i64 batch = blockIdx.z; batch < g.batch; batch += gridDim.z) {
      const auto s = sequence_of<C::kLengths, C::kPages>(g, batch);
#pragma unroll 1
      for (i64 token = i64{blockIdx.x} * block.tokens + token_of_block; token < s.count;
           token += i64{gridDim.x} * block.tokens) {
        const i64 position = s.position + token;
        if (!has_place(g, s, position)) continue;
#pragma unroll 1
        for (i64 row = i64{blockIdx.y} * rows + row_of_block; row < all_rows;
             row += i64{gridDim.y} * rows) {
          if (row >= 2 * g.heads_kv) {
            const i64 query = row - 2 * g.heads_kv;
            move(g, query_row<C>(g, s, batch, token, query), position, thread, threads);
          } else if constexpr (sizeof(typename C::Kv) == 1) {
            using Bytes = FmhaAppendBytes<C>;
            float* const factor = factor_of_row<C::kQscale, C::kPages>(g, s, batch, position, row);
            Bytes{g, append_row<C>(g, s, batch, token, row), position, thread, threads}.move(
                factor);
          } else {
            move(g, append_row<C>(g, s, batch, token, row), position, thread, threads);
          }
        }
      }
    }
  }

  // The entry that a checked launch runs first.
  static __device__ __forceinline__ void check(const FmhaAppendArguments& g) {
    check_pages<C::kLengths, C::kPages>(g);
  }
};

}  // namespace tessera::device
