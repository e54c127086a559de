// The bandwidth-bound GEMM: M or N is at most kWarpTileM (8), so that the other operand is read
// once and its bytes are the cost.
//
// The narrow operand (A when M is small, else B) is packed into words [row][k] and stays in the
// caches; the wide one is streamed. Where the wide operand's k is contiguous, each of its rows
// gives dot products; where k is strided, whole rows of k are added to a strip of sums.
#pragma once

#include "tessera/device/cpu/block.h"
#include "tessera/device/cpu/words.h"

namespace tessera::device {

template <class C>
struct StreamGemm {
  using Math = typename C::Math;
  using Acc = typename Math::Acc;
  static constexpr int kPer = Math::kPerWord;
  static constexpr int kMaxNarrow = C::kWarpTileM;
  static constexpr i64 kStrip = C::kTileN;  // sums of a strip
  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(kStrip % kLanes == 0, "tile_n must be a multiple of the vector's lanes");
  static_assert(C::kWarpTileN % kLanes == 0,
                "warp_tile_n must be a multiple of the vector's lanes");
  static_assert(C::kTileM == kMaxNarrow, "tile_m is the size of the narrow side");
  static_assert(C::kTileK % kPer == 0, "tile_k must be a multiple of warp_tile_k");
  static_assert(C::kWaveK == 1, "threads share the wide side only");
  static_assert(!C::kPackA && !C::kPackB && !C::kPreshuffled, "operands are read in place");
  static_assert(C::kNumD >= 0 && C::kNumD <= 4, "at most 4 D tensors");

  // ---- the problem turned so that the wide operand comes second ----

  template <class T, bool kKContiguous>
  struct Side {
    using Type = T;
    static constexpr bool k_contiguous = kKContiguous;
    const T* data;
    i64 ld;
    i64 size;  // m or n
    const T* at(i64 i, i64 k) const { return k_contiguous ? data + i * ld + k : data + k * ld + i; }
  };
  static Side<typename C::A, C::kAKContiguous> side_a(const GemmArguments& g) {
    return {static_cast<const typename C::A*>(g.a), g.ld_a, g.m};
  }
  static Side<typename C::B, C::kBKContiguous> side_b(const GemmArguments& g) {
    return {static_cast<const typename C::B*>(g.b), g.ld_b, g.n};
  }
  static bool narrow_is_a(const GemmArguments& g) { return g.m <= kMaxNarrow; }

  // ---- workspace of one thread, in words: narrow operand, sums, corrections ----

  static i64 depth_words(const GemmArguments& g) {
    return blocks_of(blocks_of(g.k, kPer), kLanes) * kLanes;
  }
  static i64 thread_words(const GemmArguments& g) {
    return kMaxNarrow * depth_words(g) + (kMaxNarrow + 1) * kStrip;
  }
  static i64 workspace_bytes(const void* arguments, int threads) {
    return thread_words(*static_cast<const GemmArguments*>(arguments)) * threads * 4;
  }

  // The words of `count` elements that lie next to each other, at most a vector's; zeros behind.
  template <class T>
  [[gnu::always_inline]] static u32v last_words(const T* p, i64 count) {
    const u32v bytes = load_bytes(p, static_cast<int>(count) * static_cast<int>(sizeof(T)));
    T last[sizeof(bytes) / sizeof(T)];
    store(last, bytes);
    return load_words<T, Math>(last);
  }

  // narrow[x][w]: the rows of the narrow operand, biased, zero past k and past the rows.
  template <class S>
  static void pack_narrow(const GemmArguments& g, const S& side, int rows, u32* out) {
    using T = typename S::Type;
    const i64 words = depth_words(g);
    const u32v zeros = bias<Math, true>(u32v{});
    for (int x = 0; x < rows; ++x) {
      for (i64 w = 0; w < words; w += kLanes) {
        const i64 count = smaller(kLanes * kPer, g.k - w * kPer);
        u32v packed = zeros;
        if (x < side.size && S::k_contiguous) {
          packed = bias<Math, true>(last_words(side.at(x, w * kPer), count));
        } else if (x < side.size) {
          T elements[kLanes * kPer] = {};
          for (i64 i = 0; i < count; ++i) elements[i] = *side.at(x, w * kPer + i);
          packed = bias<Math, true>(load_words<T, Math>(elements));
        }
        store(out + x * words + w, packed);
      }
    }
  }

  // ---- k contiguous: dot products ----

