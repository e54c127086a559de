// Drivers of kernels for short calls, one for each kind: register blocks, dot products, rows of B
// in order. Operands are read where they lie; n is at least kLanes, and rows of A, and of B with k
// contiguous, have at least kSmallEndBytes.
#pragma once

#include "tessera/device/cpu/gemm/small_shape.h"

namespace tessera::device {

// One thread's share of one batch.
template <class Arguments>
struct SmallShare {
  const SmallShape& s;
  const Arguments& g;
  Range m, n;
  u8* ends;    // 16 bytes for each row of A
  int* start;  // one for each row of A
  u8* panel;   // words of B that are kept
  u32* sums;   // what has to be finished
  bool raw;    // sums go to the output as they are, or as bf16

  // ---- workspace of one thread, in bytes ----

  static constexpr i64 kSlackRows = 16;  // register blocks read the starts of all their rows
  static i64 ends_bytes(i64 rows) { return blocks_of((rows + kSlackRows) * 16, 64) * 64; }
  static i64 start_bytes(i64 rows) { return blocks_of((rows + kSlackRows) * 4, 64) * 64; }
  static i64 panel_bytes(const SmallShape& s, i64 k) {
    const i64 words = blocks_of(k * s.element, 16) * 4;
    return s.panel_rows > 0 ? words * s.vectors * kVectorBytes : 0;
  }
  static i64 sums_bytes(const SmallShape& s, i64 n) {
    constexpr i64 kOfBlock = 32 * kVectorBytes;
    return s.axpy != nullptr ? s.rows * blocks_of(n * 4, 64) * 64 : kOfBlock;
  }
  static i64 all_bytes(const SmallShape& s, const Arguments& g) {
    return ends_bytes(g.m) + start_bytes(g.m) + panel_bytes(s, g.k) + sums_bytes(s, g.n);
  }

  // ---- places ----

  const u8* a_at(i64 i) const { return static_cast<const u8*>(g.a) + i * a_row(); }
  const u8* b_at(i64 j) const {
    return static_cast<const u8*>(g.b) + j * (s.k_contiguous ? b_step() : s.element);
  }
  void* out_at(i64 i, i64 j) const {
    return static_cast<u8*>(g.out) + (i * g.ld_out + j) * s.sizes.out;
  }
  i64 a_row() const { return g.ld_a * s.element; }
  i64 b_step() const { return g.ld_b * s.element; }
  i64 k_bytes() const { return g.k * s.element; }

  // ---- before the products ----

  // The ends of rows of A, which whole steps of 16 bytes leave over.
  void copy_ends() const {
#if defined(__SSSE3__)
    const i64 bytes = k_bytes();
    if (bytes % 16 == 0) return;
    const u8x16 control = end_control(static_cast<int>(bytes % 16));
    const u8* from = a_at(m.begin) + bytes - 16;
    for (i64 i = m.begin; i < m.end; ++i, from += a_row()) {
      store(ends + i * 16, shift_end(load<i32x4>(from), control));
    }
#endif
  }
  void add_rows() const {
    if (s.row_sums == nullptr) return;
    s.row_sums(a_at(m.begin), a_row(), m.end - m.begin, k_bytes(), start + m.begin);
  }

  // ---- register blocks ----

  // A panel of `count` vectors from column `first` on, the last one `last` columns from there.
  // Columns before `fresh` belong to the panel before.
  struct Panel {
    int count;
    i64 first, last, fresh;
  };

  // Rows [i, i + rows) of a panel, by a function that takes `words` words a step.
  [[gnu::always_inline]] void rows_of(SmallTask& t, SmallMultiply multiply, int words,
                                      const Panel& p, i64 i, i64 rows) const {
    const i64 bytes = k_bytes();
    t.a = a_at(i);
    t.rows = static_cast<int>(rows);
    t.start = start + i;
    t.steps = bytes / (4 * words);
    t.ends = ends + i * 16 + (words == 1 ? bytes % 16 / 4 * 4 : 0);
    t.rest = static_cast<int>(words == 1 ? g.k % s.per_word : bytes % 16);
    if (raw) {
      t.out = out_at(i, p.first);
      return multiply(t);
    }
    multiply(t);
    const i64 skipped = p.fresh - p.first;
    s.finish(g, sums + skipped, t.ld_out, rows, p.last + kLanes - skipped, {i, p.fresh, 0});
  }

