// The bandwidth-bound GEMM: M or N is small, so reading the other operand once takes the time.
//
// The narrow operand (A when M is the smaller size, otherwise B) is packed into words and stays in
// the caches. The wide operand is streamed, strip by strip.
#pragma once

#include "tessera/device/cpu/gemm/operands.h"
#include "tessera/device/cpu/stream_strip.h"

namespace tessera::device {

// The most rows of the narrow side. The host does not launch problems with more.
inline constexpr int kMostRows = 16;

// The sizes of a kernel, and the functions that depend on them or on the output. Shapes with the
// same operands share one driver.
template <class T>
struct StreamShape {
  i64 strip;  // rows of the wide operand whose sums are kept at a time
  bool one_thread;
  ElementSizes sizes;
  void (*by_rows_of_a)(const StripTask<typename T::B>& t);  // A is narrow
  void (*by_rows_of_b)(const StripTask<typename T::A>& t);
  Finish<GemmArguments> finish;
};

template <class T>
struct StreamGemm {
  using A = typename T::A;
  using B = typename T::B;
  using Math = typename T::Math;
  static constexpr int kPer = Math::kPerWord;

  const StreamShape<T>& s;

  // An operand, indexed by row (m or n) and k.
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

  // ---- workspace of one thread, in words: narrow operand, sums, corrections ----

  static i64 narrow_ld(i64 k) { return (blocks_of(narrow_words<Math>(k), kLanes) | 1) * kLanes; }
  i64 strip() const { return blocks_of(s.strip, kSumBlock) * kSumBlock; }
  i64 thread_words(const GemmArguments& g) const {
    const i64 rows = narrow_rows(smaller(g.m, g.n));
    return rows * narrow_ld(g.k) + (rows + 1) * strip();
  }
  i64 workspace_bytes(const GemmArguments& g, int threads) const {
    return thread_words(g) * threads * 4;
  }

  // The words w to w + kLanes of row x with the bias added; zero past k and past the rows.
  template <class S>
  static u32v packed_words(const GemmArguments& g, const S& side, i64 x, i64 w) {
    using Element = typename S::Type;
    const i64 count = smaller(kLanes * kPer, g.k - w * kPer);
    if (x >= side.size || count <= 0) return bias<Math, true>(u32v{});
    if constexpr (S::k_contiguous) {
      const Element* const from = side.at(x, w * kPer);
      return bias<Math, true>(count == kLanes * kPer ? load_words<Element, Math>(from)
                                                     : last_words<Element, Math>(from, count));
    }
    Element elements[kLanes * kPer] = {};
    for (i64 i = 0; i < count; ++i) elements[i] = *side.at(x, w * kPer + i);
    return bias<Math, true>(load_words<Element, Math>(elements));
  }

  // Stores words in the order in which they are multiplied.
  static void scatter(const u32v& packed, i64 rows, i64 row, i64 word, u32* out) {
    u32 words[kLanes];
    store(words, packed);
    const i64 together = smaller(words_at_once(rows, kPer), kLanes);
    const i64 at_once = rows_at_once(rows);
    for (i64 w = 0; w < kLanes; w += together) {
      u32* to = out + narrow_at<Math>(rows, row, word + w);
      for (i64 i = 0; i < together; ++i, to += at_once) *to = words[w + i];
    }
  }

  template <class S>
  static Narrow pack_narrow(const GemmArguments& g, const S& side, bool in_rows, u32* out) {
    const i64 rows = narrow_rows(side.size);
    const i64 ld = narrow_ld(g.k);
    const i64 words = narrow_words<Math>(g.k);
    for (i64 w = 0; w < words; w += kLanes) {
      for (i64 x = 0; x < rows; ++x) {
        const u32v packed = packed_words(g, side, x, w);
        if (in_rows) {
          store(out + x * ld + w, packed);
        } else {
          scatter(packed, rows, x, w, out);
        }
      }
    }
    return {out, rows, ld};
  }

  // ---- one thread's share: a range of the wide dimension ----

  // Sums lie as [narrow][wide], in blocks. When the narrow side is N, the output needs them
  // transposed.
  void finish_strip(const GemmArguments& g, Range f, i64 rows, const u32* sums) const {
    if (narrow_is_a(g.m, g.n)) return finish_rows(g, f, rows, sums);
    // One column whose rows are neighbours in memory is stored like a row, if nothing depends on
    // the column's number.
    if (g.n == 1 && s.sizes.num_d == 0 && g.ld_out == 1 && (g.beta == 0 || g.ld_c == 1)) {
      GemmArguments turned = g;
      turned.m = 1;
      turned.n = g.m;
      return finish_rows(turned, f, rows, sums);
    }
    constexpr i64 kTogether = 32;
    u32 turned[kTogether][kMostRows];
    for (i64 i = f.begin; i < f.end; i += kTogether) {
      const i64 count = smaller(kTogether, f.end - i);
      for (i64 x = 0; x < g.n; ++x) {
        for (i64 j = 0; j < count; ++j) turned[j][x] = sums[sum_at(rows, x, i + j - f.begin)];
      }
      s.finish(g, turned[0], kMostRows, count, g.n, {i, 0, 0});
    }
  }
  // A single row is contiguous.
  void finish_rows(const GemmArguments& g, Range f, i64 rows, const u32* sums) const {
    const i64 step = rows == 1 ? f.end - f.begin : kSumBlock;
    for (i64 i = f.begin; i < f.end; i += step) {
      const u32* const from = sums + sum_at(rows, 0, i - f.begin);
      s.finish(g, from, kSumBlock, g.m, smaller(step, f.end - i), {0, i, 0});
    }
  }

  template <class Packed, class Wide>
  void run_sides(const GemmArguments& g, const Packed& side, const Wide& wide,
                 void (*multiply)(const StripTask<typename Wide::Type>&), Range range,
                 u32* space) const {
    const Narrow packed = pack_narrow(g, side, Wide::k_contiguous, space);
    u32* const sums = space + packed.rows * packed.ld;
    u32* const corrections = sums + packed.rows * strip();
    for (i64 i = range.begin; i < range.end; i += s.strip) {
      const Range f{i, smaller(i + s.strip, range.end)};
      multiply({wide.at(i, 0), wide.ld, f.end - f.begin, g.k, packed, sums, corrections});
      finish_strip(g, f, packed.rows, sums);
    }
  }

  void run(const GemmArguments& all, const CpuThread& thread) const {
    const bool a_is_narrow = narrow_is_a(all.m, all.n);
    const i64 size = a_is_narrow ? all.n : all.m;
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
      if (a_is_narrow) {
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
