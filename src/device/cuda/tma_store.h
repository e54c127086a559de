// What a consumer warpgroup does with the accumulators of its blocks of 64 rows. There are two ways
// out of the registers, both through its store area in shared memory:
//   copied:    16-bit outputs with an epilogue that reads no matrix (swapped: with none).
//              Accumulators are finished in place; matrices go to the area by stmatrix and from
//              there to the output by the copy engine, while the next ones follow.
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

// Whether the copy engine can write the output: it writes rows in pieces of 16 bytes, and every
// batch at the same distance from the one before.
template <class Out>
__device__ __forceinline__ bool tma_writes(const GemmArguments& g) {
  if (g.pointer_arrays != 0) return false;
  const u64 elements = g.n | g.ld_out | (g.batch > 1 ? g.batch_stride_out : 0);
  return ((reinterpret_cast<u64>(g.out) | elements * sizeof(Out)) & 15) == 0;
}

// Whether the epilogue reads D tensors of m x n.
template <class C>
constexpr bool has_matrix_d() {
  if constexpr (C::kNumD > 0) {
    for (const Step step : C::kSteps) {
      if (step == Step::add || step == Step::multiply || takes_all_d(step)) return true;
    }
  }
  return false;
}
// Whether code for every accumulator pays: with steps that read no more than a bias, and bias and
// functions only where they find registers beside the accumulators.
template <class C>
constexpr bool finishes_in_place(int accumulators) {
  constexpr int kWithRoom = 160;
  if constexpr (C::kNumSteps > 0) {
    for (const Step step : C::kSteps) {
      const bool reads = takes_all_d(step) || (takes_one_d(step) && step != Step::bias);
      const bool cheap = step == Step::relu || step == Step::clamp;
      if (reads || (!cheap && accumulators > kWithRoom)) return false;
    }
  }
  return C::kNumD <= 1;
}

// One consumer warpgroup's way out for kBlocks times 64 rows of kColumns. kPass columns of raw
// accumulators fit into the store area.
template <class C, int kBlocks, int kColumns, int kPass>
struct TileStore {
  using Out = typename C::Out;
  using Acc = typename C::Acc;
  static constexpr int kCount = kColumns / 2;  // accumulators of a thread and block
  static constexpr bool kMayCopy =
      sizeof(Out) == 2 && !C::kDirectStore &&
      (C::kSwapAb ? C::kNumSteps == 0 : finishes_in_place<C>(kBlocks * kCount));

  const CudaGemmArguments& arguments;
  u32 area;     // in shared memory
  int barrier;  // of the warpgroup's threads
  int thread;

