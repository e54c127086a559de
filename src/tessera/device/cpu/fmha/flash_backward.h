// The gradients of attention on a CPU. An item is a key-value head of a sequence, or a part of its
// blocks of keys. A block of keys meets the queries of all heads that share it, block by block:
// weights are made again from lse, and five products give what is added to dk and dv, which stay in
// the thread's caches, and to dq. Dao et al., "FlashAttention", 2022, algorithm 4. Each part has
// sums of dq of its own, which are merged in their order, so that nothing is added by two threads.
#pragma once

#include "tessera/device/cpu/fmha/backward_rows.h"
#include "tessera/device/cpu/fmha/backward_work.h"
#include "tessera/device/cpu/fmha/flash_dbias.h"

namespace tessera::device {

template <class C>
struct FmhaBackwardKernel {
  using In = typename C::In;
  using Block = BackwardBlock<C>;
  using Arguments = FmhaBackwardArguments;
  using Queries = BackwardQueries;
  using Buffers = BackwardBuffers;
  static constexpr int kRows = Block::kRows, kKeys = Block::kKeys, kQueries = Block::kQueries;

  // ---- items ----

  struct Work {
    i64 pairs, parts;
    i64 rows, floats;  // of the sums of dq: of a head, of all heads of a pair
  };
  static Work work_of(const FmhaArguments& g) {
    Work work{};
    work.pairs = g.batch * g.heads_kv;
    work.rows = g.seqlen_q + kRows;  // the last register block may write behind the last query
    work.floats = work.rows * (g.heads / g.heads_kv) * Block::pitch(g.hdim);
    work.parts = g.num_splits == 1
                     ? 1
                     : backward_parts(work.pairs, blocks_of(g.seqlen_k, kKeys), work.floats);
    return work;
  }
  // The parts of one sequence, which may have fewer blocks of keys than the longest one.
  static i64 own_parts(const Work& work, const FmhaSequence& s) {
    return smaller(work.parts, blocks_of(s.keys, kKeys));
  }
  static i64 floats_of_thread(const FmhaArguments& g, const Work& work) {
    return Block::floats(g) + (work.parts == 1 ? rounded(work.floats, kLanes) : 0);
  }

  // The workspace: the rows of all queries, the threads' own parts, the sums of parts.
  static float* threads_of(const FmhaArguments& g, const CpuThread& thread) {
    return static_cast<float*>(thread.workspace) + Block::shared_floats(g);
  }

  // Without parts a thread has one place for the sums of all its items.
  static FloatRows sums_of(const FmhaArguments& g, const Work& work, const CpuThread& thread,
                           i64 item) {
    float* const all = threads_of(g, thread);
    const i64 own = floats_of_thread(g, work);
    if (work.parts == 1) return {all + thread.index * own + Block::floats(g), Block::pitch(g.hdim)};
    return {all + thread.count * own + item * rounded(work.floats, kLanes), Block::pitch(g.hdim)};
  }

  struct Pair {
    FmhaSequence sequence;
    i64 batch, head_kv, group;  // query heads of the key-value head
  };
  static Pair pair_of(const FmhaArguments& g, i64 index) {
    const i64 batch = index / g.heads_kv;
    return {sequence_of<C::kLengths>(g, batch), batch, index % g.heads_kv, g.heads / g.heads_kv};
  }

  // ---- dk and dv of a block of keys ----

  static void store_keys(const Arguments& a, const Pair& pair, const FlashBlock& block,
                         const Buffers& b) {
    const FmhaArguments& g = a.forward;
    for (i64 i = 0; i < block.count; ++i) {
      const i64 token = pair.sequence.first_key + block.first + i;
      In* const dk =
          static_cast<In*>(a.dk) + token_offset(a.dk_stride, pair.batch, pair.head_kv, token);
      In* const dv =
          static_cast<In*>(a.dv) + token_offset(a.dv_stride, pair.batch, pair.head_kv, token);
      store_gradient(b.dk.row(i), g.scale, g.hdim, dk, a.dk_stride[kTokenElement]);
      store_gradient(b.dv.row(i), 1.0F, g.hdim_v, dv, a.dv_stride[kTokenElement]);
    }
  }

