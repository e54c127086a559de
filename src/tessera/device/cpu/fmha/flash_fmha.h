// Attention on a CPU. A thread takes kTileM rows: the queries of all heads that share a key-value
// head, query by query. The keys go by in blocks of kTileN, of which scores, exponentials and
// products with the values stay in its caches; only running maxima, sums and outputs are kept.
// Dao et al., "FlashAttention", 2022, algorithm 1; outputs are divided once, at the end. Where
// there are few rows, the keys are cut into parts, whose sums are merged in their order.
#pragma once

#include "tessera/device/cpu/fmha/flash_block.h"
#include "tessera/device/cpu/fmha/flash_dropout.h"
#include "tessera/device/cpu/fmha/flash_merge.h"
#include "tessera/device/cpu/fmha/flash_scales.h"
#include "tessera/device/cpu/fmha/flash_tokens.h"
#include "tessera/device/cpu/fmha/page_check.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/sums.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

template <class C>
struct FmhaKernel {
  using In = typename C::In;
  using Kv = typename C::Kv;
  using Out = typename C::Out;
  using Bias = typename C::Bias;
  static constexpr int kRows = C::kWarpM;
  static constexpr int kWidth = C::kWarpN;
  static constexpr int kVectors = kWidth / kLanes;
  static constexpr int kKeys = C::kTileN;
  using Math = FlashMath<Kv>;
  static constexpr int kPer = Math::kPerWord;  // elements, or keys, that are multiplied at once
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kTileM % kRows == 0 && kKeys % kWidth == 0 && kWidth % kLanes == 0, "tiles");

  using Item = FlashItem;
  using Block = FlashBlock;
  using Tokens = BlockTokens<Kv, kKeys>;

  // A thread's part of the workspace.
  struct Buffers {
    FloatRows q, scores, sums;
    float *keys, *values, *most, *total;
    Kv* plain;  // a block whose elements lie in runs, without these
  };
  static i64 q_pitch(const FmhaArguments& g) { return rounded(g.hdim, kLanes); }
  static i64 v_pitch(const FmhaArguments& g) { return rounded(g.hdim_v, kWidth); }
  static constexpr bool kInRuns = C::kCacheLayout == FmhaCacheLayout::vectorized;
  static i64 floats_of_thread(const FmhaArguments& g) {
    i64 floats =
        C::kTileM * (q_pitch(g) + kKeys + v_pitch(g) + 2) + kKeys * (q_pitch(g) + v_pitch(g));
    if (kInRuns) floats += kKeys * (g.hdim + g.hdim_v);
    return rounded(floats, 1024) + 16;  // threads' parts begin in different sets of a cache
  }
  static Buffers buffers_of(const FmhaArguments& g, const CpuThread& thread) {
    float* next = static_cast<float*>(thread.workspace) + thread.index * floats_of_thread(g);
    const auto take = [&next](i64 floats) {
      float* const begin = next;
      next += floats;
      return begin;
    };
    Buffers b{};
    b.keys = take(kKeys * q_pitch(g));
    b.values = take(kKeys * v_pitch(g));
    b.q = {take(C::kTileM * q_pitch(g)), q_pitch(g)};
    b.scores = {take(i64{C::kTileM} * kKeys), kKeys};
    b.sums = {take(C::kTileM * v_pitch(g)), v_pitch(g)};
    b.most = take(C::kTileM);
    b.total = take(C::kTileM);
    b.plain = reinterpret_cast<Kv*>(next);
    return b;
  }

  // ---- parts of the keys ----

  static FlashWork work_of(const FmhaArguments& g) {
    const i64 heads = flash_heads_of_item<C>(g);
    const i64 items = flash_blocks_of_head<C>(g) * g.batch * blocks_of(g.heads_kv, heads);
    return flash_work({items, heads, g.seqlen_k, g.num_splits, kKeys});
  }
  static i64 rows_of_part(const FmhaArguments& g) {
    const i64 heads = flash_heads_of_item<C>(g);
    return smaller(C::kTileM, rounded(heads * g.seqlen_q * (g.heads / g.heads_kv), kRows));
  }
  static i64 floats_of_part(const FmhaArguments& g) {
    return rounded(rows_of_part(g) * (v_pitch(g) + 2), kLanes);
  }

  // The same buffers with the sums of a part, which lie behind the parts of all threads.
  static Buffers with_part(const FmhaArguments& g, const CpuThread& thread, i64 part, Buffers b) {
    float* const all = static_cast<float*>(thread.workspace) + thread.count * floats_of_thread(g);
    b.sums.data = all + part * floats_of_part(g);
    b.most = b.sums.row(rows_of_part(g));
    b.total = b.most + rows_of_part(g);
    return b;
  }

  static void finish_parts(const FmhaArguments& g, const CpuThread& thread, const FlashWork& work,
                           const Buffers& own) {
    thread.barrier(thread.barrier_context);
    for (i64 i = thread.index; i < work.items; i += thread.count) {
      const Item item = flash_item<C>(g, i);
      const i64 parts = item.count == 0 ? 1 : own_parts(work, keys_of_rows(g, item));
      if (parts == 1) continue;
      const Buffers b = with_part(g, thread, i * work.parts, own);
      const i64 step = floats_of_part(g);
      for (i64 row = 0; row < item.count; ++row)
        merge_row({b.sums.row(row), b.most + row, b.total + row}, b.sums.ld, parts, step);
      finish(g, item, b);
    }
  }

  // ---- rows ----

  static void begin(const FmhaArguments& g, const Item& item, const Buffers& b) {
    const bool in_place = reads_in_place<C>(g, item.rows_of_head());
    for (i64 row = 0; row < rounded(item.count, kRows); ++row) {
      b.most[row] = -__builtin_inff();
      b.total[row] = 0;
      for (i64 i = 0; i < b.sums.ld; i += kLanes) store(b.sums.row(row) + i, f32v{});
      if (row >= item.count) {
        for (i64 i = 0; i < b.q.ld; i += kLanes) store(b.q.row(row) + i, f32v{});
        continue;
      }
      const i64 token = item.sequence.first_query + item.query_of(row);
      const In* const q = static_cast<const In*>(g.q) +
                          token_offset(g.q_stride, item.batch, item.head_of(row), token);
      const float factor = row_factor<C>(g, item, row);
      copy_query<kPer>(q, g.q_stride[kTokenElement], g.hdim, in_place, factor, b.q.row(row));
    }
  }

  static void finish(const FmhaArguments& g, const Item& item, const Buffers& b) {
    for (i64 row = 0; row < item.count; ++row) {
      const i64 token = item.sequence.first_query + item.query_of(row);
      const i64 head = item.head_of(row);
      float factor = b.total[row] == 0 ? 0.0F : 1.0F / b.total[row];
      if constexpr (C::kDropout) factor *= dropout_scale(g);
      Out* const out =
          static_cast<Out*>(g.out) + token_offset(g.out_stride, item.batch, head, token);
      store_result<C::kQscale>(g, b.sums.row(row), factor, out);
      if constexpr (C::kLse) {
        g.lse[item.batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2]] =
            b.most[row] + log(b.total[row]);
      }
    }
  }

  // ---- one block of keys ----

  // Adds the bias of a row, which may lie anywhere.
  static void add_bias(const FmhaArguments& g, const Item& item, i64 row, const Block& block,
                       float* scores) {
    const i64 query = item.query_of(row), head = item.head_of(row);
    if constexpr (C::kBias == FmhaBias::alibi) {
      const float slope = g.slopes[item.batch * g.slope_stride + head];
      for (i64 j = 0; j < block.count; ++j) {
        scores[j] += alibi_of(slope, item.sequence, query, block.first + j);
      }
    }
    if constexpr (C::kBias == FmhaBias::elementwise) {
      const i64 stride = g.bias_stride[kTokenElement];
      const Bias* const bias = static_cast<const Bias*>(g.bias) +
                               token_offset(g.bias_stride, item.batch, head, query) +
                               block.first * stride;
      for (i64 j = 0; j < block.count; j += kLanes) {
        const f32v more = load_elements(bias + j * stride, stride, lanes_left(block.count - j));
        store(scores + j, load<f32v>(scores + j) + more);
      }
    }
  }

  // Scores of a row, from products; minus infinity where the row sees no key.
  static void score(const FmhaArguments& g, const Item& item, i64 row, const Block& block,
                    float* scores) {
    if constexpr (C::kSoftCap) {
      for (i64 j = 0; j < block.count; j += kLanes) {
        store(scores + j, tanh(load<f32v>(scores + j) * (1 / g.soft_cap)) * g.soft_cap);
      }
    }
    add_bias(g, item, row, block, scores);
    if constexpr (C::kMasked) {
      const FmhaKeys keys = keys_of<true>(g, item.sequence, item.query_of(row));
      hide(scores, block, keys.sink, keys.begin);
      hide(scores, block, keys.end, item.sequence.keys);
    }
    pad_lanes(scores, static_cast<int>(block.count), -__builtin_inff());
  }

  // Replaces a row's scores by exponentials, and what was added up by what fits the new maximum.
  static void exponentiate(const Block& block, i64 row, float* scores, const Buffers& b) {
    const int count = static_cast<int>(block.count);
    const float before = b.most[row];
    const float of_block = most_of_vectors(scores, count);
    const float most = of_block > before ? of_block : before;
    const float offset = most == -__builtin_inff() ? 0.0F : most;
    const float sum = sum_of_vectors(scores, count, [=](int i, f32v v) {
      const f32v y = exp_of_negative(v - offset);
      store(scores + i, y);
      return y;
    });
    if (most != before) {
      const float factor = exp_of_negative(splat(before - offset))[0];
      b.total[row] *= factor;
      float* const sums = b.sums.row(row);
      for (i64 i = 0; i < b.sums.ld; i += kLanes) store(sums + i, load<f32v>(sums + i) * factor);
    }
    b.most[row] = most;
    b.total[row] += sum;
  }

  // Drops weights of a row, after the row was added up.
  static void drop(const FmhaArguments& g, const Item& item, i64 row, const Block& block,
                   float* weights) {
    const i64 query = item.query_of(row), head = item.head_of(row);
    const RandomBytes<kKeys> random(dropout_key(g), dropout_row(g, item.batch, head, query),
                                    block.first, block.count);
    drop_weights(random, g.kept, block.count, weights);
    if constexpr (C::kRandom) {
      u8* const to = random_row(g, item.batch, head, item.sequence.first_query + query);
      const FmhaKeys keys = keys_of<C::kMasked>(g, item.sequence, query);
      for (i64 j = 0; j < block.count; ++j) {
        if (keys.has(block.first + j)) to[block.first + j] = *random.of(j);
      }
    }
  }

  // Makes weights of the products of some rows.
  static void weigh(const FmhaArguments& g, const Item& item, const Block& block, Range rows,
                    const Buffers& b) {
    for (i64 row = rows.begin; row < rows.end; ++row) {
      float* const scores = b.scores.row(row);
      score(g, item, row, block, scores);
      exponentiate(block, row, scores, b);
      if constexpr (C::kDropout) drop(g, item, row, block, scores);
    }
  }

  static void attend(const FmhaArguments& g, const Item& item, const Block& block,
                     const Buffers& b) {
    for (i64 row = 0; row < item.count; row += kRows) {
      const Range rows = {row, smaller(row + kRows, item.count)};
      const Block part = part_of_rows<C::kMasked>(g, item, block, rows);
      if (part.count <= 0) continue;
      const FloatRows scores = b.scores.from(row);
      const i64 depth = blocks_of(g.hdim, kPer), width = kWidth;
      multiply_panels<Math, kRows, kVectors, false>(b.q.from(row), b.keys, width * depth, depth,
                                                    part.count, scores);
      if constexpr (kPer > 1) scale_rows(scores, kRows, part.count, g.scale);
      weigh(g, item, part, rows, b);
      if constexpr (kPer > 1) round_rows(scores, kRows, part.count);
      multiply_panels<Math, kRows, kVectors, true>(
          scores, b.values, width * kKeys, blocks_of(part.count, kPer), g.hdim_v, b.sums.from(row));
    }
  }

  // ---- few rows, with keys and values in place ----

  // What comes behind the block is asked for: the first keys of the next one, before key `end`.
  static void attend_few(const FmhaArguments& g, const Item& item, const Block& block, i64 end,
                         const Buffers& b) {
    const i64 room = rounded(block.count, kChains);
    Tokens tokens;
    TokenList<Kv, kKeys> list;
    find_tokens<C>(g, item, block, b.plain, tokens);
    list.add(tokens.keys, block.count);
    list.pad(room);
    list.add(tokens.values, block.count);
    list.pad(2 * room);
    const i64 next = block.first + block.count;
    if (!kInRuns && next < end) {
      const Block ahead = {next, smaller(kTokensAhead, end - next)};
      find_tokens<C>(g, item, ahead, b.plain, tokens);
      list.add(tokens.keys, ahead.count);
    }
    list.pad(2 * room + kTokensBehind);
    const i64 rows = item.rows_of_head();
    const TokenRun<Kv> keys = {list.tokens, block.count, g.hdim, item.heads,
                               g.k_stride[kTokenHead]};
    const TokenRun<Kv> values = {list.tokens + room, block.count, g.hdim_v, item.heads,
                                 g.v_stride[kTokenHead]};
    multiply_few_keys<Kv>(b.q, rows, keys, b.scores);
    weigh(g, item, block, {0, item.count}, b);
    add_few_values<Kv>(b.scores, rows, values, b.sums);
  }

  // ---- all keys ----

  // Keys that some row sees. Keys of the sink that lie before them go by on their own.
  static FmhaKeys keys_of_rows(const FmhaArguments& g, const Item& item) {
    FmhaKeys all = keys_of<C::kMasked>(g, item.sequence, item.query_of(0));
    all.end = keys_of<C::kMasked>(g, item.sequence, item.query_of(item.count - 1)).end;
    if constexpr (C::kMasked) {
      const i64 sink = smaller(g.sink, all.end);
      if (sink >= all.begin) all.begin = 0;
      all.sink = all.begin == 0 ? 0 : sink;
    }
    return all;
  }

  template <class Keys, class Values>
  static void pack(const FmhaArguments& g, const Block& block, const Keys& keys,
                   const Values& values, const Buffers& b) {
    pack_keys<kWidth, kPer>(keys, block.count, g.hdim, b.keys);
    pack_values<kWidth, kPer>(values, block.count, g.hdim_v, kKeys, b.values);
  }
  static void pack_block(const FmhaArguments& g, const Item& item, const Block& block,
                         const Buffers& b) {
    Tokens tokens;
    find_tokens<C>(g, item, block, b.plain, tokens);
    if constexpr (scales_keys(C::kQscale)) {
      const auto by = key_factors<C, kKeys>(g, item, block);
      using Scaled = ScaledTokens<PlacedTokens<Kv>>;
      pack(g, block, Scaled{tokens.keys, by.keys}, Scaled{tokens.values, by.values}, b);
    } else {
      pack(g, block, tokens.keys, tokens.values, b);
    }
  }

  static void attend_range(const FmhaArguments& g, const Item& item, Range keys, const Buffers& b) {
    const bool in_place = reads_in_place<C>(g, item.rows_of_head());
    for (i64 first = keys.begin; first < keys.end; first += kKeys) {
      const Block block = {first, smaller(kKeys, keys.end - first)};
      if constexpr (kReadsInPlace<Kv>) {
        if (in_place) {
          attend_few(g, item, block, keys.end, b);
          continue;
        }
      }
      pack_block(g, item, block, b);
      attend(g, item, block, b);
    }
  }

  // Part `index` of `parts` of the keys that are seen, in their order.
  static void attend_part(const FmhaArguments& g, const Item& item, const FmhaKeys& keys, i64 parts,
                          i64 index, const Buffers& b) {
    const Range seen = part(keys.sink + keys.end - keys.begin, kKeys, parts, index);
    const i64 skipped = keys.begin - keys.sink;
    attend_range(g, item, {seen.begin, smaller(seen.end, keys.sink)}, b);
    const i64 first = seen.begin > keys.sink ? seen.begin : keys.sink;
    attend_range(g, item, {first + skipped, seen.end + skipped}, b);
  }

  static void attend_item(const FmhaArguments& g, const Item& item, const CpuThread& thread,
                          const FlashWork& work, i64 index, const Buffers& own) {
    const FmhaKeys keys = keys_of_rows(g, item);
    const i64 parts = own_parts(work, keys);
    if (index % work.parts >= parts) return;
    const Buffers b = parts == 1 ? own : with_part(g, thread, index, own);
    begin(g, item, b);
    attend_part(g, item, keys, parts, index % work.parts, b);
    if (parts == 1) finish(g, item, b);
  }

  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const FmhaArguments*>(arguments);
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const Buffers b = buffers_of(g, *thread);
    const FlashWork work = work_of(g);
    for (i64 i = thread->index; i < work.items * work.parts; i += thread->count) {
      const Item item = flash_item<C>(g, i / work.parts);
      if (item.count > 0) attend_item(g, item, *thread, work, i, b);
    }
    if (work.parts > 1) finish_parts(g, *thread, work, b);
  }

  static i64 workspace_bytes(const void* arguments, int threads) {
    const auto& g = *static_cast<const FmhaArguments*>(arguments);
    const FlashWork work = work_of(g);
    const i64 of_parts = work.parts > 1 ? work.items * work.parts * floats_of_part(g) : 0;
    return (floats_of_thread(g) * threads + of_parts) * 4;
  }

  static constexpr CpuKernel kernel() {
    if constexpr (C::kPages == FmhaPages::none) {
      return {C::kAbiVersion, {{workspace_bytes, run}}};
    } else {
      using Check = PageCheck<C::kLengths, C::kPages, FmhaArguments>;
      return {C::kAbiVersion, {{workspace_bytes, run}, {Check::workspace_bytes, Check::run}}};
    }
  }
};

}  // namespace tessera::device
