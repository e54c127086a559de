// The words that attention multiplies on a CPU.
#pragma once

#include "tessera/device/cpu/words.h"

namespace tessera::device {

// How elements of T are multiplied where they are packed: pairs of bf16 if the core has an
// instruction for them, which doubles the rate, and else in fp32.
template <class T>
struct FlashWords {
  using Math = MathF32;
};
#if defined(__AVX512BF16__)
template <>
struct FlashWords<bf16> {
  using Math = MathBf16;
};
#endif
template <class T>
using FlashMath = typename FlashWords<T>::Math;

}  // namespace tessera::device
