// The blocked GEMM: packab, packb, packa, direct, amx, and preshuffle.
//
//   out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b], D...)
//
// Five loops around a register block (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008): columns by tile_n, rows by the room for partial sums, k by tile_k, rows
// by about tile_m, then register blocks. Each thread owns a rectangle of the output and packs the
// operands that it reads. With wave_k != 1, threads share k instead and add their sums in the order
// of threads.
#pragma once

#include "tessera/device/cpu/gemm/packed_operands.h"
#include "tessera/device/cpu/packed_sizes.h"
#include "tessera/device/cpu/row_starts.h"

namespace tessera::device {

// Operands provides A and B: PackedOperands, or another type with the same functions.
template <class T, class Operands = PackedOperands<T>>
struct PackedGemm {
  using A = typename T::A;
  using Math = typename T::Math;
  using Acc = typename Math::Acc;
  using Shape = PackedShape<T>;

  static constexpr int kPer = Math::kPerWord;

  const Shape& s;
  const Operands operands{s};

  bool stores_raw(const GemmArguments& g) const {
    return s.sums_are_output && g.alpha == 1.0F && g.beta == 0.0F;
  }
  bool converts(const GemmArguments& g) const {
    return s.multiply_converting != nullptr && g.alpha == 1.0F && g.beta == 0.0F;
  }

  // ---- sizes ----

  // Raw sums are kept in the workspace for later blocks of k, and so that they are finished in long
  // rows. Finishing block by block would touch a different page for each row of C, D and the
  // output; 512x2048x512 with two D tensors took 4% longer that way.
  bool needs_partial(const GemmArguments& g) const {
    return !stores_raw(g) && (g.k > s.tile_k || !converts(g));
  }
  // super_rows() is how many rows go through all blocks of k before the next rows do. The second
  // function is how many of them need sums in the workspace: with one block of k, a tile's sums are
  // finished before the next tile begins.
  i64 super_rows(const GemmArguments& g) const {
    if (!needs_partial(g) || g.k <= s.tile_k) return g.m > 0 ? g.m : 1;
    const i64 fit = kPartialBytes / (s.tile_n * 4) / s.tile_m * s.tile_m;
    return smaller(fit > s.tile_m ? fit : s.tile_m, Operands::round_up(g.m, s.rows));
  }
  i64 partial_rows(const GemmArguments& g) const {
    if (!needs_partial(g)) return 0;
    return g.k > s.tile_k ? Operands::round_up(super_rows(g), s.rows) : most_rows(g);
  }
  // The most rows of a block, whatever a thread's share of the rows is.
  i64 most_rows(const GemmArguments& g) const {
    return Operands::round_up(smaller(most_block_rows(s.tile_m), g.m), s.rows);
  }

  // One thread's share of the workspace, in words.
  struct Workspace {
    i64 starts, a, b, partial;
    i64 total() const { return starts + a + b + partial; }
  };
  Workspace workspace(const GemmArguments& g) const {
    const i64 depth = smaller(s.tile_k, Operands::round_up(g.k, kPer));
    const i64 rows = most_rows(g);
    const i64 columns = smaller(s.tile_n, Operands::round_up(g.n, s.columns));
    Workspace w{};
    w.starts = kBiasesB<Math> ? Operands::round_up(rows, kLanes) : 0;
    const i64 packed_rows =
        s.packs_a ? rows : Operands::round_up(kPer, s.rows);  // A in place: only the last rows
    w.a = Operands::round_up(packed_rows * operands.words_of(depth), kLanes) + kPanelSlack;
    if (!s.sizes.preshuffled) {
      // One panel: the incomplete one when B is read in place, or each in turn.
      const i64 panels = s.packs_b && g.m > most_block_rows(s.tile_m) ? columns / s.columns : 1;
      w.b = Operands::round_up(panels * operands.panel_words(depth), kLanes);
    }
    w.partial = partial_rows(g) * columns;
    return w;
  }

  int threads_over_k(const GemmArguments& g, int threads) const {
    if (s.wave_k == 1) return 1;
    const i64 limit = s.wave_k == 0 ? threads : smaller(s.wave_k, threads);
    const i64 parts = smaller(limit, blocks_of(g.k, k_grain()));
    return static_cast<int>(parts > 1 ? parts : 1);
  }
  // The shares of k of threads start at multiples of this: the least k that is worth a thread, or
  // the k of a panel when B is already packed.
  i64 k_grain() const { return s.sizes.preshuffled ? s.tile_k : kGrainWords * kPer; }

  i64 workspace_bytes(const GemmArguments& g, int threads) const {
    const int over_k = threads_over_k(g, threads);
    const i64 shared = over_k > 1 ? over_k * g.m * g.n : 0;
    return (workspace(g).total() * threads + shared) * 4;
  }

