// The blocked GEMM where out has a gate, rows by index or 8 bits, with groups or without.
//
// A thread computes a few hundred rows of its share at a time. Their sums go to a part of its
// workspace, from which they are finished while they are in the cache. The rows of A that an index
// names are first copied one behind the other, so that register blocks read them as any other A.
#pragma once

#include "tessera/device/cpu/gemm/outputs_finish.h"
#include "tessera/device/cpu/gemm/packed_gemm.h"

namespace tessera::device {

// What the driver does not read from a shape.
struct OutputsShape {
  Gate gate;
  bool interleaved;
  Indexing indexing;
  NormQuant quant;
  void (*finish)(const OutputRows& rows);
};

template <class T, class Gemm = PackedGemm<T>>
struct OutputsGemm {
  using Operands = PackedOperands<T>;
  using A = typename T::A;
  static constexpr i64 kMostRows = 512;             // at a time
  static constexpr i64 kSumsBytes = kPartialBytes;  // of these rows, where a few rows fit
  static constexpr i64 kGatheredBytes = i64{4} << 20;

  const typename Gemm::Shape& s;
  const OutputsShape& o;
  const Gemm gemm{s};

  bool takes_halves() const { return o.gate != Gate::none && !o.interleaved; }
  i64 columns_of_one() const { return o.gate == Gate::none ? 1 : 2; }  // of the product
  i64 out_columns(const GemmArguments& g) const { return g.n / columns_of_one(); }

  // ---- sizes ----

  // How many columns of out are finished at a time, and what threads share them by.
  i64 grain() const { return o.quant == NormQuant::block ? kQuantBlock : s.columns; }
  i64 chunk_columns(const GemmArguments& g) const {
    if (o.quant == NormQuant::row) return out_columns(g);
    const i64 whole = s.tile_n / grain() * grain();
    return smaller(whole > 0 ? whole : grain(), out_columns(g));
  }
  i64 sums_columns(const GemmArguments& g) const {
    return Operands::round_up(chunk_columns(g), kLanes) * columns_of_one();
  }
  i64 chunk_rows(const GemmArguments& g) const {
    i64 rows = Operands::round_up(kMostRows, s.rows);
    const i64 by_sums = kSumsBytes / (sums_columns(g) * 4 + 4);
    if (by_sums < rows) rows = by_sums;
    const i64 by_copy = kGatheredBytes / (g.k * i64{sizeof(A)} + 1);
    if (o.indexing == Indexing::gathered && by_copy < rows) rows = by_copy;
    const i64 least = s.tile_m < 4 * s.rows ? s.tile_m : 4 * s.rows;
    rows = (rows < least ? least : rows) / s.rows * s.rows;
    return smaller(rows, Operands::round_up(g.m, s.rows));
  }
  i64 copy_words(const GemmArguments& g) const {
    if (o.indexing != Indexing::gathered) return 0;
    return Operands::round_up(chunk_rows(g) * g.k * i64{sizeof(A)}, 64) / 4 + 16;
  }

  // One thread's share of the workspace, in words.
  struct Workspace {
    i64 gemm, sums, copy, named;
    i64 total() const { return Operands::round_up(gemm + sums + copy + named, 16); }
  };
  Workspace workspace(const OutputArguments& x) const {
    GemmArguments g = raw(x.groups.gemm);
    const i64 most = gemm.workspace(g).total();
    const i64 rows = chunk_rows(g);
    const i64 copy = copy_words(g);
    g.k = smaller(g.k, s.tile_k);  // a group may have less of k, and then need more words
    const i64 of_one_block = gemm.workspace(g).total();
    return {Operands::round_up(most > of_one_block ? most : of_one_block, 16),
            Operands::round_up(rows * sums_columns(g), 16), copy, 2 * rows};
  }
  i64 workspace_bytes(const OutputArguments& x, int threads) const {
    return workspace(x).total() * threads * 4;
  }

