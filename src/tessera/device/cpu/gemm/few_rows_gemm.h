// The blocked GEMM, but for products of few rows: those are packed into words, and B streams past
// them strip by strip from where it lies. For groups and outputs of another form, whose products
// have any number of rows.
#pragma once

#include "tessera/device/cpu/gemm/grouped_gemm.h"
#include "tessera/device/cpu/gemm/outputs_gemm.h"
#include "tessera/device/cpu/gemm/stream_gemm.h"

namespace tessera::device {

// What the kernel has beside a blocked one. A strip has tile_n columns.
template <class T>
struct FewRowsShape : PackedShape<T> {
  void (*multiply_strip)(const StripTask<typename T::B>& t);
};

template <class T>
struct FewRowsGemm {
  using Shape = FewRowsShape<T>;
  using Blocked = PackedGemm<T>;
  using Operands = PackedOperands<T>;
  using Stream = StreamGemm<T>;
  const Shape& s;
  const Blocked blocked{s};

  // One thread's share of the workspace, in words.
  struct Workspace {
    i64 narrow, sums, corrections, blocked;
    i64 total() const {
      const i64 strips = narrow + sums + corrections;
      return strips > blocked ? strips : blocked;
    }
  };
  Workspace workspace(const GemmArguments& g) const {
    const i64 strip = Operands::round_up(smaller(s.tile_n, g.n), kSumBlock);
    const i64 rows = narrow_rows(g.m < 1 ? 1 : smaller(kFewRows, g.m));
    return {rows * Stream::narrow_ld(g.k), rows * strip, strip, blocked.workspace(g).total()};
  }

  // The way follows the product's rows, not those of the job, so that the bits of a row do not
  // follow the number of threads.
  void run_job_of(i64 product_rows, const GemmArguments& g, const ProductJob& job,
                  u32* space) const {
    if (job.m.begin >= job.m.end) return;
    if (product_rows > kFewRows) return blocked.run_job(g, job, space);
    const Workspace sizes = workspace(g);
    GemmArguments few = g;
    few.a = Operands::a_at(g, job.m.begin, 0);
    few.m = job.m.end - job.m.begin;
    const Narrow a = Stream::pack_narrow(few, Stream::side_a(few), T::kBKContiguous, space);
    u32* const sums = space + sizes.narrow;
    for (i64 j = job.n.begin; j < job.n.end; j += s.tile_n) {
      const Range n{j, smaller(j + s.tile_n, job.n.end)};
      s.multiply_strip(
          {Operands::b_at(g, j, 0), g.ld_b, n.end - n.begin, g.k, a, sums, sums + sizes.sums});
      job.sums == nullptr ? finish(g, job.m, n, a.rows, sums) : keep(job, n, a.rows, sums);
    }
  }

  // Sums lie in blocks of columns; those of a single row are contiguous.
  void finish(const GemmArguments& g, Range m, Range n, i64 rows, const u32* sums) const {
    const i64 step = rows == 1 ? n.end - n.begin : kSumBlock;
    for (i64 j = n.begin; j < n.end; j += step) {
      s.finish(g, sums + sum_at(rows, 0, j - n.begin), kSumBlock, m.end - m.begin,
               smaller(step, n.end - j), {m.begin, j, 0});
    }
  }
  static void keep(const ProductJob& job, Range n, i64 rows, const u32* sums) {
    for (i64 i = job.m.begin; i < job.m.end; ++i) {
      u32* const to = job.sums + i * job.ld;
      for (i64 j = n.begin; j < n.end; j += kSumBlock) {
        const auto count = static_cast<unsigned long>(smaller(kSumBlock, n.end - j));
        __builtin_memcpy(to + j, sums + sum_at(rows, i - job.m.begin, j - n.begin), count * 4);
      }
    }
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 grouped_workspace_bytes(const FewRowsShape<T>& shape, const void* arguments, int threads) {
  const auto& x = *static_cast<const GroupArguments*>(arguments);
  return GroupedGemm<FewRowsGemm<T>>{shape}.workspace_bytes(x, threads);
}

template <class T>
void grouped_run(const FewRowsShape<T>& shape, const void* arguments, const CpuThread& thread) {
  GroupedGemm<FewRowsGemm<T>>{shape}.run(*static_cast<const GroupArguments*>(arguments), thread);
}

template <class T>
i64 outputs_workspace_bytes(const FewRowsShape<T>& shape, const OutputsShape& outputs,
                            const void* arguments, int threads) {
  const auto& x = *static_cast<const OutputArguments*>(arguments);
  return OutputsGemm<T, FewRowsGemm<T>>{shape, outputs}.workspace_bytes(x, threads);
}

template <class T>
void outputs_run(const FewRowsShape<T>& shape, const OutputsShape& outputs, const void* arguments,
                 const CpuThread& thread) {
  const auto& x = *static_cast<const OutputArguments*>(arguments);
  OutputsGemm<T, FewRowsGemm<T>>{shape, outputs}.run(x, thread);
}

}  // namespace tessera::device
