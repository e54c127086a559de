// Products of a tile in LDS and 32 tokens that a wave keeps in registers, as second operands: with
// the tile's rows, and with its columns.
#pragma once

#include "tessera/device/hip/lds_tile.h"
#include "tessera/device/hip/mfma.h"

namespace tessera::device {

template <class In>
struct TileProducts {
  using Op = Mfma<In, In, 32>;
  using Sum = typename Op::Sum;

  // Chunks of so many steps are on their way from LDS while a step is multiplied.
  static constexpr int kAhead = 1, kRing = kAhead + 1;
  // Vector, scalar and memory instructions may be moved across; reads of LDS and MFMAs stay.
  static __device__ __forceinline__ void keep_order() {
    __builtin_amdgcn_sched_barrier(0x2 | 0x4 | 0x10);
  }

  // read(step, ring) brings the chunks of a step, multiply(step, part, ring) has one MFMA for each.
  template <int kSteps, int kTogether, class Read, class Multiply>
  static __device__ __forceinline__ void walk(const Read& read, const Multiply& multiply) {
    Chunk ring[kRing][kTogether];
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step, ring[step % kRing]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + kAhead < kSteps) read(step + kAhead, ring[(step + kAhead) % kRing]);
      keep_order();
#pragma unroll
      for (int part = 0; part < Op::kParts; ++part) multiply(step, part, ring[step % kRing]);
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }

  // to[b] = rows b * 32 and on of the tile times the wave's tokens. A step is 16 elements.
  template <class Tile, int kBlocks, int kSteps>
  static __device__ __forceinline__ void multiply_rows(const Shared* tile, int lane,
                                                       const Chunk (&own)[kSteps],
                                                       Sum (&to)[kBlocks]) {
    const auto read = [&](int step, Chunk(&ring)[kBlocks]) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        ring[b] = load_shared<Chunk>(tile + Tile::offset(lane % 32, lane / 32, b * 32, step * 2));
      }
    };
    walk<kSteps, kBlocks>(read, [&](int step, int part, const Chunk(&ring)[kBlocks]) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        to[b] = Op::step(part, ring[b], own[step], step + part == 0 ? Sum(0.0F) : to[b]);
      }
    });
  }

  // sums[d] += columns d * 32 and on of the tile times factors of its rows, 16 rows a chunk. A step
  // is 16 rows and kTogether blocks of columns.
  template <class Columns, int kBlocks, int kPairs>
  static __device__ __forceinline__ void add_columns(const Shared* tile, int lane,
                                                     const Chunk (&factors)[kPairs],
                                                     Sum (&sums)[kBlocks]) {
    constexpr int kTogether = kBlocks % 2 == 0 ? 2 : 1;
    const auto read = [&](int step, Chunk(&ring)[kTogether]) {
      const int first = step * kTogether;
#pragma unroll
      for (int d = 0; d < kTogether; ++d) {
        ring[d] = Columns::read(tile, lane, first % kBlocks + d, first / kBlocks);
      }
    };
    walk<kPairs * kBlocks / kTogether, kTogether>(
        read, [&](int step, int part, const Chunk(&ring)[kTogether]) {
          const int first = step * kTogether % kBlocks, pair = step * kTogether / kBlocks;
#pragma unroll
          for (int d = 0; d < kTogether; ++d) {
            sums[first + d] = Op::step(part, ring[d], factors[pair], sums[first + d]);
          }
        });
  }
};

}  // namespace tessera::device
