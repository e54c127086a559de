// Convolutions as blocked products of matrices (see conv_view.h). Loops as in gemm/packed_gemm.h:
// columns by tile_n, rows by the room for partial sums, depth by tile_k, rows by tile_m, register
// blocks. Every thread owns rectangles of the result, and packs the factors that it reads. Each
// sum is formed in one order, so that the number of threads does not change its bits.
#pragma once

#include "tessera/device/cpu/conv/packed_shape.h"

namespace tessera::device {

template <class T>
struct PackedConvDriver : PackedConvSizes<T> {
  using Sizes = PackedConvSizes<T>;
  using Factors = ConvFactors<T>;
  using Types = ConvTypes<T>;
  using Math = typename T::Math;
  using Pixels = ConvPixels<T>;
  using Result = ConvResult<T>;
  using InPlace = typename Pixels::InPlace;
  using Halo = ConvHalo<T>;
  static constexpr bool kWeights = Types::kWeights;
  static constexpr bool kAAcross = Factors::kAAcross;
  static constexpr int kPer = Math::kPerWord;

  using Sizes::a_pitch;
  using Sizes::a_words;
  using Sizes::b_words;
  using Sizes::classes;
  using Sizes::panel_words;
  using Sizes::partial_words;
  using Sizes::round_up;
  using Sizes::s;
  using Sizes::start;
  using Sizes::super_rows;
  using Sizes::thread_words;
  using Sizes::view;

  // ---- the result ----

  void finish(const Result& result, const u32* sums, i64 ld, Range m, Range n) const {
    for (i64 i = m.begin; i < m.end;) {
      const ResultLine row = result.rows(i, m.end - i);
      const i64 end = smaller(n.end, result.columns_of(i));
      for (i64 j = n.begin; j < end;) {
        const ResultLine column = result.columns(j, end - j, s.has_steps);
        s.finish(result.g,
                 {row.at + column.at, row.count, column.count, row.distance, column.distance,
                  result.channel(i, j)},
                 sums + (i - m.begin) * ld + j - n.begin, ld);
        j += column.count;
      }
      i += row.count;
    }
  }

  // Where raw sums of some columns may go to the result itself: it is a plain matrix.
  u32* plain_output(const Result& result, Range n, i64& ld) const {
    const ConvArguments& g = result.g;
    const ConvView& v = result.v;
    if (!s.sums_are_output || g.alpha != 1.0F || g.beta != 0.0F) return nullptr;
    if (last_cell_is_cut(v) || n.end - n.begin < s.columns) return nullptr;
    const ResultLine row = result.rows(0, v.rows),
                     column = result.columns(n.begin, n.end - n.begin, s.has_steps);
    if (row.count != v.rows || column.count != n.end - n.begin) return nullptr;
    if (column.distance != 1 && column.count > 1) return nullptr;
    ld = row.distance;
    return static_cast<u32*>(g.out) + row.at + column.at;
  }

  // ---- a rectangle of the result of one view ----

  // A thread's workspace. Its sizes take a view of each class, so that they are found once.
  struct Space {
    u32* begin;
    u32* copies;  // of groups
    i64 partial_words;
  };
  struct Job {
    const Result& result;
    Range m, n;
    const Space& space;
  };
  // Sums of a block of the depth: added to those at `data`, which has room for whole register
  // blocks where it is padded.
  struct Sink {
    u32* data;  // of row m.begin, column n.begin
    i64 ld;
    bool accumulate, padded;
  };

  // The rows of a tile and a block of the depth, as register blocks read them.
  struct Tile {
    Range m, k;
    const u32* copied;
    const InPlace* blocks;  // null: all are copied
  };

  // Packs what cannot be read in place. Blocks of rows are told apart by their number alone, so
  // that their sums do not depend on the number of threads.
  Tile prepare_a(const Result& result, Range m, Range k, u32* a, InPlace* blocks) const {
    const ConvArguments& g = result.g;
    if constexpr (Pixels::kMayBeInPlace) {
      const void* const image = Types::kForward ? g.x : g.y;
      const bool even = result.sources_even;
      for (i64 i = m.begin; i < m.end; i += s.rows) {
        const i64 rows = smaller(s.rows, m.end - i);
        InPlace& block = blocks[(i - m.begin) / s.rows];
        block = InPlace{};
        if (rows == s.rows) block = Pixels::in_place(result.v, image, i, rows, even);
        if (block.data) continue;
        Factors::pack_a(g, result.v, {i, i + rows}, k, a + (i - m.begin) * a_pitch(), a_pitch());
      }
      return {m, k, a, blocks};
    } else {
      Factors::pack_a(g, result.v, m, k, a, a_pitch());
      return {m, k, a, nullptr};
    }
  }

