// For slices of the depth: warpgroups leave their sums in the workspace; when all slices of a part
// of a tile are there, they add them up and finish them.
#pragma once

#include "tessera/device/cuda/conv/conv_arguments.h"
#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/ptx.h"
#include "tessera/device/cuda/tma_store.h"

namespace tessera::device {

// A share of the sums of a warpgroup, whose blocks have 64 rows: a range of its vectors of 4
// neighbours, which count row by row. The sums have as many shares as slices.
template <int kBlocks, int kColumns, int kSlices>
struct SumShare {
  static constexpr int kPerRow = kColumns / 4;
  static constexpr int kVectors = kBlocks * kWgmmaRows * kPerRow;
  static constexpr int kMost = (kVectors + kSlices - 1) / kSlices;  // vectors of a share
  __device__ __forceinline__ static constexpr int begin(int share) {
    return kVectors * share / kSlices;
  }

  // Few vectors of many slices are added up by several lanes of a warp each: lane i adds up every
  // kLanes-th slice from slice i on.
  static constexpr int lanes() {
    int lanes = 1;
    while (lanes < 16 && kSlices % (lanes * 2) == 0 && kMost * lanes * 2 <= kGroupThreads) {
      lanes *= 2;
    }
    return lanes;
  }
  static constexpr int kLanes = lanes();
  static constexpr int kOwnSlices = kSlices / kLanes;
  static constexpr int kWide = 32 / kLanes;  // vectors of a warp
  static constexpr int kStep = kGroupThreads / kLanes;

  // How many slices of how many vectors a thread loads at a time.
  static constexpr int kTimes = (kOwnSlices + 7) / 8;
  static constexpr int kAhead = (kOwnSlices + kTimes - 1) / kTimes;
  static constexpr int kRounds = (kMost + kStep - 1) / kStep;
  static constexpr int kFit = kAhead > 6 ? 1 : 12 / kAhead;
  static constexpr int kAtOnce = least_of(kRounds, kFit);
};

// The sums are matrices of rows `pitch` apart, a multiple of 4: [slice][batch][row][column]. In
// backward_weight a column counts whole slabs of a tap, whose last channels may not exist.
template <class C>
struct ConvSums {
  static __device__ __forceinline__ float* at(const CudaConvArguments& g) {
    return reinterpret_cast<float*>(static_cast<char*>(g.workspace) + g.partial_sums);
  }

