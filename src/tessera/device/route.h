// What routers of every backend share: their arguments, and the order of scores.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

enum class RouteScoring { softmax, sigmoid, given };

inline constexpr int kMostExperts = 1024;

// The one argument of every router. Plain C layout; a change here raises the family's ABI number.
struct RouteArguments {
  i64 tokens, experts, top_k;
  i64 num_groups, top_groups;
  const void* logits;
  const float* bias;  // one for each expert
  int* ids;           // tokens x top_k, and so are weights
  float* weights;
  int* group_ends;  // one for each expert
  int* row_index;   // one for each slot, and so are slots
  int* slots;
  i64 ld_logits;  // elements between rows
  float scaling_factor;
  int renormalize;
  i64 blocks;       // GPU: how many choose
  i64 block_slots;  // GPU: how many slots a block brings into their places
};

inline constexpr float kLeastSum = 1e-20F;  // by which weights are divided

// Integers in the order of the floats with these bits: a NaN is above all numbers, both zeros are
// equal, and no float has the key 0.
inline constexpr unsigned kTaken = 0;
inline unsigned sort_key(unsigned bits) {
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0xffffffffU;
  if (bits == 0x80000000U) bits = 0;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
// The bits of a float with this key.
inline unsigned bits_of_key(unsigned key) {
  return (key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key;
}

// What a weight is divided by. A NaN stays one.
inline float divisor_of(const RouteArguments& g, float sum) {
  if (g.renormalize == 0) return 1;
  return sum < kLeastSum ? kLeastSum : sum;
}

// The place of an id among the experts' counts; ids of no expert come behind all of them.
inline int place_of_id(int id, int experts) { return id >= 0 && id < experts ? id : experts; }

}  // namespace tessera::device