  // ---- one rectangle of the output of one batch, by one thread ----

  // The destination of a k block's raw accumulators.
  struct Sink {
    u32* data;  // for (first row, first column) of the block
    i64 ld;
    bool accumulate;  // a block of k came before: add to its sums
    bool padded;      // there is room for whole register blocks
    bool convert;     // convert into the output instead of storing to data
  };

  // The part of the operands that a k block multiplies, and the place where it is packed.
  struct Block {
    Range m, n, k;
    const u32* starts;  // of the sums of each row, where B is biased
    const u32* a;       // packed rows from a_from on; earlier rows are read in place
    i64 a_from;
    const u32* b;
    i64 b_panel_words;
    bool asks_ahead;  // the columns behind these are packed next
  };

  [[gnu::noinline]] void register_blocks(const GemmArguments& g, const Block& x,
                                         const Sink& sink) const {
    const i64 row_stride = Operands::a_row_bytes(g);
    const i64 word_stride = Operands::a_word_bytes(g);
    const i64 depth = x.k.end - x.k.begin;
    for (i64 j = x.n.begin; j < x.n.end; j += s.columns) {
      const int columns = static_cast<int>(smaller(s.columns, x.n.end - j));
      BlockTask t{};
      const bool in_place = !s.packs_b && columns == s.columns;
      const u32* panel = nullptr;
      if (in_place) {
        panel = reinterpret_cast<const u32*>(Operands::b_at(g, j, x.k.begin));
        t.b_word = Operands::b_word(g);
      } else {
        const i64 index = s.packs_b ? (j - x.n.begin) / s.columns : 0;
        panel = x.b + index * x.b_panel_words;
        t.start = panel;
        panel += operands.start();
        t.b_word = s.columns;
      }
      for (i64 i = x.m.begin; i < x.m.end; i += s.rows) {
        t.b = panel;
        if (kBiasesB<Math>) t.start = x.starts + (i - x.m.begin);
        t.words = operands.words_of(depth);
        t.a = x.a + (i - x.a_from) * t.words;
        if (!s.packs_a) {
          const bool there = i < x.a_from;
          if (there) {
            t.a = Operands::a_at(g, i, x.k.begin);
            t.words = depth / kPer;
          }
          t.a_row = there ? row_stride : 4;
          t.a_word = there ? word_stride : s.rows * 4;
          t.a_last = there ? (1U << (depth % kPer * 8 * sizeof(A))) - 1U : 0;
        }
        const i64 rows = smaller(s.rows, x.m.end - i);
        t.ahead = {reinterpret_cast<const char*>(panel), 0, 0};
        if (x.asks_ahead) {
          const i64 blocks = blocks_of(x.m.end - x.m.begin, s.rows);
          t.ahead = operands.next_panel(g, j, x.k, (i - x.m.begin) / s.rows, blocks, panel);
        }
        block(g, t, {i, j, columns}, rows, x.m, x.n, sink);
      }
    }
  }

  // Runs one register block. It stores to the sink or the output directly; when rows or columns are
  // missing, it stores through a scratch block.
  void block(const GemmArguments& g, BlockTask& t, const Place& at, i64 rows, Range m, Range n,
             const Sink& sink) const {
    u32* data = sink.data + (at.row - m.begin) * sink.ld + at.column - n.begin;
    t.before = sink.accumulate ? data : nullptr;
    t.ld_before = sink.ld;
    const bool whole = rows == s.rows && at.count == s.columns;
    if (whole && sink.convert) {
      t.out = static_cast<char*>(g.out) + (at.row * g.ld_out + at.column) * s.sizes.out;
      t.ld_out = g.ld_out;
      return s.multiply_converting(t);
    }
    t.out = data;
    t.ld_out = sink.ld;
    if (whole || (sink.padded && !sink.convert)) return s.multiply(t, rows, at.count);
    incomplete_block(g, t, at, rows, sink);
  }

  [[gnu::noinline]] void incomplete_block(const GemmArguments& g, BlockTask& t, const Place& at,
                                          i64 rows, const Sink& sink) const {
    alignas(64) u32 scratch[kMostSums<Math>];
    u32* data = static_cast<u32*>(t.out);
    if (t.before) {
      copy_rectangle(t.before, t.ld_before, scratch, s.columns, rows, at.count);
      t.before = scratch;
      t.ld_before = s.columns;
    }
    t.out = scratch;
    t.ld_out = s.columns;
    s.multiply(t, rows, at.count);
    if (sink.convert) return s.finish(g, scratch, s.columns, rows, at.count, at);
    copy_rectangle(scratch, s.columns, data, sink.ld, rows, at.count);
  }

