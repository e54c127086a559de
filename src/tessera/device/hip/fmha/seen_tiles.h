// Which keys the rows of a wave see, and which tiles of keys its workgroup goes through.
#pragma once

#include "tessera/device/hip/fmha/tile_place.h"

namespace tessera::device {

template <class C>
struct SeenTiles {
  static constexpr int kOwnKeys = C::kKeys / C::kTeams;  // of a tile, that a wave multiplies
  static constexpr int kWaveRows = C::kBlocks * 32;
  static constexpr int kTileRows = kWaveRows * (C::kWaves / C::kTeams);

  RowKeys rows[C::kBlocks];   // that the lane's rows see besides the first ones
  RowKeys some, all;          // keys that a row of the wave sees, that all of them see
  int sink;                   // the first keys, that all rows see up to their end
  int sink_end, behind_sink;  // what lies between is left out
  int begin_key, end_key;     // of tiles
  int end_of_reads;           // of keys

  // `first_row` is the wave's.
  __device__ __forceinline__ void find(const MfmaFmhaArguments& arguments,
                                       const TilePlace<C>& place, int first_row, int lane) {
    const FmhaArguments& g = arguments.fmha;
#pragma unroll
    for (int m = 0; m < C::kBlocks; ++m) {
      rows[m] = place.keys_at(g, first_row + m * 32 + lane % 32);
    }
    const RowKeys top = place.keys_at(g, first_row);
    const RowKeys bottom = place.keys_at(g, first_row + kWaveRows - 1);
    some = {top.begin, bottom.end};
    all = {bottom.begin, top.end};
    const SplitBlocks blocks = place.blocks(g, kTileRows);
    int first = 0, last = blocks.count;
    if constexpr (C::kSplit) {
      if (first_row >= place.rows(g)) some = {0, 0};
      const u32 parts = static_cast<u32>(arguments.parts);
      const u32 part = __builtin_amdgcn_workgroup_id_x() % parts;
      const SplitPart own = split_part(blocks.count, 1, static_cast<int>(parts),
                                       static_cast<int>(part), g.num_splits);
      first = own.first, last = own.last;
    }
    const int existing = static_cast<int>(place.sequence.keys);
    sink = static_cast<int>(g.sink < existing ? g.sink : existing);
    sink_end = blocks.sink * C::kKeys;
    behind_sink = blocks.begin * C::kKeys;
    begin_key = blocks.block(first) * C::kKeys;
    end_key = first < last ? (blocks.block(last - 1) + 1) * C::kKeys : begin_key;
    end_of_reads = end_key < existing ? end_key : existing;
  }

  // The tile behind one.
  __device__ __forceinline__ int after(int key) const {
    const int next = key + C::kKeys;
    return C::kMasked && next == sink_end ? behind_sink : next;
  }

  // Whether a row of the wave sees one of the wave's keys of a tile, which begin at `own`.
  __device__ __forceinline__ bool has(int own) const {
    if constexpr (!C::kMasked && !C::kSplit) return true;
    if (C::kMasked && own < sink && own < some.end) return true;
    return own < some.end && own + kOwnKeys > some.begin;
  }
};

}  // namespace tessera::device
