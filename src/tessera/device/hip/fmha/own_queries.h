// The queries of a wave in registers, as second operands: a lane has the chunks of its query that
// the keys' chunks meet.
#pragma once

#include "tessera/device/hip/fmha/tile_place.h"

namespace tessera::device {

// kEach chunks are neighbours of each other, which meet one chunk of a key.
template <class C, int kChunks, int kEach>
struct OwnQueries {
  static constexpr int kSize = TilePlace<C>::kSize;

  static __device__ __forceinline__ int offset(int chunk, int group) {
    return chunk / kEach * (32 * kEach) + group * (16 * kEach) + chunk % kEach * 16;
  }

  // Blocks of 32 rows from `first_row` on. `sign` turns numbers of 16 bits.
  static __device__ __forceinline__ void load(const FmhaArguments& g, const TilePlace<C>& place,
                                              int first_row, int lane, u32 sign,
                                              Chunk (&to)[C::kBlocks][kChunks]) {
    if constexpr (C::kSplit) return load_rows(g, place, first_row, lane, sign, to[0]);
    const int group = lane / 32;
    const HeadRows rows = place.queries(g);
    const Chunk buffer = rows.template from<C::kBlocks * 32>(first_row);
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      const int from = (m * 32 + lane % 32) * rows.pitch;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int at = offset(i, group);
        to[m][i] = raw_buffer_load_16(buffer, at < rows.bytes ? from + at : kNowhere, 0, 0) ^ sign;
      }
    }
  }

 private:
  // The same of queries of several heads. Rows behind the last one have its queries.
  static __device__ __forceinline__ void load_rows(const FmhaArguments& g,
                                                   const TilePlace<C>& place, int first_row,
                                                   int lane, u32 sign, Chunk (&to)[kChunks]) {
    const int bytes = static_cast<int>(g.hdim) * kSize, group = lane / 32;
    const int row = place.up_to_last(g, first_row + lane % 32);
    const u64 address =
        bits<u64>(g.q) + static_cast<u64>(place.row_offset(g, g.q_stride, row) * kSize);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      Chunk own = 0;
      const int at = offset(i, group);
      if (at < bytes) own = *(Global<Chunk>)(address + static_cast<u64>(at));
      to[i] = own ^ sign;
    }
  }
};

}  // namespace tessera::device
