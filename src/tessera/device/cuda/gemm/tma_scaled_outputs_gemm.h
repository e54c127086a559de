// out = gate(alpha * A x B), or epilogue(alpha * A x B + beta * C), with rows of A or of out by
// index and operands with scales of blocks of 128 along k, on Hopper, in one step. Loads and stores
// are those of tma_outputs_gemm.h, the main loop is that of tma_scaled_loop.h. The scales of
// gathered rows are found by the same index; with a gate, those of the columns of x and of y lie
// where their halves of B do. Outputs of 8 bits with a scale for each 128 columns: a tile has one
// such block of each of its rows (quantised_tile.h).
#pragma once

#include "tessera/device/cuda/gemm/scaled_output_arguments.h"
#include "tessera/device/cuda/gemm/tma_outputs_gemm.h"
#include "tessera/device/cuda/gemm/tma_scales.h"

namespace tessera::device {

// The columns of B in a tile that has them in parts, by turns those of x and of y.
template <int kPart, bool kInterleaved>
struct PairedColumns {
  static constexpr int kAtOnce = 1;  // as RowsInOrder::kAtOnce

  int first;  // column of out
  int half;   // how many columns out has

  __device__ __forceinline__ int of(int row) const {
    const int which = row / kPart % 2;
    const int column = min(first + row / (2 * kPart) * kPart + row % kPart, half - 1);
    return kInterleaved ? 2 * column + which : which * half + column;
  }
};

// The scales of rows that an index names, each of which is its own. A thread copies those of the
// same rows of each tile along k.
template <int kRows, int kThreads>
struct GatheredScales {
  static constexpr int kEach = (kRows + kThreads - 1) / kThreads;

  int thread;
  int rows[kEach];  // of the matrix; -1: none, whose scale is 0

  template <class RowOf>
  __device__ __forceinline__ GatheredScales(int this_thread, const RowOf& row_of)
      : thread(this_thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = thread + i * kThreads;
      rows[i] = row < kRows ? row_of(row) : -1;
    }
  }

  __device__ __forceinline__ void fetch(u32 to, const CudaScale& scale, int step) const {
    const auto* const data = static_cast<const char*>(scale.data) + step * scale.stride_k * 4;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = thread + i * kThreads;
      if (kRows % kThreads != 0 && row >= kRows) break;
      const bool is = rows[i] >= 0;
      copy_async<4>(to + row * 4, is ? data + rows[i] * scale.stride_rows * 4 : data, is ? 4 : 0);
    }
  }
};

template <class C>
struct TmaScaledOutputsGemm {
  using Outputs = TmaOutputsGemm<C>;
  using Groups = typename Outputs::Grouped;
  using Walk = typename Groups::Walk;
  static constexpr bool kGathers = Outputs::kGathers;
  static constexpr bool kGated = Outputs::kGated;
  using Loop =
      TmaScaledLoop<C, GroupLoader<typename Groups::TileP>, GroupLoader<typename Groups::TileQ>,
                    kGated && !C::kSwapAb ? Outputs::kPart : 0>;
  using Ring = typename Loop::Ring;
  using Acc = typename Loop::Acc;
  static constexpr int kCopiers = kGathers ? Loop::Plain::kProducerThreads : 32;
  static constexpr int kThreads = Groups::kThreads;
  static constexpr int kMinBlocks = Loop::min_blocks(C::kSharedBytes);

  // Scales lie behind the areas that the host counts, and before the walk's memory.
  static constexpr int kOffsetScales = C::kSharedBytes - C::kStages * Loop::kScaleBytes;
  static_assert(kOffsetScales >= Groups::kSizes.shared_bytes && kOffsetScales % 8 == 0,
                "scales lie in memory of their own, in pairs");

  Outputs outputs;
  Loop scaled;
  const CudaScaledTmaOutputArguments& x;

