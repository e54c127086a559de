// Keys and values of 8 bits in attention with split keys: they become fp16 in registers, which is
// exact, on their way from shared memory to the tensor cores.
//
// ldmatrix moves pairs of bytes where it moves elements of 16 bits. So a thread has four
// neighbouring elements of a key where it would have two, and its two pairs are the two halves of
// an operand if the elements of 16 are taken in the order 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15:
// the queries lie in that order. A thread also has two elements of two values each. An instruction
// takes the even elements of 16, the next one the odd ones, and a thread ends up with the sums of
// four neighbours.
#pragma once

#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_rows.h"
#include "tessera/device/cuda/fragments.h"
#include "tessera/device/cuda/math.h"
#include "tessera/device/cuda/types.h"

namespace tessera::device {

// Four fp8 or bf8 of a word as two pairs of fp16.
template <class T>
__device__ __forceinline__ void halves_of_word(u32 word, u32 (&halves)[2]) {
  if constexpr (kSame<T, bf8>) {  // the upper half of an fp16
    halves[0] = __byte_perm(word, 0, 0x1404);
    halves[1] = __byte_perm(word, 0, 0x3424);
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(word));
  }
}
// The elements 0 and 2, and 1 and 3.
template <class T>
__device__ __forceinline__ void alternating_halves(u32 word, u32 (&halves)[2]) {
  if constexpr (kSame<T, bf8>) {
    halves[0] = __byte_perm(word, 0, 0x2404);
    halves[1] = __byte_perm(word, 0, 0x3414);
  } else {
    halves_of_word<T>(__byte_perm(word, 0, 0x3120), halves);
  }
}

// ---- queries ----

// The element of a head that lies at place `at` of the queries.
constexpr int byte_order(int at) { return at / 16 * 16 + at % 8 / 2 * 4 + at / 8 % 2 * 2 + at % 2; }

// Queries of bf16 become fp16 times a power of 2 for each row, by which the row's largest element
// lies near the largest fp16: an element then loses bits only if it is less than 2^-31 of that.
struct ByteScale {
  u32 exponent;  // of the row's largest element, biased

  // The larger one of two elements without their signs.
  static __device__ __forceinline__ u32 largest(u32 word) {
    return max(word & 0x7fffU, word >> 16 & 0x7fffU);
  }
  // `most`: the largest such element of a row.
  static __device__ __forceinline__ ByteScale of(u32 most) {
    const u32 exponent = most >> 7;
    return {exponent < 15 ? 15U : exponent > 254 ? 254U : exponent};
  }
  __device__ __forceinline__ float up() const { return __uint_as_float((268 - exponent) << 23); }
  __device__ __forceinline__ float down() const { return __uint_as_float((exponent - 14) << 23); }
  // Two elements.
  __device__ __forceinline__ u32 halves(u32 word) const {
    return round_pair<fp16>(__uint_as_float(word << 16) * up(),
                            __uint_as_float(word & 0xffff0000U) * up());
  }
};

// ---- factors of values ----

// Weights times the factors of values have 16 bits, too. They are multiplied in units of the
// largest factor so far, a power of 2, and so are the sums.
struct ByteUnit {
  u32 exponent = 1;  // biased
  __device__ __forceinline__ float up() const { return __uint_as_float(exponent << 23); }
  __device__ __forceinline__ float down() const { return __uint_as_float((254 - exponent) << 23); }
  // By what sums are to be multiplied where one of these factors is larger.
  __device__ __forceinline__ float grow(float most) {
    const u32 needed = (__float_as_uint(most) + 0x7fffffU) >> 23;
    if (needed <= exponent) return 1;
    const u32 wider = needed < 253 ? needed : 253;
    const u32 less = wider - exponent;
    exponent = wider;
    return less > 126 ? 0.0F : __uint_as_float((127 - less) << 23);
  }
};

// ---- products ----

// What SplitFmha does with keys and values of 8 bits: Block is how they lie in shared memory,
// Queries how the queries do, which are fp16 then.
template <class C, class Block, class Queries>
struct SplitBytes {
  using Kv = typename C::Kv;
  static constexpr int kKeys = C::kTileN, kHdim = C::kTileK;
  static constexpr int kGroups = kKeys / 8;  // of keys; a lane has four scores of each
  using Scores = float[kGroups][4];
  using Sums = float[kHdim / 8][4];

