// The bandwidth-bound GEMM: M or N is small, so that the other operand is read once
// and its bytes are the cost.
//
// The narrow operand (A when M is small, else B) is packed into words [row][k] and stays in the
// caches; the wide one is streamed, strip by strip.
#pragma once

#include "tessera/device/cpu/stream_strip.h"

namespace tessera::device {

// No kernel has a narrow side of more rows.
inline constexpr int kMostRows = 16;

// Sizes, and functions on what depends on them or on the output. Shapes of the same operands share
// one driver.
template <class T>
struct StreamShape {
  i64 most_rows;  // of the narrow operand
  i64 strip;      // of the wide one, for which sums are kept
  bool one_thread;
  ElementSizes sizes;
  void (*by_rows_of_a)(const StripTask<typename T::B>& t);  // A is narrow
  void (*by_rows_of_b)(const StripTask<typename T::A>& t);
  Finish finish;
};

template <class T>
struct StreamGemm {
  using A = typename T::A;
  using B = typename T::B;
  using Math = typename T::Math;
  static constexpr int kPer = Math::kPerWord;

  const StreamShape<T>& s;

  // An operand by its rows (m or n) and k.
  template <class Element, bool kKContiguous>
  struct Side {
    using Type = Element;
    static constexpr bool k_contiguous = kKContiguous;
    const Element* data;
    i64 ld;
    i64 size;  // m or n
    const Element* at(i64 i, i64 k) const {
      return k_contiguous ? data + i * ld + k : data + k * ld + i;
    }
  };
  static Side<A, T::kAKContiguous> side_a(const GemmArguments& g) {
    return {static_cast<const A*>(g.a), g.ld_a, g.m};
  }
  static Side<B, T::kBKContiguous> side_b(const GemmArguments& g) {
    return {static_cast<const B*>(g.b), g.ld_b, g.n};
  }
  bool narrow_is_a(const GemmArguments& g) const { return g.m <= s.most_rows; }

  // ---- workspace of one thread, in words: narrow operand, sums, corrections ----

  i64 thread_words(const GemmArguments& g) const {
    return s.most_rows * narrow_words<Math>(g.k) + (s.most_rows + 1) * s.strip;
  }
  i64 workspace_bytes(const GemmArguments& g, int threads) const {
    return thread_words(g) * threads * 4;
  }

  // narrow[x][w]: the rows of the narrow operand, biased, zero past k and past the rows.
  template <class S>
  static void pack_narrow(const GemmArguments& g, const S& side, i64 rows, u32* out) {
    using Element = typename S::Type;
    const i64 words = narrow_words<Math>(g.k);
    const u32v zeros = bias<Math, true>(u32v{});
    for (i64 x = 0; x < rows; ++x) {
      for (i64 w = 0; w < words; w += kLanes) {
        const i64 count = smaller(kLanes * kPer, g.k - w * kPer);
        u32v packed = zeros;
        if (x < side.size && S::k_contiguous) {
          packed = bias<Math, true>(last_words<Element, Math>(side.at(x, w * kPer), count));
        } else if (x < side.size) {
          Element elements[kLanes * kPer] = {};
          for (i64 i = 0; i < count; ++i) elements[i] = *side.at(x, w * kPer + i);
          packed = bias<Math, true>(load_words<Element, Math>(elements));
        }
        store(out + x * words + w, packed);
      }
    }
  }

  // ---- one thread's share: a range of the wide dimension ----

  // Sums lie as [narrow][wide]. When the narrow side is N, the output wants them the other way.
  void finish_strip(const GemmArguments& g, Range f, const u32* sums) const {
    if (narrow_is_a(g)) {
      return s.finish(g, sums, s.strip, g.m, f.end - f.begin, {0, f.begin, 0});
    }
    // One column whose rows lie next to each other is as good as a row, if nothing goes by place.
    if (g.n == 1 && s.sizes.num_d == 0 && g.ld_out == 1 && (g.beta == 0 || g.ld_c == 1)) {
      GemmArguments turned = g;
      turned.m = 1;
      turned.n = g.m;
      return s.finish(turned, sums, s.strip, 1, f.end - f.begin, {0, f.begin, 0});
    }
    for (i64 i = f.begin; i < f.end; ++i) {
      u32 row[kMostRows];
      for (i64 x = 0; x < g.n; ++x) row[x] = sums[x * s.strip + i - f.begin];
      s.finish(g, row, 0, 1, g.n, {i, 0, 0});
    }
  }

  template <class Narrow, class Wide>
  void run_sides(const GemmArguments& g, const Narrow& narrow, const Wide& wide,
                 void (*multiply)(const StripTask<typename Wide::Type>&), Range range,
                 u32* space) const {
    u32* sums = space + s.most_rows * narrow_words<Math>(g.k);
    pack_narrow(g, narrow, strip_rows(narrow.size, s.most_rows), space);
    for (i64 i = range.begin; i < range.end; i += s.strip) {
      const Range f{i, smaller(i + s.strip, range.end)};
      multiply({wide.at(i, 0), wide.ld, f.end - f.begin, g.k, space, narrow.size, sums,
                sums + s.most_rows * s.strip});
      finish_strip(g, f, sums);
    }
  }

  void run(const GemmArguments& all, const CpuThread& thread) const {
    const i64 size = narrow_is_a(all) ? all.n : all.m;
    const int threads = s.one_thread ? 1 : thread.count;
    if (thread.index >= threads) return;
    const int over_batch = static_cast<int>(smaller(threads, all.batch));
    const int over_size = threads / over_batch;
    if (thread.index >= over_batch * over_size) return;
    const Range batches = part(all.batch, 1, over_batch, thread.index / over_size);
    const Range range = part(size, 4 * kLanes, over_size, thread.index % over_size);
    u32* space = static_cast<u32*>(thread.workspace) + thread.index * thread_words(all);
    for (i64 b = batches.begin; b < batches.end; ++b) {
      const GemmArguments g = one_batch(all, s.sizes, b);
      if (narrow_is_a(g)) {
        run_sides(g, side_a(g), side_b(g), s.by_rows_of_a, range, space);
      } else {
        run_sides(g, side_b(g), side_a(g), s.by_rows_of_b, range, space);
      }
    }
  }
};

// ---- what kernels share as compiled code ----

template <class T>
i64 stream_workspace_bytes(const StreamShape<T>& shape, const void* arguments, int threads) {
  const auto& g = *static_cast<const GemmArguments*>(arguments);
  return StreamGemm<T>{shape}.workspace_bytes(g, threads);
}

template <class T>
void stream_run(const StreamShape<T>& shape, const void* arguments, const CpuThread& thread) {
  StreamGemm<T>{shape}.run(*static_cast<const GemmArguments*>(arguments), thread);
}

}  // namespace tessera::device
