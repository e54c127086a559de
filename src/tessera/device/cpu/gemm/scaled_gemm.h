// The blocked GEMM on operands with scales of blocks: each element takes its scale when it is
// packed, as fp32. Batches and groups are cut into products, which the blocked GEMM multiplies.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/gemm/scales.h"

namespace tessera::device {

// The scales of kLanes neighbouring rows from `row` on at one k; 1 past the last row.
inline f32v scales_across(const ScaleView& v, i64 row, i64 rows, i64 k) {
  alignas(kVectorBytes) float scales[kLanes];
  for (i64 i = 0; i < kLanes; ++i) scales[i] = row + i < rows ? scale_at(v, row + i, k) : 1.0F;
  return load<f32v>(scales);
}

// Multiplies the floats of a packed panel of `width` rows, of which the first is `row`.
inline void scale_panel(const ScaleView& v, i64 row, i64 rows, Range k, i64 width, u32* panel) {
  for (i64 strip = 0; strip < width; strip += kLanes) {
    const int count = static_cast<int>(smaller(kLanes, width - strip));
    for (i64 begin = k.begin; begin < k.end;) {
      const i64 end = smaller(end_of_block(v, begin), k.end);
      const f32v scales = scales_across(v, row + strip, rows, begin);
      u32* at = panel + (begin - k.begin) * width + strip;
      for (i64 i = begin; i < end; ++i, at += width) {
        store_first(at, load_first<f32v>(at, count) * scales, count);
      }
      begin = end;
    }
  }
}

// Operands that the blocked GEMM packs: both, and B anew in each call.
template <class T>
struct ScaledOperands : PackedOperands<T> {
  using Plain = PackedOperands<T>;
  static_assert(Plain::kPer == 1, "scaled elements are packed as fp32");

  ScaleView a_scales, b_scales;

  void pack_a(const GemmArguments& g, Range m, Range k, u32* out) const {
    Plain::pack_a(g, m, k, out);
    if (!has_scales(a_scales)) return;
    const i64 rows = this->s.rows;
    for (i64 i = m.begin; i < m.end; i += rows, out += (k.end - k.begin) * rows) {
      scale_panel(a_scales, i, g.m, k, rows, out);
    }
  }
  void pack_b_panel(const GemmArguments& g, i64 n, Range k, u32* out) const {
    Plain::pack_b_panel(g, n, k, out);
    if (has_scales(b_scales)) scale_panel(b_scales, n, g.n, k, this->s.columns, out);
  }
  const u32* prepare_b(const GemmArguments& g, Range n, Range k, u32* b_space) const {
    u32* out = b_space;
    for (i64 j = n.begin; j < n.end;
         j += this->s.columns, out += this->panel_words(k.end - k.begin))
      pack_b_panel(g, j, k, out);
    return b_space;
  }
};

template <class T>
struct ScaledGemm {
  using Operands = ScaledOperands<T>;

  const PackedShape<T>& s;
  const GroupedGemm<T> grouped{s};

  // A matrix's part of the output, by one thread.
  void multiply(const GemmArguments& g, const ScaleView& a, const ScaleView& b, Range rows,
                Range columns, u32* space) const {
    if (g.k == 0) return grouped.finish_empty(g, rows, columns);
    const PackedGemm<T, Operands> gemm{s, Operands{{s}, a, b}};
    gemm.run_job(g, {rows, columns, {0, g.k}, nullptr, 0}, space);
  }
  void multiply_part(const ScaledArguments& x, const GroupPart& p, Range rows, Range columns,
                     u32* space) const {
    multiply(grouped.product(x.groups, p), a_scales_of(x, p), b_scales_of(x, p), rows, columns,
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

  void run(const ScaledArguments& x, const CpuThread& thread) const {
    if (GroupedGemm<T>::refuses(x.groups, thread)) return;
    u32* space = static_cast<u32*>(thread.workspace) + thread.index * grouped.words(x.groups);
    if (x.groups.grouping == Grouping::none) return run_batches(x, thread, space);
    grouped.share_parts(x.groups, thread, [&](const GroupPart& p, Range rows, Range columns) {
      multiply_part(x, p, rows, columns, space);
    });
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 scaled_workspace_bytes(const PackedShape<T>& shape, const void* arguments, int threads) {
  const auto& x = *static_cast<const ScaledArguments*>(arguments);
  return GroupedGemm<T>{shape}.workspace_bytes(x.groups, threads);
}

template <class T>
void scaled_run(const PackedShape<T>& shape, const void* arguments, const CpuThread& thread) {
  ScaledGemm<T>{shape}.run(*static_cast<const ScaledArguments*>(arguments), thread);
}

}  // namespace tessera::device