  // sums[x][f] for kRows narrow rows and kWide rows of the wide operand over words [begin, end).
  template <class T, int kRows, int kWide>
  [[gnu::noinline]] static void dots(const T* wide, i64 ld, const u32* narrow, i64 narrow_ld, i64 k,
                                     u32* sums, i64 ld_sums) {
    Acc acc[kRows][kWide] = {};
    Acc correction[kWide] = {};
    const u32v ones = u32v{} + 0x80808080U;
    const auto step = [&](const u32v(&w)[kWide], i64 word) {
#pragma GCC unroll 8
      for (int x = 0; x < kRows; ++x) {
        const u32v row = load<u32v>(narrow + x * narrow_ld + word);
#pragma GCC unroll 8
        for (int f = 0; f < kWide; ++f) acc[x][f] = Math::mac(acc[x][f], row, w[f]);
      }
      if constexpr (Math::kBiased) {
#pragma GCC unroll 8
        for (int f = 0; f < kWide; ++f) correction[f] = Math::mac(correction[f], ones, w[f]);
      }
    };
    i64 word = 0;
    u32v w[kWide];
    for (; (word + kLanes) * kPer <= k; word += kLanes) {
#pragma GCC unroll 8
      for (int f = 0; f < kWide; ++f) {
        w[f] = load_words<T, Math>(wide + f * ld + word * kPer);
      }
      step(w, word);
    }
    if (word * kPer < k) {
      for (int f = 0; f < kWide; ++f) {
        w[f] = last_words(wide + f * ld + word * kPer, k - word * kPer);
      }
      step(w, word);
    }
    for (int x = 0; x < kRows; ++x) {
      for (int f = 0; f < kWide; ++f) {
        const auto sum = sum_of_lanes(acc[x][f] - correction[f]);
        __builtin_memcpy(sums + x * ld_sums + f, &sum, 4);
      }
    }
  }

  template <class S, int kRows>
  static void dot_strip(const S& side, i64 k, const u32* narrow, i64 narrow_ld, Range f,
                        u32* sums) {
    using T = typename S::Type;
    constexpr int kWide = kRows >= 8 ? 2 : kRows >= 4 ? 4 : 8;
    i64 i = f.begin;
    for (; i + kWide <= f.end; i += kWide) {
      dots<T, kRows, kWide>(side.at(i, 0), side.ld, narrow, narrow_ld, k, sums + (i - f.begin),
                            kStrip);
    }
    for (; i < f.end; ++i) {
      dots<T, kRows, 1>(side.at(i, 0), side.ld, narrow, narrow_ld, k, sums + (i - f.begin), kStrip);
    }
  }

  // ---- k strided: rows of the wide operand added to a strip of sums ----

  // Adds kWords words of k to sums[x][0 .. columns); corrections grow likewise.
  template <class T, int kRows, int kWords>
  [[gnu::noinline]] static void add_rows(const T* wide, i64 ld, i64 columns, const u32* narrow,
                                         i64 narrow_ld, u32* sums, u32* corrections) {
    for (i64 f = 0; f + kLanes <= columns; f += kLanes) {
      u32v w[kWords];
#pragma GCC unroll 8
      for (int i = 0; i < kWords; ++i) {
        w[i] = load_words_across<T, Math>(wide + i * kPer * ld + f, ld);
      }
#pragma GCC unroll 8
      for (int x = 0; x < kRows; ++x) {
        Acc sum = load<Acc>(sums + x * kStrip + f);
#pragma GCC unroll 8
        for (int i = 0; i < kWords; ++i)
          sum = Math::mac(sum, splat(narrow[x * narrow_ld + i]), w[i]);
        store(sums + x * kStrip + f, sum);
      }
      if constexpr (Math::kBiased) {
        Acc sum = load<Acc>(corrections + f);
#pragma GCC unroll 8
        for (int i = 0; i < kWords; ++i) sum = Math::mac(sum, u32v{} + 0x80808080U, w[i]);
        store(corrections + f, sum);
      }
    }
  }

  // The columns of a strip that do not fill a vector, and the k that do not fill a word: copied
  // into a small zero-padded piece first.
  template <class T, int kRows>
  static void add_padded(const T* wide, i64 ld, i64 columns, i64 depth, const u32* narrow,
                         i64 narrow_ld, u32* sums, u32* corrections) {
    for (i64 f = 0; f < columns; f += kLanes) {
      T piece[kPer * kLanes] = {};
      const i64 count = smaller(kLanes, columns - f);
      for (i64 u = 0; u < depth; ++u) {
        __builtin_memcpy(piece + u * kLanes, wide + u * ld + f,
                         static_cast<unsigned long>(count) * sizeof(T));
      }
      add_rows<T, kRows, 1>(piece, kLanes, kLanes, narrow, narrow_ld, sums + f, corrections + f);
    }
  }