  // Groups of rows, as many rows in each as in the others.
  [[gnu::always_inline]] void groups_of(SmallTask& t, SmallMultiply multiply, int words, int most,
                                        const Panel& p, Range rows) const {
    const i64 all = rows.end - rows.begin;
    const i64 groups = blocks_of(all, most);
    for (i64 q = 0; q < groups; ++q) {
      const i64 from = small_group(all, groups, q);
      rows_of(t, multiply, words, p, rows.begin + from, small_group(all, groups, q + 1) - from);
    }
  }

  [[gnu::noinline]] void multiply_panel(const Panel& p) const {
    const SmallShape::Blocks& blocks = s.blocks[p.count - 1];
    const i64 step = b_step();
    SmallTask t{};
    t.a_row = a_row();
    t.out = sums;
    t.ld_out = raw ? g.ld_out : p.count * kLanes;
    t.last_column = p.last;
    t.narrows = raw && s.narrows;
    const SmallColumns as_it_lies = {b_at(p.first), step,
                                     p.last * (s.k_contiguous ? step : s.element)};
    t.b = as_it_lies;
    if (s.panel_rows == 0) return groups_of(t, blocks.multiply, blocks.words, blocks.rows, p, m);
    for (i64 i = m.begin; i < m.end; i += s.panel_rows) {
      const i64 end = smaller(i + s.panel_rows, m.end);
      const i64 first = smaller(end - i, blocks.rows);
      t.b = as_it_lies;
      t.packed = end - i > first ? panel : nullptr;
      rows_of(t, blocks.multiply, blocks.words, p, i, first);
      t.b = {panel, p.count * kVectorBytes, (p.count - 1) * kVectorBytes};
      groups_of(t, blocks.multiply_kept, blocks.kept_words, blocks.kept_rows, p, {i + first, end});
    }
  }

  // Panels, as many vectors in each as in the others. The last vector overlaps the one before it.
  void run_blocks() const {
    copy_ends();
    add_rows();
    const i64 columns = n.end - n.begin;
    const i64 vectors = blocks_of(columns, kLanes);
    i64 at = 0;
    for (i64 left = blocks_of(vectors, s.vectors); left > 0; --left) {
      const i64 count = blocks_of(vectors - at, left);
      const i64 fresh = at * kLanes;
      const i64 first = count == 1 ? smaller(fresh, columns - kLanes) : fresh;
      const i64 last = smaller((at + count - 1) * kLanes, columns - kLanes) - first;
      multiply_panel({static_cast<int>(count), n.begin + first, last, n.begin + fresh});
      at += count;
    }
  }

  // ---- dot products ----

  void dots_of(i64 i, i64 rows, i64 j, i64 columns) const {
    const SmallDots t = {a_at(i),
                         b_at(j),
                         a_row(),
                         b_step(),
                         k_bytes(),
                         static_cast<int>(columns),
                         start + i,
                         raw ? out_at(i, j) : sums,
                         raw ? g.ld_out : columns,
                         raw && s.narrows};
    (rows == s.rows ? s.dots : s.dots_of_two)(t);
    if (!raw) s.finish(g, sums, columns, rows, columns, {i, j, 0});
  }

  // All rows by some columns, which stay in L1.
  void run_dots() const {
    add_rows();
    const i64 columns = n.end - n.begin, rows = m.end - m.begin;
    const i64 pieces = blocks_of(columns, s.columns), groups = blocks_of(rows, s.rows);
    if (columns == 0) return;
    // Divided once: divisions for each block took a tenth of a short call.
    const i64 few_columns = columns / pieces, wider = columns % pieces;
    const i64 few_rows = rows / groups, higher = rows % groups;
    i64 j = n.begin;
    for (i64 c = 0; c < pieces; ++c) {
      const i64 count = few_columns + (c < wider ? 1 : 0);
      i64 i = m.begin;
      for (i64 q = 0; q < groups; ++q) {
        const i64 high = few_rows + (q < higher ? 1 : 0);
        dots_of(i, high, j, count);
        i += high;
      }
      j += count;
    }
  }

  // ---- rows of B in order ----

