// How a consumer warpgroup stores the accumulators of its blocks of 64 rows. There are two ways,
// both through its store area in shared memory:
//   copied:    16-bit outputs with an epilogue that reads a bias and two matrices at most (swapped:
//              with none). Accumulators are finished in place; matrices go to the area by stmatrix
//              and from there to the output by the copy engine, while the next ones follow. D
//              tensors of m x n come to the area by the copy engine, too, the first ones while the
//              tile is being multiplied, and make way for the output.
//   finished:  everything else. The area takes raw accumulators; then threads walk along the
//              output's rows, finish pairs of neighbours (epilogue.h) and store them. A loop
//              instead of code for every accumulator: any epilogue compiles quickly, and C, D and
//              out are read and written in whole lines.
//
// After wgmma, thread t holds rows t / 4 and t / 4 + 8 of its warp's 16 rows, and of every 8
// columns the two from t % 4 * 2 on. "Rows" are wgmma's M and "columns" its N. With swap_ab they
// are the output's columns and rows.
#pragma once

#include "tessera/device/cuda/tma_store_rules.h"

namespace tessera::device {

// Raw accumulators in shared memory. The swizzle avoids bank conflicts both for the fragments'
// columns and for the output's rows.
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

// The largest power of 2, up to `most`, that divides n.
constexpr int largest_power(int n, int most) {
  int power = 1;
  while (power < most && n % (2 * power) == 0) power *= 2;
  return power;
}

// The place of a block of accumulators in the output.
struct StorePlace {
  int row, column, batch;
};

// Stores the kBlocks times 64 rows of kColumns columns of one consumer warpgroup. kPass columns of
// raw accumulators fit into the store area.
template <class C, class Arguments, int kBlocks, int kColumns, int kPass, int kAreaBytes>
struct TileStore {
  using Out = typename C::Out;
  using Acc = typename C::Acc;
  using Finishing = Finish<C, Arguments>;
  static constexpr int kCount = kColumns / 2;  // accumulators of a thread and block
  static constexpr bool kMayCopy = may_copy_out<C>(kBlocks * kCount);
  static constexpr int kMatrices = copied_matrices<C>(kBlocks * kCount);

  const Arguments& g;
  const CudaTensorMap* out_map;
  const CudaTensorMap* d_maps;
  u32 area;     // address in shared memory
  int barrier;  // named barrier of the warpgroup's threads
  int thread;
  u32 arrivals;  // barriers of the area's kMatrixSlots slots for copied D tensors
  u32& phases;   // the parity of each of these barriers, one bit each

  // `place` is the place of the first block. The next blocks follow along wgmma's rows.
  __device__ __forceinline__ void store(const Acc (&blocks)[kBlocks][kCount],
                                        const StorePlace& place) const {
    if constexpr (kMayCopy) {
      if (may_copy(place.batch)) return copy(blocks, place);
    }
    for_each_pass(blocks, place, [&](const StorePlace& at) { finish(at); });
  }

  // Calls visit(place) for each part of kHeight rows and kWidth columns of the output, while the
  // area holds its raw accumulators.
  template <class Visit>
  __device__ __forceinline__ void for_each_pass(const Acc (&blocks)[kBlocks][kCount],
                                                const StorePlace& place, const Visit& visit) const {
    constexpr int kPasses = kColumns / kPass;  // passes of a block
#pragma unroll 1
    for (int pass = 0; pass < kBlocks * kPasses; ++pass) {
      threads_sync(barrier, kGroupThreads);  // waits until the area's last contents have been read
#pragma unroll
      for (int i = 0; i < kBlocks * kPasses; ++i) {
        if (i == pass) stage_raw(blocks[i / kPasses], i % kPasses * (kPass / 8));
      }
      threads_sync(barrier, kGroupThreads);
      const int p = pass / kPasses * kWgmmaRows;
      const int q = pass % kPasses * kPass;
      visit({place.row + (C::kSwapAb ? q : p), place.column + (C::kSwapAb ? p : q), place.batch});
    }
  }

  // ---- copied ----

  // Without epilogue steps, an alpha other than 1 goes the other way, which saves all other
  // problems a multiplication. Pairs of the bias must be aligned to words.
  __device__ __forceinline__ bool may_copy(int batch) const {
    const bool scaled = C::kNumSteps == 0 && g.alpha != 1.0F;
    if (scaled || g.beta != 0.0F || !tma_writes<Out>(g)) return false;
    if constexpr (kMatrices > 0) return tma_reads_d<C>(g);
    return C::kNumD == 0 || Finishing(g, batch).in_pairs();
  }

