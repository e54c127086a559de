// The two products of attention by matrix instructions, of a wave with a tile of keys and one of
// values in LDS. mfma_fmha.h says how they lie.
#pragma once

#include "tessera/device/hip/fmha/key_value_tiles.h"
#include "tessera/device/hip/fmha/wide_chunk.h"
#include "tessera/device/hip/mfma.h"

namespace tessera::device {

template <class C, int kThreads>
struct MfmaProducts {
  using In = typename C::In;
  using Kv = typename C::Kv;
  static constexpr bool kBytes = sizeof(Kv) == 1;
  // Keys of 8 bits beside queries of 16 are widened, and so are values beside such weights.
  static constexpr bool kWideKeys = kBytes && sizeof(In) == 2,
                        kWideValues = kBytes && !C::kByteWeights;
  using Weight = typename If<C::kByteWeights, fp8, typename If<kBytes, fp16, In>::Type>::Type;
  using Value = typename If<kWideValues, fp16, Kv>::Type;
  using Op = Mfma<In, In, 32>;
  using ValueOp = Mfma<Value, Weight, 32>;
  using Sum = typename Op::Sum;
  using Keys = KeyTiles<C, kThreads>;
  using Values = typename ValueTiles<C, kThreads>::Loader;

  static constexpr int kOwnKeys = C::kKeys / C::kTeams;  // of a tile, that a wave multiplies
  static constexpr int kKeyBlocks = kOwnKeys / 32, kHeadBlocks = C::kHdimV / 32;
  // Chunks of a key that a lane multiplies, and of a query.
  static constexpr int kSteps = C::kHeadSize * static_cast<int>(sizeof(Kv)) / 32;
  static constexpr int kOfQuery = C::kHeadSize * static_cast<int>(sizeof(In)) / 32;
  static constexpr int kEach = kOfQuery / kSteps;
  // Chunks of weights; keys of a chunk of values of a lane and its neighbour.
  static constexpr int kWeights = kOwnKeys * static_cast<int>(sizeof(Weight)) / 32;
  static constexpr int kValueKeys = 32 / static_cast<int>(sizeof(Kv));
  static constexpr int kValueChunks = kOwnKeys / kValueKeys, kEachValue = kWeights / kValueChunks;

  // Chunks of so many steps are on their way from LDS while a step is multiplied.
  static constexpr int kAhead = 1, kRing = kAhead + 1;
  // Vector, scalar and memory instructions may be moved across; reads of LDS and MFMAs stay.
  static __device__ __forceinline__ void keep_order() {
    __builtin_amdgcn_sched_barrier(0x2 | 0x4 | 0x10);
  }

  // Scores of the keys from `from` on.
  static __device__ __forceinline__ void multiply_keys(const Shared* tile, int lane, int from,
                                                       const Chunk (&queries)[C::kBlocks][kOfQuery],
                                                       Sum (&scores)[C::kBlocks][kKeyBlocks]) {
    Chunk ring[kRing][kKeyBlocks];
    const auto read = [&](int step) {
#pragma unroll
      for (int b = 0; b < kKeyBlocks; ++b) {
        ring[step % kRing][b] = Keys::read(tile, lane, from, b, step);
      }
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + kAhead < kSteps) read(step + kAhead);
      keep_order();
#pragma unroll
      for (int i = 0; i < kEach * Op::kParts; ++i) {
        const int half = i / Op::kParts, part = i % Op::kParts;
#pragma unroll
        for (int b = 0; b < kKeyBlocks; ++b) {
          const Chunk& read_chunk = ring[step % kRing][b];
          Chunk key = read_chunk;
          if constexpr (kWideKeys) key = widened_half<In, Kv>(read_chunk, half);
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            const Sum before = step + i == 0 ? Sum(0.0F) : scores[m][b];
            scores[m][b] = Op::step(part, key, queries[m][step * kEach + half], before);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }

  // A step is kValueKeys keys and kTogether blocks of the head.
  static constexpr int kTogether = kHeadBlocks % 2 == 0 ? 2 : 1;
  static constexpr int kValueSteps = kValueChunks * kHeadBlocks / kTogether;
  static __device__ __forceinline__ void multiply_values(
      const Shared* tile, int lane, int from, const Chunk (&weights)[C::kBlocks][kWeights],
      Sum (&sums)[C::kBlocks][kHeadBlocks]) {
    Chunk ring[kRing][kTogether];
    const auto read = [&](int step) {
      const int first = step * kTogether;
#pragma unroll
      for (int d = 0; d < kTogether; ++d) {
        ring[step % kRing][d] = Values::read(tile, lane, first % kHeadBlocks + d,
                                             first / kHeadBlocks + from / kValueKeys);
      }
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step);
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      if (step + kAhead < kValueSteps) read(step + kAhead);
      keep_order();
      const int first = step * kTogether % kHeadBlocks, chunk = step * kTogether / kHeadBlocks;
#pragma unroll
      for (int i = 0; i < kEachValue * ValueOp::kParts; ++i) {
        const int half = i / ValueOp::kParts, part = i % ValueOp::kParts;
#pragma unroll
        for (int d = 0; d < kTogether; ++d) {
          const Chunk& read_chunk = ring[step % kRing][d];
          Chunk value = read_chunk;
          if constexpr (kWideValues) value = widened_half<fp16, Kv>(read_chunk, half);
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            Sum& sum = sums[m][first + d];
            sum = ValueOp::step(part, value, weights[m][chunk * kEachValue + half], sum);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }
};

}  // namespace tessera::device
