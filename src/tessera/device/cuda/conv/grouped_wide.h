// Grouped convolutions with many channels in a group, forward and by x, by wgmma. The image lies in
// planes of 8 channels, [chunk][place][16 bytes]: 8 neighbouring places are a core matrix, so that
// a tap is another start address. A block of 64 rows are 64 places of the raster of a tile, of
// which those behind the end of a line are not stored.
//
// A block keeps its filters and walks over tiles. One warpgroup brings tiles of the image into a
// ring; each of the others multiplies and stores every so manieth tile by itself, so that the
// stores of one hide behind the products of another.
#pragma once

#include "tessera/device/cuda/conv/grouped_store.h"
#include "tessera/device/cuda/tma.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

template <class C>
class GroupedWide {
  using Tile = GroupedTile<C>;
  using Filters = GroupedFilters<C>;
  using Image = typename Tile::Image;
  static constexpr bool kData = Tile::kData;
  static constexpr int kChannels = Tile::kChannels;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kGroup = 128;                  // threads of a warpgroup
  static constexpr int kConsumers = C::kWaveM;        // warpgroups that multiply
  static constexpr int kBlocks = C::kWarpTileM / 64;  // of 64 places, of a tile
  static constexpr int kEights = kColumns / 8;
  static constexpr int kSteps = (kChannels + 15) / 16;  // of the depth
  static constexpr bool kOdd = Tile::kChunks % 2 != 0;  // the last step has one chunk
  static constexpr int kRing = C::kStages;              // tiles of the image
  // Four warpgroups have 128 registers a thread; the one that copies can do with fewer.
  static constexpr int kCopyRegisters = C::kNdim == 3 ? 80 : 56;
  static constexpr int kMultiplyRegisters = C::kNdim == 3 ? 144 : 152;
  static_assert(Tile::kProducts == 1 && C::kWarpTileN == kColumns, "a warpgroup has all columns");
  static_assert(C::kThreads == (kConsumers + 1) * kGroup, "one warpgroup copies");
  // A barrier tells its phase from the one before it alone. A warpgroup that has seen its last tile
  // knows that all tiles before have come, and so that the phase before the next one's has passed.
  static_assert(kConsumers <= kRing, "a tile's place holds none that a warpgroup may not know of");

  // The filters: planes of 8 columns or channels that lie side by side in memory. The planes' lines
  // are filled up to whole steps of the depth.
  static constexpr int kLines = kData ? kSteps * 16 : kColumns;
  static constexpr int kPlane = kLines * 16;
  static constexpr int kPlanes = kData ? kEights : kSteps * 2;
  static constexpr int kTapBytes = kPlanes * kPlane;
  using Instruction = Wgmma<Image, typename Tile::Filter, kColumns, WgmmaFrom::k_lines,
                            kData ? WgmmaFrom::row_lines : WgmmaFrom::k_lines>;

  const GroupedArguments& g;
  Tile tile;
  u32 ring, filters, barriers;  // in shared memory

  __device__ __forceinline__ GroupedWide(const GroupedArguments& arguments, u32 memory)
      : g(arguments),
        tile{arguments},
        ring(memory),
        filters(memory + kRing * arguments.image_bytes),
        barriers(filters + arguments.taps * kTapBytes) {}

