// What a consumer warpgroup does with the accumulators of its blocks of 64 rows. There are two ways
// out of the registers, both through its store area in shared memory:
//   plain:     16-bit outputs that need nothing but rounding. Matrices go to the area by stmatrix
//              and from there to the output by the copy engine, while the next ones follow.
//   finished:  everything else. The area takes raw accumulators; then threads walk along the
//              output's rows, finish pairs of neighbours (epilogue.h) and store them. A loop
//              instead of code for every accumulator: any epilogue compiles quickly, and C, D and
//              out are read and written in whole lines.
//
// wgmma leaves to thread t the rows t / 4 and t / 4 + 8 of its warp's 16, and of every 8 columns
// the two from t % 4 * 2. "Rows" are wgmma's M and "columns" its N; with swap_ab they are the
// output's columns and rows.
#pragma once

#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

inline constexpr int kGroupThreads = 128;  // of a warpgroup

// The widest of 64, 32, 16 and 8 columns that divides n.
constexpr int chunk_of(int n) { return n % 64 == 0 ? 64 : n % 32 == 0 ? 32 : n % 16 == 0 ? 16 : 8; }

// Raw accumulators in shared memory, swizzled so that neither the fragments' columns nor the
// output's rows meet in a bank.
template <int kWidth>
struct RawRows {
  static constexpr int kPitch = kWidth * 4;
  static constexpr int kPieces = kPitch / 16;
  static constexpr int kRowsPerLine = kPitch < kLineBytes ? kLineBytes / kPitch : 1;
  static constexpr int kMask = kPieces < 8 ? kPieces - 1 : 7;
  static __device__ __forceinline__ u32 offset(int row, int column) {
    const u32 piece = (column >> 2) ^ (row / kRowsPerLine & kMask);
    return row * kPitch + piece * 16 + (column & 3) * 4;
  }
};

// Where a block of accumulators lies in the output.
struct StorePlace {
  int row, column, batch;
};

// Whether the copy engine can write the output.
template <class Out>
__device__ __forceinline__ bool tma_writes(const GemmArguments& g) {
  const u64 strides = g.ld_out | (g.batch > 1 ? g.batch_stride_out : 0);
  return ((reinterpret_cast<u64>(g.out) | strides * sizeof(Out)) & 15) == 0;
}

// One consumer warpgroup's way out for kBlocks times 64 rows of kColumns. kPass columns of raw
// accumulators fit into the store area.
template <class C, int kBlocks, int kColumns, int kPass>
struct TileStore {
  using Out = typename C::Out;
  using Acc = typename C::Acc;
  static constexpr int kCount = kColumns / 2;  // accumulators of a thread and block
  static constexpr bool kMayBePlain =
      sizeof(Out) == 2 && !C::kSwapAb && !C::kDirectStore && C::kNumSteps == 0;

  const CudaGemmArguments& arguments;
  u32 area;     // in shared memory
  int barrier;  // of the warpgroup's threads
  int thread;

  // `place` is that of the first block; the next ones follow along wgmma's rows.
  __device__ __forceinline__ void store(const Acc (&blocks)[kBlocks][kCount],
                                        const StorePlace& place) const {
    const GemmArguments& g = arguments.gemm;
    if constexpr (kMayBePlain) {
      if (g.alpha == 1.0F && g.beta == 0.0F && tma_writes<Out>(g)) return plain(blocks, place);
    }
    constexpr int kPasses = kColumns / kPass;  // of a block
#pragma unroll 1
    for (int pass = 0; pass < kBlocks * kPasses; ++pass) {
      threads_sync(barrier, kGroupThreads);  // the area's last contents have been read
#pragma unroll
      for (int i = 0; i < kBlocks * kPasses; ++i) {
        if (i == pass) stage_raw(blocks[i / kPasses], i % kPasses * (kPass / 8));
      }
      threads_sync(barrier, kGroupThreads);
      const int p = pass / kPasses * kWgmmaRows;
      const int q = pass % kPasses * kPass;
      finish({place.row + (C::kSwapAb ? q : p), place.column + (C::kSwapAb ? p : q), place.batch});
    }
  }

  // ---- plain ----

  static constexpr int kChunk = chunk_of(kColumns);
  static constexpr int kBuffers = kPass == kChunk ? 2 : 1;
  static constexpr int kLine = kChunk * 2;  // bytes
  static constexpr int kBufferBytes = kWgmmaRows * kLine;