  // All rows of a tile by a panel.
  void register_blocks(const ConvView& v, const Tile& tile, const u32* panel, i64 columns,
                       const Sink& sink) const {
    BlockTask t{};
    t.b_word = s.columns;
    t.ld_before = t.ld_out = sink.ld;
    const i64 height = tile.m.end - tile.m.begin;
    for (i64 i = 0; i < height; i += s.rows) {
      const i64 rows = smaller(s.rows, height - i);
      u32* const data = sink.data + i * sink.ld;
      t.out = data;
      t.before = sink.accumulate ? data : nullptr;
      t.start = panel;
      const bool padded = sink.padded || (rows == s.rows && columns == s.columns);
      if constexpr (Pixels::kMayBeInPlace) {
        const InPlace& block = tile.blocks[i / s.rows];
        if (block.data || block.is_cut) {
          t.a = block.data ? static_cast<const void*>(block.data) : tile.copied + i * a_pitch();
          block_by_taps(v, block, tile.k, t, panel, static_cast<int>(columns), padded);
          continue;
        }
      }
      t.a = tile.copied + (kAAcross ? i : i * a_pitch());
      t.a_row = kAAcross ? 4 : a_pitch() * 4;
      t.a_word = kAAcross ? a_pitch() * 4 : 4;
      t.b = panel + start();
      t.words = (tile.k.end - tile.k.begin) / kPer;
      multiply(t, rows, static_cast<int>(columns), padded);
    }
  }
  void multiply(const BlockTask& t, i64 rows, int columns, bool padded) const {
    if (padded) return s.multiply(t, rows, columns);
    incomplete_block(t, rows, columns);
  }

  // All rows of a block by some runs of the depth.
  void multiply_by_runs(BlockTask& t, const ConvRun* runs, i64 number, int columns,
                        bool padded) const {
    if (padded && (columns * 2 > s.columns || s.columns == kLanes)) {
      s.multiply_runs(t, runs, number);
      t.before = static_cast<const u32*>(t.out);
      return;
    }
    BlockTask part = t;
    for (const ConvRun* run = runs; run != runs + number; ++run) {
      part.a = static_cast<const u8*>(t.a) + run->a;
      part.b = t.b + run->b;
      part.words = run->words;
      part.before = t.before;
      multiply(part, s.rows, columns, padded);
      t.before = static_cast<const u32*>(t.out);
    }
  }
  // Taps of a line, or one tap, are a run. Those outside of the image are left out.
  void block_by_taps(const ConvView& v, const InPlace& block, Range k, BlockTask t,
                     const u32* panel, int columns, bool padded) const {
    constexpr i64 kBytes = sizeof(typename Pixels::Image), kMostRuns = 32;
    t.a_row = block.data ? block.distance * kBytes : a_pitch() * 4;
    t.a_word = 4;
    t.b = panel;
    if (block.is_even) {
      t.a = block.data + k.begin;
      t.words = (k.end - k.begin) / kPer;
      return multiply(t, s.rows, columns, padded);
    }
    const bool by_lines = Pixels::taps_are_neighbours(v);
    const i64 span = (by_lines ? v.axis[kWidth].taps : 1) * v.padded;
    ConvTap tap = tap_of(v, k.begin / v.padded);
    i64 inner = k.begin % v.padded + (by_lines ? tap.at[kWidth] * v.padded : 0);
    if (by_lines) tap.at[kWidth] = 0;
    ConvRun runs[kMostRuns];
    i64 number = 0;
    bool any = false;
    for (i64 e = k.begin; e < k.end; inner = 0) {
      const i64 end = smaller(k.end, e + span - inner);
      const i64 d = tap.at[kDepth] * v.axis[kDepth].tap_step;
      const i64 h = tap.at[kHeight] * v.axis[kHeight].tap_step;
      if (is_inside(v.axis[kDepth], block.place[0] + d) &&
          is_inside(v.axis[kHeight], block.place[1] + h)) {
        const i64 at = d * v.image_stride[kImageD] + h * v.image_stride[kImageH] +
                       tap.at[kWidth] * v.axis[kWidth].tap_step * v.image_stride[kImageW] + inner;
        const i64 words = (e - k.begin) / kPer;
        runs[number++] = {block.data ? at * kBytes : words * 4, words * s.columns,
                          (end - e) / kPer};
        any = true;
      }
      if (number == kMostRuns || (end == k.end && number > 0)) {
        multiply_by_runs(t, runs, number, columns, padded);
        number = 0;
      }
      if (by_lines) tap.at[kWidth] = v.axis[kWidth].taps - 1;
      next_tap(v, tap);
      e = end;
    }
    t.words = 0;
    if (!any) multiply(t, s.rows, columns, padded);
  }
  [[gnu::noinline]] void incomplete_block(BlockTask t, i64 rows, int columns) const {
    constexpr i64 kMostSums = 32 * kLanes;
    alignas(64) u32 scratch[kMostSums];
    u32* const data = static_cast<u32*>(t.out);
    const i64 ld = t.ld_out;
    if (t.before) copy_rectangle(data, ld, scratch, s.columns, rows, columns);
    t.before = t.before ? scratch : nullptr;
    t.out = scratch;
    t.ld_before = t.ld_out = s.columns;
    s.multiply(t, rows, columns);
    copy_rectangle(scratch, s.columns, data, ld, rows, columns);
  }
  void pack_panel(const Result& result, i64 j, Range k, u32* panel) const {
    Factors::pack_b(result.g, result.v, s.pack_b, j, k, s.columns, panel + start());
    if (s.correct) s.correct(panel + start(), (k.end - k.begin) / kPer, panel);
  }

