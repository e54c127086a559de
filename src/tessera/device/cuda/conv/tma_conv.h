// Convolutions on Hopper, by tma_main_loop.h: an implicit product of matrices whose image the copy
// engine unrolls (im2col.h).
//
//   forward, backward_data: P are pixels of the image, Q the filters, a step of the depth is 64
//                           channels of one tap
//   backward_weight:        P are channels of y, Q are channels of x at a tap, in slabs of 64, a
//                           step of the depth is 64 pixels
//   kSlices:                as many blocks share the depth; their sums go to the workspace, and
//                           when all of them are there, each block adds up and stores a part
//
// Elements outside of the image are zeros that are multiplied.
#pragma once

#include "tessera/device/cuda/conv/conv_sums.h"
#include "tessera/device/cuda/conv/residue_store.h"
#include "tessera/device/cuda/slice_meeting.h"
#include "tessera/device/cuda/tile_order.h"
#include "tessera/device/cuda/tma_main_loop.h"
#include "tessera/device/cuda/tma_store.h"

namespace tessera::device {

// What tma_main_loop.h and tma_store.h ask of a configuration.
template <class Config>
struct TmaConvConfig : ConvResultConfig<Config> {
  static constexpr int kClusterM = 1, kClusterN = 1, kSplits = 1;
  static constexpr bool kSwapAb = false, kDirectStore = false;
};
// Stands for a loader: conv's producer loads by itself.
template <class OperandTile>
struct ConvTile64 {
  using Tile = OperandTile;
  static constexpr u64 kHint = kEvictNormal;
};

// How a tile is stored where nothing was copied: repack_conv.h has the other way.
struct PlainResult {
  using Arguments = CudaConvArguments;
  static constexpr bool kSums = false, kPixels = false, kCells = false;
};

template <class Config, class Result = PlainResult>
struct TmaConv {
  using C = TmaConvConfig<Config>;
  using Arguments = typename Result::Arguments;
  static constexpr bool kForward = C::kDirection == ConvDirection::forward;
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  static constexpr int kDims = C::kNdim;
  static_assert(C::kTileK == 64, "a line of 128 bytes is 64 elements of 16 bits");
  static_assert(C::kSlices <= SliceMeeting::kMostSlices, "counters have 8 bits for slices");
  static_assert(!kWeight || C::kTileN % 64 == 0, "columns are slabs of 64 channels");

  // ---- sizes ----

  using Acc = typename C::Acc;
  using Element = typename If<kData, typename C::Y, typename C::X>::Type;
  using TileP = OperandTile<Element, C::kTileM, C::kTileK, !kWeight>;
  using TileQ = OperandTile<Element, C::kTileN, C::kTileK, kForward>;
  using Loop = TmaMainLoop<C, ConvTile64<TileP>, ConvTile64<TileQ>>;
  using Ring = typename Loop::Ring;
  static constexpr int kConsumers = Loop::kConsumers;
  static constexpr int kThreads = Loop::kThreads;
  static constexpr int kBlocks = Loop::kBlocks;
  static constexpr int kAccumulators = Loop::kAccumulators;
  static constexpr int kSlabsN = TileQ::kSlabs;  // rows contiguous: of 64 columns
  static constexpr TmaShape kShape = {C::kTileM, C::kTileN, kConsumers, 1, C::kPingpong};
  static constexpr int kMatrices = copied_matrices<C>(kBlocks * kAccumulators);
  static constexpr bool kKeepsSums = C::kSlices > 1 || Result::kSums;
  static constexpr bool kMeets = C::kSlices > 1 && !Result::kSums;
  static constexpr bool kAsksForD = kMatrices > 0 && !kKeepsSums && !Result::kPixels;
  static constexpr TmaSizes kSizes = tma_sizes(kShape, C::kStages, Loop::kStageBytes, kMatrices);
  static constexpr int kPass = kSizes.area.pass;
  static constexpr int kAreaBytes = kSizes.area.bytes;
  static constexpr int kOffsetStore = C::kStages * Loop::kStageBytes;
  static constexpr int kOffsetBarriers = kOffsetStore + kConsumers * kAreaBytes;
  static_assert(kSizes.shared_bytes == C::kSharedBytes,
                "the host counts other bytes of shared memory");

