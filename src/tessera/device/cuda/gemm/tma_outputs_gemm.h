// out = gate(alpha * A x B), or epilogue(alpha * A x B + beta * C), with rows of A or of out by
// index, on Hopper, in one step: the kernel of tma_grouped_gemm.h with other loads and stores.
//   gathered:   the threads of the producer copy the rows of A that the index names (cp.async) into
//               the stages, beside the copy engine's tiles of B
//   a gate:     a tile of B holds both columns of each pair: the first half of its columns, or with
//               swapped operands every other 64, are those of x, the others those of y. So a thread
//               has both sums. The map of B has a dimension for the two halves, so that halves and
//               interleaved columns are read alike
//   scattered:  threads store each row at its place (tma_named_rows.h)
#pragma once

#include "tessera/device/cuda/copied_stages.h"
#include "tessera/device/cuda/gemm/gate.h"
#include "tessera/device/cuda/gemm/gathered_rows.h"
#include "tessera/device/cuda/gemm/outputs_arguments.h"
#include "tessera/device/cuda/gemm/quantised_tile.h"
#include "tessera/device/cuda/gemm/tma_grouped_gemm.h"
#include "tessera/device/cuda/tma_named_rows.h"
#include "tessera/device/norm.h"

namespace tessera::device {

template <class C>
struct TmaOutputsGemm {
  using Grouped = TmaGroupedGemm<C>;
  using Loop = typename Grouped::Loop;
  using Ring = typename Grouped::Ring;
  using Acc = typename Grouped::Acc;
  using TileA = typename If<C::kSwapAb, typename Grouped::TileQ, typename Grouped::TileP>::Type;
  using TileB = typename If<C::kSwapAb, typename Grouped::TileP, typename Grouped::TileQ>::Type;
  static constexpr int kThreads = Grouped::kThreads;
  static constexpr int kMinBlocks = Grouped::kMinBlocks;
  static constexpr bool kGathers = C::kIndexing == Indexing::gathered;
  static constexpr bool kScatters = C::kIndexing == Indexing::scattered;
  static constexpr bool kGated = C::kGate != Gate::none;
  static_assert(C::kQuant == NormQuant::none || C::kQuant == NormQuant::block,
                "whole rows of 8 bits need their largest magnitude first");
  static_assert(!kGated || (C::kNumSteps == 0 && kSame<Acc, float>), "a gate follows the sums");

  static constexpr int kCopiers = kGathers ? Loop::kProducerThreads : 0;
  static constexpr int kCopiedBytes = TileB::kBytes + (kGathers ? 0 : TileA::kBytes);
  using Rows = GatheredRows<TileA, Loop::kProducerThreads>;

  Grouped grouped;
  const CudaTmaOutputArguments& x;

  __device__ __forceinline__ TmaOutputsGemm(const CudaTmaOutputArguments& arguments,
                                            unsigned char* memory)
      : grouped(arguments.product, memory), x(arguments) {}

  static __device__ __forceinline__ void run(const CudaTmaOutputArguments& arguments) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if (found_bad_group(arguments.product.groups)) return;
    TmaOutputsGemm block(arguments, memory);
    block.grouped.init(kCopiers);
    block.grouped.loop.template run_roles<kGathers>(block);
  }

  __device__ __forceinline__ const GemmArguments& gemm() const { return x.product.groups.gemm; }

  // ---- the producer: one thread asks for tiles; with gathered rows all threads copy ----

