// Grouped convolutions with many channels in a group, by w, by wgmma. Rows are 64 channels of x
// that a tap moves, columns are channels of y, and the depth are the places of the raster of a
// tile. Both tiles lie in planes of 8 channels, [chunk][place][16 bytes], so that a tap is another
// start address. Places of the raster that have no result are zeros of y.
//
// One warpgroup brings tiles into a ring. Each of the others has some of the rows, and keeps their
// sums over all tiles of the block.
#pragma once

#include "tessera/device/cuda/conv/grouped_parts.h"
#include "tessera/device/cuda/tma.h"
#include "tessera/device/cuda/wgmma.h"

namespace tessera::device {

template <class C>
class GroupedWeightWide {
  using Tile = GroupedTile<C>;
  using Image = typename Tile::Image;
  using Gradient = typename Tile::Gradient;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kGroup = 128;                  // threads of a warpgroup
  static constexpr int kConsumers = C::kWaveM;        // warpgroups that multiply
  static constexpr int kBlocks = C::kWarpTileM / 64;  // of 64 rows, of a warpgroup
  static constexpr int kEights = kColumns / 8;
  static constexpr int kParts = (Tile::kChannels + 63) / 64;  // blocks of rows of a tap
  static constexpr int kRing = C::kStages;
  static constexpr int kCopyRegisters = C::kNdim == 3 ? 80 : 56;
  static constexpr int kMultiplyRegisters = C::kNdim == 3 ? 144 : 152;
  static constexpr int kVectors = kBlocks * 4 * kEights;  // of a warpgroup
  static_assert(Tile::kProducts == 1 && C::kWarpTileN == kColumns, "a warpgroup has all columns");
  static_assert(C::kThreads == (kConsumers + 1) * kGroup, "one warpgroup copies");
  using Instruction = Wgmma<Image, Gradient, kColumns, WgmmaFrom::row_lines, WgmmaFrom::row_lines>;
  using Parts = GroupedParts<C, kConsumers * kGroup, kConsumers * kVectors>;

  const GroupedArguments& g;
  Tile tile;
  u32 ring, barriers;  // in shared memory

  __device__ __forceinline__ GroupedWeightWide(const GroupedArguments& arguments, u32 memory)
      : g(arguments),
        tile{arguments},
        ring(memory),
        barriers(memory + kRing * arguments.stage_bytes) {}

  __device__ __forceinline__ u32 full(int stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ u32 empty(int stage) const { return barriers + (kRing + stage) * 8; }

  // A matrix whose lines lie along its rows: core matrices lie 128 bytes from each other along the
  // depth and a plane along the rows.
  static __device__ __forceinline__ u64 matrix(u32 address, u32 plane) {
    return u64{(address & 0x3ffff) >> 4} | u64{128 >> 4} << 16 | u64{plane >> 4} << 32;
  }

  // ---- the warpgroup that copies ----

  // Results that the tile does not have are zeros, though the image may have them.
  __device__ __forceinline__ void load_gradient(const GroupedAt& from, u32 to, int thread) const {
    const auto* const data = static_cast<const Gradient*>(g.conv.y);
    const int begin = from.part * kColumns;
    int first[kSpatialDims], size[kSpatialDims];
#pragma unroll
    for (int dim = 0; dim < kSpatialDims; ++dim) {
      first[dim] = from.at[dim];
      size[dim] = min(static_cast<int>(g.conv.out_size[dim]), from.at[dim] + g.box[dim]);
    }
    const auto channels = [&](int chunk, i64& offset) {
      const int column = begin + chunk * 8;
      offset = column;
      return max(tile.channels_left(from.product, column, g.columns, g.all_columns), 0);
    };
    const auto at_column = [&](int x, int chunk) { return x * 16 + chunk * g.other_plane; };
    const auto at_line = [&](int of, int z, int y) {
      return of * g.other_image + z * g.other_slice + y * g.other_line;
    };
    const typename Tile::template GroupedSource<Gradient> source = {
        data,
        data + i64{from.product} * g.columns,
        g.conv.y_stride,
        g.other_box,
        g.images,
        from.image,
        g.other_width};
    if (g.other_width == 16) {
      tile.template copy_box<kEights, kGroup, true>(source, g.other_lines, first, size, to, thread,
                                                    channels, at_column, at_line);
    } else {
      tile.template copy_box<kEights, kGroup, false>(source, g.other_lines, first, size, to, thread,
                                                     channels, at_column, at_line);
    }
  }

  __device__ __forceinline__ void produce(int first, int last, int block, int thread) const {
    int stage = 0;
    u32 parity = 1;
#pragma unroll 1
    for (int index = first; index < last; ++index) {
      barrier_wait(empty(stage), parity);
      const GroupedAt at = tile.find(index, block);
      const u32 to = ring + stage * g.stage_bytes;
      tile.template load_image<true, kGroup>(at, to, thread);
      load_gradient(at, to + g.image_bytes, thread);
      if (g.image_width >= 4 && g.other_width >= 4) {
        copies_arrive(full(stage));
      } else {
        // Some chunks were stored by the threads themselves, others may be on their way.
        copies_commit();
        copies_wait<0>();
        barrier_arrive(full(stage));
      }
      if (++stage == kRing) {
        stage = 0;
        parity ^= 1;
      }
    }
    copies_commit();
    copies_wait<0>();
  }

  // ---- the warpgroups that multiply ----

  struct Own {
    int rows;  // the first block of rows of the warpgroup
    int thread;
  };

  __device__ __forceinline__ void consume(int first, int last, const Own& own,
                                          float (&sums)[kBlocks][kColumns / 2]) const {
    u32 rows[kBlocks];  // where they begin in a tile
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int block = min(own.rows + b, g.taps * kParts - 1);
      const int tap = block / kParts;
      rows[b] = g.tap[tap].image + (block - tap * kParts) * 8 * g.plane;
    }
    int stage = 0;
    u32 parity = 0;
#pragma unroll 1
    for (int index = first; index < last; ++index) {
      barrier_wait(full(stage), parity);
      copy_engine_fence();
      const u32 image = ring + stage * g.stage_bytes;
      const u32 gradient = image + g.image_bytes;
      wgmma_fence();
#pragma unroll 1
      for (int of = 0; of < g.images; ++of) {
#pragma unroll 1
        for (int s = 0; s < g.raster_blocks; ++s) {
          const u64 q = matrix(gradient + of * g.other_image + s * 256, g.other_plane);
          const u32 moved = image + of * g.image_pitch + s * 256;
#pragma unroll
          for (int b = 0; b < kBlocks; ++b) {
            Instruction::multiply(sums[b], matrix(moved + rows[b], g.plane), q, 1);
          }
        }
      }
      wgmma_commit();
      wgmma_wait<0>();
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) wgmma_done(sums[b]);
      barrier_arrive(empty(stage));
      if (++stage == kRing) {
        stage = 0;
        parity ^= 1;
      }
    }
  }