  // Sums leave the blocked GEMM as they are.
  static GemmArguments raw(GemmArguments g) {
    g.alpha = 1, g.beta = 0;
    return g;
  }

  // ---- a few rows ----

  struct Space {
    u32* gemm;
    u32* sums;
    A* copy;
    i64* named;
  };

  // A of the rows that the index names. Returns how many rows of [rows.begin, rows.end) it names,
  // and writes which they are.
  i64 gather(const OutputArguments& x, const OutputPart& p, Range rows, GemmArguments& g,
             const Space& space) const {
    i64 count = 0;
    const i64 most = chunk_rows(x.groups.gemm);
    for (i64 i = rows.begin; i < rows.end; ++i) {
      const i64 from = named_row(x, p.first + i);
      if (from < 0) continue;
      const A* a = Operands::a_at(p.gemm, from, 0);
      if (T::kAKContiguous) {
        __builtin_memcpy(space.copy + count * g.k, a, static_cast<unsigned long>(g.k) * sizeof(A));
      } else {
        for (i64 k = 0; k < g.k; ++k) space.copy[k * most + count] = a[k * g.ld_a];
      }
      space.named[count++] = i;
    }
    g.a = space.copy;
    g.ld_a = T::kAKContiguous ? g.k : most;
    g.m = count;
    return count;
  }

  // The rows of out, and of D along m, of rows of the product.
  i64 name(const OutputArguments& x, const OutputPart& p, Range rows, GemmArguments& g,
           const Space& space) const {
    if (o.indexing == Indexing::gathered) return gather(x, p, rows, g, space);
    for (i64 i = rows.begin; i < rows.end; ++i) {
      const bool scatters = o.indexing == Indexing::scattered;
      space.named[i - rows.begin] = scatters ? named_row(x, p.first + i) : i;
    }
    if (g.k > 0) g.a = Operands::a_at(g, rows.begin, 0);
    g.m -= rows.begin;
    return rows.end - rows.begin;
  }

  // The sums of `count` columns of the product from `column` on.
  void multiply(i64 product_rows, const GemmArguments& all, i64 rows, i64 column, i64 count,
                u32* sums, i64 ld, u32* space) const {
    if (all.k == 0) {
      for (i64 i = 0; i < rows; ++i)
        __builtin_memset(sums + i * ld, 0, static_cast<unsigned long>(count) * 4);
      return;
    }
    GemmArguments g = raw(all);
    g.b = Operands::b_at(g, column, 0);
    g.n -= column;
    gemm.run_job_of(product_rows, g, {{0, rows}, {0, count}, {0, g.k}, sums, ld}, space);
  }

  void run_rows(const OutputArguments& x, const OutputPart& p, Range rows, Range columns,
                const Space& space) const {
    GemmArguments g = p.gemm;
    const i64 count = name(x, p, rows, g, space);
    if (count == 0) return;
    const i64 ld = sums_columns(x.groups.gemm), chunk = chunk_columns(x.groups.gemm);
    for (i64 c = columns.begin; c < columns.end; c += chunk) {
      const i64 width = smaller(chunk, columns.end - c);
      if (!takes_halves()) {
        const i64 each = columns_of_one();
        multiply(p.gemm.m, g, count, each * c, each * width, space.sums, ld, space.gemm);
      } else {
        multiply(p.gemm.m, g, count, c, width, space.sums, ld, space.gemm);
        multiply(p.gemm.m, g, count, g.n / 2 + c, width, space.sums + ld / 2, ld, space.gemm);
      }
      o.finish({&x, &p.gemm, space.sums, ld, count, space.named, c, width, ld / 2, p.scales});
    }
  }

  // ---- the team ----

