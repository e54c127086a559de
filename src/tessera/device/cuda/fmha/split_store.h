// The last steps of a block of attention with split keys: the teams' sums become the part's,
// and the blocks of a tile make the result of all parts.
#pragma once

#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_merge.h"
#include "tessera/device/cuda/fmha/split_tile.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/device/cuda/slice_meeting.h"

namespace tessera::device {

// The sums lie in shared memory. Area has kTeams and kSumPitch, kHeads: where they lie, as
// SplitSizes has it; kThreads of the block's first one on take part, and meet at the
// named barrier kBarrier.
template <class C, class Area>
struct SplitStore {
  static constexpr int kRows = C::kTileM, kThreads = Area::kThreads;
  static constexpr int kAhead = 16;     // parts that a thread loads at a time
  static constexpr int kMostLanes = 8;  // threads that share the parts of four sums
  static_assert(kThreads % 32 == 0, "whole warps");
  using PartMeeting = Meeting<kThreads, kSplitFieldBits>;

  const SplitArguments& a;
  const SplitTile<C>& tile;
  unsigned char* memory;
  int thread;

  // The parts of a tile meet, and each of them merges a share of the sums; or the last one to come
  // merges all of them, where the blocks do not run all at once.
  __device__ __forceinline__ void store(i64 item, const SplitPart& part, int index) const {
    if (part.parts == 1) {
      for_each_four([&](int r, int column) { tile.finish(r, column, of_teams(r, column)); });
      return;
    }
    const SplitRows parts = parts_of(item);
    store_part(parts, index);
    const PartMeeting meeting = {static_cast<u32*>(a.workspace) + item,
                                 index,
                                 part.parts,
                                 Area::kBarrier,
                                 thread,
                                 a.waits != 0};
    const SliceShares shares = meeting.shares();
    merge_parts(parts, part.parts, shares);
    meeting.end(shares);
  }

 private:
  __device__ __forceinline__ int fours() const {  // of a row
    return static_cast<int>(split_row_floats(tile.g.hdim_v) / 4);
  }

  // Calls visit(row, column) for every four sums of every row.
  template <class Visit>
  __device__ __forceinline__ void for_each_four(Visit visit) const {
#pragma unroll 1
    for (int i = thread; i < tile.rows * fours(); i += kThreads) {
      visit(i / fours(), i % fours() * 4);
    }
  }

  __device__ __forceinline__ SplitSums of_teams(int r, int column) const {
    const SplitRows all = {reinterpret_cast<const float*>(memory),
                           reinterpret_cast<const float*>(memory + Area::kHeads),
                           i64{kRows} * Area::kSumPitch, Area::kSumPitch, 2 * kRows};
    return merge_sums<SplitNear, 1>(all, 0, 1, Area::kTeams, r, column);
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

  // Each four of the shares: by neighbours, where there are many parts. Threads behind the last
  // four repeat it, so that whole warps exchange sums.
  __device__ __forceinline__ void merge_parts(const SplitRows& parts, int count,
                                              const SliceShares& shares) const {
    int lanes = 1;
    while (lanes < kMostLanes && lanes * kAhead < count) lanes *= 2;
    const int all = tile.rows * fours(), each = (all + count - 1) / count;
    const int last = min(shares.last * each, all);
#pragma unroll 1
    for (int first = shares.first * each; first < last; first += kThreads / lanes) {
      const int own = first + thread / lanes;
      const int i = min(own, last - 1);
      const int r = i / fours(), column = i % fours() * 4;
      SplitSums sums = merge_sums<SplitFar, kAhead>(parts, thread % lanes, lanes, count, r, column);
      merge_lanes(lanes, sums);
      if (own < last && thread % lanes == 0) tile.finish(r, column, sums);
    }
  }
};

}  // namespace tessera::device
