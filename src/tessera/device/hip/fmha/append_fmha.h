// New keys and values into a cache, turned by a rotary embedding where there is one, and queries
// turned. A thread moves single elements, or pairs that are turned together: any stride and
// alignment.
//
// Launch: workgroups of wave_m waves, which append_block() shares out; grid {blocks of
// tokens of the longest sequence, blocks of a token's rows, batch}. A workgroup takes further
// blocks where a side of the grid is shorter.
#pragma once

#include "tessera/device/hip/fmha/check_pages.h"

#pragma clang force_cuda_host_device begin
#include "tessera/device/fmha_append.h"
#pragma clang force_cuda_host_device end

#include "tessera/device/hip/fmha/append_arguments.h"

namespace tessera::device {

// From: where the arguments lie, a function without parameters.
template <class C, class From>
class AppendFmha {
  using T = typename C::In;
  static constexpr int kThreadBits = bits_for(kLanes * C::kWaveM, 10);
  static_assert(1 << kThreadBits == kLanes * C::kWaveM, "threads are a power of two");

  // The threads of a row are neighbours in a wave, a power of two of them.
  struct Place {
    i64 position;
    int thread, threads;
  };

  // Calls visit(element, x) for each of this thread's elements of a row, turned.
  template <class Row, class Visit>
  static __device__ __forceinline__ void for_each_element(const Row& row, const Place& at,
                                                          const Visit& visit) {
    const FmhaAppendArguments& g = From::arguments().append;
    const auto element = [&row](i64 index) {
      return widened(load_element(row.from + index * row.from_stride));
    };
    if constexpr (C::kRotary != FmhaRotary::none) {
      const i64 angles = at.position * (g.rotary_dim / 2);
#pragma unroll 1
      for (i64 pair = at.thread; pair < row.turned / 2; pair += at.threads) {
        const bool is_half = C::kRotary == FmhaRotary::half;
        const i64 first = is_half ? pair : 2 * pair;
        const i64 second = is_half ? pair + row.turned / 2 : first + 1;
        const auto both =
            turned(element(first), element(second), load_element(g.cos + angles + pair),
                   load_element(g.sin + angles + pair));
        visit(first, both.x);
        visit(second, both.y);
      }
    }
#pragma unroll 1
    for (i64 i = row.turned + at.thread; i < row.count; i += at.threads) visit(i, element(i));
  }

  // Bits of elements that are not turned stay as they are, NaN included.
  template <class Row>
  static __device__ __forceinline__ void move(Row row, const Place& at) {
    const i64 count = row.count;
    if constexpr (C::kRotary != FmhaRotary::none) {
      row.count = row.turned;
      for_each_element(row, at,
                       [&row](i64 i, float x) { store_element(row.to_element(i), rounded<T>(x)); });
    }
#pragma unroll 1
    for (i64 i = row.turned + at.thread; i < count; i += at.threads) {
      store_element(row.to_element(i), load_element(row.from + i * row.from_stride));
    }
  }

  // The largest magnitude of a row, in all its threads.
  static __device__ __forceinline__ float most_of_row(const FmhaAppendRowOf<C>& row,
                                                      const Place& at) {
    float most = 0;
    for_each_element(row, at,
                     [&most](i64, float x) { most = __builtin_fmaxf(most, __builtin_fabsf(x)); });
#pragma unroll 1
    for (int distance = 1; distance < at.threads; distance *= 2) {
      most = __builtin_fmaxf(most, from_lane(most, lane_of_wave() ^ distance));
    }
    return most;
  }

  // A head into a cache of 8 bits: divided by its factor. Where the factor is the token's own, the
  // head is read twice, first for its largest element.
  static __device__ __forceinline__ void move_bytes(const FmhaAppendRowOf<C>& row, const Place& at,
                                                    float* factor) {
    float by = 1;
    if constexpr (C::kQscale == FmhaQscale::per_token) {
      const float own = most_of_row(row, at) / C::kLargest;
      if (at.thread == 0) store_element(factor, own);
      by = inverse_of_factor(own);
    } else if constexpr (C::kQscale != FmhaQscale::none) {
      by = inverse_of_factor(load_element(factor));
    }
    for_each_element(row, at, [&row, by](i64 i, float x) {
      store_element(row.to_element(i), rounded<typename C::Kv>(x * by));
    });
  }

  template <class Sequence>
  static __device__ __forceinline__ void move_row(const Sequence& s, i64 batch, i64 token, i64 row,
                                                  const Place& at) {
    const FmhaAppendArguments& g = From::arguments().append;
    if (row >= 2 * g.heads_kv) {
      return move(query_row<C>(g, s, batch, token, row - 2 * g.heads_kv), at);
    }
    const FmhaAppendRowOf<C> to = append_row<C>(g, s, batch, token, row);
    if constexpr (sizeof(typename C::Kv) == 1) {
      float* factor = nullptr;
      if constexpr (C::kQscale != FmhaQscale::none) {
        factor = factor_of_row<C::kQscale, C::kPages>(From::arguments().append, s, batch,
                                                      at.position, row);
      }
      move_bytes(to, at, factor);
    } else {
      move(to, at);
    }
  }

 public:
  static __device__ __forceinline__ void run(const HipAppendArguments&) {
    const FmhaAppendArguments& g = From::arguments().append;
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    const FmhaAppendBlock block = append_block(g, C::kRotary, C::kRotateQ, kVector, kThreadBits);
    // They wait in vector registers: scalar ones are short.
    const int threads = not_ahead(1 << block.thread_bits), rows = not_ahead(1 << block.row_bits);
    const int tokens = not_ahead(block.tokens);
    const int index = not_ahead(static_cast<int>(__builtin_amdgcn_workitem_id_x()));
    const int row_of_block = index >> block.thread_bits & (rows - 1);
    const int token_of_block = index >> (block.thread_bits + block.row_bits);
    // Rows of a token may be more than 2^32, blocks of them are not. Rows and tokens of a block are
    // powers of two.
    const auto counts = [&] {
      const HipAppendArguments& all = From::arguments();
      const i64 of_token = rows_of_token(all.append, C::kRotateQ);
      const int row_bits = __builtin_ctz(uniform(rows)),
                token_bits = __builtin_ctz(uniform(tokens));
      return BlockCounts{all.append.batch, (of_token + (i64{1} << row_bits) - 1) >> row_bits,
                         (all.append.seqlen_q + (i64{1} << token_bits) - 1) >> token_bits,
                         all.grid};
    };
    for_each_block(counts, [&](int batch, int row_block, int token_block) {
      const auto s = sequence_of<C::kLengths, C::kPages>(From::arguments().append, batch);
      const i64 token = i64{token_block} * tokens + token_of_block;
      const i64 row = i64{row_block} * rows + row_of_block;
      const i64 position = s.position + token;
      if (row >= rows_of_token(From::arguments().append, C::kRotateQ) || token >= s.count) return;
      if (!has_place(From::arguments().append, s, position)) return;
      move_row(s, batch, token, row, {position, index & (threads - 1), threads});
    });
  }

  // The entry that a checked launch runs first.
  static __device__ __forceinline__ void check(const HipAppendArguments&) {
    check_pages<C::kLengths, C::kPages>(From::arguments().append);
  }
};

// The arguments of a kernel that only appends.
struct AppendedAlone {
  static __device__ __forceinline__ const HipAppendArguments& arguments() {
    return fresh_arguments<HipAppendArguments>();
  }
};
template <class C>
using AppendFmhaKernel = AppendFmha<C, AppendedAlone>;

}  // namespace tessera::device
