// Attention on a CPU. A thread takes kTileM rows: the queries of all heads that share a key-value
// head, query by query. The keys go by in blocks of kTileN, of which scores, exponentials and
// products with the values stay in its caches; only running maxima, sums and outputs are kept.
// Dao et al., "FlashAttention", 2022, algorithm 1; outputs are divided once, at the end. Where
// there are few rows, the keys are cut into parts, whose sums are merged in their order.
#pragma once

#include "tessera/device/cpu/fmha/flash_block.h"
#include "tessera/device/cpu/fmha/flash_dropout.h"
#include "tessera/device/cpu/fmha/flash_merge.h"
#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/cpu/fmha/paged_tokens.h"
#include "tessera/device/cpu/grid.h"
#include "tessera/device/cpu/sums.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

template <class C>
struct FmhaKernel {
  using In = typename C::In;
  using Out = typename C::Out;
  using Bias = typename C::Bias;
  static constexpr int kRows = C::kWarpM;
  static constexpr int kWidth = C::kWarpN;
  static constexpr int kVectors = kWidth / kLanes;
  static constexpr int kKeys = C::kTileN;
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(C::kTileM % kRows == 0 && kKeys % kWidth == 0 && kWidth % kLanes == 0, "tiles");

  // Rows of one key-value head of one sequence.
  struct Item {
    FmhaSequence sequence;
    i64 batch, head_kv, group;  // query heads of the key-value head
    i64 first, count;           // rows
    i64 query_of(i64 row) const { return (first + row) / group; }
    i64 head_of(i64 row) const { return head_kv * group + (first + row) % group; }
  };

  // A thread's part of the workspace.
  struct Buffers {
    FloatRows q, scores, sums;
    float *keys, *values, *most, *total;
  };
  static i64 rounded(i64 count, i64 unit) { return blocks_of(count, unit) * unit; }
  static i64 q_pitch(const FmhaArguments& g) { return rounded(g.hdim, kLanes); }
  static i64 v_pitch(const FmhaArguments& g) { return rounded(g.hdim_v, kWidth); }
  static i64 floats_of_thread(const FmhaArguments& g) {
    const i64 floats =
        C::kTileM * (q_pitch(g) + kKeys + v_pitch(g) + 2) + kKeys * (q_pitch(g) + v_pitch(g));
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
    return b;
  }

  // ---- parts of the keys ----

  static FlashWork work_of(const FmhaArguments& g) {
    const i64 items = blocks_of_pair(g) * g.batch * g.heads_kv;
    return {items, flash_parts(items, g.seqlen_k)};
  }
  static i64 rows_of_part(const FmhaArguments& g) {
    return smaller(C::kTileM, rounded(g.seqlen_q * (g.heads / g.heads_kv), kRows));
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
      const Item item = item_of(g, i);
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

  static i64 offset(const i64 (&stride)[kTokenStrides], i64 batch, i64 head, i64 token) {
    return batch * stride[kTokenBatch] + head * stride[kTokenHead] + token * stride[kToken];
  }

  static void begin(const FmhaArguments& g, const Item& item, const Buffers& b) {
    for (i64 row = 0; row < rounded(item.count, kRows); ++row) {
      b.most[row] = -__builtin_inff();
      b.total[row] = 0;
      for (i64 i = 0; i < b.sums.ld; i += kLanes) store(b.sums.row(row) + i, f32v{});
      if (row >= item.count) {
        for (i64 i = 0; i < b.q.ld; i += kLanes) store(b.q.row(row) + i, f32v{});
        continue;
      }
      const i64 token = item.sequence.first_query + item.query_of(row);
      const In* const q =
          static_cast<const In*>(g.q) + offset(g.q_stride, item.batch, item.head_of(row), token);
      copy_token(q, g.q_stride[kTokenElement], g.hdim, g.scale, b.q.row(row));
    }
  }

  static void finish(const FmhaArguments& g, const Item& item, const Buffers& b) {
    for (i64 row = 0; row < item.count; ++row) {
      const i64 token = item.sequence.first_query + item.query_of(row);
      const i64 head = item.head_of(row);
      float factor = b.total[row] == 0 ? 0.0F : 1.0F / b.total[row];
      if constexpr (C::kDropout) factor *= dropout_scale(g);
      Out* const out = static_cast<Out*>(g.out) + offset(g.out_stride, item.batch, head, token);
      const i64 stride = g.out_stride[kTokenElement];
      for (i64 i = 0; i < g.hdim_v; i += kLanes) {
        const int lanes = lanes_left(g.hdim_v - i);
        const f32v x = load<f32v>(b.sums.row(row) + i) * factor;
        if (stride == 1) {
          store_float(out + i, x, lanes);
          continue;
        }
        Out together[kLanes];
        store_float(together, x, kLanes);
        for (int j = 0; j < lanes; ++j) out[(i + j) * stride] = together[j];
      }
      if constexpr (C::kLse) {
        g.lse[item.batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2]] =
            b.most[row] + log(b.total[row]);
      }
    }
  }

  // ---- one block of keys ----

