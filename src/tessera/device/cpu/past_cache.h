// Stores that leave the caches to what is still to be read.
#pragma once

#include "tessera/device/cpu/vector.h"

namespace tessera::device {

// `p` is aligned to a vector. Whoever stores so calls finish_stores() at the end.
[[gnu::always_inline]] inline void store_past_cache(float* p, f32v v) {
#if defined(__AVX512F__)
  __builtin_ia32_movntps512(p, v);
#elif defined(__AVX2__)
  __builtin_ia32_movntps256(p, v);
#else
  store(p, v);
#endif
}
inline void finish_stores() {
#if defined(__AVX2__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace tessera::device