  // Queries of bf16 become fp16, a row after the other by each warp of the block.
  static __device__ __forceinline__ void scale_queries(u32 queries, int thread, float* scales) {
    constexpr int kWords = kHdim / 64;  // of a lane
    const int lane = thread % 32;
    const u32 from = queries + lane % 4 * 4;
#pragma unroll 1
    for (int r = thread / 32; r < C::kTileM; r += C::kWaveM * C::kWaveN) {
      u32 words[kWords], top = 0;
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = load_word(from + Queries::at(r, lane / 4 + 8 * i));
        top = max(top, ByteScale::largest(words[i]));
      }
      const ByteScale scale = ByteScale::of(__reduce_max_sync(~0U, top));
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        store_word(from + Queries::at(r, lane / 4 + 8 * i), scale.halves(words[i]));
      }
      if (lane == 0) scales[r] = scale.down();
    }
  }

  // Adds the products of 16 queries and a block of keys. take(step, words) loads the queries of 16
  // elements as the left operand. A matrix of 8 keys by 16 bytes is the right one.
  template <class Take>
  static __device__ __forceinline__ void multiply(u32 keys, u32 start, Take take, Scores& x) {
#pragma unroll
    for (int step = 0; step < kHdim / 32; ++step) {
      u32 q[2][4];
      take(2 * step, q[0]);
      take(2 * step + 1, q[1]);
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        u32 k[4];
        load_matrices<false>(keys + (start ^ step * 32) + i * 16 * Block::kLineBytes, k);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const u32 upper[2] = {q[j % 2][0], q[j % 2][2]};
          const u32 lower[2] = {q[j % 2][1], q[j % 2][3]};
          u32 halves[2];
          halves_of_word<Kv>(k[j], halves);
          mma<fp16>(x[2 * i + j / 2], upper, lower, halves);
        }
      }
    }
  }

  // Adds the weighted values of a block. The even ones of 16 columns are an operand, and the odd
  // ones another.
  static __device__ __forceinline__ void add(u32 values, u32 start, const Scores& x, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const float(&p)[4] = x[2 * i];
      const float(&q)[4] = x[2 * i + 1];
      const u32 upper[2] = {round_pair<fp16>(p[0], p[1]), round_pair<fp16>(q[0], q[1])};
      const u32 lower[2] = {round_pair<fp16>(p[2], p[3]), round_pair<fp16>(q[2], q[3])};
#pragma unroll
      for (int chunk = 0; chunk < kHdim / 16; chunk += 2) {
        u32 v[4];
        load_matrices<true>(values + (start ^ chunk * 16) + i * 16 * Block::kLineBytes, v);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          u32 low[2], high[2];
          alternating_halves<Kv>(v[2 * j], low);
          alternating_halves<Kv>(v[2 * j + 1], high);
          mma<fp16>(sums[2 * (chunk + j)], upper, lower, {low[0], high[0]});
          mma<fp16>(sums[2 * (chunk + j) + 1], upper, lower, {low[1], high[1]});
        }
      }
    }
  }

  // Stores a lane's sums of row r, four neighbours of 16.
  static __device__ __forceinline__ void leave(float* to, int r, float by, const Sums& sums) {
#pragma unroll
    for (int i = 0; i < kHdim / 16; ++i) {
      const float(&even)[4] = sums[2 * i];
      const float(&odd)[4] = sums[2 * i + 1];
      *reinterpret_cast<float4*>(to + 16 * i) = {even[2 * r] * by, odd[2 * r] * by,
                                                 even[2 * r + 1] * by, odd[2 * r + 1] * by};
    }
  }

  // Multiplies the products of a block by the factors of its keys, which lie at `factors`.
  static __device__ __forceinline__ void scale_products(u32 factors, int lane, Scores& x) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float by[2];
      load_shared(factors + i * 32 + lane % 4 * 8, by[0], by[1]);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[i][j] *= by[j % 2];
    }
  }

  // Multiplies weights by the factors of values, in units of the largest one so far.
  static __device__ __forceinline__ void scale_weights(u32 factors, int lane, ByteUnit& unit,
                                                       Scores& x, Sums& sums) {
    float by[kGroups][2], largest = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      load_shared(factors + i * 32 + lane % 4 * 8, by[i][0], by[i][1]);
      largest = fmaxf(largest, fmaxf(fabsf(by[i][0]), fabsf(by[i][1])));
    }
    const float ratio = unit.grow(most_of_row(largest));
    if (ratio != 1) {
#pragma unroll
      for (int i = 0; i < kHdim / 8 * 4; ++i) sums[i / 4][i % 4] *= ratio;
    }
    const float down = unit.down();
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) x[i / 4][i % 4] *= by[i / 4][i % 2] * down;
  }
};

}  // namespace tessera::device
