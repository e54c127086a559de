// What is asked of a router of a mixture of experts, and the pointers that it gets.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/spec/dtype.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// How a score follows from a logit: over all experts of a token, or by itself. given: the experts
// are an operand, and are only brought into their order.
enum class RouteScoring : std::uint8_t { softmax, sigmoid, given };
std::string_view to_string(RouteScoring scoring);

// For each token the top_k experts with the greatest scores, the greatest first. Where scores are
// equal, the expert with the lower number comes first, and a NaN is greater than any number.
//   score[e]  = softmax or sigmoid of the token's logits, in fp32
//   choice[e] = score[e] + bias[e]; without a bias experts are compared by their logits
//   weight    = score of the expert, with renormalize over max(sum of the top_k scores, 1e-20),
//               times scaling_factor
// With num_groups > 1 experts lie in that many equal groups, and only those of a token's top_groups
// best groups are chosen. A group is as good as its best choice; with a bias, as the sum of its two
// best, as DeepSeek-V3 has it.
//
// ids and weights are tokens x top_k, without gaps. With `order`, slot t * top_k + j of ids gets
// its place among the rows of its expert, in the order of slots; ids of no expert come behind all
// experts: group_ends[e] is the number of rows of experts up to e, slots[r] the slot of row r, and
// row_index[r] its token.
struct RouteProblem {
  RouteScoring scoring = RouteScoring::softmax;
  DType in = DType::fp32;  // of logits
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t num_groups = 1;
  std::int64_t top_groups = 1;
  std::int64_t ld_logits = kPacked;
  float scaling_factor = 1.0F;
  bool bias = false;
  bool renormalize = true;
  bool order = false;
  friend bool operator==(const RouteProblem&, const RouteProblem&) = default;
};

// Replaces kPacked by the number of experts.
RouteProblem with_strides(const RouteProblem& problem);

// The pointers a router reads and writes. Those that the problem does not use may be null.
struct RouteOperands {
  const void* logits = nullptr;  // tokens x experts
  const void* bias = nullptr;    // fp32, one for each expert
  void* ids = nullptr;           // int32, tokens x top_k; scoring=given: read
  void* weights = nullptr;       // fp32, tokens x top_k
  void* group_ends = nullptr;    // int32, one for each expert
  void* row_index = nullptr;     // int32, tokens * top_k
  void* slots = nullptr;         // int32, tokens * top_k
};

}  // namespace tessera
#pragma GCC visibility pop