  // The sums of one consumer warpgroup, whose first one belongs to `place`.
  template <int kBlocks, int kCount>
  static __device__ __forceinline__ void put(const CudaConvArguments& g,
                                             const float (&sums)[kBlocks][kCount],
                                             const StorePlace& place, int slice, int thread) {
    const i64 matrix = i64{slice} * g.result.batch + place.batch;
    const int first_row = place.row + thread / 32 * 16 + thread % 32 / 4;
    const int first_column = place.column + thread % 4 * 2;
    float* const to = at(g) + (matrix * g.result.rows + first_row) * g.pitch + first_column;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        const int row = block * kWgmmaRows + i % 2 * 8;
        const int column = i / 2 * 8;
        if (first_row + row < g.result.rows && first_column + column < g.pitch) {
          *reinterpret_cast<float2*>(to + i64{row} * g.pitch + column) =
              make_float2(sums[block][i * 2], sums[block][i * 2 + 1]);
        }
      }
    }
  }

  // Adds up the slices of a share and finishes it, once all of them are in the workspace.
  // Whichever group does so, the additions have the same order.
  template <int kBlocks>
  static __device__ __forceinline__ void finish_share(const CudaConvArguments& g,
                                                      const StorePlace& place, int share,
                                                      int thread) {
    using Share = SumShare<kBlocks, C::kTileN, C::kSlices>;
    const Finish<C, ConvMatrix> finish(g.result, place.batch);
    const int last = Share::begin(share + 1);
    const int lane = thread % 32 / Share::kWide;
    const int own = thread / 32 * Share::kWide + thread % Share::kWide;
#pragma unroll 1
    for (int first = Share::begin(share); first < last; first += Share::kAtOnce * Share::kStep) {
      float sums[Share::kAtOnce][4] = {};
      StorePlace at[Share::kAtOnce];
      bool exists[Share::kAtOnce];
#pragma unroll
      for (int i = 0; i < Share::kAtOnce; ++i) {
        const int index = first + own + i * Share::kStep;
        at[i] = {place.row + index / Share::kPerRow, place.column + index % Share::kPerRow * 4,
                 place.batch};
        exists[i] = index < last && at[i].row < g.result.rows && at[i].column < g.pitch;
      }
      add_slices<Share>(g, at, exists, lane, sums);
#pragma unroll
      for (int i = 0; i < Share::kAtOnce; ++i) {
        add_lanes<Share>(sums[i]);
        if (exists[i] && lane == 0) store(g, finish, at[i], sums[i]);
      }
    }
  }

 private:
  // Loads several slices of several vectors at a time; one by one, each would wait for L2.
  template <class Share>
  static __device__ __forceinline__ void add_slices(const CudaConvArguments& g,
                                                    const StorePlace (&at_places)[Share::kAtOnce],
                                                    const bool (&exists)[Share::kAtOnce], int lane,
                                                    float (&sums)[Share::kAtOnce][4]) {
    const i64 slice_stride = g.result.batch * g.result.rows * g.pitch;
    const float* from[Share::kAtOnce];
#pragma unroll
    for (int i = 0; i < Share::kAtOnce; ++i) {
      const StorePlace& place = at_places[i];
      from[i] = at(g) + lane * slice_stride + (place.batch * g.result.rows + place.row) * g.pitch +
                place.column;
    }
#pragma unroll 1
    for (int slice = 0; slice < Share::kOwnSlices; slice += Share::kAhead) {
      float next[Share::kAhead][Share::kAtOnce][4] = {};
#pragma unroll
      for (int j = 0; j < Share::kAhead * Share::kAtOnce; ++j) {
        const int ahead = j / Share::kAtOnce;
        const int i = j % Share::kAtOnce;
        const bool is_slice =
            Share::kOwnSlices % Share::kAhead == 0 || slice + ahead < Share::kOwnSlices;
        const i64 offset = i64{slice + ahead} * Share::kLanes * slice_stride;
        if (exists[i] && is_slice) load_global(from[i] + offset, next[ahead][i]);
      }
#pragma unroll
      for (int j = 0; j < Share::kAhead * Share::kAtOnce * 4; ++j) {
        sums[j / 4 % Share::kAtOnce][j % 4] +=
            next[j / 4 / Share::kAtOnce][j / 4 % Share::kAtOnce][j % 4];
      }
    }
  }

  template <class Share>
  static __device__ __forceinline__ void add_lanes(float (&sum)[4]) {
#pragma unroll
    for (int distance = Share::kWide; distance < 32; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += __shfl_xor_sync(0xffffffffU, sum[i], distance);
    }
  }

  static __device__ __forceinline__ void store(const CudaConvArguments& g,
                                               const Finish<C, ConvMatrix>& finish,
                                               const StorePlace& at, const float (&sum)[4]) {
    int column = at.column;
    i64 columns = g.result.columns;
    if constexpr (C::kDirection == ConvDirection::backward_weight) {
      const int tap = at.column / (g.slabs * kSlabChannels);
      column -= tap * (g.slabs * kSlabChannels - g.image_channels);
      columns = i64{tap + 1} * g.image_channels;
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const i64 left = columns - column - i;
      const int count = left < 0 ? 0 : left < 2 ? static_cast<int>(left) : 2;
      const Place place = {at.row, column + i, count};
      const auto done = finish.finish(place, sum[i], sum[i + 1]);
      finish.store(finish.address(place), done, count);
    }
  }
};

}  // namespace tessera::device
