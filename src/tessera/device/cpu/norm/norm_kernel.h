// softmax, RMSNorm and LayerNorm of rows on a CPU. A row is read in chunks of tile_n columns that
// stay in a cache: the statistics of each chunk are merged into the row's, and a second pass
// writes the result. Two steps may share out the slices of rows: one gathers, one writes. Rows
// whose squares overflow or vanish are read again, scaled.
#pragma once

#include "tessera/device/cpu/norm/chunk_statistics.h"
#include "tessera/device/cpu/norm/elementwise_rows.h"

namespace tessera::device {

struct NormMath {
  static float exp(float x) { return device::exp(splat(x))[0]; }
  static float reciprocal_sqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
};

template <class C>
struct NormKernel {
  using In = typename C::In;
  using Weight = typename C::Weight;
  using Out = typename C::Out;
  static constexpr bool kSoftmax = C::kKind == NormKind::softmax;
  static constexpr bool kMayOverflow = !kSoftmax && !__is_same(In, fp16);  // squares, in fp32
  static constexpr int kChunk = C::kTileN;
  static constexpr i64 kSliceUnit = 64;  // columns: slices begin at multiples of it
  // Outputs beyond this size would push out of the caches what is still to be read.
  static constexpr i64 kCachedBytes = i64{4} << 20;

  static_assert(C::kVectorBytes == kVectorBytes, "compile flags and target disagree on vectors");
  static_assert(kChunk % kLanes == 0, "tile_n must be a multiple of the vector's lanes");

  using Statistics = ChunkStatistics<C>;
  using Chunk = typename Statistics::Chunk;
  using Inputs = typename Statistics::Inputs;
  using First = typename Statistics::First;
  static constexpr int kPrefetchEach = Statistics::kPrefetchEach;

  // A row, or a slice of one.
  struct Place {
    i64 row;
    Range columns;
  };

  static NormStatistics merged(NormStatistics a, NormStatistics b) {
    return merge<C::kKind, NormMath>(a, b);
  }

  static Inputs inputs(const NormArguments& g, i64 row, i64 column) {
    return {static_cast<const In*>(g.in) + g.ld_in * row + column,
            static_cast<const In*>(g.residual) + g.ld_residual * row + column};
  }

  static bool goes_past_cache(const NormArguments& g) {
    return g.rows * g.columns * i64{sizeof(Out)} > kCachedBytes;
  }
  static bool sums_go_past_cache(const NormArguments& g) {
    return C::kResidual && g.rows * g.columns * i64{sizeof(In)} > kCachedBytes;
  }

  // One chunk holds a whole row, so that the second pass reads no memory.
  static bool is_held(const NormArguments& g) { return C::kSlices == 1 && g.columns <= kChunk; }

  // Stores vectors of sums, two whole ones at a time, and tells what was stored.
  struct SumStores {
    bool past_cache;
    f32v last = {};
    [[gnu::always_inline]] f32v put(In* p, f32v x, int lanes, int number) {
      if (number < 0) {
        store_float(p, x, lanes);
        return load_lanes(p, lanes);
      }
      if (number % 2 == 1) store_two(p - kLanes, last, x, past_cache);
      last = x;
      return rounded_to<In>(x);
    }
  };
  static bool is_vector(const void* p) {
    return reinterpret_cast<unsigned long>(p) % kVectorBytes == 0;
  }

  // Calls visit(i, x, lanes, number) for `count` columns of a row as floats, by vectors, which are
  // left in the chunk; with a residual the sum is stored first, and what was stored is what counts.
  // again: in the second pass.
  template <class Visit>
  [[gnu::always_inline]] static void read_chunk(const NormArguments& g, i64 row, i64 begin,
                                                int count, bool again, Chunk& chunk, Visit visit) {
    const Inputs from = inputs(g, row, begin);
    In* const sum = static_cast<In*>(g.sum) + g.ld_sum * row + begin;
    const In* const in = C::kResidual && again ? sum : from.in;
    SumStores stores = {is_held(g) && sums_go_past_cache(g) && is_vector(sum)};
    const auto one = [&](int i, int lanes, int number) __attribute__((always_inline)) {
      f32v x = load_lanes(in + i, lanes);
      if (C::kResidual && !again) {
        x = stores.put(sum + i, x + load_lanes(from.residual + i, lanes), lanes, number);
      }
      store(chunk.x + i, x);
      visit(i, x, lanes, number);
    };
    for_each_vector(count, one);
  }
  static void read_chunk(const NormArguments& g, i64 row, i64 begin, int count, bool again,
                         Chunk& chunk) {
    read_chunk(g, row, begin, count, again, chunk, [](int, f32v, int, int) {});
  }

