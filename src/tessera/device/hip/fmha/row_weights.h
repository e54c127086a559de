// Online softmax of 32 queries, of which a lane has one: sums lie as Mfma leaves them with the keys
// as the first operand, so that lanes l and l + 32 have the scores of one query.
#pragma once

#include "tessera/device/hip/math.h"
#include "tessera/device/hip/memory.h"
#include "tessera/device/hip/mfma.h"

namespace tessera::device {

__device__ __forceinline__ float larger(float a, float b) { return __builtin_fmaxf(a, b); }

// Combines what the lanes l and l + 32 have.
template <class F>
__device__ __forceinline__ float over_halves(float x, F f) {
#if defined(__gfx950__)
  const auto both = __builtin_amdgcn_permlane32_swap(bits<u32>(x), bits<u32>(x), false, false);
  return f(bits<float>(both[0]), bits<float>(both[1]));
#else
  const u32 lane = __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
  const int other = __builtin_amdgcn_ds_bpermute(static_cast<int>((lane ^ 32U) * 4), bits<int>(x));
  return f(x, bits<float>(other));
#endif
}

// Two weights, rounded to nearest. They are not negative.
template <class T>
__device__ __forceinline__ u32 round_pair(float a, float b) {
  using Pair = Vec<float, 2>;
  if constexpr (kSame<T, fp16>) {
    return bits<u32>(__builtin_convertvector((Pair{a, b}), Vec<_Float16, 2>));
  } else {
#if defined(__gfx950__)
    return bits<u32>(__builtin_convertvector((Pair{a, b}), Vec<__bf16, 2>));
#else
    // Ties go up.
    return __builtin_amdgcn_perm(bits<u32>(b) + 0x8000U, bits<u32>(a) + 0x8000U, 0x07060302U);
#endif
  }
}

// Two weights in e4m3, in the lower or the upper half of a word.
__device__ __forceinline__ u32 round_bytes(u32 word, float a, float b, bool upper) {
#if defined(__gfx942__) || defined(__gfx950__)
  const int old = static_cast<int>(word);
  return static_cast<u32>(upper ? __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, true)
                                : __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, false));
#else
  return word;
#endif
}

// The keys that a lane's query sees, from the begin of a sequence.
struct RowKeys {
  int begin, end;
};

// Less than every score of a key that is seen. Sums of queries that saw nothing refer to it.
inline constexpr float kNothing = -1e30F;
// The same where a bias is part of the scores, which are powers of 2.
inline constexpr float kNothingWithBias = -1e37F;

// Weights are 2^kWeightShift times as large. gfx90a multiplies subnormal numbers as zeros, so that
// fp16 would lose the weights below 2^-14 there, of which long rows have many.
#if defined(__gfx90a__)
template <class In>
inline constexpr float kWeightShift = kSame<In, fp16> ? 7.0F : 0.0F;
#elif defined(__gfx942__)
template <class In>
inline constexpr float kWeightShift = kSame<In, fp8> ? 5.0F : 0.0F;
#else
template <class In>
inline constexpr float kWeightShift = kSame<In, fp8> ? 6.0F : 0.0F;
#endif
// References stay while no weight is 2^kWeightSlack times as large as a new one allows. Weights of
// 8 bits stay below 2^8, or 2^7 where numbers end at 240 (FNUZ); the largest one of a row is at
// least 2^5 then, so that many small ones are there, too.
template <class In>
inline constexpr float kWeightSlack = kSame<In, fp8> ? 2.0F : 8.0F;

struct RowState {
  float reference = kNothing;  // weights are 2^(factor * (score - reference))
  Vec<float, 2> sums = 0;      // of the lane's weights
};

// `factor` is positive: scale * log2(e), or 1 where scores are powers of 2.
template <class In, int kKeyBlocks>
struct RowWeights {
  using Sum = Vec<float, 16>;

