// A part of a vector of small elements, by one masked instruction where the processor has it.
#pragma once

#include "tessera/device/cpu/numeric.h"

namespace tessera::device {

#if defined(__AVX512BW__)
// The first `bytes` bytes (1 to 64), zeros behind them; reads nothing past them.
[[gnu::always_inline]] inline u32v load_few_bytes(const void* p, int bytes) {
  typedef char c64v __attribute__((vector_size(kVectorBytes)));
  const unsigned long long mask = ~0ULL >> (64 - bytes);
#if defined(__clang__)
  return bits_as<u32v>(__builtin_ia32_loaddquqi512_mask(static_cast<const c64v*>(p), c64v{}, mask));
#else
  return bits_as<u32v>(__builtin_ia32_loaddquqi512_mask(static_cast<const char*>(p), c64v{}, mask));
#endif
}
#endif

#if defined(__AVX512BW__) && defined(__AVX512VL__)
// The first `count` lanes.
[[gnu::always_inline]] inline void store_few_halves(void* p, u16v v, int count) {
  typedef short s16v __attribute__((vector_size(kVectorBytes / 2)));
  const auto mask = static_cast<u16>((1U << count) - 1U);
#if defined(__clang__)
  __builtin_ia32_storedquhi256_mask(static_cast<s16v*>(p), bits_as<s16v>(v), mask);
#else
  __builtin_ia32_storedquhi256_mask(static_cast<short*>(p), bits_as<s16v>(v), mask);
#endif
}
#endif

}  // namespace tessera::device