  // Finishes the lane's four sums of a vector: of two rows, two neighbouring columns each.
  __device__ __forceinline__ void finish(const GroupedAt& at, int first_rows, int lane, int vector,
                                         const float (&sums)[4]) const {
    const int group = vector / kVectors;
    const int of_group = vector - group * kVectors;
    const int b = of_group / (4 * kEights);
    const int warp = of_group / kEights % 4;
    const int block = first_rows + group * kBlocks + b;
    const int tap = block / kParts;
    const int column = at.part * kColumns + of_group % kEights * 8 + (lane & 3) * 2;
    if (tap >= g.taps) return;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int row = (block - tap * kParts) * 64 + warp * 16 + half * 8 + lane / 4;
      if (row >= g.depth) continue;
      const float pair[2] = {half == 0 ? sums[0] : sums[2], half == 0 ? sums[1] : sums[3]};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (column + e < g.columns) Parts::finish(g, at.product, tap, row, column + e, pair[e]);
      }
    }
  }

  // Places that no copy writes are multiplied by zeros: they must be numbers.
  __device__ __forceinline__ void clear_ring(int thread) const {
    constexpr u32 kZeros[4] = {};
#pragma unroll 4
    for (int i = thread * 16; i < kRing * g.stage_bytes; i += C::kThreads * 16) {
      store_chunk(ring + i, kZeros);
    }
    copy_engine_fence();
  }

 public:
  static __device__ __forceinline__ void run(const GroupedArguments& arguments) {
    extern __shared__ __align__(128) char memory[];
    const GroupedWeightWide own(arguments, shared_address(memory));
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kRing) {
      barrier_init(own.full(thread), kGroup);
      barrier_init(own.empty(thread), kConsumers * kGroup);
    }
    own.clear_ring(thread);
    __syncthreads();
    int own_block = static_cast<int>(blockIdx.x);
    const int part = take_quotient(own_block, arguments.by_blocks);
    const int block = own_block / arguments.unit_blocks;
    const int first = min(part * arguments.tiles_of_part, arguments.tiles);
    const int last = min(first + arguments.tiles_of_part, arguments.tiles);
    const int group = uniform(thread / kGroup);
    if (group == kConsumers) {
      if constexpr (kConsumers == 3) registers_shrink<kCopyRegisters>();
      own.produce(first, last, block, thread % kGroup);
      return;
    }
    if constexpr (kConsumers == 3) registers_grow<kMultiplyRegisters>();
    const int first_rows = (own_block - block * arguments.unit_blocks) * kConsumers * kBlocks;
    float sums[kBlocks][kColumns / 2] = {};
    own.consume(first, last, {first_rows + group * kBlocks, thread}, sums);
    const GroupedAt at = own.tile.find(0, block);
    const int lane = thread % 32;
    const int vector = group * kVectors + thread / 32 % 4 * kEights;
    const auto finish = [&](int of, const float(&all)[4]) {
      own.finish(at, first_rows, lane, of, all);
    };
    const Parts parts{arguments, own_block, part, thread};
#pragma unroll
    for (int i = 0; i < kBlocks * kEights; ++i) {
      const int b = i / kEights;
      const int j = i % kEights;
      const float four[4] = {sums[b][j * 4], sums[b][j * 4 + 1], sums[b][j * 4 + 2],
                             sums[b][j * 4 + 3]};
      parts.leave(vector + b * 4 * kEights + j, four);
    }
    parts.add(finish);
  }
};

}  // namespace tessera::device