  // Hides scores of keys that are not seen; `first` is the tile's first key. With kHasSink the
  // first `sink` keys are seen besides, up to the end.
  template <bool kHasSink>
  static __device__ __forceinline__ void mask(Sum (&scores)[kKeyBlocks], const RowKeys& keys,
                                              int sink, int first, int group) {
    // A few at a time: the compiler would make all tests first, and keep those of a block of rows
    // for the next one, which may see the same keys. One test for both ends of a row's keys, and
    // small numbers, need few scalar registers. Tiles that need no tests count nothing for them.
    const u32 count = static_cast<u32>(keys.end - keys.begin);
    const int last = sink < keys.end ? sink : keys.end;
    const int own_begin = not_ahead(keys.begin - 4 * group);
    const int own_last = kHasSink ? not_ahead(last - 4 * group) : 0;
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) {
      const int from = first + b * 32;
      const int begin = not_ahead(own_begin - from);
      const int in_sink = kHasSink ? not_ahead(own_last - from) : 0;
#pragma unroll
      for (int s = 0; s < 16; ++s) {
        const int key = s / 4 * 8 + s % 4;
        const bool in_window = static_cast<u32>(key) - static_cast<u32>(begin) < count;
        const bool seen = in_window || (kHasSink && key < in_sink);
        scores[b][s] = seen ? scores[b][s] : -__builtin_inff();
        if (s % 8 == 7) __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

  // The largest of the query's scores and `least`. Scores enter by threes (v_max3), in chains of
  // odd lengths: of two, the compiler would quiet each NaN first.
  static __device__ __forceinline__ float largest(const Sum (&scores)[kKeyBlocks], float least) {
    constexpr int kEach = kKeyBlocks * 4;
    const auto chain = [&](int first, int count) {
      const auto score = [&](int n) { return scores[(first + n) / 16][(first + n) % 16]; };
      float top = larger(larger(score(0), score(1)), score(2));
#pragma unroll
      for (int n = 3; n < count; n += 2) top = larger(larger(top, score(n)), score(n + 1));
      return top;
    };
    const float a = chain(0, kEach + 1), b = chain(kEach + 1, kEach - 1);
    const float c = chain(2 * kEach, kEach + 1), d = chain(3 * kEach + 1, kEach - 1);
    return over_halves(larger(larger(larger(larger(a, b), c), d), least), larger);
  }

  static constexpr int kChunks = kKeyBlocks * static_cast<int>(sizeof(In));
  // Adds two weights behind those of a block that are there.
  static __device__ __forceinline__ void add_pair(Chunk (&weights)[kChunks], int b, int s, float x,
                                                  float y) {
    if constexpr (sizeof(In) == 2) {
      weights[b * 2 + s / 8][s % 8 / 2] = round_pair<In>(x, y);
    } else {
      weights[b][s / 4] = round_bytes(weights[b][s / 4], x, y, s % 4 != 0);
    }
  }

  // The weights as operands, 16 bytes a chunk. `drawn` says which of them are kept; sums are of
  // all.
  template <class Drawn>
  static __device__ __forceinline__ void weigh(const Sum (&scores)[kKeyBlocks], float factor,
                                               RowState& state, Drawn drawn,
                                               Chunk (&weights)[kChunks]) {
    const float shift = kWeightShift<In> - state.reference * factor;
#pragma unroll
    for (int b = 0; b < kKeyBlocks; ++b) {
      drawn.draw(b);
#pragma unroll
      for (int s = 0; s < 16; s += 2) {
        const Vec<float, 2> pair = {scores[b][s], scores[b][s + 1]};
        const Vec<float, 2> power = pair * factor + shift;
        const Vec<float, 2> weight = {exp2_fast(power[0]), exp2_fast(power[1])};
        state.sums += weight;
        add_pair(weights, b, s, drawn.kept(weight[0], s), drawn.kept(weight[1], s + 1));
      }
    }
  }
};

}  // namespace tessera::device
