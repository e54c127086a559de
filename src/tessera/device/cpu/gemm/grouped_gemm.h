// The blocked GEMM, or another that computes parts of products, on groups of unequal sizes: one
// launch, whose threads read where groups lie.
//
// The rows of all groups, in whole register blocks, are one long run that threads share evenly, and
// so are the columns. A thread computes its part of each group that its share meets. Where groups
// lie along k, each thread has the same rectangle of every group's output. Groups of lists have
// columns of their own, which are shared alike.
#pragma once

#include "tessera/device/cpu/gemm/packed_gemm.h"
#include "tessera/device/gemm/groups.h"

namespace tessera::device {

template <class Gemm>
struct GroupedGemm {
  const typename Gemm::Shape& s;
  const Gemm gemm{s};

  // A group may have fewer blocks of k than all of them together, and then need more words.
  i64 words(const GroupArguments& x) const {
    GemmArguments g = x.gemm;
    const i64 most = gemm.workspace(g).total();
    g.k = smaller(g.k, s.tile_k);
    const i64 of_one_block = gemm.workspace(g).total();
    return most > of_one_block ? most : of_one_block;
  }
  i64 workspace_bytes(const GroupArguments& x, int threads) const { return words(x) * threads * 4; }

  GemmArguments product(const GroupArguments& x, const GroupPart& part) const {
    return product_of(x, part, {s.sizes.a, s.sizes.b, s.sizes.d, s.sizes.out});
  }

  // k = 0: the accumulators are zero and only the epilogue remains.
  void finish_empty(const GemmArguments& g, Range rows, Range columns) const {
    const u32 zeros[kLanes] = {};
    for (i64 i = rows.begin; i < rows.end; ++i) {
      for (i64 j = columns.begin; j < columns.end; j += kLanes) {
        s.finish(g, zeros, 0, 1, smaller(kLanes, columns.end - j), {i, j, 0});
      }
    }
  }
  void multiply(const GemmArguments& g, Range rows, Range columns, u32* space) const {
    if (g.k == 0) return finish_empty(g, rows, columns);
    gemm.run_job_of(g.m, g, {rows, columns, {0, g.k}, nullptr, 0}, space);
  }

  // The register blocks of all groups along their rows.
  i64 count_blocks(const GroupArguments& x) const {
    i64 blocks = 0;
    for_each_part(x, [&](const GroupPart& part) { blocks += blocks_of(part.size, s.rows); });
    return blocks;
  }

  Grid grid_of(const GemmArguments& g, i64 rows, int threads) const {
    GemmArguments all = g;
    all.m = rows, all.batch = 1;
    return best_grid(all, threads, s.wave_m, s.wave_n, s.rows, s.columns, kLanes);
  }

  static i64 columns_of(const GroupArguments& x, const GroupPart& p) {
    if (x.grouping != Grouping::lists) return x.gemm.n;
    return clamped(x.sizes[1][p.group], 0, x.gemm.n);
  }

  // Calls work(part, rows, columns) for this thread's share of each group that it meets.
  template <class Work>
  void share_rows(const GroupArguments& x, const CpuThread& thread, const Work& work) const {
    const i64 blocks = count_blocks(x);
    const Grid grid = grid_of(x.gemm, blocks * s.rows, thread.count);
    if (thread.index >= grid.m * grid.n) return;
    const Range own = part(blocks, 1, grid.m, thread.index / grid.n);
    i64 first = 0;  // block of the part
    for_each_part(x, [&](const GroupPart& p) {
      const i64 begin = own.begin > first ? own.begin - first : 0;
      const i64 end = smaller((own.end - first) * s.rows, p.size);
      first += blocks_of(p.size, s.rows);
      if (begin * s.rows >= end) return;
      const Range columns = part(columns_of(x, p), s.columns, grid.n, thread.index % grid.n);
      if (columns.begin < columns.end) work(p, Range{begin * s.rows, end}, columns);
    });
  }
  template <class Work>
  void share_k(const GroupArguments& x, const CpuThread& thread, const Work& work) const {
    const Grid grid = grid_of(x.gemm, x.gemm.m, thread.count);
    if (thread.index >= grid.m * grid.n) return;
    const Range columns = part(x.gemm.n, s.columns, grid.n, thread.index % grid.n);
    const Range rows = part(x.gemm.m, s.rows, grid.m, thread.index / grid.n);
    for_each_part(x, [&](const GroupPart& p) { work(p, rows, columns); });
  }
  template <class Work>
  void share_parts(const GroupArguments& x, const CpuThread& thread, const Work& work) const {
    x.grouping == Grouping::along_k ? share_k(x, thread, work) : share_rows(x, thread, work);
  }

  // Whether numbers that do not fit were found, which the first thread reports.
  static bool refuses(const GroupArguments& x, const CpuThread& thread) {
    if (x.bad_group == nullptr) return false;
    const BadGroup bad = first_bad_group(x);
    if (thread.index == 0) report(bad, x.bad_group);
    return bad.found;
  }

  void run(const GroupArguments& x, const CpuThread& thread) const {
    if (refuses(x, thread)) return;
    u32* space = static_cast<u32*>(thread.workspace) + thread.index * words(x);
    share_parts(x, thread, [&](const GroupPart& p, Range rows, Range columns) {
      multiply(product(x, p), rows, columns, space);
    });
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 grouped_workspace_bytes(const PackedShape<T>& shape, const void* arguments, int threads) {
  const auto& x = *static_cast<const GroupArguments*>(arguments);
  return GroupedGemm<PackedGemm<T>>{shape}.workspace_bytes(x, threads);
}

template <class T>
void grouped_run(const PackedShape<T>& shape, const void* arguments, const CpuThread& thread) {
  GroupedGemm<PackedGemm<T>>{shape}.run(*static_cast<const GroupArguments*>(arguments), thread);
}

}  // namespace tessera::device