  __device__ __forceinline__ u32 full(int stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ u32 empty(int stage) const { return barriers + (kRing + stage) * 8; }

  // A descriptor of a matrix without a swizzle: core matrices of 8 lines of 16 bytes lie `across`
  // bytes from each other in one direction and `down` in the other.
  static __device__ __forceinline__ u64 matrix(u32 address, u32 across, u32 down) {
    return u64{(address & 0x3ffff) >> 4} | u64{across >> 4} << 16 | u64{down >> 4} << 32;
  }

  // ---- the filters ----

  __device__ __forceinline__ void load_filters(const GroupedAt& at, int thread) const {
    constexpr int kThreads = kConsumers * kGroup;
    const Filters of{g, at};
    of.template load<kThreads>(filters, kTapBytes, thread,
                               [](int, int line, int chunk) { return chunk * kPlane + line * 16; });
    if constexpr (kOdd) {
      // The half of the last step that there is nothing for is multiplied as zero.
      constexpr u32 kZeros[4] = {};
      constexpr int kCount = kData ? kEights * 8 : kLines;
#pragma unroll 1
      for (int i = thread; i < g.taps * kCount; i += kThreads) {
        const int tap = i / kCount;
        const int rest = i - tap * kCount;
        const int place = kData ? rest / 8 * kPlane + (kChannels + rest % 8) * 16
                                : Tile::kChunks * kPlane + rest * 16;
        store_chunk(filters + tap * kTapBytes + place, kZeros);
      }
    }
    copies_commit();
    copies_wait<0>();
    copy_engine_fence();
    threads_sync(1, kThreads);
  }

  // ---- the warpgroup that copies ----

  __device__ __forceinline__ void produce(int walker, int walkers, int block, int thread) const {
    int stage = 0;
    u32 parity = 1;
#pragma unroll 1
    for (int index = walker; index < g.tiles; index += walkers) {
      barrier_wait(empty(stage), parity);
      const GroupedAt at = tile.find(index, block);
      tile.template load_image<true, kGroup>(at, ring + stage * g.image_bytes, thread);
      if (g.image_width >= 4) {
        copies_arrive(full(stage));
      } else {
        barrier_arrive(full(stage));
      }
      if (++stage == kRing) {
        stage = 0;
        parity ^= 1;
      }
    }
    copies_wait<0>();
  }

  // ---- the warpgroups that multiply ----

  // The pixels of a lane's rows: places of the raster of a tile.
  struct RowsOfRaster {
    const GroupedArguments& g;
    int first;  // of a block of 64
    __device__ __forceinline__ bool operator()(int block, int half, GroupedPixel& pixel) const {
      const int image = block / g.raster_blocks;
      int at = (block - image * g.raster_blocks) * 64 + first + half * 8;
      pixel.image = image;
      int line = take_quotient(at, g.by_raster[kWidth]);
      pixel.at[kWidth] = at;
      pixel.at[kDepth] = take_quotient(line, g.by_raster[kHeight]);
      pixel.at[kHeight] = line;
      return image < g.images && pixel.at[kWidth] < g.box[kWidth] &&
             pixel.at[kHeight] < g.box[kHeight] && pixel.at[kDepth] < g.box[kDepth];
    }
  };

  __device__ __forceinline__ void multiply(const GroupedClass& of, u32 image,
                                           float (&sums)[kBlocks][kColumns / 2]) const {
    u32 places[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int block = min(b, g.images * g.raster_blocks - 1);
      const int of_image = block / g.raster_blocks;
      places[b] = image + of_image * g.image_pitch + (block - of_image * g.raster_blocks) * 1024;
    }
    wgmma_fence();
#pragma unroll 1
    for (int t = 0; t < of.taps; ++t) {
      const u32 filter = filters + (of.first_tap + t) * kTapBytes;
      const int moved = g.tap[of.first_tap + t].image;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const u64 q = kData ? matrix(filter + s * 256, 128, kPlane)
                            : matrix(filter + s * 2 * kPlane, kPlane, 128);
        // A step of one chunk reads it twice, the second time against zeros.
        const u32 across = kOdd && s == kSteps - 1 ? 0 : g.plane;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          Instruction::multiply(sums[b], matrix(places[b] + moved + s * 2 * g.plane, across, 128),
                                q, (t | s) != 0);
        }
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) wgmma_done(sums[b]);
    if (of.taps > 0) return;
#pragma unroll
    for (int i = 0; i < kBlocks * kColumns / 2; ++i) sums[i % kBlocks][i / kBlocks] = 0;
  }

  __device__ __forceinline__ void consume(int walker, int walkers, int block, int group,
                                          int thread) const {
    const int lane = thread % 32;
    int turn = 0;
#pragma unroll 1
    for (int index = walker; index < g.tiles; index += walkers, ++turn) {
      if (turn % kConsumers != group) continue;
      const int stage = turn % kRing;
      const GroupedAt at = tile.find(index, block);
      barrier_wait(full(stage), turn / kRing & 1);
      copy_engine_fence();
#pragma unroll 1
      for (int i = 0; i < g.classes; ++i) {
        const GroupedClass& of = g.of_class[i];
        float sums[kBlocks][kColumns / 2];
        multiply(of, ring + stage * g.image_bytes, sums);
        if (i == g.classes - 1) barrier_arrive(empty(stage));
        const GroupedStore<C> store(g, at, of, 0, 0, kColumns, lane);
        store.template store<kBlocks, kEights, true>(
            [&](int b, int j, int e) { return sums[b][j * 4 + e]; },
            RowsOfRaster{g, thread / 32 % 4 * 16 + lane / 4});
      }
    }
  }

 public:
  static __device__ __forceinline__ void run(const GroupedArguments& arguments) {
    extern __shared__ __align__(128) char memory[];
    const GroupedWide own(arguments, shared_address(memory));
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRing) {
      barrier_init(own.full(thread), kGroup);
      barrier_init(own.empty(thread), kGroup);
    }
    __syncthreads();
    const int blocks = arguments.product_blocks * arguments.column_parts;
    const int walker = static_cast<int>(blockIdx.x) / blocks;
    const int block = static_cast<int>(blockIdx.x) - walker * blocks;
    const int group = uniform(thread / kGroup);
    if (group == kConsumers) {
      if constexpr (kConsumers == 3) registers_shrink<kCopyRegisters>();
      own.produce(walker, arguments.walkers, block, thread % kGroup);
    } else {
      if constexpr (kConsumers == 3) registers_grow<kMultiplyRegisters>();
      own.load_filters(own.tile.find(0, block), thread);
      own.consume(walker, arguments.walkers, block, group, thread % kGroup);
    }
  }
};

}  // namespace tessera::device