  // `place` is that of the first block; the next ones follow along wgmma's rows.
  __device__ __forceinline__ void store(const Acc (&blocks)[kBlocks][kCount],
                                        const StorePlace& place) const {
    const GemmArguments& g = arguments.gemm;
    if constexpr (kMayCopy) {
      if (may_copy(place.batch)) return copy(blocks, place);
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

  // ---- copied ----

  // Without steps, alpha is left to the other way: one multiplication less for everyone else. A
  // bias has to lie so that pairs of it are words.
  __device__ __forceinline__ bool may_copy(int batch) const {
    const GemmArguments& g = arguments.gemm;
    const bool scaled = C::kNumSteps == 0 && g.alpha != 1.0F;
    if (scaled || g.beta != 0.0F || !tma_writes<Out>(g)) return false;
    return C::kNumD == 0 || Finish<C>(g, batch).in_pairs();
  }

  static constexpr int kChunk = chunk_of(kColumns);
  static constexpr int kBuffers = kPass == kChunk ? 2 : 1;
  static constexpr int kLine = (C::kSwapAb ? kWgmmaRows : kChunk) * 2;  // bytes
  static constexpr int kBufferBytes = kWgmmaRows * kChunk * 2;

  // A thread's part of the bias of a chunk: read one chunk ahead, for it comes from L2.
  static constexpr bool kHasBias = C::kNumD > 0;
  struct ChunkBias {
    Given<typename C::D> groups[kHasBias ? kChunk / 8 : 1];
  };

  // Pairs exist whole or not at all, for the copy engine needs n to be a multiple of 8; what lies
  // past the end is dropped by it, so that any other bias will do there.
  __device__ __forceinline__ ChunkBias bias_of(const Finish<C>& finish, int column) const {
    ChunkBias bias;
    if constexpr (kHasBias) {
      const int first = column + (thread & 3) * 2;
      const int last = static_cast<int>(arguments.gemm.n) - 2;
#pragma unroll
      for (int i = 0; i < kChunk / 8; ++i) {
        bias.groups[i] = finish.bias_of(first + i * 8 < last ? first + i * 8 : last);
      }
    }
    return bias;
  }

  __device__ __forceinline__ void copy(const Acc (&blocks)[kBlocks][kCount],
                                       const StorePlace& place) const {
    constexpr int kChunks = kColumns / kChunk;
    const Finish<C> finish(arguments.gemm, place.batch);
    ChunkBias next = bias_of(finish, place.column);
#pragma unroll
    for (int i = 0; i < kBlocks * kChunks; ++i) {
      const ChunkBias bias = next;
      if (i + 1 < kBlocks * kChunks) {
        next = bias_of(finish, place.column + (i + 1) % kChunks * kChunk);
      }
      StorePlace at = place;
      (C::kSwapAb ? at.column : at.row) += i / kChunks * kWgmmaRows;
      (C::kSwapAb ? at.row : at.column) += i % kChunks * kChunk;
      const u32 buffer = area + i % kBuffers * kBufferBytes;
      if (thread == 0) {
        if (i == 0) {
          stores_wait_read<0>();
        } else {
          stores_wait_read<kBuffers - 1>();
        }
      }
      threads_sync(barrier, kGroupThreads);
      fill(finish, bias, buffer, &blocks[i / kChunks][i % kChunks * (kChunk / 2)]);
      copy_engine_fence();
      threads_sync(barrier, kGroupThreads);
      if (thread == 0) {
        tma_store({&arguments.out_map, at.column, at.row, at.batch}, buffer);
        stores_commit();
      }
    }
  }

  // A chunk, in lines swizzled as the copy engine expects.
  __device__ __forceinline__ void fill(const Finish<C>& finish, const ChunkBias& bias, u32 buffer,
                                       const Acc* chunk) const {
    constexpr int kAtOnce = kChunk == 8 ? 1 : 2;  // groups of 8 columns
    constexpr u32 kSwizzle = kLine / 16 - 1;
    const int lane = thread & 31;
    const int warp = thread >> 5;
#pragma unroll
    for (int group = 0; group < kChunk / 8; group += kAtOnce) {
      u32 words[kAtOnce * 2];
#pragma unroll
      for (int i = 0; i < kAtOnce * 2; ++i) {
        const Given<typename C::D>& given = bias.groups[kHasBias ? group + i / 2 : 0];
        words[i] = copied(finish, given, &chunk[group * 4 + i * 2]);
      }
      const int next = group + (kAtOnce == 2 ? lane >> 4 : 0);
      const int line = C::kSwapAb ? next * 8 + (lane & 7) : warp * 16 + (lane & 15);
      const int piece = C::kSwapAb ? warp * 2 + ((lane >> 3) & 1) : next;
      const u32 at = line * kLine + piece * 16;
      store_matrices<C::kSwapAb>(buffer + (at ^ ((at >> 7) & kSwizzle) << 4), words);
    }
  }

  // Two neighbours of a fragment.
  __device__ __forceinline__ u32 copied(const Finish<C>& finish, const Given<typename C::D>& bias,
                                        const Acc* pair) const {
    if constexpr (C::kNumSteps == 0) {
      return round_pair<Out>(static_cast<float>(pair[0]), static_cast<float>(pair[1]));
    } else {
      return finish.rounded(bias, finish.scaled(pair[0], pair[1]));
    }
  }

  // ---- finished ----

  static constexpr int kWidth = C::kSwapAb ? kWgmmaRows : kPass;  // of the area, in the output
  static constexpr int kHeight = C::kSwapAb ? kPass : kWgmmaRows;
  using Raw = RawRows<kWidth>;
  static constexpr int kPairs = kWidth / 2;  // of a row
  static constexpr int kRows = kGroupThreads / kPairs;

  // Rows of a thread at a time: what the registers beside the accumulators take. Reading whole D
  // tensors pays for as many as possible.
  static constexpr int kSpare = (C::kWaveM == 3 ? 160 : 232) - kBlocks * kCount;
  static constexpr int kMaxBatch = kSpare < 64 ? 2 : kSpare >= 96 && has_matrix_d<C>() ? 8 : 4;
  static constexpr int kBatch = kHeight / kRows < kMaxBatch ? kHeight / kRows : kMaxBatch;

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
    const GemmArguments& g = arguments.gemm;
    const Finish<C> finish(g, place.batch);
    const bool inside = place.row + kHeight <= g.m && place.column + kWidth <= g.n;
    if (inside && finish.in_pairs()) {
      finish_rows<true, kBatch>(finish, place);
    } else {
      finish_rows<false, 1>(finish, place);
    }
  }

  // All loads of kAtOnce rows come before the first store, which they might alias.
  template <bool kWhole, int kAtOnce>
  __device__ __forceinline__ void finish_rows(const Finish<C>& finish,
                                              const StorePlace& place) const {
    const GemmArguments& g = arguments.gemm;
    const int column = thread % kPairs * 2;
    const int left = static_cast<int>(g.n) - place.column - column;
    const int rows = static_cast<int>(g.m) - place.row;
    Out* to = finish.address({place.row + thread / kPairs, place.column + column, 0});
    const i64 step = kRows * g.ld_out;
#pragma unroll 1
    for (int first = thread / kPairs; first < kHeight; first += kAtOnce * kRows) {
      typename Finish<C>::Running v[kAtOnce];
      Place at[kAtOnce];
      PairBits<Out> done[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i * kRows;
        Acc x, y;
        load_shared(area + Raw::offset(row, column), x, y);
        v[i] = finish.scaled(x, y);
        at[i] = {place.row + row, place.column + column, row < rows ? left : 0};
      }
      if (g.beta != 0) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) v[i] = finish.template with_c<kWhole>(at[i], v[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) done[i] = finish.template rounded<kWhole>(at[i], v[i]);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i, to += step) {
        finish.template store<kWhole>(to, done[i], at[i].count);
      }
    }
  }
};

}  // namespace tessera::device