  void run_job(const Job& job) const {
    const Result& result = job.result;
    const ConvView& v = result.v;
    u32* const a = job.space.begin;
    u32* const b = a + a_words();
    u32* const partial = b + b_words();
    auto* const blocks = reinterpret_cast<InPlace*>(partial + job.space.partial_words);
    const i64 super = super_rows(v, v.depth);
    for (i64 n0 = job.n.begin; n0 < job.n.end; n0 += s.tile_n) {
      const Range n{n0, smaller(n0 + s.tile_n, job.n.end)};
      const i64 ld = round_up(n.end - n.begin, s.columns);
      i64 ld_plain = 0;
      u32* const plain = plain_output(result, n, ld_plain);
      for (i64 r = job.m.begin; r < job.m.end; r += super) {
        const i64 rows_end = smaller(r + super, job.m.end);
        for (i64 p = 0; p < v.depth; p += s.tile_k) {
          const Range k{p, smaller(p + s.tile_k, v.depth)};
          const i64 panel_size = panel_words(k.end - k.begin);
          const bool packs_b = v.depth > s.tile_k || r == job.m.begin;
          // A panel that no other tile of rows reads gives its place, which is in a near cache, to
          // the next one.
          const bool keeps_b = v.depth <= s.tile_k || rows_end - r > s.tile_m;
          for (i64 i = r; i < rows_end; i += s.tile_m) {
            const Range m{i, smaller(i + s.tile_m, rows_end)};
            const Tile tile = prepare_a(result, m, k, a, blocks);
            Sink sink{partial + (i - r) * ld, ld, p > 0, true};
            if (plain) sink = {plain + i * ld_plain, ld_plain, p > 0, false};
            u32* panel = b;
            for (i64 j = n.begin; j < n.end; j += s.columns, panel += keeps_b ? panel_size : 0) {
              if (packs_b && i == r) pack_panel(result, j, k, panel);
              Sink part = sink;
              part.data += j - n.begin;
              register_blocks(v, tile, panel, smaller(s.columns, n.end - j), part);
            }
            if (!plain && k.end == v.depth) finish(result, sink.data, ld, m, n);
          }
        }
      }
    }
  }

  // No taps, or no images: the sums are zero.
  void run_empty(const Result& result, Range m, Range n) const {
    constexpr int kSome = 64;
    const u32 zeros[kSome] = {};
    for (i64 j = n.begin; j < n.end; j += kSome) {
      finish(result, zeros, 0, m, {j, smaller(j + kSome, n.end)});
    }
  }

