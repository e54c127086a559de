// The cpasync kernel on the ordinary cores: fp32 by fused multiply-add. The 32 lanes of a warp form
// a grid over the warp's part of the tile. Each lane has kWarpTileM x kWarpTileN accumulators.
#pragma once

#include "tessera/device/cuda/fma_tile.h"
#include "tessera/device/cuda/fragments.h"
#include "tessera/device/cuda/gemm/cpasync_gemm.h"
#include "tessera/device/cuda/slices.h"
#include "tessera/device/cuda/vectors.h"

namespace tessera::device {

template <class C>
class FmaEngine {
 public:
  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  // How much k the unrolled code multiplies; a stage has kSlots times as much. More unrolling is
  // faster for 8 warps that wait for instructions, and much slower for 4 warps.
  static constexpr int kWritten = kThreads * 8 / (C::kWarpTileM * C::kWarpTileN);
  static constexpr int kSlotK = smaller(C::kTileK, larger(8, kWritten));
  static constexpr int kSlots = C::kTileK / kSlotK;
  static_assert(C::kTileK % kSlotK == 0, "tile_k must be whole slots");
  using CopyA = FmaCopy<C::kAKContiguous, C::kTileM, kSlotK, kThreads>;
  using CopyB = FmaCopy<C::kBKContiguous, C::kTileN, kSlotK, kThreads>;
  static constexpr int kSlotBytes = CopyA::kBytes + CopyB::kBytes;
  static constexpr int kStageBytes = kSlots * kSlotBytes;

  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kRows = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kLanesM = kWarpM / kRows;
  static constexpr int kLanesN = kWarpN / kColumns;
  static_assert(kLanesM * kLanesN == 32, "the lanes of a warp must cover its part of the tile");
  static_assert(kRows % 4 == 0 && kColumns % 4 == 0, "lanes read vectors of 4");
  static constexpr int kRegisters = kRows * kColumns + 2 * (kRows + kColumns) + 32;

  __device__ __forceinline__ explicit FmaEngine(u32 thread)
      : a(thread / 32 / C::kWaveN * kWarpM, thread % 32 / kLanesN),
        b(thread / 32 % C::kWaveN * kWarpN, thread % 32 % kLanesN) {}

  // Slot i of the ring is filled kAhead turns before it is multiplied, part by part, while another
  // slot is multiplied. Threads wait for each other once in each stage.
  __device__ __forceinline__ void accumulate(const GemmArguments& g, const TileCorner& corner,
                                             u32 shared) {
    constexpr u32 kAhead = (C::kStages - 1) * kSlots;
    if (g.k == 0) return;
    Copies copies(g, corner, threadIdx.x);
    // A slice consists of whole slots of K. Only the very first slot may have less of k.
    const u64 slots = (static_cast<u64>(g.k) + kSlotK - 1) / kSlotK;
    const u64 begin = slots * corner.slice / C::kSlices;
    const u64 turns = slots * (corner.slice + 1) / C::kSlices - begin;
    int first_k = static_cast<int>((g.k - 1) % kSlotK) + 1;
    if (begin > 0) {
      const i64 before = first_k + static_cast<i64>(begin - 1) * kSlotK;
      copies.a.skip(before);
      copies.b.skip(before);
      first_k = kSlotK;
    }
    copies.a.fetch_first(shared, first_k);
    copies.b.fetch_first(shared + CopyA::kBytes, first_k);
    copies_commit();
    u32 fill = shared + kSlotBytes;
#pragma unroll 1
    for (u32 turn = 1; turn < kAhead; ++turn) {
      if (turn >= turns) stop(copies);
      fetch(copies, fill, 0, 1);
      copies_commit();
      fill += kSlotBytes;
    }
    u32 use = shared;
#pragma unroll 1
    for (u64 turn = 0; turn < turns; ++turn) {
      if (turn % kSlots == 0) {
        copies_wait<kAhead - kSlots>();
        __syncthreads();
      }
      if (turn + kAhead >= turns) stop(copies);
      multiply(use, copies, fill);
      copies_commit();
      fill = next_slot(fill, shared);
      use = next_slot(use, shared);
    }
    copies_wait<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void put(float* tile) const {
    using Output = TileOutput<C, 0>;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        Output::put(tile, a.row_of(i), b.row_of(j), acc[i][j]);
      }
    }
  }

