// The two products of attention by matrix instructions, of a wave with a tile of keys and one of
// values in LDS. mfma_fmha.h says how they lie.
#pragma once

#include "tessera/device/hip/fmha/key_value_tiles.h"
#include "tessera/device/hip/mfma.h"

namespace tessera::device {

template <class C, int kThreads>
struct MfmaProducts {
  using Op = Mfma<typename C::In, typename C::In, 32>;
  using Sum = typename Op::Sum;
  using Keys = KeyTiles<C, kThreads>;
  using Values = typename ValueTiles<C, kThreads>::Loader;

  static constexpr int kOwnKeys = C::kKeys / C::kTeams;  // of a tile, that a wave multiplies
  static constexpr int kKeyBlocks = kOwnKeys / 32, kHeadBlocks = C::kHdimV / 32;
  static constexpr int kSteps = C::kHeadSize / 16, kPairs = kOwnKeys / 16;

  // Chunks of so many steps are on their way from LDS while a step is multiplied.
  static constexpr int kAhead = 1, kRing = kAhead + 1;
  // Vector, scalar and memory instructions may be moved across; reads of LDS and MFMAs stay.
  static __device__ __forceinline__ void keep_order() {
    __builtin_amdgcn_sched_barrier(0x2 | 0x4 | 0x10);
  }

  // Scores of the keys from `from` on.
  static __device__ __forceinline__ void multiply_keys(const Shared* tile, int lane, int from,
                                                       const Chunk (&queries)[C::kBlocks][kSteps],
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
      for (int part = 0; part < Op::kParts; ++part) {
#pragma unroll
        for (int b = 0; b < kKeyBlocks; ++b) {
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            const Sum before = step + part == 0 ? Sum(0.0F) : scores[m][b];
            scores[m][b] = Op::step(part, ring[step % kRing][b], queries[m][step], before);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }

  // A step is 16 keys and kTogether blocks of the head.
  static constexpr int kTogether = kHeadBlocks % 2 == 0 ? 2 : 1;
  static constexpr int kValueSteps = kPairs * kHeadBlocks / kTogether;
  static __device__ __forceinline__ void multiply_values(const Shared* tile, int lane, int from,
                                                         const Chunk (&weights)[C::kBlocks][kPairs],
                                                         Sum (&sums)[C::kBlocks][kHeadBlocks]) {
    Chunk ring[kRing][kTogether];
    const auto read = [&](int step) {
      const int first = step * kTogether;
#pragma unroll
      for (int d = 0; d < kTogether; ++d) {
        ring[step % kRing][d] =
            Values::read(tile, lane, first % kHeadBlocks + d, first / kHeadBlocks + from / 16);
      }
    };
    __builtin_amdgcn_s_setprio(1);
#pragma unroll
    for (int step = 0; step < kAhead; ++step) read(step);
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      if (step + kAhead < kValueSteps) read(step + kAhead);
      keep_order();
      const int first = step * kTogether % kHeadBlocks, pair = step * kTogether / kHeadBlocks;
#pragma unroll
      for (int part = 0; part < Op::kParts; ++part) {
#pragma unroll
        for (int d = 0; d < kTogether; ++d) {
#pragma unroll
          for (int m = 0; m < C::kBlocks; ++m) {
            Sum& sum = sums[m][first + d];
            sum = Op::step(part, ring[step % kRing][d], weights[m][pair], sum);
          }
        }
      }
      keep_order();
    }
    __builtin_amdgcn_s_setprio(0);
  }
};

}  // namespace tessera::device