  static constexpr int kChunk = out_chunk_of(kColumns, kMatrices, C::kSwapAb);
  static constexpr int kChunks = kColumns / kChunk;
  static constexpr int kAll = kBlocks * kChunks;
  static constexpr int kLine = (C::kSwapAb ? kWgmmaRows : kChunk) * 2;  // bytes
  static constexpr int kChunkBytes = kWgmmaRows * kChunk * 2;
  static constexpr int kBufferBytes = kChunkBytes * (kMatrices > 1 ? kMatrices : 1);
  static constexpr int kBuffers = kAreaBytes / kBufferBytes;
  static_assert(kBuffers >= 1 && (kMatrices == 0 || kBuffers <= kMatrixSlots), "buffers");

  __device__ __forceinline__ StorePlace chunk_place(int i, StorePlace place) const {
    (C::kSwapAb ? place.column : place.row) += i / kChunks * kWgmmaRows;
    (C::kSwapAb ? place.row : place.column) += i % kChunks * kChunk;
    return place;
  }

  // ---- D tensors that are copied ----

  __device__ __forceinline__ TmaBox<3> matrix_box(int matrix, const StorePlace& at) const {
    const bool batched = g.batch_stride_d[d_roles<C>().matrix[matrix]] != 0;
    return {&d_maps[matrix], {at.column, at.row, batched ? at.batch : 0}};
  }

  __device__ __forceinline__ void load_chunk(int i, const StorePlace& place) const {
    const u32 slot = i % kBuffers;
    const u32 arrival = arrivals + slot * 8;
    barrier_expect(arrival, kMatrices * kChunkBytes);
#pragma unroll
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      const u32 to = area + slot * kBufferBytes + matrix * kChunkBytes;
      tma_load<false>({to, arrival, 0, kEvictFirst}, matrix_box(matrix, chunk_place(i, place)));
    }
  }

  // Requests the D tensors of a tile. As much as fits is copied to the area, whose last contents
  // must be on their way out; the rest is copied to L2.
  __device__ __forceinline__ void ask(const StorePlace& place) const {
    if constexpr (kMatrices > 0) {
      if (thread != 0 || !may_copy(place.batch)) return;
      stores_wait_read<0>();
#pragma unroll
      for (int i = 0; i < kAll; ++i) {
        if (i < kBuffers) {
          load_chunk(i, place);
        } else {
          for (int m = 0; m < kMatrices; ++m) tma_fetch(matrix_box(m, chunk_place(i, place)));
        }
      }
    }
  }

  // Waits until buffer `i` is ready: its D tensors have arrived, or, without any, its last contents
  // have left. Only one thread calls send(), which also requests the next D tensors.
  __device__ __forceinline__ void wait_for(int i) const {
    if constexpr (kMatrices > 0) {
      const u32 slot = i % kBuffers;
      barrier_wait(arrivals + slot * 8, phases >> slot & 1);
      phases ^= 1U << slot;
    } else {
      if (thread == 0) {
        if (i == 0) {
          stores_wait_read<0>();
        } else {
          stores_wait_read<kBuffers - 1>();
        }
      }
      threads_sync(barrier, kGroupThreads);
    }
  }
  __device__ __forceinline__ void send(int i, const StorePlace& place) const {
    const StorePlace at = chunk_place(i, place);
    tma_store(TmaBox<3>{out_map, {at.column, at.row, at.batch}},
              area + i % kBuffers * kBufferBytes);
    stores_commit();
    if constexpr (kMatrices > 0) {
      constexpr int kPending = kBuffers > 1 ? 1 : 0;
      stores_wait_read<kPending>();
      const int next = i - kPending + kBuffers;
      if (i >= kPending && next < kAll) load_chunk(next, place);
    }
  }

  // A thread's part of the bias of a chunk. It is read one chunk ahead, because it comes from L2.
  static constexpr bool kHasBias = d_roles<C>().bias >= 0;
  struct ChunkBias {
    PairBits<typename C::D> groups[kHasBias ? kChunk / 8 : 1];
  };

  // Both elements of a pair exist or none does, because the copy engine needs an n that is a
  // multiple of 8. The copy engine drops elements past the end, so any bias is right there.
  __device__ __forceinline__ ChunkBias bias_of(const Finishing& finish, int column) const {
    ChunkBias bias;
    if constexpr (kHasBias) {
      const int first = column + (thread & 3) * 2;
      const int last = static_cast<int>(columns_of(g)) - 2;
#pragma unroll
      for (int i = 0; i < kChunk / 8; ++i) {
        bias.groups[i] = finish.bias_of(first + i * 8 < last ? first + i * 8 : last);
      }
    }
    return bias;
  }

