// Philox4x32-10: 128 random bits from a counter and a key, without a state between calls. Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.
#pragma once

namespace tessera::device {

using u32 = unsigned int;
using u64 = unsigned long long;

// A counter, or the random bits made of it. A word is an u32, or a vector with one for each of
// several counters.
template <class Word>
struct PhiloxWords {
  Word w[4];
};

// Both halves of the 64 bits of a product of words.
template <class Word>
struct WideProduct {
  Word high, low;
};

// `multiply(x, factor)` is a WideProduct.
template <class Word, class Multiply>
inline PhiloxWords<Word> philox(PhiloxWords<Word> c, u32 key_low, u32 key_high,
                                const Multiply& multiply) {
  for (int round = 0; round < 10; ++round) {
    const WideProduct<Word> a = multiply(c.w[0], 0xD2511F53U);
    const WideProduct<Word> b = multiply(c.w[2], 0xCD9E8D57U);
    c = {{b.high ^ c.w[1] ^ key_low, b.low, a.high ^ c.w[3] ^ key_high, a.low}};
    key_low += 0x9E3779B9U;
    key_high += 0xBB67AE85U;
  }
  return c;
}

inline PhiloxWords<u32> philox(const PhiloxWords<u32>& counter, u32 key_low, u32 key_high) {
  return philox(counter, key_low, key_high, [](u32 x, u32 factor) {
    const u64 product = u64{x} * factor;
    return WideProduct<u32>{static_cast<u32>(product >> 32), static_cast<u32>(product)};
  });
}

}  // namespace tessera::device
