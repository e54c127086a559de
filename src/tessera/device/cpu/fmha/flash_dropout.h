// Dropout of the weights of a row on a CPU.
#pragma once

#include "tessera/device/cpu/vector.h"
#include "tessera/device/fmha_dropout.h"

namespace tessera::device {

typedef u64 u64v __attribute__((vector_size(kVectorBytes)));

// Products of the lower words of pairs. GCC does not see that the upper halves are zero, and would
// multiply all 64 bits.
[[gnu::always_inline]] inline u64v multiply_low(u64v x, u64v y) {
#if defined(__clang__)
  constexpr u64 kLow = 0xffffffffU;
  return (x & kLow) * (y & kLow);
#elif defined(__AVX512F__)
  typedef long long i64x __attribute__((vector_size(64)));
  return bits_as<u64v>(
      __builtin_ia32_pmuludq512_mask(bits_as<i32v>(x), bits_as<i32v>(y), i64x{}, -1));
#elif defined(__AVX2__)
  return bits_as<u64v>(__builtin_ia32_pmuludq256(bits_as<i32v>(x), bits_as<i32v>(y)));
#elif defined(__SSE2__)
  return bits_as<u64v>(__builtin_ia32_pmuludq128(bits_as<i32v>(x), bits_as<i32v>(y)));
#else
  constexpr u64 kLow = 0xffffffffU;
  return (x & kLow) * (y & kLow);
#endif
}

// Multiplies words: first those at even places, then those at odd places.
[[gnu::always_inline]] inline WideProduct<u32v> multiply_wide(u32v x, u32 factor) {
  constexpr u64 kLow = 0xffffffffU;
  const u64v pairs = bits_as<u64v>(x), factors = u64{factor} - u64v{};
  const u64v even = multiply_low(pairs, factors), odd = multiply_low(pairs >> 32, factors);
  return {bits_as<u32v>((even >> 32) | (odd & ~kLow)), bits_as<u32v>((even & kLow) | (odd << 32))};
}

// Runs of kRun lanes from the lower (kHalf 0) or the upper (1) halves of a and b in turn.
template <int kRun, int kHalf, int... I>
[[gnu::always_inline]] inline u32v in_turn(u32v a, u32v b, Lanes<I...>) {
  return __builtin_shufflevector(
      a, b, (kHalf * kLanes / 2 + I / (2 * kRun) * kRun + I % kRun + I / kRun % 2 * kLanes)...);
}

// Stores the four words of each counter one behind the other.
[[gnu::always_inline]] inline void store_words(const PhiloxWords<u32v>& words, u32* to) {
  constexpr AllLanes kAll;
  const u32v a = in_turn<1, 0>(words.w[0], words.w[1], kAll);
  const u32v b = in_turn<1, 0>(words.w[2], words.w[3], kAll);
  const u32v c = in_turn<1, 1>(words.w[0], words.w[1], kAll);
  const u32v d = in_turn<1, 1>(words.w[2], words.w[3], kAll);
  store(to, in_turn<2, 0>(a, b, kAll));
  store(to + kLanes, in_turn<2, 1>(a, b, kAll));
  store(to + 2 * kLanes, in_turn<2, 0>(c, d, kAll));
  store(to + 3 * kLanes, in_turn<2, 1>(c, d, kAll));
}

// The random bytes of one query for up to kMost keys.
template <int kMost>
class RandomBytes {
 public:
  // Keys [first, first + count) of the sequence.
  RandomBytes(const DropoutKey& key, const DropoutRow& row, i64 first, i64 count)
      : begin_(static_cast<int>(first % kKeysOfCounter)) {
    const i64 part = first / kKeysOfCounter;
    const int counters = static_cast<int>((begin_ + count + kKeysOfCounter - 1) / kKeysOfCounter);
    for (int c = 0; c < counters; c += kLanes) draw(key, row, part + c, words_ + c * 4);
  }

  // The random byte of key first + i. Behind the last one there is room to read a vector.
  const u8* of(i64 i) const { return reinterpret_cast<const u8*>(words_) + begin_ + i; }

 private:
  // A lane has a counter.
  static void draw(const DropoutKey& key, const DropoutRow& row, i64 part, u32* to) {
    const PhiloxWords<u32> first = dropout_counter(key, row, part);
    PhiloxWords<u32v> all;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) all.w[i] = splat(first.w[i]);
    all.w[0] += bits_as<u32v>(lane_numbers(AllLanes{}));
    all =
        philox(all, key.low, key.high, [](u32v x, u32 factor) { return multiply_wide(x, factor); });
    store_words(all, to);
  }

  static constexpr int kCounters = kMost / static_cast<int>(kKeysOfCounter) + 2;
  u32 words_[(kCounters + kLanes - 1) / kLanes * kLanes * 4 + kLanes];
  int begin_;
};

// Makes weights 0 whose random byte is `kept` or more; whole vectors, so that lanes behind the last
// weight change, too.
template <class Bytes>
inline void drop_weights(const Bytes& random, int kept, i64 count, float* weights) {
  const u32v limit = splat(static_cast<u32>(kept));
  for (i64 i = 0; i < count; i += kLanes) {
    const u16v pair = __builtin_convertvector(load<u8v>(random.of(i)), u16v);
    const u32v byte = __builtin_convertvector(pair, u32v);
    const f32v weight = load<f32v>(weights + i);
    store(weights + i, bits_as<f32v>(bits_as<u32v>(weight) & bits_as<u32v>(byte < limit)));
  }
}

}  // namespace tessera::device