  template <class S, int kRows>
  static void add_strip(const S& side, i64 k, const u32* narrow, i64 narrow_ld, Range f, u32* sums,
                        u32* corrections) {
    using T = typename S::Type;
    // Rows of the wide operand that are read side by side: more than 8 thrash L1 when their
    // distance is a power of two; with many sums to load and store, it pays all the same.
    constexpr int kDepth = kRows >= 8 ? 16 : 8;
    constexpr int kWords = kDepth / kPer < 8 ? kDepth / kPer : 8;
    const i64 columns = f.end - f.begin;
    const i64 whole = columns / kLanes * kLanes;
    __builtin_memset(sums, 0, sizeof(u32) * static_cast<unsigned long>(kMaxNarrow * kStrip));
    __builtin_memset(corrections, 0, sizeof(u32) * static_cast<unsigned long>(kStrip));
    const i64 words = k / kPer;
    i64 w = 0;
    for (; w + kWords <= words; w += kWords) {
      add_rows<T, kRows, kWords>(side.at(f.begin, w * kPer), side.ld, whole, narrow + w, narrow_ld,
                                 sums, corrections);
    }
    for (; w < words; ++w) {
      add_rows<T, kRows, 1>(side.at(f.begin, w * kPer), side.ld, whole, narrow + w, narrow_ld, sums,
                            corrections);
    }
    if (whole < columns) {
      for (i64 i = 0; i < words; ++i) {
        add_padded<T, kRows>(side.at(f.begin + whole, i * kPer), side.ld, columns - whole, kPer,
                             narrow + i, narrow_ld, sums + whole, corrections + whole);
      }
    }
    if (words * kPer < k) {
      add_padded<T, kRows>(side.at(f.begin, words * kPer), side.ld, columns, k - words * kPer,
                           narrow + words, narrow_ld, sums, corrections);
    }
    if constexpr (Math::kBiased) {
      for (int x = 0; x < kRows; ++x) {
        for (i64 i = 0; i < columns; i += kLanes) {
          store(sums + x * kStrip + i,
                load<Acc>(sums + x * kStrip + i) - load<Acc>(corrections + i));
        }
      }
    }
  }

  // ---- one thread's share: a range of the wide dimension ----

  // Sums lie as [narrow][wide]. When the narrow side is N, the output wants them the other way.
  static void finish_strip(const GemmArguments& g, Range f, const u32* sums) {
    if (narrow_is_a(g)) {
      return finish_rectangle<C>(g, sums, kStrip, g.m, f.end - f.begin, {0, f.begin, 0});
    }
    // One column whose rows lie next to each other is as good as a row, if nothing goes by place.
    if (g.n == 1 && C::kNumD == 0 && g.ld_out == 1 && (g.beta == 0 || g.ld_c == 1)) {
      GemmArguments turned = g;
      turned.m = 1;
      turned.n = g.m;
      return finish_rectangle<C>(turned, sums, kStrip, 1, f.end - f.begin, {0, f.begin, 0});
    }
    for (i64 i = f.begin; i < f.end; ++i) {
      u32 row[kMaxNarrow < kLanes ? kLanes : kMaxNarrow];
      for (i64 x = 0; x < g.n; ++x) row[x] = sums[x * kStrip + i - f.begin];
      finish_rectangle<C>(g, row, 0, 1, g.n, {i, 0, 0});
    }
  }

  template <int kRows, class Narrow, class Wide>
  static void run_rows(const GemmArguments& g, const Narrow& narrow, const Wide& wide, Range range,
                       u32* space) {
    const i64 words = depth_words(g);
    u32* packed = space;
    u32* sums = packed + kMaxNarrow * words;
    u32* corrections = sums + kMaxNarrow * kStrip;
    pack_narrow(g, narrow, kRows, packed);
    for (i64 i = range.begin; i < range.end; i += kStrip) {
      const Range f{i, smaller(i + kStrip, range.end)};
      if constexpr (Wide::k_contiguous) {
        dot_strip<Wide, kRows>(wide, g.k, packed, words, f, sums);
      } else {
        add_strip<Wide, kRows>(wide, g.k, packed, words, f, sums, corrections);
      }
      finish_strip(g, f, sums);
    }
  }

  template <class Narrow, class Wide>
  static void run_sides(const GemmArguments& g, const Narrow& narrow, const Wide& wide, Range range,
                        u32* space) {
    if (narrow.size <= 1) return run_rows<1>(g, narrow, wide, range, space);
    if (narrow.size <= 2) return run_rows<2>(g, narrow, wide, range, space);
    if (narrow.size <= 4) return run_rows<4>(g, narrow, wide, range, space);
    run_rows<kMaxNarrow>(g, narrow, wide, range, space);
  }

  static void run(const void* arguments, const CpuThread* thread) {
    const auto& all = *static_cast<const GemmArguments*>(arguments);
    const i64 size = narrow_is_a(all) ? all.n : all.m;
    const bool one = C::kWaveM == 1 && C::kWaveN == 1;
    const int threads = one ? 1 : thread->count;
    if (thread->index >= threads) return;
    const int over_batch = static_cast<int>(smaller(threads, all.batch));
    const int over_size = threads / over_batch;
    if (thread->index >= over_batch * over_size) return;
    const Range batches = part(all.batch, 1, over_batch, thread->index / over_size);
    const Range range = part(size, 4 * kLanes, over_size, thread->index % over_size);
    u32* space = static_cast<u32*>(thread->workspace) + thread->index * thread_words(all);
    for (i64 b = batches.begin; b < batches.end; ++b) {
      const GemmArguments g = one_batch<C>(all, b);
      if (narrow_is_a(g)) {
        run_sides(g, side_a(g), side_b(g), range, space);
      } else {
        run_sides(g, side_b(g), side_a(g), range, space);
      }
    }
  }

  static constexpr CpuKernel kernel() {
    return {C::kAbiVersion, workspace_bytes, run, nullptr, nullptr};
  }
};

}  // namespace tessera::device
