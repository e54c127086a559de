// Scores that are more than products times the scale: a soft cap, ALiBi, a bias. Bent scores are
// powers of 2.
#pragma once

#include "tessera/device/hip/fmha/mfma_arguments.h"
#include "tessera/device/hip/math.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

inline constexpr float kLog2OfE = 1.44269504F;

// Masks of other libraries hide keys by the least finite number, which is no power of 2 that fp32
// holds. Numbers below kFar are brought nearer in their order, and lse is brought back: numbers as
// low as that are so far apart that only the largest of them weighs.
inline constexpr float kFar = -1e29F;
__device__ __forceinline__ float brought_near(float x, float far) {
  return x < far ? (x - far) * 0x1p-10F + far : x;
}
__device__ __forceinline__ float brought_back(float x) {
  constexpr float kLeast = -3.40282347e38F;
  if (!(x < kFar) || x == -__builtin_inff()) return x;
  const float far = (x - kFar) * 0x1p10F + kFar;
  return far < kLeast ? kLeast : far;
}

// What the lanes of a row know of it. Config has kSoftCap, kBias and Bias.
template <class C, int kKeyBlocks>
class ScoreBends {
 public:
  static constexpr bool kAny = C::kSoftCap || C::kBias != FmhaBias::none;
  static constexpr bool kReads = C::kBias == FmhaBias::elementwise;
  using Sum = Vec<float, 16>;
  using Bias = typename C::Bias;

  // The biases of a tile, quads of neighbouring keys.
  struct Staged {
    Quad<Bias> quads[kReads ? kKeyBlocks * 4 : 1];
  };

  // The loop has vector registers for all this, but no scalar ones. `factor` is that of bend().
  __device__ __forceinline__ void begin(const FmhaArguments& g, const FmhaSequence& s, i64 batch,
                                        i64 head, int row, int group, float factor) {
    if constexpr (C::kSoftCap) {
      cap = bits<float>(not_ahead(bits<int>(g.soft_cap * kLog2OfE)));
      steepness = bits<float>(not_ahead(bits<int>(2.0F * factor / g.soft_cap)));
    }
    if constexpr (C::kBias == FmhaBias::alibi) {
      slope = -g.slopes[batch * g.slope_stride + head] * kLog2OfE;
      distance = row + static_cast<int>(s.keys - s.queries) - 4 * group;
    }
    if constexpr (kReads) {
      far = bits<float>(not_ahead(bits<int>(kFar)));
      const auto* const head_bias =
          static_cast<const Bias*>(g.bias) + batch * g.bias_stride[0] + head * g.bias_stride[1];
      const bool has_quads = g.bias_stride[3] == 1 && quads_aligned(head_bias, g.bias_stride[2]);
      const int last = static_cast<int>(s.queries) - 1;
      const i64 down = (row < last ? row : last) * g.bias_stride[2];
      bias = (Global<Bias>)(bits<u64>(head_bias + down));
      stride = not_ahead(static_cast<int>(g.bias_stride[3]));
      first = 4 * group;
      keys = not_ahead(static_cast<int>(s.keys));
      whole_keys = has_quads ? static_cast<int>(s.keys) : 0;
    }
  }

  // Asks for the biases of a tile that begins at the key. What is behind the last key may be
  // anything.
  __device__ __forceinline__ void fetch(Staged& to, int key) const {
    if constexpr (kReads) {
      if (key + kKeyBlocks * 32 <= whole_keys) {
#pragma unroll
        for (int i = 0; i < kKeyBlocks * 4; ++i) {
          to.quads[i] = *(Global<Quad<Bias>>)(bias + first + key + i * 8);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kKeyBlocks * 4; ++i) to.quads[i] = elements(first + key + i * 8);
      }
    }
  }

  // `factor` turns products into powers of 2.
  __device__ __forceinline__ void bend(Sum (&scores)[kKeyBlocks], const Staged& biases, int key,
                                       float factor) const {
    const float from = static_cast<float>(distance - key);
#pragma unroll
    for (int q = 0; q < kKeyBlocks * 4; ++q) {
      // The compiler would keep a scalar register for each distance that it knows ahead.
      float left = from - static_cast<float>(q * 8);
      if constexpr (C::kBias == FmhaBias::alibi) asm volatile("" : "+v"(left));
      const Float4 distances = {left, left - 1.0F, left - 2.0F, left - 2.0F - 1.0F};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = scores[q / 4][q % 4 * 4 + i];
        float x = C::kSoftCap ? capped(score) : score * factor;
        if constexpr (C::kBias == FmhaBias::alibi) x += slope * __builtin_fabsf(distances[i]);
        if constexpr (kReads) {
          x += kLog2OfE * brought_near(float_of_bits<Bias>(bits_of<Bias>(biases.quads[q], i)), far);
        }
        scores[q / 4][q % 4 * 4 + i] = x;
      }
    }
  }

 private:
  // Four keys, one by one.
  __device__ __forceinline__ Quad<Bias> elements(int key) const {
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(Bias));
    Quad<Bias> quad = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = key + i < keys ? key + i : keys - 1;
      const u32 word = ((Global<WordBits<Bias>>)bias)[i64{at} * stride];
      quad[i / kPerWord] |= word << (i % kPerWord * 8 * static_cast<int>(sizeof(Bias)));
    }
    return quad;
  }
  // cap * tanh(x / cap), with an error of about 1e-7 cap, as a power of 2.
  __device__ __forceinline__ float capped(float score) const {
    return cap * (1.0F - 2.0F * reciprocal(exp2_fast(score * steepness) + 1.0F));
  }

  float cap = 0, steepness = 0;
  float slope = 0;
  float far = 0;  // kFar
  int distance = 0;
  Global<Bias> bias = nullptr;
  int stride = 0;
  int first = 0, keys = 0;
  int whole_keys = 0;  // of whose biases quads can be read
};

}  // namespace tessera::device