  struct Block {
    i64 first, count;  // keys of the sequence
  };

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
                               offset(g.bias_stride, item.batch, head, query) +
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
    const FmhaKeys keys = keys_of<C::kMasked>(g, item.sequence, item.query_of(row));
    const i64 last = block.first + block.count;
    const bool sees_all = (keys.begin <= block.first && last <= keys.end) || last <= keys.sink;
    for (i64 j = 0; !sees_all && j < block.count; ++j) {
      if (!keys.has(block.first + j)) scores[j] = -__builtin_inff();
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

  // Of a row of weights, after they were added up.
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

  static void attend(const FmhaArguments& g, const Item& item, const Block& block,
                     const Buffers& b) {
    const i64 width = rounded(block.count, kWidth);
    for (i64 row = 0; row < item.count; row += kRows) {
      const FloatRows scores = {b.scores.row(row), kKeys};
      for (i64 j = 0; j < width; j += kWidth) {
        multiply_panel<kRows, kVectors, false>({b.q.row(row), b.q.ld}, b.keys + j * g.hdim, g.hdim,
                                               {scores.data + j, kKeys});
      }
      const i64 rows = smaller(kRows, item.count - row);
      for (i64 r = 0; r < rows; ++r) {
        score(g, item, row + r, block, scores.row(r));
        exponentiate(block, row + r, scores.row(r), b);
        if constexpr (C::kDropout) drop(g, item, row + r, block, scores.row(r));
      }
      for (i64 j = 0; j < b.sums.ld; j += kWidth) {
        multiply_panel<kRows, kVectors, true>(scores, b.values + j * kKeys, block.count,
                                              {b.sums.row(row) + j, b.sums.ld});
      }
    }
  }

  // ---- all keys ----

  // Keys that some row sees; those of the sink that lie before them go by on their own.
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

  // Packs what both `keys` and `values` hold of a block.
  template <class Keys, class Values>
  static void pack(const FmhaArguments& g, i64 count, const Keys& keys, const Values& values,
                   const Buffers& b) {
    pack_keys<kWidth>(keys, count, g.hdim, rounded(count, kWidth), b.keys);
    pack_values<kWidth>(values, count, g.hdim_v, kKeys, b.values);
  }

  static void pack_block(const FmhaArguments& g, const Item& item, const Block& block,
                         const Buffers& b) {
    const auto tokens = [&](const void* base, const i64(&stride)[kTokenStrides]) {
      const i64 token = item.sequence.first_key + block.first;
      return Tokens<In>{
          static_cast<const In*>(base) + offset(stride, item.batch, item.head_kv, token),
          stride[kToken], stride[kTokenElement]};
    };
    pack(g, block.count, tokens(g.k, g.k_stride), tokens(g.v, g.v_stride), b);
  }

  static void pack_paged_block(const FmhaArguments& g, const Item& item, const Block& block,
                               const Buffers& b) {
    constexpr i64 kRun = 16 / static_cast<i64>(sizeof(In));
    PagedPlaces<kKeys> places;
    find_places<C::kCacheLayout>(g, item.sequence, item.head_kv, block.first, block.count, kRun,
                                 places);
    const PagedTokens<In> values = {static_cast<const In*>(g.v), places.values,
                                    g.v_stride[kTokenElement]};
    if constexpr (C::kCacheLayout == FmhaCacheLayout::vectorized) {
      pack(g, block.count, KeysInRuns<In>{g, places.keys}, values, b);
    } else {
      const PagedTokens<In> keys = {static_cast<const In*>(g.k), places.keys,
                                    g.k_stride[kTokenElement]};
      pack(g, block.count, keys, values, b);
    }
  }

  static void attend_range(const FmhaArguments& g, const Item& item, Range keys, const Buffers& b) {
    for (i64 first = keys.begin; first < keys.end; first += kKeys) {
      const Block block = {first, smaller(kKeys, keys.end - first)};
      if constexpr (C::kPages == FmhaPages::none) {
        pack_block(g, item, block, b);
      } else {
        pack_paged_block(g, item, block, b);
      }
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

  static Item item_of(const FmhaArguments& g, i64 index) {
    const i64 pairs = g.batch * g.heads_kv;
    Item item{};
    item.group = g.heads / g.heads_kv;
    item.batch = index % pairs / g.heads_kv;
    item.head_kv = index % g.heads_kv;
    item.sequence = sequence_of<C::kLengths, C::kPages>(g, item.batch);
    item.first = (blocks_of_pair(g) - 1 - index / pairs) * C::kTileM;
    item.count = clamped(item.sequence.queries * item.group - item.first, 0, C::kTileM);
    return item;
  }
  static i64 blocks_of_pair(const FmhaArguments& g) {
    return blocks_of(g.seqlen_q * (g.heads / g.heads_kv), C::kTileM);
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

  // The last queries come first: under most masks they see the most keys.
  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const FmhaArguments*>(arguments);
    if (C::kPages != FmhaPages::none && has_bad_page(g)) return;
    const Buffers b = buffers_of(g, *thread);
    const FlashWork work = work_of(g);
    for (i64 i = thread->index; i < work.items * work.parts; i += thread->count) {
      const Item item = item_of(g, i / work.parts);
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

  // The entry that a checked launch runs first.
  static void check(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const FmhaArguments*>(arguments);
    if (thread->index != 0) return;
    const auto sequence_at = [&g](i64 batch) {
      return sequence_of<C::kLengths, C::kPages>(g, batch);
    };
    report(first_bad_page(g, sequence_at), g.bad_page);
  }
  static i64 no_bytes(const void*, int) { return 0; }

  static constexpr CpuKernel kernel() {
    if constexpr (C::kPages == FmhaPages::none) {
      return {C::kAbiVersion, {{workspace_bytes, run}}};
    } else {
      return {C::kAbiVersion, {{workspace_bytes, run}, {no_bytes, check}}};
    }
  }
};

}  // namespace tessera::device
