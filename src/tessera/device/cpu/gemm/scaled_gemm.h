// The blocked GEMM on operands with scales of blocks, by the operands of scaled_operands.h. Batches
// and groups are cut into products, which the blocked GEMM multiplies.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/cpu/gemm/scaled_operands.h"

namespace tessera::device {

template <class T>
struct ScaledGemm {
  using Operands = ScaledOperands<T>;
  using Grouped = GroupedGemm<PackedGemm<T, Operands>>;

  const PackedShape<T>& s;

  // A matrix's part of the output, by one thread.
  void multiply(const GemmArguments& g, const ScaleView& a, const ScaleView& b, Range rows,
                Range columns, u32* space) const {
    if (g.k == 0) return Grouped{s}.finish_empty(g, rows, columns);
    const PackedGemm<T, Operands> gemm{s, Operands{{{s}, a, b}}};
    gemm.run_job(g, {rows, columns, {0, g.k}, nullptr, 0}, space);
  }
  void multiply_part(const ScaledArguments& x, const GroupPart& p, Range rows, Range columns,
                     u32* space) const {
    multiply(Grouped{s}.product(x.groups, p), a_scales_of(x, p), b_scales_of(x, p), rows, columns,
             space);
  }

  void run_batches(const ScaledArguments& x, const CpuThread& thread, u32* space) const {
    const GemmArguments& g = x.groups.gemm;
    const Grid grid = best_grid(g, thread.count, s.wave_m, s.wave_n, s.rows, s.columns, kLanes);
    if (thread.index >= grid.batch * grid.m * grid.n) return;
    const Range batches = part(g.batch, 1, grid.batch, thread.index / (grid.n * grid.m));
    const Range rows = part(g.m, s.rows, grid.m, thread.index / grid.n % grid.m);
    const Range columns = part(g.n, s.columns, grid.n, thread.index % grid.n);
    for (i64 b = batches.begin; b < batches.end; ++b) {
      multiply(one_batch(g, s.sizes, b), scales_of(x.a, b), scales_of(x.b, b), rows, columns,
               space);
    }
  }

  // Groups along k begin anywhere within a block of scales, at worst with its last element.
  i64 words(const ScaledArguments& x) const {
    ScaleView any{};
    any.first_k = x.groups.grouping == Grouping::along_k ? s.scaled_k - 1 : 0;
    return Grouped{s, {s, Operands{{{s}, any, any}}}}.words(x.groups);
  }

  void run(const ScaledArguments& x, const CpuThread& thread) const {
    if (Grouped::refuses(x.groups, thread)) return;
    u32* space = static_cast<u32*>(thread.workspace) + thread.index * words(x);
    if (x.groups.grouping == Grouping::none) return run_batches(x, thread, space);
    Grouped{s}.share_parts(x.groups, thread, [&](const GroupPart& p, Range rows, Range columns) {
      multiply_part(x, p, rows, columns, space);
    });
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 scaled_workspace_bytes(const PackedShape<T>& shape, const void* arguments, int threads) {
  const auto& x = *static_cast<const ScaledArguments*>(arguments);
  return ScaledGemm<T>{shape}.words(x) * threads * 4;
}

template <class T>
void scaled_run(const PackedShape<T>& shape, const void* arguments, const CpuThread& thread) {
  ScaledGemm<T>{shape}.run(*static_cast<const ScaledArguments*>(arguments), thread);
}

}  // namespace tessera::device