  void add_rows_to(SmallRows t) const {
    const i64 columns = t.n;
    if (columns > kSmallStripped) return s.axpy(t);
    for (i64 left = blocks_of(columns, small_strip_columns(s.rows)), j = 0; left > 0; --left) {
      const i64 vectors = blocks_of(columns - j, kLanes);
      t.n = smaller(blocks_of(vectors, left) * kLanes, columns - j);
      s.strip(t);
      j += t.n;
      t.b += t.n * 4;
      t.out += t.n;
    }
  }
  void run_rows() const {
    const i64 columns = n.end - n.begin;
    for (i64 i = m.begin; i < m.end; i += s.rows) {
      void* const out = raw ? out_at(i, n.begin) : sums;
      const i64 ld = raw ? g.ld_out : columns;
      add_rows_to(
          {a_at(i), b_at(n.begin), a_row(), b_step(), columns, g.k, static_cast<float*>(out), ld});
      if (!raw) s.finish(g, sums, columns, s.rows, columns, {i, n.begin, 0});
    }
  }
};

// What one thread computes.
struct SmallPart {
  Range batches, m, n;
};

// Rows are shared in whole groups of s.rows. One thread does without the divisions.
inline SmallPart small_part(const SmallShape& s, i64 rows, i64 columns, i64 batch,
                            const CpuThread& thread) {
  if (s.one_thread || thread.count == 1) {
    const i64 mine = thread.index == 0 ? batch : 0;
    return {{0, mine}, {0, rows}, {0, columns}};
  }
  const SmallGrid grid = small_grid(rows, columns, batch, thread.count);
  const int index = thread.index;
  if (index >= grid.batch * grid.m * grid.n) return {};
  const i64 groups = blocks_of(rows, s.rows > 0 ? s.rows : 1);
  const Range m = part(groups, 1, grid.m, index / grid.n % grid.m);
  return {part(batch, 1, grid.batch, index / (grid.m * grid.n)),
          {small_group(rows, groups, m.begin), small_group(rows, groups, m.end)},
          small_columns(columns, grid.n, index % grid.n)};
}

// Runs a thread's share of all batches.
template <class Arguments, class Run>
[[gnu::always_inline]] inline void small_shares(const SmallShape& s, const Arguments& all,
                                                const CpuThread& thread, Run run) {
  using Share = SmallShare<Arguments>;
  const SmallPart mine = small_part(s, all.m, all.n, all.batch, thread);
  if (mine.batches.begin == mine.batches.end || mine.m.begin == mine.m.end) return;
  u8* at = static_cast<u8*>(thread.workspace) + thread.index * Share::all_bytes(s, all);
  u8* const ends = at;
  at += Share::ends_bytes(all.m);
  int* const start = reinterpret_cast<int*>(at);
  at += Share::start_bytes(all.m);
  u32* const sums = reinterpret_cast<u32*>(at);
  u8* const panel = at + Share::sums_bytes(s, all.n);
  const bool raw = (s.sums_are_output || s.narrows) && all.alpha == 1.0F && all.beta == 0.0F;
  if (all.batch == 1 && all.pointer_arrays == 0) {
    return run(Share{s, all, mine.m, mine.n, ends, start, panel, sums, raw});
  }
  for (i64 b = mine.batches.begin; b < mine.batches.end; ++b) {
    const Arguments g = one_batch(all, s.sizes, b);
    run(Share{s, g, mine.m, mine.n, ends, start, panel, sums, raw});
  }
}

// ---- what kernels share as compiled code ----

template <class Arguments>
i64 small_workspace_bytes(const SmallShape& s, const void* arguments, int threads) {
  return SmallShare<Arguments>::all_bytes(s, *static_cast<const Arguments*>(arguments)) * threads;
}
template <class Arguments>
void small_run_blocks(const SmallShape& s, const void* arguments, const CpuThread& thread) {
  small_shares(s, *static_cast<const Arguments*>(arguments), thread,
               [](const SmallShare<Arguments>& share) { share.run_blocks(); });
}
template <class Arguments>
void small_run_dots(const SmallShape& s, const void* arguments, const CpuThread& thread) {
  small_shares(s, *static_cast<const Arguments*>(arguments), thread,
               [](const SmallShare<Arguments>& share) { share.run_dots(); });
}
template <class Arguments>
void small_run_rows(const SmallShape& s, const void* arguments, const CpuThread& thread) {
  small_shares(s, *static_cast<const Arguments*>(arguments), thread,
               [](const SmallShare<Arguments>& share) { share.run_rows(); });
}

}  // namespace tessera::device
