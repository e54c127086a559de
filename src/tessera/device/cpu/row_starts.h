// What the sums of rows of A start from, where the other factor is biased.
#pragma once

#include "tessera/device/cpu/small_words.h"

namespace tessera::device {

// -128 times the sum of each of `rows` rows of int8, which lie `row` bytes apart.
template <class Math>
void row_starts(const u8* a, i64 row, i64 rows, i64 bytes, int* starts) {
#if defined(__AVX512F__)
  const u32v ones = splat(0x01010101U);
  const int rest = static_cast<int>(bytes % 64);
  const unsigned long long mask = (1ULL << rest) - 1;
  for (i64 i = 0; i < rows; ++i) {
    typename Math::Acc sum{};
    const u8* p = a + i * row;
    for (i64 left = bytes / 64; left > 0; --left, p += 64) {
      sum = mac_as_it_lies<Math>(sum, load<u32v>(p), ones);
    }
    if (rest != 0) sum = mac_as_it_lies<Math>(sum, load_masked_bytes(p, mask), ones);
    starts[i] = -128 * static_cast<int>(sum_of_lanes(sum));
  }
#endif
}

}  // namespace tessera::device
