// What gradients of attention on a CPU know of each query, computed once: what its scores are
// compared with, and delta.
#pragma once

#include "tessera/device/cpu/fmha/backward_block.h"

namespace tessera::device {

template <class C>
struct BackwardRows {
  using In = typename C::In;
  using Block = BackwardBlock<C>;
  using Arguments = FmhaBackwardArguments;
  using Queries = BackwardQueries;
  using Buffers = BackwardBuffers;
  static constexpr int kKeys = Block::kKeys, kQueries = Block::kQueries;

  // Lanes behind the last query have weights of zero, and so has a query that saw no key.
  static void read(const Arguments& a, const Queries& at, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    for (i64 i = 0; i < at.count; ++i) {
      const i64 place = offset_of_lse(g, at.batch, at.head, at.token() + i);
      const float lse = g.lse[place];
      b.lse[i] = lse == -__builtin_inff() ? __builtin_inff() : lse;
      b.log_sum[i] = 0;
      const In* const dout = static_cast<const In*>(a.dout) +
                             token_offset(a.dout_stride, at.batch, at.head, at.token() + i);
      const In* const out = static_cast<const In*>(g.out) +
                            token_offset(g.out_stride, at.batch, at.head, at.token() + i);
      f32v sum{};
      for (i64 d = 0; d < g.hdim_v; d += kLanes) {
        const int lanes = lanes_left(g.hdim_v - d);
        const i64 step = g.out_stride[kTokenElement], of_dout = a.dout_stride[kTokenElement];
        sum = sum + load_elements(dout + d * of_dout, of_dout, lanes) *
                        load_elements(out + d * step, step, lanes);
      }
      b.delta[i] = sum_of_lanes(sum) - dlse_at(a, place);
    }
  }

  // The largest score and the sum of weights of each query of the block, one block of keys after
  // the other.
  struct Sums {
    float most[kQueries], total[kQueries];
  };
  static void add_keys(const FmhaArguments& g, const Queries& at, const FlashBlock& block, i64 rows,
                       const Buffers& b, Sums& sums) {
    const f32v none = splat(-__builtin_inff());
    Block::load_keys(g, at.sequence, at.batch, at.head * g.heads_kv / g.heads, block, b);
    Block::multiply_queries(g, at, rows, b);
    for (i64 r = 0; r < rows; ++r) {
      for (i64 i = 0; i < at.count; i += kLanes) {
        f32v capped{};
        f32v x = Block::template score_of<true>(g, at, block.first + r, i,
                                                load<f32v>(b.weights.row(r) + i), capped);
        if constexpr (C::kMasked) x = select(Block::seen_by(b, block.first + r, i), x, none);
        const f32v before = load<f32v>(sums.most + i), top = max(before, x);
        const f32v offset = select(top == none, f32v{}, top);
        store(sums.total + i, load<f32v>(sums.total + i) * exp(before - offset) + exp(x - offset));
        store(sums.most + i, top);
      }
    }
  }

  // lse is rounded: where it is far from zero, it may have lost the sum's logarithm. Then scores
  // are added up again, and their maximum and the sum's logarithm are kept apart.
  static void renew(const Arguments& a, const Queries& at, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    Block::pack_queries(g, at, false, b);
    Sums sums;
    for (i64 i = 0; i < kQueries; ++i) sums.most[i] = -__builtin_inff(), sums.total[i] = 0;
    for (i64 first = 0; first < at.sequence.keys; first += kKeys) {
      const FlashBlock block = {first, smaller(kKeys, at.sequence.keys - first)};
      const i64 rows = Block::seen_keys(g, at, block);
      if (rows > 0) add_keys(g, at, block, rows, b, sums);
    }
    for (i64 i = 0; i < at.count; ++i) {
      if (!is_far(b.lse[i])) continue;
      const bool sees_none = sums.most[i] == -__builtin_inff();
      b.lse[i] = sees_none ? __builtin_inff() : sums.most[i];
      b.log_sum[i] = sees_none ? 0 : log(sums.total[i]);
    }
  }

  // Copies what is known about the block's queries to where all threads find it.
  static void keep(const FmhaArguments& g, const Queries& at, const Buffers& b) {
    const i64 first = Block::row_of(g, at);
    for (i64 i = 0; i < at.count; ++i) {
      b.rows.lse[first + i] = b.lse[i];
      b.rows.log_sum[first + i] = b.log_sum[i];
      b.rows.delta[first + i] = b.delta[i];
    }
  }

  // A thread's share of all queries.
  static void prepare(const Arguments& a, const CpuThread& thread, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const i64 blocks = blocks_of(g.seqlen_q, kQueries);
    for (i64 i = thread.index; i < g.batch * g.heads * blocks; i += thread.count) {
      const i64 batch = i / blocks / g.heads, first = i % blocks * kQueries;
      const FmhaSequence s = sequence_of<C::kLengths>(g, batch);
      if (first >= s.queries) continue;
      const Queries at = {s, batch, i / blocks % g.heads, first,
                          smaller(kQueries, s.queries - first)};
      read(a, at, b);
      bool far = false;
      for (i64 j = 0; j < at.count; ++j) far = far || is_far(b.lse[j]);
      if (far) renew(a, at, b);
      keep(g, at, b);
    }
  }
};

}  // namespace tessera::device