  // The bands of one class that are this thread's, from copies of one group or of merged ones.
  void run_bands(const ConvArguments& g, const CpuThread& thread, i64 c, const Halo& halo,
                 const Space& space) const {
    using Image = typename Halo::Image;
    const i64 merged = Factors::merged_groups(g), groups = g.groups / merged;
    const i64 bands = halo.bands(view(g, 0, c)), threads = s.wave_m == 1 ? 1 : thread.count;
    if (thread.index >= threads) return;
    ConvArguments copied = g;
    (Types::kForward ? copied.x : copied.y) = space.copies;
    const Range mine = part(bands * groups, 1, threads, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      const i64 group = i % groups, band = i / groups;
      const ConvView v = view(g, group, c, merged), b = halo.view(v, band);
      halo.copy(v, b, band, Types::kForward ? g.x : g.y, reinterpret_cast<Image*>(space.copies));
      const Result result{copied, b, group, even_pixels(b), sources_are_even(b)};
      run_job({result, {0, b.rows}, {0, b.columns}, space});
    }
  }
  void run(const ConvArguments& g, const CpuThread& thread) const {
    const i64 partial = partial_words(g), words = thread_words(g, partial);
    u32* const begin = static_cast<u32*>(thread.workspace) + thread.index * words;
    const Space space{begin, begin + words - Sizes::copy_words(g), partial};
    for (i64 c = 0, number = classes(g); c < number; ++c) {
      if constexpr (Halo::kMayCopy) {
        const Halo halo = Halo::of(g, view(g, 0, c, Factors::merged_groups(g)));
        if (halo.lines > 0) {
          run_bands(g, thread, c, halo, space);
          continue;
        }
      }
      const ConvView v = view(g, 0, c);
      GemmArguments sizes{};
      sizes.m = v.rows, sizes.n = v.columns, sizes.batch = g.groups;
      const Grid grid =
          best_grid(sizes, thread.count, s.wave_m, s.wave_n, s.rows, s.columns, kLanes);
      if (thread.index >= grid.batch * grid.m * grid.n) continue;
      const Range m = part(v.rows, s.rows, grid.m, thread.index / grid.n % grid.m);
      const Range n = part(v.columns, s.columns, grid.n, thread.index % grid.n);
      const Range groups = part(g.groups, 1, grid.batch, thread.index / (grid.n * grid.m));
      for (i64 group = groups.begin; group < groups.end; ++group) {
        if constexpr (Sizes::GroupCopy::kMayCopy) {
          if (Sizes::GroupCopy::copies(g)) {
            run_copied(g, group, m, n, space);
            continue;
          }
        }
        run_group(g, view(g, group, c), group, m, n, space);
      }
    }
  }
  void run_group(const ConvArguments& g, const ConvView& v, i64 group, Range m, Range n,
                 const Space& space) const {
    const Result result{g, v, group, kWeights ? EvenPixels::line : even_pixels(v),
                        !kWeights && sources_are_even(v)};
    if (v.depth == 0) return run_empty(result, m, n);
    run_job({result, m, n, space});
  }
  // A gradient by w from copies of a group's images.
  void run_copied(const ConvArguments& g, i64 group, Range m, Range n, const Space& space) const {
    const ConvArguments copied =
        Sizes::GroupCopy::copied(g, group, reinterpret_cast<u8*>(space.copies));
    run_group(copied, view(copied, group, 0), group, m, n, space);
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 packed_conv_workspace_bytes(const PackedConvShape<T>& shape, const void* arguments,
                                int threads) {
  const auto& g = *static_cast<const ConvArguments*>(arguments);
  return PackedConvDriver<T>{{shape}}.workspace_bytes(g, threads);
}
template <class T>
void packed_conv_run(const PackedConvShape<T>& shape, const void* arguments,
                     const CpuThread& thread) {
  PackedConvDriver<T>{{shape}}.run(*static_cast<const ConvArguments*>(arguments), thread);
}
// A panel of B, or a part of its depth.
template <class E, class Math, int Width, bool kKContiguous>
void pack_part(const PanelSource<E>& s, u32* panel) {
  pack_panel<E, Math, Width, false, kKContiguous>(s, panel);
}

}  // namespace tessera::device
