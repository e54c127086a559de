// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) for few rows or few columns, where k is
// contiguous in A and B. Memory limits such products: the operand with many rows is read once, 16
// bytes a lane, into registers. The few rows lie in LDS, where all waves of the workgroup read
// them. Sums are added in an order that depends on the sizes and on nothing else.
//
// Config has the types and the epilogue that mfma_gemm.h describes, and
//   kTileM                few rows at most: 1, 2 or 4
//   kTileK                elements of each few row that LDS holds at a time
//   kWaveN, kWaveK        waves with many rows of their own, and waves that share them along k
//   kWarpTileN            many rows of a wave: 4, which are neighbours
//   kWarpTileK            elements of each row that a lane asks for at a time
#pragma once

#include "tessera/device/hip/epilogue.h"
#include "tessera/device/hip/gemm/gemm_arguments.h"
#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

// Rows of an operand along which k is contiguous.
template <class T>
struct StreamRows {
  static constexpr int kWord = 16 / static_cast<int>(sizeof(T));  // elements of 16 bytes
  static constexpr int kIn4 = 4 / static_cast<int>(sizeof(T));

  Global<T> first;
  i64 ld, rows, k;
  bool is_aligned;  // every row begins at a multiple of 16 bytes

  __device__ __forceinline__ StreamRows(const T* data, i64 distance, i64 count, i64 depth)
      : first((Global<T>)data),
        ld(count > 1 ? distance : 0),
        rows(count),
        k(depth),
        is_aligned(((bits<u64>(data) | static_cast<u64>(ld) * sizeof(T)) & 15) == 0) {}

  // 16 bytes of a row, from an element on. What the operand does not have is 0. How much there is
  // is not known ahead of each call, or the masks of many calls would take all scalar registers.
  __device__ __forceinline__ Chunk word(i64 row, i64 element) const {
    const i64 rest = row < rows ? k - element : 0;
    const int left = not_ahead(rest < kWord ? static_cast<int>(rest) : kWord);
    Chunk all = 0;
    if (left <= 0) return all;
    const Global<T> from = first + row * ld + element;
    if (is_aligned && left == kWord) return *reinterpret_cast<Global<Chunk>>(from);
#pragma unroll
    for (int i = 0; i < kWord; ++i) {
      if (i >= left) continue;
      const u32 bits_of_one = *reinterpret_cast<Global<WordBits<T>>>(from + i);
      all[i / kIn4] |= bits_of_one << (i % kIn4 * 8 * static_cast<int>(sizeof(T)));
    }
    return all;
  }

  static __device__ __forceinline__ float element(const Chunk& word, int i) {
    return float_of_bits<T>(word[i / kIn4] >> (i % kIn4 * 8 * static_cast<int>(sizeof(T))));
  }
};

template <class C>
struct StreamGemm {
  using T = typename C::A;
  using Rows = StreamRows<T>;
  static constexpr int kThreads = C::kWaveN * C::kWaveK * kLanes;
  static constexpr int kMinWaves = 2, kMaxWaves = 8;
  static constexpr int kMfmas = 0;
  static constexpr int kFew = C::kTileM;
  static constexpr int kMany = C::kWarpTileN;
  static constexpr int kWords = C::kWarpTileK / Rows::kWord;
  static constexpr int kTurn = C::kWarpTileK * kLanes;  // elements of a row that a wave asks for
  static_assert(kSame<T, typename C::B>, "both operands have one type");
  static_assert(kFew <= 4 && kMany == 4, "a lane stores four neighbours");
  static_assert(C::kTileK % kTurn == 0, "a part of k is whole turns");

  static constexpr int kRowBytes = C::kTileK * static_cast<int>(sizeof(T));
  static constexpr int kSumBytes = C::kWaveN * C::kWaveK * kMany * kFew * 4;
  static constexpr int kBytes = kFew * kRowBytes > kSumBytes ? kFew* kRowBytes : kSumBytes;