  __device__ __forceinline__ void copy(const Acc (&blocks)[kBlocks][kCount],
                                       const StorePlace& place) const {
    const Finishing finish(g, place.batch);
    ChunkBias next = bias_of(finish, place.column);
#pragma unroll
    for (int i = 0; i < kAll; ++i) {
      const ChunkBias bias = next;
      if (i + 1 < kAll) next = bias_of(finish, chunk_place(i + 1, place).column);
      wait_for(i);
      fill(finish, bias, area + i % kBuffers * kBufferBytes,
           &blocks[i / kChunks][i % kChunks * (kChunk / 2)]);
      copy_engine_fence();
      threads_sync(barrier, kGroupThreads);
      if (thread == 0) send(i, place);
    }
  }

  // Writes a chunk to the buffer, in lines swizzled for the copy engine.
  __device__ __forceinline__ void fill(const Finishing& finish, const ChunkBias& bias, u32 buffer,
                                       const Acc* chunk) const {
    constexpr int kAtOnce = kChunk % 16 == 0 ? 2 : 1;  // groups of 8 columns
    constexpr u32 kSwizzle = kLine / 16 - 1;
    const int lane = thread & 31;
    const int warp = thread >> 5;
#pragma unroll
    for (int group = 0; group < kChunk / 8; group += kAtOnce) {
      const int next = group + (kAtOnce == 2 ? lane >> 4 : 0);
      const int line = C::kSwapAb ? next * 8 + (lane & 7) : warp * 16 + (lane & 15);
      const int piece = C::kSwapAb ? warp * 2 + ((lane >> 3) & 1) : next;
      const u32 linear = line * kLine + piece * 16;
      const u32 at = buffer + (linear ^ ((linear >> 7) & kSwizzle) << 4);
      u32 given[kMaxMatrices][kAtOnce * 2];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) load_matrices<false>(at + m * kChunkBytes, given[m]);
      u32 words[kAtOnce * 2];
#pragma unroll
      for (int i = 0; i < kAtOnce * 2; ++i) {
        Given<typename C::D> d;
        d.bias = bias.groups[kHasBias ? group + i / 2 : 0];
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) d.matrices[m] = given[m][i];
        words[i] = copied(finish, d, &chunk[group * 4 + i * 2]);
      }
      store_matrices<C::kSwapAb>(at, words);
    }
  }

  // Finishes two neighbours of a fragment.
  __device__ __forceinline__ u32 copied(const Finishing& finish, const Given<typename C::D>& given,
                                        const Acc* pair) const {
    if constexpr (C::kNumSteps == 0) {
      return round_pair<Out>(static_cast<float>(pair[0]), static_cast<float>(pair[1]));
    } else {
      return finish.rounded(given, finish.scaled(pair[0], pair[1]));
    }
  }

  // ---- finished ----

  // width of the area, in the output's columns
  static constexpr int kWidth = C::kSwapAb ? kWgmmaRows : kPass;
  static constexpr int kHeight = C::kSwapAb ? kPass : kWgmmaRows;
  using Raw = RawRows<kWidth>;
  static constexpr int kPairs = kWidth / 2;  // pairs of a row
  static constexpr int kRows = kGroupThreads / kPairs;

  // How many rows a thread handles at a time is limited by the registers besides the accumulators.
  // With D tensors, as many rows as possible are faster.
  static constexpr int kSpare = (C::kWaveM == 3 ? 160 : 232) - kBlocks * kCount;
  static constexpr int kMost = kSpare >= 96 && d_roles<C>().matrices > 0 ? 8 : 4;
  static constexpr int kMaxBatch = kSpare < 64 ? 2 : kMost;
  static constexpr int kBatch = largest_power(kHeight / kRows, kMaxBatch);

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
    const Finishing finish(g, place.batch);
    const bool inside = place.row + kHeight <= rows_of(g) && place.column + kWidth <= columns_of(g);
    if (inside && finish.in_pairs()) {
      finish_rows<true, kBatch>(finish, place);
    } else {
      finish_rows<false, 1>(finish, place);
    }
  }

  // All loads of kAtOnce rows come before the first store, because the compiler cannot move a load
  // across a store that it may alias.
  template <bool kWhole, int kAtOnce>
  __device__ __forceinline__ void finish_rows(const Finishing& finish,
                                              const StorePlace& place) const {
    const int column = thread % kPairs * 2;
    const int left = static_cast<int>(columns_of(g)) - place.column - column;
    const int rows = static_cast<int>(rows_of(g)) - place.row;
    Out* to = finish.address({place.row + thread / kPairs, place.column + column, 0});
    const i64 step = kRows * g.ld_out;
#pragma unroll 1
    for (int first = thread / kPairs; first < kHeight; first += kAtOnce * kRows) {
      typename Finishing::Running v[kAtOnce];
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