  using Sums = ConvSums<C>;
  using Pixel = ClassPixel<kDims>;
  using Column = PixelColumn<kDims>;

  // ---- the place of this thread and block ----

  // A tile, or a slice of one, which has every kStride-th step of a range. Slices of
  // backward_weight take turns, so that all blocks read one part of the images at a time.
  static constexpr int kStride = kWeight ? C::kSlices : 1;
  struct Unit {
    int class_index;
    TileOrder::Tile tile;
    int index;  // of the tile, over all classes
    int slice;
    StepRange range;
    __device__ __forceinline__ int count() const {
      return kStride == 1 ? range.last - range.first
                          : (range.last - range.first + kStride - 1) / kStride;
    }
  };

  const Arguments& g;
  u32 shared;  // base address
  Loop loop;

  __device__ __forceinline__ explicit TmaConv(const Arguments& arguments) : g(arguments) {
    extern __shared__ __align__(1024) unsigned char memory[];
    shared = shared_address(memory);
    loop = Loop::at(shared, shared + kOffsetBarriers, 0);
  }

  // The barriers behind the ring's.
  __device__ __forceinline__ u32 d_here() const {
    return loop.full(2 * C::kStages + 1 + loop.warpgroup * kMatrixSlots);
  }
  __device__ __forceinline__ int units() const { return g.tiles * C::kSlices; }

  // The slices of a tile have consecutive numbers.
  __device__ __forceinline__ Unit unit(int i) const {
    Unit u;
    int index = i / C::kSlices;
    u.index = index;
    u.slice = i % C::kSlices;
    u.class_index = 0;
    if constexpr (kData) {
      while (u.class_index + 1 < g.num_classes &&
             index >= g.classes[u.class_index + 1].first_tile) {
        ++u.class_index;
      }
      index -= g.classes[u.class_index].first_tile;
    }
    const ConvClass& of = g.classes[u.class_index];
    const TileOrder order = {of.tiles_p, g.tiles_q, static_cast<int>(g.result.batch),
                             g.raster_group};
    u.tile = order.tile(index);
    u.range = {kWeight ? u.slice : 0, of.steps};
    if constexpr (C::kSlices > 1 && !kWeight) {
      u.range = {static_cast<int>(i64{of.steps} * u.slice / C::kSlices),
                 static_cast<int>(i64{of.steps} * (u.slice + 1) / C::kSlices)};
    }
    return u;
  }
  __device__ __forceinline__ u32 steps_of(int i) const { return unit(i).count(); }

  // ---- roles ----

  static __device__ __forceinline__ void run(const Arguments& arguments) {
    TmaConv block(arguments);
    if (threadIdx.x == 0) {
      tma_prefetch(&arguments.other);
      block.loop.init_ring();
      for (int i = 2 * C::kStages; i < kSizes.barriers; ++i) barrier_init(block.loop.full(i), 1);
      barrier_init_fence();
    }
    __syncthreads();
    block.loop.run_roles(block);
  }

  // ---- the producer: one thread fills the ring ----

  __device__ __forceinline__ void produce() const {
    if (!loop.is_filler()) return;
    Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < units(); i += gridDim.x) {
      const Unit u = unit(i);
      if constexpr (kWeight) {
        fill_weight(ring, u);
      } else {
        fill_pixels(ring, u);
      }
    }
  }

  // The next stage to fill: its barrier, and where P and Q go.
  struct Stage {
    u32 barrier, p, q;
  };
  __device__ __forceinline__ Stage next_stage(Ring& ring) const {
    barrier_wait(loop.empty(ring.stage), ring.phase ^ 1);
    const u32 barrier = loop.full(ring.stage);
    barrier_expect(barrier, Loop::kStageBytes);
    const Stage stage = {barrier, shared + ring.stage * TileP::kBytes,
                         shared + Loop::kOffsetQ + ring.stage * TileQ::kBytes};
    ring.next();
    return stage;
  }
  __device__ __forceinline__ void load_other(u32 to, u32 barrier, int x, int y, int z) const {
    tma_load<false>({to, barrier, 0, kEvictNormal}, TmaBox<3>{&g.other, {x, y, z}});
  }