  static __device__ __forceinline__ void run(const HipGemmArguments&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[kBytes];
    const HipGemmArguments& arguments = fresh_arguments<HipGemmArguments>();
    const GemmArguments& g = arguments.gemm;
    constexpr int kTile = C::kWaveN * kMany;
    const bool turned = g.n < g.m;
    const u64 tiles = static_cast<u64>((turned ? g.m : g.n) + kTile - 1) / kTile;
    const u64 total = tiles * static_cast<u64>(g.batch);
#pragma unroll 1
    for (u64 index = __builtin_amdgcn_workgroup_id_x(); index < total;
         index += static_cast<u64>(arguments.blocks)) {
      const StreamGemm block(g, static_cast<i64>(index / tiles),
                             static_cast<i64>(index % tiles) * kTile, (Shared*)memory);
      block.compute();
    }
  }

 private:
  struct Words {
    Chunk of[kMany][kWords];
  };
  struct Sums {
    float of[kMany][kFew];
  };

  __device__ __forceinline__ StreamGemm(const GemmArguments& arguments, i64 of_batch, i64 first_row,
                                        Shared* lds)
      : g(arguments),
        batch(of_batch),
        turned(g.n < g.m),
        many(rows_of(g, !turned)),
        memory(lds),
        thread(fresh_thread<kThreads>()),
        wave(__builtin_amdgcn_readfirstlane(thread / kLanes)),
        lane(thread % kLanes),
        row(first_row + wave % C::kWaveN * kMany) {}

  __device__ __forceinline__ Rows rows_of(const GemmArguments& all, bool of_b) const {
    const bool in_array = all.pointer_arrays != 0;
    if (of_b) {
      return {matrix_of<T>(all.b, all.batch_stride_b, batch, in_array), all.ld_b, all.n, all.k};
    }
    return {matrix_of<T>(all.a, all.batch_stride_a, batch, in_array), all.ld_a, all.m, all.k};
  }

  __device__ __forceinline__ void compute() const {
    Sums sums = {};
#pragma unroll 1
    for (i64 first = 0; first < g.k; first += C::kTileK) {
      const i64 left = g.k - first;
      const int turns =
          left < C::kTileK ? static_cast<int>((left + kTurn - 1) / kTurn) : C::kTileK / kTurn;
      fill(first, turns);
      barrier();
      multiply(first, turns, sums);
      barrier();
    }
    add_lanes(sums);
    if constexpr (C::kWaveK > 1) add_waves(sums);
    if (C::kWaveK == 1 || wave < C::kWaveN) store(sums);
    if constexpr (C::kWaveK > 1) barrier();  // the sums of waves have been read
  }

  // Brings a part of the few rows to LDS, with zeros up to the end of the last turn.
  __device__ __forceinline__ void fill(i64 first, int turns) const {
    const Rows few = rows_of(fresh_arguments<HipGemmArguments>().gemm, turned);
    const int words = turns * (kTurn / Rows::kWord);
#pragma unroll
    for (int f = 0; f < kFew; ++f) {
#pragma unroll 1
      for (int word = thread; word < words; word += kThreads) {
        store_shared(memory + f * kRowBytes + word * 16,
                     few.word(f, first + i64{word} * Rows::kWord));
      }
    }
  }

