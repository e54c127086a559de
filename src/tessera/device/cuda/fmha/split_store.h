// The last steps of a block of attention with split keys: the teams' sums become those of the part,
// and the last part's block of a tile makes the result of all parts.
#pragma once

#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_merge.h"
#include "tessera/device/cuda/fmha/split_tile.h"
#include "tessera/device/cuda/fmha/split_work.h"

namespace tessera::device {

// The sums lie in shared memory.
template <class C>
struct SplitStore {
  static constexpr int kRows = C::kTileM, kThreads = 32 * C::kWaveM * C::kWaveN;
  static constexpr SplitSizes kSizes =
      split_sizes({kRows, C::kTileN, C::kTileK, C::kStages, C::kWaveN});

  const SplitArguments& a;
  const SplitTile<C>& tile;
  unsigned char* memory;
  int thread;

  __device__ __forceinline__ void store(i64 item, const SplitPart& part, int index) const {
    const SplitRows parts = parts_of(item);
    if (part.parts > 1) {
      store_part(parts, index);
      if (!is_last(item, part.parts)) return;
    }
    for_each_four([&](int r, int column) {
      const bool is_whole = part.parts == 1;
      tile.finish(
          r, column,
          is_whole ? of_teams(r, column) : merge_sums<SplitFar, 16>(parts, part.parts, r, column));
    });
  }

 private:
  // Calls visit(row, column) for every four sums of every row.
  template <class Visit>
  __device__ __forceinline__ void for_each_four(Visit visit) const {
    const int fours = static_cast<int>(split_row_floats(tile.g.hdim_v) / 4);
#pragma unroll 1
    for (int i = thread; i < tile.rows * fours; i += kThreads) visit(i / fours, i % fours * 4);
  }

  __device__ __forceinline__ SplitSums of_teams(int r, int column) const {
    const SplitRows all = {reinterpret_cast<const float*>(memory),
                           reinterpret_cast<const float*>(memory + kSizes.heads),
                           i64{kRows} * kSizes.sum_pitch, kSizes.sum_pitch, 2 * kRows};
    return merge_sums<SplitNear, 1>(all, C::kWaveN, r, column);
  }

  // The sums of all parts of a tile in the workspace.
  __device__ __forceinline__ SplitRows parts_of(i64 item) const {
    const i64 step = split_part_floats(kRows, tile.g.hdim_v);
    const auto* const first =
        reinterpret_cast<const float*>(static_cast<const char*>(a.workspace) + kCounterBytes) +
        item * a.parts * step;
    const i64 pitch = split_row_floats(tile.g.hdim_v);
    return {first, first + kRows * pitch, step, pitch, step};
  }

  __device__ __forceinline__ void store_part(const SplitRows& to, int part) const {
    for_each_four([&](int r, int column) {
      const SplitSums x = of_teams(r, column);
      store_global(const_cast<float*>(to.sums) + part * to.step + r * to.pitch + column, x.x);
      if (column != 0) return;
      float* const head = const_cast<float*>(to.heads) + part * to.head_step + 2 * r;
      head[0] = x.most, head[1] = x.total;
    });
  }

  // True in all threads of the last block that stored a part of the tile. It leaves the counter as
  // it was when the launch began.
  __device__ __forceinline__ bool is_last(i64 item, int parts) const {
    u32* const counter = static_cast<u32*>(a.workspace) + item;
    device_fence();
    __syncthreads();
    const bool last = thread == 0 && count_global(counter) == static_cast<u32>(parts) - 1;
    if (last) *counter = 0;
    const bool is_last_block = __syncthreads_or(last) != 0;
    device_fence();
    return is_last_block;
  }
};

}  // namespace tessera::device