  // The place in the image that the first tap of a pixel has.
  __device__ __forceinline__ Column column_at(const ConvClass& of, int row) const {
    const Pixel pixel = Pixel::of(of, row);
    Column column;
    column.map = &of.image;
    column.image = pixel.image;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      column.at[dim] = pixel.at[dim] * g.pixel_step[dim] + of.start[dim];
    }
    return column;
  }

  __device__ __forceinline__ void fill_pixels(Ring& ring, const Unit& u) const {
    if (u.range.first >= u.range.last) return;
    const ConvClass& of = g.classes[u.class_index];
    Column column = column_at(of, u.tile.p * C::kTileM);
    const int group = u.tile.batch;
    int tap[kDims];
    int rest = u.range.first / g.slabs;
    int slab = u.range.first - rest * g.slabs;
#pragma unroll
    for (int dim = 0; dim < kDims; ++dim) {
      const int next = rest / of.taps[dim];
      tap[dim] = rest - next * of.taps[dim];
      rest = next;
    }
#pragma unroll 1
    for (int step = u.range.first; step < u.range.last; ++step) {
      const Stage stage = next_stage(ring);
      int filter = of.filter;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) {
        column.moved[dim] = tap[dim] * g.tap_step[dim];
        filter += tap[dim] * g.filter_step[dim];
      }
      column.channel = group * g.image_channels + slab * C::kTileK;
      load_pixels(stage.p, stage.barrier, column);
      if constexpr (kForward) {
        load_other(stage.q, stage.barrier, slab * C::kTileK, filter,
                   group * g.other_channels + u.tile.q * C::kTileN);
      } else {
#pragma unroll
        for (int j = 0; j < kSlabsN; ++j) {
          load_other(stage.q + j * TileQ::kSlabBytes, stage.barrier, u.tile.q * C::kTileN + j * 64,
                     filter, group * g.other_channels + slab * C::kTileK);
        }
      }
      if (++slab < g.slabs) continue;
      slab = 0;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) {
        if (++tap[dim] < of.taps[dim]) break;
        tap[dim] = 0;
      }
    }
  }

  // Columns count taps and, for each, slabs of 64 channels. A slab that does not exist is read
  // behind all channels, where there are zeros.
  __device__ __forceinline__ void fill_weight(Ring& ring, const Unit& u) const {
    constexpr int kNowhere = 1 << 20;
    const ConvClass& of = g.classes[0];
    const bool by_tap = g.batch_is_tap != 0;
    const int group = by_tap ? 0 : u.tile.batch;
    int channel[kSlabsN];
    int moved[kSlabsN][kDims];
#pragma unroll
    for (int j = 0; j < kSlabsN; ++j) {
      const int slab = u.tile.q * kSlabsN + j;
      int tap = by_tap ? u.tile.batch : slab / g.slabs;
      const int slab_of_tap = by_tap ? slab : slab - tap * g.slabs;
      const bool exists = slab * 64 < g.result.columns;
      channel[j] = exists ? group * g.image_channels + slab_of_tap * 64 : kNowhere;
#pragma unroll
      for (int dim = 0; dim < kDims; ++dim) {
        const int rest = tap / of.taps[dim];
        moved[j][dim] = exists ? (tap - rest * of.taps[dim]) * g.tap_step[dim] : 0;
        tap = rest;
      }
    }
#pragma unroll 1
    for (int step = u.range.first; step < u.range.last; step += kStride) {
      Column column = column_at(of, step * C::kTileK);
      const Stage stage = next_stage(ring);
#pragma unroll
      for (int j = 0; j < C::kTileM / 64; ++j) {
        load_other(stage.p + j * TileP::kSlabBytes, stage.barrier, u.tile.p * C::kTileM + j * 64,
                   step * C::kTileK, group);
      }
#pragma unroll
      for (int j = 0; j < kSlabsN; ++j) {
        column.channel = channel[j];
#pragma unroll
        for (int dim = 0; dim < kDims; ++dim) column.moved[dim] = moved[j][dim];
        load_pixels(stage.q + j * TileQ::kSlabBytes, stage.barrier, column);
      }
    }
  }

  // ---- the consumers ----

  __device__ __forceinline__ void consume() const {
    const auto free = loop.release();
    Ring ring;
    const int stride = static_cast<int>(gridDim.x);
    int i = blockIdx.x;
    if constexpr (C::kPingpong) {
      if (loop.warpgroup == 1) {
        if (i < units()) ring.skip(steps_of(i));
        i += stride;
        loop.pass_turn();
      }
    }
    u32 phases = 0;  // parities of the barriers at d_here()
    Acc sums[kBlocks][kAccumulators] = {};
#pragma unroll 1
    for (; i < units(); i += (C::kPingpong ? 2 : 1) * stride) {
      const Unit u = unit(i);
      if constexpr (kAsksForD) store_of(phases).ask(store_place(u));
      if constexpr (C::kPingpong) loop.wait_turn();
      const int count = u.count();
      if constexpr (kMeets) {
        clear(sums);  // so that they take no registers while slices are added up
      } else if constexpr (kData || C::kSlices > 1) {
        if (count == 0) clear(sums);
      }
      loop.multiply(sums, ring, free, count);
      if constexpr (C::kPingpong) {
        if (i + stride < units()) ring.skip(steps_of(i + stride));
      }
      finish(sums, u, phases);
    }
    if (loop.thread % 32 == 0) stores_wait_all();
  }

  static __device__ __forceinline__ void clear(Acc (&sums)[kBlocks][kAccumulators]) {
#pragma unroll
    for (int i = 0; i < kBlocks * kAccumulators; ++i) {
      sums[i / kAccumulators][i % kAccumulators] = 0;
    }
  }

  __device__ __forceinline__ StorePlace store_place(const Unit& u) const {
    const int p = u.tile.p * C::kTileM + (C::kPingpong ? 0 : loop.warpgroup * kBlocks * kWgmmaRows);
    return {p, u.tile.q * C::kTileN, u.tile.batch};
  }
  __device__ __forceinline__ TileStore<C, ConvMatrix, kBlocks, C::kTileN, kPass, kAreaBytes>
  store_of(u32& phases) const {
    const u32 area = shared + kOffsetStore + loop.warpgroup * kAreaBytes;
    return {g.result,           &g.classes[0].out, g.d_maps, area,
            1 + loop.warpgroup, loop.thread,       d_here(), phases};
  }

  // Each consumer meets the consumers of the other slices. Blocks that take a tile's slices in
  // different rounds do not wait for each other.
  __device__ __forceinline__ void add_slices(const Unit& u, const StorePlace& place) const {
    const int first = u.index * C::kSlices;
    const int blocks = static_cast<int>(gridDim.x);
    const SliceMeeting meeting = {
        static_cast<u32*>(g.workspace) + u.index * kConsumers + loop.warpgroup,
        u.slice,
        C::kSlices,
        1 + loop.warpgroup,
        loop.thread,
        first / blocks == (first + C::kSlices - 1) / blocks};
    const SliceShares shares = meeting.shares();
#pragma unroll 1
    for (int share = shares.first; share < shares.last; ++share) {
      Sums::template finish_share<kBlocks>(g, place, share, loop.thread);
    }
    meeting.end(shares);
  }

  __device__ __forceinline__ void finish(const Acc (&sums)[kBlocks][kAccumulators], const Unit& u,
                                         u32& phases) const {
    const StorePlace place = store_place(u);
    if constexpr (kKeepsSums) {
      Sums::put(g, sums, place, u.slice, loop.thread);
      if constexpr (kMeets) add_slices(u, place);
    } else if constexpr (kData || Result::kPixels || Result::kCells) {
      if constexpr (Result::kCells) {
        if (!has_result_cells(g)) return store_of(phases).store(sums, place);
      }
      const int warp = uniform(loop.thread / 32);
      const u32 area =
          shared + kOffsetStore + loop.warpgroup * kAreaBytes + warp * (kAreaBytes / 4);
      const ResidueStore<C, kBlocks, kPass, kAreaBytes> store = {
          g,    g.classes[u.class_index], u.class_index, place.batch, place.row, place.column, area,
          warp, loop.thread % 32};
      if constexpr (Result::kPixels || Result::kCells) {
        Result::store_pixels(store, g, sums);
      } else {
        store.store(sums);
      }
    } else {
      store_of(phases).store(sums, place);
    }
  }
};

}  // namespace tessera::device