  static void run_block(const Arguments& a, const Pair& pair, const FlashBlock& block,
                        const Work& work, const FloatRows& sums, const Buffers& b) {
    const FmhaArguments& g = a.forward;
    const FmhaSequence& s = pair.sequence;
    clear_rows(b.dk, 0, kKeys, b.dk.ld);
    clear_rows(b.dv, 0, kKeys, b.dv.ld);
    if (s.queries > 0) {
      Block::load_keys(g, s, pair.batch, pair.head_kv, block, b);
      Block::pack_key_panels(g, s, pair.batch, pair.head_kv, block, b);
    }
    for (i64 head = 0; head < pair.group; ++head) {
      for (i64 first = 0; first < s.queries; first += kQueries) {
        const Queries at = {s, pair.batch, pair.head_kv * pair.group + head, first,
                            smaller(kQueries, s.queries - first)};
        const i64 rows = Block::seen_keys(g, at, block);
        if (rows == 0) continue;
        Block::load_queries(a, at, true, b);
        Block::template weigh<false>(a, at, block, rows, b);
        Block::add(a, at, rows, sums.from(head * work.rows + first), b);
      }
    }
    store_keys(a, pair, block, b);
  }

  // ---- dq ----

  // Stores queries [first, first + count) of a head, of which `parts` parts have sums.
  static void store_queries(const Arguments& a, const Pair& pair, i64 head, Range queries,
                            FloatRows sums, i64 parts, i64 step) {
    const FmhaArguments& g = a.forward;
    for (i64 i = queries.begin; i < queries.end; ++i) {
      float* const row = sums.row(i);
      for (i64 d = 0; d < sums.ld; d += kLanes) {
        f32v sum = parts == 0 ? f32v{} : load<f32v>(row + d);
        for (i64 part = 1; part < parts; ++part) sum = sum + load<f32v>(row + part * step + d);
        store(row + d, sum);
      }
      In* const dq = static_cast<In*>(a.dq) + token_offset(a.dq_stride, pair.batch,
                                                           pair.head_kv * pair.group + head,
                                                           pair.sequence.first_query + i);
      store_gradient(row, g.scale, g.hdim, dq, a.dq_stride[kTokenElement]);
    }
  }

  static void run_item(const Arguments& a, const Work& work, const CpuThread& thread, i64 item,
                       const Buffers& b) {
    const Pair pair = pair_of(a.forward, item / work.parts);
    const FmhaSequence& s = pair.sequence;
    const FloatRows sums = sums_of(a.forward, work, thread, item);
    for (i64 head = 0; head < pair.group; ++head) {
      clear_rows(sums, head * work.rows, head * work.rows + s.queries, sums.ld);
    }
    for (i64 first = item % work.parts * kKeys; first < s.keys; first += work.parts * kKeys) {
      run_block(a, pair, {first, smaller(kKeys, s.keys - first)}, work, sums, b);
    }
    if (work.parts > 1) return;
    for (i64 head = 0; head < pair.group; ++head) {
      store_queries(a, pair, head, {0, s.queries}, sums.from(head * work.rows), 1, 0);
    }
  }

  static void merge_parts(const Arguments& a, const Work& work, const CpuThread& thread) {
    const FmhaArguments& g = a.forward;
    thread.barrier(thread.barrier_context);
    const i64 group = g.heads / g.heads_kv, blocks = blocks_of(g.seqlen_q, kQueries);
    for (i64 i = thread.index; i < work.pairs * group * blocks; i += thread.count) {
      const i64 index = i / blocks / group, head = i / blocks % group;
      const Pair pair = pair_of(g, index);
      const i64 first = i % blocks * kQueries;
      const FloatRows sums = sums_of(g, work, thread, index * work.parts);
      store_queries(a, pair, head, {first, smaller(first + kQueries, pair.sequence.queries)},
                    sums.from(head * work.rows), own_parts(work, pair.sequence),
                    rounded(work.floats, kLanes));
    }
  }

  static void run(const void* arguments, const CpuThread* thread) {
    const auto& a = *static_cast<const Arguments*>(arguments);
    const FmhaArguments& g = a.forward;
    const Work work = work_of(g);
    float* const own = threads_of(g, *thread) + thread->index * floats_of_thread(g, work);
    const Buffers b = Block::buffers(g, static_cast<float*>(thread->workspace), own);
    BackwardRows<C>::prepare(a, *thread, b);
    thread->barrier(thread->barrier_context);
    for (i64 i = thread->index; i < work.pairs * work.parts; i += thread->count) {
      run_item(a, work, *thread, i, b);
    }
    if (work.parts > 1) merge_parts(a, work, *thread);
    if constexpr (C::kDbias) FlashDbias<C>::run(a, *thread, b);
  }

  static i64 workspace_bytes(const void* arguments, int threads) {
    const FmhaArguments& g = static_cast<const Arguments*>(arguments)->forward;
    const Work work = work_of(g);
    const i64 of_parts =
        work.parts == 1 ? 0 : work.pairs * work.parts * rounded(work.floats, kLanes);
    return (Block::shared_floats(g) + floats_of_thread(g, work) * threads + of_parts) * 4;
  }

  static constexpr CpuKernel kernel() { return {C::kAbiVersion, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