  // The lane's words of a turn; word w of the turn is kLanes words behind word w - 1. Words that
  // all exist are loaded without a test for each, so that they are on their way together.
  __device__ __forceinline__ void load(i64 first, int turn, Words& words) const {
    const i64 begin = first + i64{turn} * kTurn, end = begin + kTurn;
    const bool whole = many.is_aligned && row + kMany <= many.rows && end <= g.k;
    const i64 element = begin + lane * Rows::kWord;
    if (is_set(__builtin_amdgcn_readfirstlane(whole ? 1 : 0))) {
#pragma unroll
      for (int r = 0; r < kMany; ++r) {
        const Global<T> from = many.first + (row + r) * many.ld + element;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          words.of[r][w] = *reinterpret_cast<Global<Chunk>>(from + w * kLanes * Rows::kWord);
        }
      }
      return;
    }
    // What a test for each row needs isn't computed ahead of the loop over turns, or it would take
    // the last scalar registers.
    i64 first_row = row;
    asm volatile("" : "+s"(first_row));
#pragma unroll
    for (int r = 0; r < kMany; ++r) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        words.of[r][w] = many.word(first_row + r, element + w * kLanes * Rows::kWord);
      }
    }
  }

  // The next turn's words are on their way while a turn is multiplied.
  __device__ __forceinline__ void multiply(i64 first, int turns, Sums& sums) const {
    Words next;
    load(first, wave / C::kWaveN, next);
#pragma unroll 1
    for (int turn = wave / C::kWaveN; turn < turns; turn += C::kWaveK) {
      const Words words = next;
      if (turn + C::kWaveK < turns) load(first, turn + C::kWaveK, next);
      multiply_turn(turn, words, sums);
    }
  }

  __device__ __forceinline__ void multiply_turn(int turn, const Words& words, Sums& sums) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const int place = (turn * kTurn / Rows::kWord + w * kLanes + lane) * 16;
#pragma unroll
      for (int f = 0; f < kFew; ++f) {
        const auto other = load_shared<Chunk>(memory + f * kRowBytes + place);
#pragma unroll
        for (int i = 0; i < Rows::kWord; ++i) {
          const float x = Rows::element(other, i);
#pragma unroll
          for (int r = 0; r < kMany; ++r) {
            sums.of[r][f] = __builtin_fmaf(Rows::element(words.of[r][w], i), x, sums.of[r][f]);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void add_lanes(Sums& sums) {
#pragma unroll
    for (int i = 0; i < kMany * kFew; ++i) {
      sums.of[i / kFew][i % kFew] = sum_of_lanes(sums.of[i / kFew][i % kFew]);
    }
  }

  // Adds the sums of the waves that share rows, in their order.
  __device__ __forceinline__ void add_waves(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kMany * kFew; ++i) {
      if (lane == i) store_shared(memory + place_of(wave, i), sums.of[i / kFew][i % kFew]);
    }
    barrier();
    if (wave >= C::kWaveN) return;
#pragma unroll
    for (int i = 0; i < kMany * kFew; ++i) {
      float& sum = sums.of[i / kFew][i % kFew];
#pragma unroll
      for (int other = 1; other < C::kWaveK; ++other) {
        sum += load_shared<float>(memory + place_of(wave + other * C::kWaveN, i));
      }
    }
  }
  static __device__ __forceinline__ int place_of(int of_wave, int sum) {
    return (of_wave * kMany * kFew + sum) * 4;
  }

  // A lane stores four neighbours of an output row: of a few row, or of one of the many.
  __device__ __forceinline__ void store(const Sums& sums) const {
    const GemmArguments& all = fresh_arguments<HipGemmArguments>().gemm;
    const i64 left = many.rows - row;
    const i64 few_rows = turned ? all.n : all.m;
    const i64 lines = turned ? left : few_rows;
    if (left <= 0 || lane >= kMany || lane >= lines) return;
    Float4 own = 0;
#pragma unroll
    for (int r = 0; r < kMany; ++r) {
#pragma unroll
      for (int f = 0; f < kFew; ++f) {
        if (turned ? lane == r : lane == f) own[turned ? f : r] = sums.of[r][f];
      }
    }
    const i64 neighbours = turned ? few_rows : left;
    const Finish<C, GemmArguments> finish(all, batch);
    finish.store({turned ? row + lane : lane, turned ? 0 : row,
                  static_cast<int>(neighbours < kMany ? neighbours : kMany)},
                 own);
  }

  const GemmArguments& g;
  i64 batch;
  bool turned;  // whether the output's columns are few
  Rows many;
  Shared* memory;
  int thread, wave, lane;
  i64 row;  // the wave's first of the many
};

}  // namespace tessera::device