  __device__ __forceinline__ void produce() const {
    const Loop& loop = grouped.loop;
    const int warp = uniform(loop.thread / 32);
    if (!kGathers && warp != 0) return;
    const bool is_filler = warp == 0 && elect_one();
    Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < grouped.walk.tiles; i += gridDim.x) {
      const GroupItem item = grouped.walk.find(i);
      if constexpr (kGathers) {
        fill_gathered(ring, item, is_filler);
      } else if (is_filler) {
        const int steps = grouped.steps_of(item);
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
          barrier_wait(loop.empty(ring.stage), ring.phase ^ 1);
          ask(ring.stage, item, step);
          ring.next();
        }
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ void fill_gathered(Ring& ring, const GroupItem& item,
                                                bool is_filler) const {
    const Rows rows(grouped.loop.thread, [&](int row) { return row_of_a(item, row); });
    fill_with_copies(
        grouped.loop, ring, {0, grouped.steps_of(item)}, is_filler,
        [&](u32 stage, int step) { ask(stage, item, step); },
        [&](u32 stage, int step) { fetch_rows(rows, stage, step); });
  }

  // The row of A for a row of the item's tile, or -1.
  __device__ __forceinline__ int row_of_a(const GroupItem& item, int row) const {
    const i64 at = item.row + row;
    return at < item.part.size ? static_cast<int>(named_row(x, item.part.begin + at)) : -1;
  }
  __device__ __forceinline__ void fetch_rows(const Rows& rows, u32 stage, int step) const {
    const GemmArguments& g = gemm();
    rows.fetch(tile_a(stage), static_cast<const char*>(g.a), g.ld_a * Rows::kSize,
               g.k * Rows::kSize, step);
  }

  __device__ __forceinline__ u32 tile_p(u32 stage) const {
    return grouped.loop.stages + stage * Grouped::TileP::kBytes;
  }
  __device__ __forceinline__ u32 tile_q(u32 stage) const {
    return grouped.loop.stages + Loop::kOffsetQ + stage * Grouped::TileQ::kBytes;
  }
  __device__ __forceinline__ u32 tile_a(u32 stage) const {
    return C::kSwapAb ? tile_q(stage) : tile_p(stage);
  }
  __device__ __forceinline__ u32 tile_b(u32 stage) const {
    return C::kSwapAb ? tile_p(stage) : tile_q(stage);
  }

  // Asks the copy engine for its part of a stage.
  __device__ __forceinline__ void ask(u32 stage, const GroupItem& item, int step) const {
    const u32 full = grouped.loop.full(stage);
    barrier_expect(full, kCopiedBytes);
    const TmaTarget to_a = {tile_a(stage), full, 0, kEvictNormal};
    const TmaTarget to_b = {tile_b(stage), full, 0, kEvictNormal};
    const typename Loop::Loaders from = grouped.loaders_of(item);
    if constexpr (!kGathers) {
      if constexpr (C::kSwapAb) {
        from.q.fetch(to_a, step);
      } else {
        from.p.fetch(to_a, step);
      }
    }
    if constexpr (kGated) {
      ask_pairs(to_b, item, step);
    } else if constexpr (C::kSwapAb) {
      from.p.fetch(to_b, step);
    } else {
      from.q.fetch(to_b, step);
    }
  }

  // ---- a gate: the columns of B in parts, by turns those of x and of y ----

  static constexpr int kPart = C::kSwapAb ? kWgmmaRows : C::kTileN / 2;
  static constexpr int kParts = (C::kSwapAb ? C::kTileM : C::kTileN) / kPart;
  static_assert(!kGated || (kPart % (TileB::kAlongK ? 8 : TileB::kPerLine) == 0 &&
                            (!C::kSwapAb || Grouped::kBlocks % 2 == 0)),
                "parts are whole lines, and a consumer has both parts of a pair");

  __device__ __forceinline__ void ask_pairs(TmaTarget target, const GroupItem& item,
                                            int step) const {
    const int group = gemm().batch_stride_b == 0 ? 0 : static_cast<int>(item.part.group);
    const u32 tile = target.to;
    const int k = step * C::kTileK;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int half = part % 2;
      const int column = item.column / 2 + part / 2 * kPart;
      if constexpr (TileB::kAlongK) {
#pragma unroll
        for (int slab = 0; slab < TileB::kSlabs; ++slab) {
          target.to = tile + slab * TileB::kSlabBytes + part * kPart * kLineBytes;
          const TmaBox<4> box = {&x.product.b_map,
                                 {k + slab * TileB::kPerLine, column, half, group}};
          tma_load<false>(target, box);
        }
      } else {
#pragma unroll
        for (int line = 0; line < kPart; line += TileB::kPerLine) {
          target.to = tile + (part * kPart + line) / TileB::kPerLine * TileB::kSlabBytes;
          tma_load<false>(target, TmaBox<4>{&x.product.b_map, {column + line, k, half, group}});
        }
      }
    }
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    grouped.for_each_item([&](auto& sums, Ring& ring, const auto& free, const GroupItem& item) {
      grouped.loop.template multiply<kGathers>(sums, ring, free, grouped.steps_of(item));
      finish(sums, item);
    });
  }

  __device__ __forceinline__ void finish(Acc (&sums)[Grouped::kBlocks][Grouped::kAccumulators],
                                         const GroupItem& item) const {
    if constexpr (kGated) {
      Acc results[kBlocks][kColumns / 2];
      pair_up(sums, results);
      store(results, item);
    } else {
      store(sums, item);
    }
  }

  // What a consumer stores: blocks of 64 rows of wgmma, and columns.
  static constexpr int kBlocks = Grouped::kBlocks / (kGated && C::kSwapAb ? 2 : 1);
  static constexpr int kColumns = C::kTileN / (kGated && !C::kSwapAb ? 2 : 1);