  __device__ __forceinline__ void plain(const Acc (&blocks)[kBlocks][kCount],
                                        const StorePlace& place) const {
    constexpr int kChunks = kColumns / kChunk;
#pragma unroll
    for (int i = 0; i < kBlocks * kChunks; ++i) {
      const u32 buffer = area + i % kBuffers * kBufferBytes;
      if (thread == 0) {
        if (i == 0) {
          stores_wait_read<0>();
        } else {
          stores_wait_read<kBuffers - 1>();
        }
      }
      threads_sync(barrier, kGroupThreads);
      fill(buffer, blocks[i / kChunks], i % kChunks * (kChunk / 8));
      copy_engine_fence();
      threads_sync(barrier, kGroupThreads);
      if (thread == 0) {
        const int row = place.row + i / kChunks * kWgmmaRows;
        const int column = place.column + i % kChunks * kChunk;
        tma_store({&arguments.out_map, column, row, place.batch}, buffer);
        stores_commit();
      }
    }
  }

  // A chunk from the group of 8 columns `first` on, in lines swizzled as the copy engine expects.
  __device__ __forceinline__ void fill(u32 buffer, const Acc (&block)[kCount], int first) const {
    constexpr int kAtOnce = kChunk == 8 ? 1 : 2;  // groups
    constexpr u32 kSwizzle = kLine / 16 - 1;
    const int lane = thread & 31;
    const int row = (thread >> 5) * 16 + (lane & 15);
#pragma unroll
    for (int group = 0; group < kChunk / 8; group += kAtOnce) {
      u32 words[kAtOnce * 2];
#pragma unroll
      for (int i = 0; i < kAtOnce * 2; ++i) {
        const int at = (first + group) * 4 + i * 2;
        words[i] =
            round_pair<Out>(static_cast<float>(block[at]), static_cast<float>(block[at + 1]));
      }
      const u32 at = row * kLine + (group + (kAtOnce == 2 ? lane >> 4 : 0)) * 16;
      store_matrices(buffer + (at ^ ((at >> 7) & kSwizzle) << 4), words);
    }
  }

  // ---- finished ----

  static constexpr int kWidth = C::kSwapAb ? kWgmmaRows : kPass;  // of the area, in the output
  static constexpr int kHeight = C::kSwapAb ? kPass : kWgmmaRows;
  using Raw = RawRows<kWidth>;
  static constexpr int kMaxBatch = C::kNumD > 0 ? 8 : 4;  // rows

  __device__ __forceinline__ void stage_raw(const Acc (&block)[kCount], int first) const {
    const int lane = thread & 31;
    const int row = (thread >> 5) * 16 + (lane >> 2);
#pragma unroll
    for (int i = 0; i < kPass / 4; ++i) {
      const Acc x = block[first * 4 + i * 2];
      const Acc y = block[first * 4 + i * 2 + 1];
      const int r = row + i % 2 * 8;
      const int c = i / 2 * 8 + (lane & 3) * 2;
      if constexpr (C::kSwapAb) {
        store_shared(area + Raw::offset(c, r), x);
        store_shared(area + Raw::offset(c + 1, r), y);
      } else {
        store_shared(area + Raw::offset(r, c), x, y);
      }
    }
  }

  __device__ __forceinline__ void finish(const StorePlace& place) const {
    constexpr int kPairs = kWidth / 2;  // of a row
    constexpr int kRows = kGroupThreads / kPairs;
    const GemmArguments& g = arguments.gemm;
    const Finish<C> finish(g);
    const int column = thread % kPairs * 2;
    const int left = static_cast<int>(g.n) - place.column - column;
    const int rows = static_cast<int>(g.m) - place.row;
    // All loads of a batch of rows before its first store, which they might alias.
    constexpr int kBatch = kHeight / kRows < kMaxBatch ? kHeight / kRows : kMaxBatch;
#pragma unroll 1
    for (int first = thread / kPairs; first < kHeight; first += kBatch * kRows) {
      Acc x[kBatch], y[kBatch];
      Place at[kBatch];
      PairBits<Out> done[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = first + i * kRows;
        load_shared(area + Raw::offset(row, column), x[i], y[i]);
        at[i] = {place.batch, place.row + row, place.column + column, row < rows ? left : 0};
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) done[i] = finish.finish(at[i], x[i], y[i]);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) finish.store(at[i], done[i]);
    }
  }
};

}  // namespace tessera::device