  [[gnu::noinline]] static void copy_rectangle(const u32* from, i64 ld_from, u32* to, i64 ld_to,
                                               i64 rows, int columns) {
    for (int j = 0; j < columns; j += kLanes) {
      const int count = static_cast<int>(smaller(kLanes, columns - j));
      for (i64 r = 0; r < rows; ++r) {
        store_first(to + r * ld_to + j, load_first<u32v>(from + r * ld_from + j, count), count);
      }
    }
  }

  // The destination for rows m and columns n: the job's sums, the output itself, or `partial`,
  // which holds rows from `first_row` on.
  Sink sink_for(const GemmArguments& g, const ProductJob& job, u32* partial, i64 ld_partial,
                i64 first_row, Range m, Range n, Range k) const {
    const bool accumulate = k.begin != job.k.begin;
    if (job.sums) return {job.sums + m.begin * job.ld + n.begin, job.ld, accumulate, false, false};
    if (stores_raw(g)) {
      u32* out = static_cast<u32*>(g.out);
      return {out + m.begin * g.ld_out + n.begin, g.ld_out, accumulate, false, false};
    }
    u32* sums = partial + (m.begin - first_row) * ld_partial;
    return {sums, ld_partial, accumulate, true, converts(g) && k.end == job.k.end};
  }

  static Sink moved(Sink sink, i64 columns) {
    sink.data += columns;
    return sink;
  }

  // For all rows of A at once: each panel of B is multiplied as soon as it is packed, while it is
  // still in L2, and the next panel takes its place. When all panels are packed first, they move to
  // L3 and back, which costs 13% of the time of 128x3072x768 with bias and gelu.
  void run_panels(const GemmArguments& g, const Block& x, const Sink& sink, u32* b_space) const {
    for (i64 j = x.n.begin; j < x.n.end; j += s.columns) {
      operands.pack_b_panel(g, j, x.k, b_space);
      Block panel = x;
      panel.n = {j, smaller(j + s.columns, x.n.end)};
      panel.b = b_space;
      panel.asks_ahead = s.asks_ahead && panel.n.end < g.n;
      register_blocks(g, panel, moved(sink, j - x.n.begin));
    }
  }

  // What the sums of rows m start from, for one block of k.
  void start_rows(const GemmArguments& g, Range m, Range k, u32* starts) const {
    if constexpr (kBiasesB<Math>) {
      const auto* a = reinterpret_cast<const u8*>(Operands::a_at(g, m.begin, k.begin));
      row_starts<Math>(a, g.ld_a, m.end - m.begin, k.end - k.begin, reinterpret_cast<int*>(starts));
    }
  }

  [[gnu::noinline]] void run_job(const GemmArguments& g, const ProductJob& job, u32* space) const {
    const Workspace sizes = workspace(g);
    u32* starts = space;
    u32* a_packed = starts + sizes.starts;
    u32* b_space = a_packed + sizes.a;
    u32* partial = b_space + sizes.b;
    for (i64 n = job.n.begin; n < job.n.end; n += s.tile_n) {
      const Range columns{n, smaller(n + s.tile_n, job.n.end)};
      const i64 ld_partial = Operands::round_up(columns.end - columns.begin, s.columns);
      for (i64 r = job.m.begin; r < job.m.end; r += super_rows(g)) {
        const Range rows{r, smaller(r + super_rows(g), job.m.end)};
        const i64 step = block_rows(rows.end - rows.begin, s.tile_m, s.rows);
        const bool by_panels = s.packs_b && !s.sizes.preshuffled && rows.end - rows.begin <= step;
        for (i64 p = job.k.begin; p < job.k.end; p += s.tile_k) {
          const Range k{p, smaller(p + s.tile_k, job.k.end)};
          const u32* b_packed = by_panels ? nullptr : operands.prepare_b(g, columns, k, b_space);
          for (i64 i = rows.begin; i < rows.end; i += step) {
            const Range m{i, smaller(i + step, rows.end)};
            const i64 first = i + operands.rows_in_place(g, m, k.end - k.begin);
            operands.pack_a(g, {first, m.end}, k, a_packed);
            start_rows(g, m, k, starts);
            const i64 first_sum = g.k > s.tile_k ? r : i;
            const Sink sink = sink_for(g, job, partial, ld_partial, first_sum, m, columns, k);
            const i64 words = operands.panel_words(k.end - k.begin);
            const Block x{m, columns, k, starts, a_packed, first, b_packed, words, false};
            if (by_panels) {
              run_panels(g, x, sink, b_space);
            } else {
              register_blocks(g, x, sink);
            }
            if (k.end < job.k.end || job.sums || stores_raw(g) || sink.convert) continue;
            s.finish(g, sink.data, sink.ld, m.end - m.begin, columns.end - columns.begin,
                     {m.begin, n, 0});
          }
        }
      }
    }
  }

