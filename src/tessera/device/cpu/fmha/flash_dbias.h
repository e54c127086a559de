// The gradient of an element-wise bias, or of ALiBi's slopes, on a CPU: a second pass over queries
// and keys. A thread takes a block of elements of dbias and adds up the gradients of all scores
// that share them, so that sums have one order and no two threads write one element.
#pragma once

#include "tessera/device/cpu/fmha/backward_block.h"

namespace tessera::device {

template <class C>
struct FlashDbias {
  using Block = BackwardBlock<C>;
  using Arguments = FmhaBackwardArguments;
  using Buffers = BackwardBuffers;
  static constexpr int kKeys = Block::kKeys, kQueries = Block::kQueries;

  // Elements of dbias: first ones, and blocks of queries and keys. Where all share the bias, the
  // range is all there is.
  struct Item {
    Range batches, heads, queries, keys;
  };
  static Range range_of(i64 size, i64 all, i64 first, i64 block) {
    if (size != all) return {0, all};
    return {first, smaller(first + block, all)};
  }

  static void add_block(const Arguments& a, BackwardQueries at, const FlashBlock& block,
                        const Range& queries, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const i64 end = smaller(queries.end, at.sequence.queries);
    for (at.first = queries.begin; at.first < end; at.first += kQueries) {
      at.count = smaller(kQueries, end - at.first);
      const i64 rows = Block::seen_keys(g, at, block);
      if (rows == 0) continue;
      Block::load_queries(a, at, false, b);
      Block::template weigh<true>(a, at, block, rows, b);
      for (i64 r = 0; r < rows; ++r) {
        float* const sums = b.dbias.row(r);
        for (i64 i = 0; i < at.count; i += kLanes) {
          const f32v gradients = load<f32v>(b.scores.row(r) + i);
          const f32v factors = Block::bias_factors(at, block.first + r, i);
          store(sums + i, load<f32v>(sums + i) + gradients * factors);
        }
      }
    }
  }

  static void add_scores(const Arguments& a, const Item& item, i64 batch, i64 head,
                         const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const FmhaSequence s = sequence_of<C::kLengths>(g, batch);
    if (s.queries <= item.queries.begin) return;
    const i64 head_kv = head * g.heads_kv / g.heads, end = smaller(item.keys.end, s.keys);
    for (i64 first = item.keys.begin; first < end; first += kKeys) {
      const FlashBlock block = {first, smaller(kKeys, end - first)};
      Block::load_keys(g, s, batch, head_kv, block, b);
      add_block(a, {s, batch, head, 0, 0}, block, item.queries, b);
    }
  }

  // Sums of queries, or of keys, that share the bias go to the first one.
  static void join(bool queries, bool keys, const Buffers& b) {
    for (i64 r = 0; queries && r < kKeys; ++r) {
      f32v sum{};
      for (i64 i = 0; i < kQueries; i += kLanes) sum = sum + load<f32v>(b.dbias.row(r) + i);
      b.dbias.row(r)[0] = sum_of_lanes(sum);
    }
    for (i64 r = 1; keys && r < kKeys; ++r) {
      for (i64 i = 0; i < kQueries; i += kLanes) {
        store(b.dbias.row(0) + i, load<f32v>(b.dbias.row(0) + i) + load<f32v>(b.dbias.row(r) + i));
      }
    }
  }

  static void run_item(const Arguments& a, const FmhaBiasSizes& sizes, const Item& item,
                       const Buffers& b) {
    using Bias = typename FmhaDbias<C>::Type;
    const FmhaArguments& g = a.forward;
    clear_rows(b.dbias, 0, kKeys, kQueries);
    for (i64 batch = item.batches.begin; batch < item.batches.end; ++batch) {
      for (i64 head = item.heads.begin; head < item.heads.end; ++head) {
        add_scores(a, item, batch, head, b);
      }
    }
    const bool shares_queries = sizes.of[2] != g.seqlen_q, shares_keys = sizes.of[3] != g.seqlen_k;
    join(shares_queries, shares_keys, b);
    const i64 queries = shares_queries ? 1 : item.queries.end - item.queries.begin;
    const i64 keys = shares_keys ? 1 : item.keys.end - item.keys.begin;
    for (i64 i = 0; i < queries; ++i) {
      float row[rounded_keys()];
      for (i64 r = 0; r < keys; ++r) row[r] = b.dbias.row(r)[i];
      Bias* const to =
          static_cast<Bias*>(a.dbias) + offset_of_dbias(sizes, item.batches.begin, item.heads.begin,
                                                        item.queries.begin + i, item.keys.begin);
      store_gradient(row, 1.0F, keys, to, 1);
    }
  }
  static constexpr int rounded_keys() { return (kKeys + kLanes - 1) / kLanes * kLanes; }

  static void run(const Arguments& a, const CpuThread& thread, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const FmhaBiasSizes sizes = sizes_of_dbias(g, C::kBias);
    const i64 queries = blocks_of(sizes.of[2], kQueries), keys = blocks_of(sizes.of[3], kKeys);
    for (i64 i = thread.index; i < sizes.of[0] * sizes.of[1] * queries * keys; i += thread.count) {
      const i64 pair = i / keys / queries;
      run_item(a, sizes,
               {range_of(sizes.of[0], g.batch, pair / sizes.of[1], 1),
                range_of(sizes.of[1], g.heads, pair % sizes.of[1], 1),
                range_of(sizes.of[2], g.seqlen_q, i / keys % queries * kQueries, kQueries),
                range_of(sizes.of[3], g.seqlen_k, i % keys * kKeys, kKeys)},
               b);
    }
  }
};

}  // namespace tessera::device