  // Calls visit(part) for each product.
  template <class Visit>
  void for_each_product(const OutputArguments& x, const Visit& visit) const {
    const GroupArguments& all = x.groups;
    if (all.grouping == Grouping::none) {
      for (i64 b = 0; b < all.gemm.batch; ++b) {
        visit(
            OutputPart{one_batch(all.gemm, s.sizes, b), 0, x.out_scales + b * x.matrix_of_scales});
      }
      return;
    }
    for_each_part(all, [&](const GroupPart& part) {
      const i64 scales = part.group * x.matrix_of_scales + part.begin * x.step_of_scales;
      visit(OutputPart{product_of(all, part, {s.sizes.a, s.sizes.b, s.sizes.d, s.sizes.out}),
                       part.begin, x.out_scales + scales});
    });
  }

  Grid grid_of(const GemmArguments& g, i64 rows, int threads) const {
    GemmArguments all = g;
    all.m = rows, all.n = out_columns(g), all.batch = 1;
    const int limit_n = o.quant == NormQuant::row ? 1 : s.wave_n;
    return best_grid(all, threads, s.wave_m, limit_n, s.rows, grain(), kLanes);
  }

  // The rows of all products, in whole register blocks, are one long run that threads share evenly,
  // and so are the columns.
  void run_all(const OutputArguments& x, const CpuThread& thread, const Space& space) const {
    i64 blocks = 0;
    for_each_product(x, [&](const OutputPart& p) { blocks += blocks_of(p.gemm.m, s.rows); });
    const Grid grid = grid_of(x.groups.gemm, blocks * s.rows, thread.count);
    if (thread.index >= grid.m * grid.n) return;
    const Range columns = part(out_columns(x.groups.gemm), grain(), grid.n, thread.index % grid.n);
    const Range own = part(blocks, 1, grid.m, thread.index / grid.n);
    const i64 step = chunk_rows(x.groups.gemm);
    i64 first = 0;  // block of the product
    for_each_product(x, [&](const OutputPart& p) {
      const i64 begin = own.begin > first ? (own.begin - first) * s.rows : 0;
      const i64 end = smaller((own.end - first) * s.rows, p.gemm.m);
      first += blocks_of(p.gemm.m, s.rows);
      if (begin >= end) return;
      // Parts of about equal size: each packs B anew, also one of a few rows.
      const i64 each = blocks_of(end - begin, blocks_of(end - begin, step));
      for (i64 r = begin; r < end; r += Operands::round_up(each, s.rows)) {
        run_rows(x, p, {r, smaller(r + Operands::round_up(each, s.rows), end)}, columns, space);
      }
    });
  }

  // Whether numbers that do not fit were found, which the first thread reports.
  static bool refuses(const OutputArguments& x, const CpuThread& thread) {
    if (x.groups.bad_group == nullptr) return false;
    const BadGroup bad = first_bad_group(x.groups);
    if (thread.index == 0) report(bad, x.groups.bad_group);
    return bad.found;
  }

  void run(const OutputArguments& x, const CpuThread& thread) const {
    if (refuses(x, thread)) return;
    const Workspace sizes = workspace(x);
    u32* const mine = static_cast<u32*>(thread.workspace) + thread.index * sizes.total();
    u32* const sums = mine + sizes.gemm;
    u32* const copy = sums + sizes.sums;
    run_all(x, thread,
            {mine, sums, reinterpret_cast<A*>(copy), reinterpret_cast<i64*>(copy + sizes.copy)});
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 outputs_workspace_bytes(const PackedShape<T>& shape, const OutputsShape& outputs,
                            const void* arguments, int threads) {
  const auto& x = *static_cast<const OutputArguments*>(arguments);
  return OutputsGemm<T>{shape, outputs}.workspace_bytes(x, threads);
}

template <class T>
void outputs_run(const PackedShape<T>& shape, const OutputsShape& outputs, const void* arguments,
                 const CpuThread& thread) {
  OutputsGemm<T>{shape, outputs}.run(*static_cast<const OutputArguments*>(arguments), thread);
}

}  // namespace tessera::device