  // The same of a product of so many rows, on which only few_rows_gemm.h depends.
  void run_job_of(i64, const GemmArguments& g, const ProductJob& job, u32* space) const {
    run_job(g, job, space);
  }

  // ---- the team ----

  // k = 0: the accumulators are zero and only the epilogue remains.
  void run_empty(const GemmArguments& all, const CpuThread& thread) const {
    const Range rows = part(all.m, 1, thread.count, thread.index);
    const u32 zeros[kLanes] = {};
    for (i64 b = 0; b < all.batch; ++b) {
      const GemmArguments g = operands.batch_of(all, b);
      for (i64 i = rows.begin; i < rows.end; ++i) {
        for (i64 j = 0; j < g.n; j += kLanes) {
          s.finish(g, zeros, 0, 1, smaller(kLanes, g.n - j), {i, j, 0});
        }
      }
    }
  }

  void run_grid(const GemmArguments& g, const CpuThread& thread, u32* space) const {
    const Grid grid = best_grid(g, thread.count, s.wave_m, s.wave_n, s.rows, s.columns, kLanes);
    if (thread.index >= grid.batch * grid.m * grid.n) return;
    const int n = thread.index % grid.n;
    const int m = thread.index / grid.n % grid.m;
    const Range batches = part(g.batch, 1, grid.batch, thread.index / (grid.n * grid.m));
    const Range rows = part(g.m, s.rows, grid.m, m);
    const Range columns = part(g.n, s.columns, grid.n, n);
    for (i64 b = batches.begin; b < batches.end; ++b) {
      run_job(operands.batch_of(g, b), {rows, columns, {0, g.k}, nullptr, 0}, space);
    }
  }

  void run_over_k(const GemmArguments& all, const CpuThread& thread, u32* space,
                  u32* shared) const {
    const int parts = threads_over_k(all, thread.count);
    const Range rows = part(all.m, 1, thread.count, thread.index);
    for (i64 b = 0; b < all.batch; ++b) {
      const GemmArguments g = operands.batch_of(all, b);
      if (thread.index < parts) {
        const Range k = part(g.k, k_grain(), parts, thread.index);
        run_job(g, {{0, g.m}, {0, g.n}, k, shared + thread.index * g.m * g.n, g.n}, space);
      }
      thread.barrier(thread.barrier_context);
      for (i64 i = rows.begin; i < rows.end; ++i) add_row(g, shared + i * g.n, parts);
      s.finish(g, shared + rows.begin * g.n, g.n, rows.end - rows.begin, g.n, {rows.begin, 0, 0});
      thread.barrier(thread.barrier_context);
    }
  }

  // Adds the other threads' sums of one row to the first thread's sums, in the order of threads.
  static void add_row(const GemmArguments& g, u32* row, int parts) {
    for (i64 j = 0; j < g.n; j += kLanes) {
      const int count = static_cast<int>(smaller(kLanes, g.n - j));
      Acc sum = load_first<Acc>(row + j, count);
      for (int p = 1; p < parts; ++p) sum += load_first<Acc>(row + p * g.m * g.n + j, count);
      store_first(row + j, sum, count);
    }
  }

  void run(const GemmArguments& g, const CpuThread& thread) const {
    if (g.k == 0) return run_empty(g, thread);
    const i64 words = workspace(g).total();
    u32* all = static_cast<u32*>(thread.workspace);
    u32* space = all + thread.index * words;
    if (threads_over_k(g, thread.count) > 1) {
      return run_over_k(g, thread, space, all + thread.count * words);
    }
    run_grid(g, thread, space);
  }
};

// ---- what kernels share as compiled code ----

template <class T, class Operands = PackedOperands<T>>
i64 packed_workspace_bytes(const PackedShape<T>& shape, const void* arguments, int threads) {
  const auto& g = *static_cast<const GemmArguments*>(arguments);
  return PackedGemm<T, Operands>{shape}.workspace_bytes(g, threads);
}

template <class T, class Operands = PackedOperands<T>>
void packed_run(const PackedShape<T>& shape, const void* arguments, const CpuThread& thread) {
  PackedGemm<T, Operands>{shape}.run(*static_cast<const GemmArguments*>(arguments), thread);
}

template <class T, class Operands = PackedOperands<T>>
i64 packed_b_bytes(const PackedShape<T>& shape, const void* arguments) {
  return Operands{shape}.packed_bytes(*static_cast<const GemmArguments*>(arguments));
}

template <class T, class Operands = PackedOperands<T>>
void packed_b(const PackedShape<T>& shape, const void* arguments, void* packed) {
  const auto& g = *static_cast<const GemmArguments*>(arguments);
  Operands{shape}.pack_all(g, static_cast<u32*>(packed));
}

}  // namespace tessera::device
