// Factors of numbers of 8 bits in attention on a CPU. Without them nothing here computes.
#pragma once

#include "tessera/device/cpu/eight_bits.h"
#include "tessera/device/cpu/fmha/flash_pack.h"
#include "tessera/device/fmha_scales.h"

namespace tessera::device {

// Tokens times their factors, as pack_keys() and pack_values() read them.
template <class Tokens>
struct ScaledTokens {
  const Tokens& tokens;
  const float* factors;
  template <int kPer>
  [[gnu::always_inline]] u32v words(i64 i, i64 at, int count) const {
    static_assert(kPer == 1, "numbers of 8 bits are multiplied one by one");
    return bits_as<u32v>(bits_as<f32v>(tokens.template words<1>(i, at, count)) * factors[i]);
  }
  template <int kPer>
  [[gnu::always_inline]] u32v across(i64 i, i64, i64 at, int lanes) const {
    return words<kPer>(i, at, lanes);
  }
};

// The factors of a block of keys, looked up once, because packing goes over its tokens many times.
template <int kMost>
struct KeyFactors {
  float keys[kMost], values[kMost];
};

// Stores a row of sums times a factor.
template <FmhaQscale kQscale, class Out>
inline void store_result(const FmhaArguments& g, const float* sums, float factor, Out* out) {
  const i64 stride = g.out_stride[kTokenElement];
  for (i64 i = 0; i < g.hdim_v; i += kLanes) {
    const int lanes = lanes_left(g.hdim_v - i);
    const f32v x = scaled_result<kQscale, Out>(g, load<f32v>(sums + i) * factor);
    if (stride == 1) {
      store_rounded(out + i, x, lanes);
      continue;
    }
    Out together[kLanes];
    store_rounded(together, x, kLanes);
    for (int j = 0; j < lanes; ++j) out[(i + j) * stride] = together[j];
  }
}

// C is the kernel's Config; an Item has a sequence and rows, a Block its first key and how many
// there are.
template <class C, int kMost, class Item, class Block>
inline KeyFactors<kMost> key_factors(const FmhaArguments& g, const Item& item, const Block& block) {
  KeyFactors<kMost> by;
  for (i64 i = 0; i < block.count; ++i) {
    const i64 place = key_factor_place<C::kQscale, C::kPages>(g, item.sequence, item.batch,
                                                              item.head_kv, block.first + i);
    by.keys[i] = g.descale_k[place];
    by.values[i] = g.descale_v[place];
  }
  return by;
}

// What the scores of a row are multiplied by, besides the keys' factors.
template <class C, class Item>
inline float row_factor(const FmhaArguments& g, const Item& item, i64 row) {
  return score_factor<C::kQscale, typename C::In>(g) *
         query_factor<C::kQscale>(g, item.batch, item.head_of(row), item.query_of(row));
}

}  // namespace tessera::device