  __device__ __forceinline__ TmaScaledOutputsGemm(const CudaScaledTmaOutputArguments& arguments,
                                                  unsigned char* memory)
      : outputs(arguments.cuda, memory),
        scaled{outputs.grouped.loop, outputs.grouped.shared + kOffsetScales},
        x(arguments) {}

  static __device__ __forceinline__ void run(const CudaScaledTmaOutputArguments& x) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if (found_bad_group(x.cuda.product.groups)) return;
    const TmaScaledOutputsGemm block(x, memory);
    block.init();
    block.outputs.grouped.loop.template run_roles<kGathers>(block);
  }

  __device__ __forceinline__ void init() const {
    const auto& loop = scaled.loop;
    if (loop.is_producer() && loop.thread == 0 && outputs.gemm().k > 0) {
      if (!kGathers) tma_prefetch(&outputs.x.product.a_map);
      tma_prefetch(&outputs.x.product.b_map);
    }
    if (threadIdx.x == 0) {
      scaled.init_ring(kCopiers);
      barrier_init_fence();
    }
    __syncthreads();
  }

  // ---- the producer: with gathered rows all threads copy, else one warp copies scales ----

  __device__ __forceinline__ void produce() const {
    const int warp = uniform(scaled.loop.thread / 32);
    if (!kGathers && warp != 0) return;
    const bool chosen = warp == 0 && elect_one();
    const Walk& walk = outputs.grouped.walk;
    Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < walk.tiles; i += gridDim.x) {
      const GroupItem item = walk.find(i);
      if constexpr (kGathers) {
        fill_gathered(ring, item, chosen);
      } else {
        fill_by_engine(ring, item, chosen);
      }
    }
    copies_commit();
    copies_wait<0>();  // a thread stays until its copies are there
  }

  __device__ __forceinline__ void fill_by_engine(Ring& ring, const GroupItem& item,
                                                 bool chosen) const {
    const int lane = scaled.loop.thread % 32;
    fill_with_copies(
        scaled.loop, ring, {0, outputs.grouped.steps_of(item)}, chosen,
        [&](u32 stage, int step) { outputs.ask(stage, item, step); },
        [&](u32 stage, int step) {
          scales_of_a(item).fetch(scales_a(stage), step, lane);
          scales_of_b(item).fetch(scales_b(stage), step, lane);
        });
  }

  __device__ __forceinline__ void fill_gathered(Ring& ring, const GroupItem& item,
                                                bool chosen) const {
    const int thread = scaled.loop.thread;
    const auto row_of = [&](int row) { return outputs.row_of_a(item, row); };
    const typename Outputs::Rows rows(thread, row_of);
    const GatheredScales<Groups::kRows, kCopiers> own(thread, row_of);
    fill_with_copies(
        scaled.loop, ring, {0, outputs.grouped.steps_of(item)}, chosen,
        [&](u32 stage, int step) { outputs.ask(stage, item, step); },
        [&](u32 stage, int step) {
          outputs.fetch_rows(rows, stage, step);
          own.fetch(scales_a(stage), x.scales.a, step);
          scales_of_b(item).template fetch<kCopiers>(scales_b(stage), step, thread);
        });
  }

  // ---- where scales lie ----

  static_assert(C::kScaleRowsA == 1, "each row of A has scales of its own");
  static constexpr int kUnitB = C::kSwapAb ? Loop::kSizes.unit_p : Loop::kSizes.unit_q;
  static constexpr int kPlacesA = C::kSwapAb ? Loop::kSizes.places_q : Loop::kSizes.places_p;
  static constexpr int kPlacesB = C::kSwapAb ? Loop::kSizes.places_p : Loop::kSizes.places_q;
  using Columns =
      typename If<kGated, PairedColumns<Outputs::kPart, C::kGateInterleaved>, RowsInOrder>::Type;
  using ScalesA = ScaleLoader<1, 1, kPlacesA>;
  using ScalesB = ScaleLoader<C::kScaleRowsB, kUnitB, kPlacesB, Columns>;

  __device__ __forceinline__ u32 scales_a(u32 stage) const {
    return C::kSwapAb ? scaled.scales_q(stage) : scaled.scales_p(stage);
  }
  __device__ __forceinline__ u32 scales_b(u32 stage) const {
    return C::kSwapAb ? scaled.scales_p(stage) : scaled.scales_q(stage);
  }

  __device__ __forceinline__ ScalesA scales_of_a(const GroupItem& item) const {
    const int row = static_cast<int>(item.part.begin) + item.row;
    const TilePlace place = {row, 0, static_cast<int>(item.part.group)};
    return scale_loader<ScalesA>(x.scales.a, place, outputs.gemm().m);
  }
  __device__ __forceinline__ ScalesB scales_of_b(const GroupItem& item) const {
    const TilePlace place = {item.column, 0, static_cast<int>(item.part.group)};
    const int n = static_cast<int>(outputs.gemm().n);
    const Columns columns = kGated ? Columns{item.column / 2, n / 2} : Columns{item.column, n - 1};
    return scale_loader<ScalesB>(x.scales.b, place, columns);
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    const auto free = scaled.release();
    const Walk& walk = outputs.grouped.walk;
    Ring ring;
    Acc sums[Loop::kBlocks][Loop::kAccumulators];
#pragma unroll 1
    for (int i = blockIdx.x; i < walk.tiles; i += gridDim.x) {
      const GroupItem item = walk.find(i);
      scaled.multiply(sums, ring, free, outputs.grouped.steps_of(item), [](u32, int) {
        if constexpr (kGathers) copy_engine_fence();  // the threads' copies
      });
      finish(sums, item);
    }
    if (!C::kDirectStore && scaled.loop.thread == 0) stores_wait_all();
  }

  __device__ __forceinline__ void finish(Acc (&sums)[Loop::kBlocks][Loop::kAccumulators],
                                         const GroupItem& item) const {
    if constexpr (C::kQuant == NormQuant::none) {
      outputs.finish(sums, item);
    } else if constexpr (kGated) {
      Acc results[Outputs::kBlocks][Outputs::kColumns / 2];
      outputs.pair_up(sums, results);
      quantise(results, item);
      outputs.store(results, item);
    } else {
      const float alpha = outputs.gemm().alpha;
#pragma unroll
      for (int i = 0; i < Loop::kBlocks * Loop::kAccumulators; ++i) {
        sums[i / Loop::kAccumulators][i % Loop::kAccumulators] *= alpha;
      }
      quantise(sums, item);
      outputs.store(sums, item);
    }
  }

  // All consumers call this.
  template <int kBlocks, int kEach>
  __device__ __forceinline__ void quantise(Acc (&results)[kBlocks][kEach],
                                           const GroupItem& item) const {
    static_assert(C::kSwapAb && Loop::Plain::kConsumers * kBlocks * kWgmmaRows == kQuantBlock,
                  "a tile has one block of columns of out");
    static_assert(C::kNumSteps == 0, "scales follow the sums");
    using Tile = QuantisedTile<typename C::Out, kBlocks, C::kTileN, Loop::Plain::kConsumers>;
    static_assert(Tile::kBytes <= Loop::Plain::kConsumers * Groups::kAreaBytes, "areas of stores");
    const auto& loop = scaled.loop;
    const Tile tile = {outputs.grouped.shared + Groups::kOffsetStore, Groups::kTailBarrier,
                       loop.warpgroup * kGroupThreads + loop.thread};
    const i64 block = (kGated ? item.column / 2 : item.column) / kQuantBlock;
    tile.quantise(results, [&](int row, float scale) {
      const i64 at = item.row + row;
      const i64 named = at < item.part.size ? outputs.row_of_out(item.part, at) : -1;
      if (named < 0) return;
      x.out_scales[item.part.group * x.matrix_of_scales + item.part.begin * x.step_of_scales +
                   named * x.row_of_scales + block * x.block_of_scales] = scale;
    });
  }
};

}  // namespace tessera::device
