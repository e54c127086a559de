// Random problems of routers, and logits that tests of every backend put in.
#pragma once

#include <algorithm>
#include <limits>
#include <random>

#include "tessera/spec/kernel_spec.h"

namespace tessera::testing_support {

class RandomRoutes {
 public:
  explicit RandomRoutes(std::mt19937_64& random) : random_(random) {}

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool coin() { return draw(0, 1) == 1; }

  RouteSignature signature() {
    constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
    const auto scoring = static_cast<RouteScoring>(draw(0, 2));
    if (scoring == RouteScoring::given) return {.scoring = scoring, .order = true};
    return {scoring, kTypes[draw(0, 2)], coin(), coin()};
  }

  // Any problem that kernels for so many experts serve. Groups are as often as not.
  RouteProblem problem(const RouteSignature& s, std::int64_t most_experts,
                       std::int64_t most_tokens) {
    RouteProblem p = {.scoring = s.scoring, .in = s.in, .bias = s.bias, .order = s.order};
    p.tokens = draw(0, most_tokens);
    p.experts = draw(1, coin() ? most_experts : std::min<std::int64_t>(most_experts, 40));
    p.top_k = draw(1, std::min<std::int64_t>(p.experts, coin() ? 8 : 100));
    if (p.scoring == RouteScoring::given) {
      p.top_k = draw(1, 12);  // ids may repeat
      return p;
    }
    if (coin()) draw_groups(p, most_experts);
    if (coin()) p.ld_logits = p.experts + draw(0, 30);
    p.renormalize = coin();
    if (coin()) p.scaling_factor = 2.5F;
    return p;
  }

 private:
  void draw_groups(RouteProblem& p, std::int64_t most_experts) {
    p.num_groups = draw(1, std::min<std::int64_t>(p.experts, 9));
    p.experts = std::min(p.experts, most_experts) / p.num_groups * p.num_groups;
    p.top_groups = draw(1, p.num_groups);
    p.top_k = std::min(p.top_k, p.experts / p.num_groups * p.top_groups);
  }

  std::mt19937_64& random_;
};

// Logits of fp32: tokens of equal ones, of infinities, of NaN, of zeros with and without a sign,
// and of numbers whose exponentials overflow or vanish.
inline void put_special_logits(const RouteProblem& p, const Operands& operands) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float specials[] = {1.0F, kInf, -kInf, kNan, 0.0F, 3e38F, -3e38F, -300.0F};
  auto* const logits =
      static_cast<float*>(const_cast<void*>(std::get<RouteOperands>(operands).logits));
  for (std::int64_t token = 0; token < p.tokens; ++token) {
    const float special = specials[token % 8];
    for (std::int64_t e = 0; e < p.experts; ++e) {
      float& logit = logits[token * p.experts + e];
      const bool everywhere = token % 3 == 0;
      if (everywhere || e % 5 == token % 5) logit = special;
      if (logit == 0 && e % 2 == 0) logit = -0.0F;
    }
  }
}

// Ids of experts and of none, as a caller may give them.
inline void put_ids_of_none(const RouteProblem& p, const Operands& operands,
                            std::mt19937_64& random) {
  auto* const ids = static_cast<std::int32_t*>(std::get<RouteOperands>(operands).ids);
  const std::int32_t others[] = {-1, static_cast<std::int32_t>(p.experts), -2147483647, 2147483647};
  for (std::int64_t i = 0; i < p.tokens * p.top_k; ++i) {
    if (random() % 4 == 0) ids[i] = others[random() % 4];
  }
}

}  // namespace tessera::testing_support