  // Calls visit(begin, count) for each chunk.
  template <class Visit>
  [[gnu::always_inline]] static void for_each_chunk(Range columns, Visit visit) {
    for (i64 at = columns.begin; at < columns.end; at += kChunk) {
      visit(at, static_cast<int>(smaller(columns.end - at, kChunk)));
    }
  }

  // `chunk` is left holding the last one, as Statistics::of() leaves it.
  static NormStatistics gather(const NormArguments& g, const Place& p, Chunk& chunk) {
    NormStatistics all = no_statistics<C::kKind>();  // what a slice without columns has
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      const Inputs next = is_held(g) ? inputs(g, p.row + 1, 0) : inputs(g, p.row, begin + count);
      First first;
      read_chunk(
          g, p.row, begin, count, false,
          chunk, [&](int i, f32v x, int lanes, int number) __attribute__((always_inline)) {
            constexpr bool kAsks = C::kKind == NormKind::rmsnorm;  // it has no other pass
            if (kAsks && number >= 0 && number % kPrefetchEach == 0) next.prefetch(i / 2);
            if (lanes == kLanes) first.add(x, number);
          });
      first.add_last(chunk, count);
      const NormStatistics s = Statistics::of(chunk, count, first, next);
      all = begin == p.columns.begin ? s : merged(all, s);
    });
    return all;
  }

  static void multiply(Chunk& chunk, int count, float power) {
    for_each_vector(count, [&chunk, power](int i, int, int) {
      store(chunk.x + i, load<f32v>(chunk.x + i) * power);
    });
  }

  // The statistics of a slice that gather() has read, times a power of two.
  [[gnu::noinline]] static NormStatistics gather_again(const NormArguments& g, const Place& p,
                                                       float power, Chunk& chunk) {
    NormStatistics all = no_statistics<C::kKind>();
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      read_chunk(g, p.row, begin, count, true, chunk);
      multiply(chunk, count, power);
      First first;
      for_each_vector(count, [&](int i, int lanes, int number) {
        if (lanes == kLanes) first.add(load<f32v>(chunk.x + i), number);
      });
      first.add_last(chunk, count);
      all = merged(all, Statistics::of(chunk, count, first, inputs(g, p.row, begin)));
    });
    return all;
  }

  static ScaledStatistics gather_scaled(const NormArguments& g, const Place& p, Chunk& chunk) {
    const NormStatistics all = gather(g, p, chunk);
    if constexpr (kMayOverflow) {
      const float power = power_for(all, p.columns.end - p.columns.begin, g.epsilon);
      if (power != kUsualRows) return {gather_again(g, p, power, chunk), power};
    }
    return {all, kUsualRows};
  }

  // The statistics of a row, merged from its slices in their order.
  static ScaledStatistics gathered(const ScaledStatistics* slices) {
    NormStatistics all = no_statistics<C::kKind>();
    bool is_usual = true;
    for (int i = 0; i < C::kSlices; ++i) {
      all = merged(all, slices[i].of);
      is_usual = is_usual && slices[i].power == kUsualRows;
    }
    if (!kMayOverflow || (is_usual && all.second < infinity())) return {all, kUsualRows};
    return rescaled_slices<C::kKind, NormMath>(slices, C::kSlices);
  }

  template <bool kHeld>
  [[gnu::always_inline]] static f32v result(const NormArguments& g, f32v x, i64 column, int lanes,
                                            NormFactors f) {
    if constexpr (kSoftmax && kHeld) return x * f.factor;
    if constexpr (kSoftmax) return exp_of_negative(x - f.offset) * f.factor;
    f32v y = (C::kKind == NormKind::rmsnorm ? x : x - f.offset) * f.factor;
    if (C::kScale) y = y * load_lanes(static_cast<const Weight*>(g.scale) + column, lanes);
    if (C::kShift) y = y + load_lanes(static_cast<const Weight*>(g.shift) + column, lanes);
    return y;
  }

  template <bool kHeld>
  static void write_chunk(const NormArguments& g, i64 row, i64 begin, int count, NormFactors f,
                          const Chunk& chunk) {
    Out* const out = static_cast<Out*>(g.out) + g.ld_out * row + begin;
    const bool past_cache = is_vector(out) && goes_past_cache(g);
    const Inputs next = inputs(g, row + 1, count / 2);
    const NormArguments own = g;
    f32v last;
    const auto visit = [&](int i, int lanes, int number) __attribute__((always_inline)) {
      const f32v y = result<kHeld>(own, load<f32v>(chunk.x + i), begin + i, lanes, f);
      if (number % 2 == 1) return store_two(out + i - kLanes, last, y, past_cache);
      if (number < 0) return store_float(out + i, y, lanes);
      if (kHeld && number % kPrefetchEach == 0) next.prefetch(i / 2);
      last = y;
    };
    for_each_vector(count, visit);
  }

  [[gnu::noinline]] static void write_scaled(const NormArguments& g, const Place& p,
                                             const ScaledStatistics& all, Chunk& chunk) {
    const ScaledFactors f = scaled_factors_of<NormMath>(all, g.columns, g.epsilon);
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      read_chunk(g, p.row, begin, count, true, chunk);
      multiply(chunk, count, f.power);
      write_chunk<false>(g, p.row, begin, count, {f.offset, f.factor}, chunk);
    });
  }

  // ---- outputs of 8 bits ----

  static constexpr bool kQuantised = C::kQuant != NormQuant::none;
  using Eight = EightBitRows<C>;

  // What the results of a row are made of.
  struct Finish {
    NormFactors f;
    float power;
    bool is_read;  // the chunk has what the first pass read: no padding, no factor
  };
  static Finish finish_of(const NormArguments& g, const ScaledStatistics& all) {
    const bool is_read = is_held(g) && all.power == kUsualRows;
    if (kMayOverflow && all.power != kUsualRows) {
      const ScaledFactors scaled = scaled_factors_of<NormMath>(all, g.columns, g.epsilon);
      return {{scaled.offset, scaled.factor}, scaled.power, is_read};
    }
    return {factors_of<C::kKind, NormMath>(all.of, g.columns, g.epsilon), kUsualRows, is_read};
  }

  static void read_again(const NormArguments& g, const Place& p, i64 begin, int count,
                         const Finish& finish, Chunk& chunk) {
    if (finish.is_read) return;
    read_chunk(g, p.row, begin, count, true, chunk);
    if (finish.power != kUsualRows) multiply(chunk, count, finish.power);
  }

  // Calls visit(i, y, lanes, number) for the results of some columns of a row, by vectors.
  template <class Visit>
  [[gnu::always_inline]] static void finish_chunk(const NormArguments& g, const Place& p, i64 begin,
                                                  int count, const Finish& finish, Chunk& chunk,
                                                  Visit visit) {
    read_again(g, p, begin, count, finish, chunk);
    const Inputs next = inputs(g, p.row + 1, count / 2);
    const NormArguments own = g;  // stores of bytes may be stores to anything
    const NormFactors f = finish.f;
    for_each_vector(
        count, [&](int i, int lanes, int number) __attribute__((always_inline)) {
          if (number >= 0 && number % kPrefetchEach == 0) next.prefetch(i / 2);
          visit(i, result<false>(own, load<f32v>(chunk.x + i), begin + i, lanes, f), lanes, number);
        });
  }

  static void write_over(const NormArguments& g, const Place& p, const Finish& finish, float factor,
                         Chunk& chunk) {
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      Out* const out = static_cast<Out*>(g.out) + g.ld_out * p.row + begin;
      RoundedStores<Out> stores;
      finish_chunk(
          g, p, begin, count, finish,
          chunk, [&](int i, f32v y, int lanes, int number) __attribute__((always_inline)) {
            stores.put(out + i, y * factor, lanes, number);
          });
    });
  }

  static void write_row(const NormArguments& g, const Place& p, const Finish& finish,
                        Chunk& chunk) {
    Greatest greatest;
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      finish_chunk(
          g, p, begin, count, finish,
          chunk, [&](int i, f32v y, int lanes, int number) __attribute__((always_inline)) {
            Eight::keep(chunk.x + i, y, lanes, number, greatest);
          });
    });
    const float scale = g.out_scales[p.row * g.row_of_scales] = Eight::scale_of(greatest);
    if (g.columns > kChunk) return write_over(g, p, finish, 1.0F / scale, chunk);
    Eight::store_over(static_cast<Out*>(g.out) + g.ld_out * p.row, chunk.x,
                      static_cast<int>(g.columns), 1.0F / scale);
  }

  static void write_blocks(const NormArguments& g, const Place& p, const Finish& finish,
                           Chunk& chunk) {
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      Out* const out = static_cast<Out*>(g.out) + g.ld_out * p.row + begin;
      read_again(g, p, begin, count, finish, chunk);
      const Inputs next = inputs(g, p.row + 1, count / 2);
      const NormArguments own = g;
      const NormFactors f = finish.f;
      Eight::write_blocks(
          Eight::scales_from(g, p.row, begin), g.block_of_scales, out, chunk.x,
          count, [&](int i, int lanes, int number) __attribute__((always_inline)) {
            if (number >= 0 && number % kPrefetchEach == 0) next.prefetch(i / 2);
            return result<false>(own, load<f32v>(chunk.x + i), begin + i, lanes, f);
          });
    });
  }

  [[gnu::noinline]] static void write_quantised(const NormArguments& g, const Place& p,
                                                const ScaledStatistics& all, Chunk& chunk) {
    const Finish finish = finish_of(g, all);
    if constexpr (C::kQuant == NormQuant::tensor) {
      write_over(g, p, finish, 1.0F / *g.out_scale, chunk);
    } else if constexpr (C::kQuant == NormQuant::row) {
      write_row(g, p, finish, chunk);
    } else {
      write_blocks(g, p, finish, chunk);
    }
  }

  static void write(const NormArguments& g, const Place& p, const ScaledStatistics& all,
                    Chunk& chunk) {
    if constexpr (kQuantised) {
      write_quantised(g, p, all, chunk);
    } else {
      write_plain(g, p, all, chunk);
    }
  }

  static void write_plain(const NormArguments& g, const Place& p, const ScaledStatistics& all,
                          Chunk& chunk) {
    if (kMayOverflow && all.power != kUsualRows) return write_scaled(g, p, all, chunk);
    const NormFactors f = factors_of<C::kKind, NormMath>(all.of, g.columns, g.epsilon);
    for_each_chunk(p.columns, [&](i64 begin, int count) {
      if (is_held(g)) return write_chunk<true>(g, p.row, begin, count, f, chunk);
      read_chunk(g, p.row, begin, count, true, chunk);
      write_chunk<false>(g, p.row, begin, count, f, chunk);
    });
  }

  // Calls visit(place, number) for a thread's share of the slices of all rows.
  template <class Visit>
  static void for_each_slice(const NormArguments& g, const CpuThread& thread, Visit visit) {
    const Range mine = part(g.rows * C::kSlices, 1, thread.count, thread.index);
    for (i64 i = mine.begin; i < mine.end; ++i) {
      visit(Place{i / C::kSlices, part(g.columns, kSliceUnit, C::kSlices, i % C::kSlices)}, i);
    }
    if (goes_past_cache(g) || sums_go_past_cache(g)) finish_stores();
  }

  // A kernel of one step makes the statistics of a row, then its result. The first of two steps
  // writes the statistics of every slice to the workspace.
  static void run(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const NormArguments*>(arguments);
    if constexpr (is_elementwise(C::kKind)) {
      ElementwiseRows<C>::run(g, *thread);
    } else {
      run_norm(g, thread);
    }
  }
  static void run_norm(const NormArguments& g, const CpuThread* thread) {
    auto* const parts = static_cast<ScaledStatistics*>(thread->workspace);
    Chunk chunk;
    for_each_slice(g, *thread, [&](const Place& place, i64 number) {
      const ScaledStatistics all = gather_scaled(g, place, chunk);
      if (C::kSlices > 1) {
        parts[number] = all;
      } else {
        write(g, place, all, chunk);
      }
    });
  }

  // The second step merges a row's statistics in the order of the slices, and writes a slice.
  static void run_result(const void* arguments, const CpuThread* thread) {
    const auto& g = *static_cast<const NormArguments*>(arguments);
    const auto* const parts = static_cast<const ScaledStatistics*>(thread->workspace);
    Chunk chunk;
    for_each_slice(g, *thread, [&](const Place& place, i64) {
      write(g, place, gathered(parts + place.row * C::kSlices), chunk);
    });
  }

  static i64 workspace_bytes(const void* arguments, int) {
    const i64 slices = C::kSlices == 1 ? 0 : C::kSlices;
    return static_cast<const NormArguments*>(arguments)->rows * slices *
           i64{sizeof(ScaledStatistics)};
  }

  static constexpr CpuKernel kernel() {
    if (C::kSlices == 1) return {C::kAbiVersion, {{workspace_bytes, run}}};
    return {C::kAbiVersion, {{workspace_bytes, run}, {workspace_bytes, run_result}}};
  }
};

}  // namespace tessera::device