  // Stores the sums from registers, where outputs are only scaled and are whole aligned vectors;
  // else returns false. Neighbouring lanes hold neighbouring vectors, so that a warp writes whole
  // lines. That takes 57 us at m = n = 4096, k = 32 on an H100, where staging in shared memory
  // took 66.
  static constexpr bool kStores = C::kNumSteps == 0;
  __device__ __forceinline__ bool store(const GemmArguments& g, const TileCorner& corner) const {
    using Out = typename C::Out;
    constexpr i64 kSize = sizeof(Out);
    const Out* const out =
        matrix_of<Out>(g.out, g.batch_stride_out, corner.batch, g.pointer_arrays != 0);
    const bool aligned = reinterpret_cast<u64>(out) % (4 * kSize) == 0;
    if (g.beta != 0 || !aligned || g.ld_out % 4 != 0 || g.n % 4 != 0) return false;
    const i64 row = corner.row + a.row_of(0);
    const i64 column = corner.column + b.row_of(0);
    const int rows = static_cast<int>(g.m - row < C::kTileM ? g.m - row : C::kTileM);
    const int columns = static_cast<int>(g.n - column < C::kTileN ? g.n - column : C::kTileN);
    // One address becomes the next one, because the addresses of all rows would take too many
    // registers.
    const char* at = reinterpret_cast<const char*>(out + row * g.ld_out + column);
    const i64 step = g.ld_out * kSize;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int down = i / 4 * kLanesM * 4 + i % 4;
      if (i > 0) at = keep(at + (i % 4 == 0 ? step * (kLanesM * 4 - 3) : step));
      if (down < rows) {
        store_row(reinterpret_cast<Out*>(const_cast<char*>(at)), columns, acc[i], g.alpha);
      }
    }
    return true;
  }

  // Whether this block is the last one of its tile; it then holds the sums over all slices.
  __device__ __forceinline__ bool add_slices(const CudaGemmArguments& arguments, u64 tile,
                                             u64 tiles, int slice) {
    constexpr int kVectors = kRows * kColumns / 4;
    char* const workspace = static_cast<char*>(arguments.workspace);
    const SliceSums<float, kVectors, false, kThreads> sums = {workspace + arguments.partial_sums,
                                                              reinterpret_cast<u32*>(workspace),
                                                              static_cast<int>(tile),
                                                              static_cast<int>(tiles),
                                                              slice,
                                                              C::kSlices,
                                                              0,
                                                              static_cast<int>(threadIdx.x)};
    return sums.add(reinterpret_cast<float(&)[kVectors][4]>(acc));
  }

 private:
  using Copies = OperandCopies<C, CopyA, CopyB>;

  // Stores a lane's vectors of a row, of which `columns` exist from the first vector on.
  template <class Out>
  static __device__ __forceinline__ void store_row(Out* row, int columns,
                                                   const float (&sums)[kColumns], float alpha) {
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      const float vector[4] = {sums[j] * alpha, sums[j + 1] * alpha, sums[j + 2] * alpha,
                               sums[j + 3] * alpha};
      if (j * kLanesN < columns) store_floats(row + j * kLanesN, true, 4, vector);
    }
  }

  static __device__ __forceinline__ void stop(Copies& copies) {
    copies.a.stop();
    copies.b.stop();
  }
  static __device__ __forceinline__ void fetch(Copies& copies, u32 slot, int part, int parts) {
    copies.a.fetch(slot, part, parts);
    copies.b.fetch(slot + CopyA::kBytes, part, parts);
  }
  static __device__ __forceinline__ u32 next_slot(u32 slot, u32 shared) {
    slot += kSlotBytes;
    return slot == shared + C::kStages * kStageBytes ? shared : slot;
  }

  // Adds the product of the tiles in slot `use`. While the elements of one k are multiplied, those
  // of the next k are read, and parts of the tiles for slot `fill` are fetched.
  __device__ __forceinline__ void multiply(u32 use, Copies& copies, u32 fill) {
    float x[2][kRows];
    float y[2][kColumns];
    a.load(use, 0, x[0]);
    b.load(use + CopyA::kBytes, 0, y[0]);
#pragma unroll
    for (int k = 0; k < kSlotK; ++k) {
      if (k + 1 < kSlotK) {
        a.load(use, k + 1, x[(k + 1) % 2]);
        b.load(use + CopyA::kBytes, k + 1, y[(k + 1) % 2]);
      }
      fetch(copies, fill, k, kSlotK);
      add_products(x[k % 2], y[k % 2]);
    }
  }

  // Multiplies two rows at a time, forward and then backward, so that consecutive products share a
  // factor and the register is read once for both.
  __device__ __forceinline__ void add_products(const float (&x)[kRows],
                                               const float (&y)[kColumns]) {
#pragma unroll
    for (int i = 0; i < kRows; i += 2) {
#pragma unroll
      for (int step = 0; step < kColumns; ++step) {
        const int j = i % 4 == 0 ? step : kColumns - 1 - step;
        const int first = i + j % 2;
        const int second = i + 1 - j % 2;
        acc[first][j] = fmaf(x[first], y[j], acc[first][j]);
        acc[second][j] = fmaf(x[second], y[j], acc[second][j]);
      }
    }
  }

  LaneOperand<CopyA::kLineBytes, kRows, kLanesM> a;
  LaneOperand<CopyB::kLineBytes, kColumns, kLanesN> b;
  float acc[kRows][kColumns] = {};
};

template <class C>
using FmaGemm = CpasyncGemm<C, FmaEngine>;

}  // namespace tessera::device
