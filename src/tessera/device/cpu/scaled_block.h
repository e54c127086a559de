// The register block of operands of 8 bits with scales: pairs of bf16, whose sums over a run of k
// are multiplied by both scales of the run and added up in fp32.
//
// A panel holds runs of kWords words of k, one behind the other, each behind a row of its scales.
#pragma once

#include "tessera/device/cpu/block.h"

namespace tessera::device {

// Sums of the whole block are added to in memory, where they stay in L1: there are no registers for
// two sets of them.
template <class Math, int kRows, int kVectors, int kPackedRows, int kWords>
[[gnu::noinline]] void multiply_scaled_block(const BlockTask& t) {
  using Acc = typename Math::Acc;
  const u32* a = static_cast<const u32*>(t.a);
  const u32* b = t.b;
  float* const out = static_cast<float*>(t.out);
  const auto* before = reinterpret_cast<const float*>(t.before);
  i64 ld_before = t.ld_before;
  for (i64 left = t.words; left > 0; left -= kWords + 1) {
    const u32 *a_scales = a, *b_scales = b;
    a += kPackedRows, b += t.b_word;
    Acc acc[kRows][kVectors] = {};
    for (int w = 0; w < kWords; ++w, a += kPackedRows, b += t.b_word) {
      u32v columns[kVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) columns[j] = load<u32v>(b + j * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) {
        const u32v row = splat(a[i]);
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) acc[i][j] = Math::mac(acc[i][j], row, columns[j]);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const f32v column = load<f32v>(b_scales + j * kLanes);
#pragma GCC unroll 32
      for (int i = 0; i < kRows; ++i) {
        const f32v scale = bits_as<f32v>(splat(a_scales[i])) * column;
        float* const to = out + i * t.ld_out + j * kLanes;
        const f32v sum =
            before == nullptr ? f32v{} : load<f32v>(before + i * ld_before + j * kLanes);
        store(to, acc[i][j] * scale + sum);
      }
    }
    before = out, ld_before = t.ld_out;
  }
}

template <class Math, int kPackedRows, int kWords>
struct ScaledBlock {
  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void multiply(const BlockTask& t) {
    multiply_scaled_block<Math, kRows, kVectors, kPackedRows, kWords>(t);
  }
};

// multiply_any() of such panels.
template <class Math, int kRows, int kVectors, int kWords>
void multiply_scaled(const BlockTask& t, i64 rows, int columns) {
  multiply_smallest<ScaledBlock<Math, kRows, kWords>, kRows, kVectors>(t, rows, columns);
}

}  // namespace tessera::device
