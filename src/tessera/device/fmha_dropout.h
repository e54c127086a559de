// Dropout of attention, for kernels of every backend, the reference and a backward pass: which
// weights are kept follows from two words and from the weight's place alone.
#pragma once

#include "tessera/device/fmha.h"
#include "tessera/device/philox.h"

namespace tessera::device {

inline constexpr i64 kKeysOfCounter = 16;  // a counter's random bits are a byte for each of them

// How many of the 256 values of a random byte keep a weight. Kept weights count 256 / kept times,
// so that their mean is right whatever the rounding.
inline int dropout_kept(float p_drop) {
  const int kept = static_cast<int>(256.0 * (1.0 - static_cast<double>(p_drop)) + 0.5);
  return kept < 1 ? 1 : kept > 256 ? 256 : kept;
}
inline float dropout_scale(const FmhaArguments& g) { return 256.0F / static_cast<float>(g.kept); }

// Philox's key, and the word of its counter that is the same everywhere.
struct DropoutKey {
  u32 low, high, offset;
};
inline DropoutKey dropout_key(const FmhaArguments& g) {
  const u64 seed = g.dropout_rng != nullptr ? g.dropout_rng[0] : g.seed;
  const u64 offset = g.dropout_rng != nullptr ? g.dropout_rng[1] : g.offset;
  return {static_cast<u32>(seed), static_cast<u32>(seed >> 32) ^ static_cast<u32>(offset >> 32),
          static_cast<u32>(offset)};
}

// A query of a head: where it lies in its sequence, and batch * heads + head.
struct DropoutRow {
  i64 query, head;
};
inline DropoutRow dropout_row(const FmhaArguments& g, i64 batch, i64 head, i64 query) {
  return {query, batch * g.heads + head};
}

// The counter of keys [16 * part, 16 * part + 16) of a sequence. Words are modulo 2^32.
inline PhiloxWords<u32> dropout_counter(const DropoutKey& key, const DropoutRow& row, i64 part) {
  return {{static_cast<u32>(part), static_cast<u32>(row.query), static_cast<u32>(row.head),
           key.offset}};
}
inline PhiloxWords<u32> dropout_words(const DropoutKey& key, const DropoutRow& row, i64 part) {
  return philox(dropout_counter(key, row, part), key.low, key.high);
}

// The byte of a key in the word of its counter that has it.
inline u32 dropout_byte(u32 word, i64 key) { return word >> key % 4 * 8 & 255U; }
inline u32 dropout_byte(const PhiloxWords<u32>& words, i64 key) {
  return dropout_byte(words.w[key % kKeysOfCounter / 4], key);
}

// Where the random bytes of a query are stored, a byte for each key of the longest sequence. Rows
// lie as lse's rows do. `token` counts through packed sequences.
inline unsigned char* random_row(const FmhaArguments& g, i64 batch, i64 head, i64 token) {
  const i64 row = batch * g.lse_stride[0] + head * g.lse_stride[1] + token * g.lse_stride[2];
  return g.random_values + row * g.seqlen_k;
}

}  // namespace tessera::device
