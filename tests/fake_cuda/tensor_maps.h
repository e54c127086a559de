// Tensor maps as the fake driver encodes them.
#pragma once

#include <cstring>

#include "world.h"

namespace fake_cuda {

// What both kinds of tensor maps have.
struct Window {
  int type;
  unsigned rank;
  void* base;
  const std::uint64_t* sizes;
  const std::uint64_t* strides;
  const unsigned* steps;
  int interleave, swizzle, promotion, fill;
};
inline Result encode(void* map, EncodedMap words, const Window& window) {
  const Locked l;
  ++l.w.counters.encodes;
  if (l.w.settings.encode_result != 0) return l.w.settings.encode_result;
  if (window.rank < 1 || window.rank > 5) return kInvalidValue;
  if (reinterpret_cast<std::uintptr_t>(window.base) % 16 != 0) return kInvalidValue;
  if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0) return kInvalidValue;
  words.base = reinterpret_cast<std::uint64_t>(window.base);
  for (unsigned i = 0; i < window.rank; ++i) {
    words.sizes[i] = static_cast<std::uint32_t>(window.sizes[i]);
    words.steps[i] = static_cast<std::uint16_t>(window.steps[i]);
    if (i + 1 == window.rank) continue;
    if (window.strides[i] % 16 != 0) return kInvalidValue;
    words.strides[i] = static_cast<std::uint32_t>(window.strides[i]);
  }
  words.rank = static_cast<std::uint8_t>(window.rank);
  words.type = static_cast<std::uint8_t>(window.type);
  words.interleave = static_cast<std::uint8_t>(window.interleave);
  words.swizzle = static_cast<std::uint8_t>(window.swizzle);
  words.promotion = static_cast<std::uint8_t>(window.promotion);
  words.fill = static_cast<std::uint8_t>(window.fill);
  unsigned char bytes[128] = {};
  std::memcpy(bytes, &words, sizeof(words));
  std::memcpy(map, bytes, sizeof(bytes));
  return 0;
}

}  // namespace fake_cuda