  // The sums become zero, because registers would hold them while the results are stored.
  __device__ __forceinline__ void pair_up(Acc (&sums)[Grouped::kBlocks][Grouped::kAccumulators],
                                          Acc (&results)[kBlocks][kColumns / 2]) const {
    const float alpha = gemm().alpha;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        Acc& first = sums[C::kSwapAb ? 2 * block : block][i];
        Acc& second = C::kSwapAb ? sums[2 * block + 1][i] : sums[block][i + kColumns / 2];
        results[block][i] = gated_pair<C::kGate>(first * alpha, second * alpha);
        first = second = 0;
      }
    }
  }

  // ---- stores ----

  // As many columns of raw accumulators as fit into the area.
  static constexpr int pass_of(int chunk) {
    while (chunk * kWgmmaRows * 4 > Grouped::kAreaBytes) chunk /= 2;
    return chunk;
  }
  static constexpr int kPass =
      C::kSwapAb ? Grouped::kSizes.area.pass : pass_of(chunk_of(kColumns, false));
  static constexpr bool kMayCopy = !kScatters && Grouped::kMayCopy;
  template <class Config>
  using Store = TileStore<Config, GemmArguments, kBlocks, kColumns, kPass, Grouped::kAreaBytes>;
  using ByThreads = Store<StoredByThreads<C>>;
  using NamedStore = typename If<C::kQuant == NormQuant::none, NamedRows<ByThreads>,
                                 QuantisedRows<ByThreads>>::Type;

  __device__ __forceinline__ int warpgroup() const {
    return C::kPingpong ? 0 : grouped.loop.warpgroup;
  }
  template <class Config>
  __device__ __forceinline__ Store<Config> store_of(const GemmArguments& g, u32& phases) const {
    const Loop& loop = grouped.loop;
    const u32 area = grouped.shared + Grouped::kOffsetStore + loop.warpgroup * Grouped::kAreaBytes;
    return {g, &x.product.out_map, nullptr, area, 1 + loop.warpgroup, loop.thread, 0, phases};
  }

  // The row of out, counted from the part's first one, of a row of the part; -1: none.
  __device__ __forceinline__ i64 row_of_out(const GroupPart& part, i64 row) const {
    if constexpr (C::kIndexing == Indexing::none) return row;
    const i64 named = named_row(x, part.begin + row);
    return named < 0 || kScatters ? named : row;
  }

  // Whether all rows that this consumer stores are named.
  static constexpr int kRows = C::kSwapAb ? kColumns : kBlocks * kWgmmaRows;
  __device__ __forceinline__ bool names_all(const GroupPart& part, int first, i64 end) const {
    if constexpr (!kGathers) return true;
    bool misses = false;
#pragma unroll 1
    for (int row = first + grouped.loop.thread; row < first + kRows; row += kGroupThreads) {
      if (row < end && named_row(x, part.begin + row) < 0) misses = true;
    }
    return !any_of_threads(1 + grouped.loop.warpgroup, kGroupThreads, misses);
  }

  __device__ __forceinline__ void store(const Acc (&sums)[kBlocks][kColumns / 2],
                                        const GroupItem& item) const {
    GemmArguments g = grouped.product_at(item.part);
    if constexpr (kGated) g.n /= 2;
    if constexpr (kGated || C::kQuant != NormQuant::none) g.alpha = 1;
    const int first = warpgroup() * kBlocks * kWgmmaRows;
    const int column = kGated ? item.column / 2 : item.column;
    const StorePlace place = {item.row + (C::kSwapAb ? 0 : first),
                              column + (C::kSwapAb ? first : 0), 0};
    if (place.row >= g.m || place.column >= g.n) return;
    u32 phases = 0;
    if constexpr (kMayCopy) {
      const auto by_copy = store_of<C>(g, phases);
      const bool is_whole = place.row + kRows <= g.m || (Grouped::kOutMatrices && g.m == gemm().m);
      if (is_whole && x.product.has_out_map != 0 && by_copy.may_copy(0) &&
          names_all(item.part, place.row, g.m)) {
        return by_copy.copy(sums, grouped.in_map(item.part, place));
      }
      if (grouped.loop.thread == 0) stores_wait_read<0>();  // the area may still be on its way out
    }
    const ByThreads by_threads = store_of<StoredByThreads<C>>(g, phases);
    by_threads.for_each_pass(sums, place, [&](const StorePlace& at) {
      NamedStore{by_threads}.finish(at, [&](i64 row) { return row_of_out(item.part, row); });
    });
  }
};

}  // namespace tessera::device
