// The reference against a second one, written as the formulas stand, and what it notices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "routing.h"
#include "tessera/families/route/route.h"
#include "tessera/spec/numeric.h"

namespace tessera::route {
namespace {

// Computes in fp64 by sorting, and rounds the weights.
class PlainRouter {
 public:
  PlainRouter(const RouteProblem& problem, const tessera::RouteOperands& operands)
      : p_(with_strides(problem)), o_(operands) {}

  void run() const {
    for (std::int64_t token = 0; chooses(p_) && token < p_.tokens; ++token) choose(token);
    if (p_.order) order();
  }

 private:
  std::vector<double> scores(const std::vector<double>& logits) const {
    std::vector<double> all;
    double sum = 0;
    for (const double x : logits) sum += std::exp(x);
    for (const double x : logits) {
      all.push_back(p_.scoring == RouteScoring::softmax ? std::exp(x) / sum
                                                        : 1 / (1 + std::exp(-x)));
    }
    return all;
  }

  double group_score(const std::vector<double>& choices, std::int64_t group) const {
    const auto each = static_cast<std::ptrdiff_t>(p_.experts / p_.num_groups);
    std::vector<double> own(choices.begin() + group * each, choices.begin() + (group + 1) * each);
    std::sort(own.begin(), own.end(), std::greater<>());
    return own[0] + (p_.bias && each > 1 ? own[1] : 0);
  }

  void choose(std::int64_t token) const {
    std::vector<double> logits;
    for (std::int64_t e = 0; e < p_.experts; ++e) {
      logits.push_back(load_element(p_.in, o_.logits, token * p_.ld_logits + e));
    }
    const std::vector<double> score = scores(logits);
    std::vector<double> choices = logits;
    for (std::size_t e = 0; p_.bias && e < choices.size(); ++e) {
      choices[e] = score[e] + load_element(DType::fp32, o_.bias, static_cast<std::int64_t>(e));
    }
    const auto best_first = [](std::size_t count, const std::function<double(std::size_t)>& of) {
      std::vector<std::size_t> all(count);
      std::iota(all.begin(), all.end(), 0);
      std::stable_sort(all.begin(), all.end(),
                       [&](std::size_t a, std::size_t b) { return of(a) > of(b); });
      return all;
    };
    std::vector<double> groups;
    for (std::int64_t i = 0; i < p_.num_groups; ++i) groups.push_back(group_score(choices, i));
    const auto by_group = best_first(groups.size(), [&](std::size_t i) { return groups[i]; });
    for (auto i = static_cast<std::size_t>(p_.top_groups); i < by_group.size(); ++i) {
      const auto each = static_cast<std::size_t>(p_.experts / p_.num_groups);
      for (std::size_t e = 0; e < each; ++e) choices[by_group[i] * each + e] = -1e300;
    }
    const auto best = best_first(choices.size(), [&](std::size_t e) { return choices[e]; });
    double sum = 0;
    for (std::int64_t j = 0; j < p_.top_k; ++j) sum += score[best[static_cast<std::size_t>(j)]];
    for (std::int64_t j = 0; j < p_.top_k; ++j) {
      const std::size_t e = best[static_cast<std::size_t>(j)];
      const double weight = score[e] / (p_.renormalize ? sum : 1) * double{p_.scaling_factor};
      ints(o_.ids)[token * p_.top_k + j] = static_cast<std::int32_t>(e);
      static_cast<float*>(o_.weights)[token * p_.top_k + j] = static_cast<float>(weight);
    }
  }

  void order() const {
    std::int32_t row = 0;
    for (std::int64_t e = 0; e <= p_.experts; ++e) {
      for (std::int64_t slot = 0; slot < p_.tokens * p_.top_k; ++slot) {
        const std::int32_t id = ints(o_.ids)[slot];
        const bool is_none = id < 0 || id >= p_.experts;
        if ((e == p_.experts) != is_none || (!is_none && id != e)) continue;
        ints(o_.slots)[row] = static_cast<std::int32_t>(slot);
        ints(o_.row_index)[row++] = static_cast<std::int32_t>(slot / p_.top_k);
      }
      if (e < p_.experts) ints(o_.group_ends)[e] = row;
    }
  }

  static std::int32_t* ints(void* data) { return static_cast<std::int32_t*>(data); }

  const RouteProblem p_;
  const tessera::RouteOperands o_;
};

class RouteReference : public testing::Test {
 protected:
  void SetUp() override { fmt::print("seed {}\n", seed_); }

  const tessera::RouteOperands& operands() const {
    return std::get<tessera::RouteOperands>(operands_);
  }
  // The plain router's answer to a random problem.
  void answer(const RouteProblem& p) {
    memory_.clear();
    for (const Tensor& tensor : family().tensors(p)) {
      std::vector<std::uint32_t>& words = memory_.emplace_back(tensor.bytes() / 4 + 1, 0xdeadbeef);
      family().set_pointer(operands_, tensor.operand, words.data());
      for (std::int64_t i = 0; tensor.is_read() && i < tensor.elements(); ++i) {
        const bool is_id = tensor.dtype == DType::int32;
        const double value = is_id ? double(routes_.draw(-1, p.experts - 1)) : number_(random_);
        store_element(tensor.dtype, words.data(), i, value);
      }
    }
    PlainRouter(p, operands()).run();
  }
  std::string complaint(const RouteProblem& p) { return family().verify(p, operands_).message; }
  std::int32_t& id(std::size_t slot) { return static_cast<std::int32_t*>(operands().ids)[slot]; }
  float& weight(std::size_t slot) { return static_cast<float*>(operands().weights)[slot]; }

  unsigned seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  testing_support::RandomRoutes routes_{random_};
  std::normal_distribution<double> number_;
  std::deque<std::vector<std::uint32_t>> memory_;
  Operands operands_ = tessera::RouteOperands{};
};

TEST_F(RouteReference, AgreesWithASecondOne) {
  for (int i = 0; i < 60; ++i) {
    const RouteProblem p = routes_.problem(routes_.signature(), 300, 20);
    answer(p);
    const Mismatch mismatch = family().verify(p, operands_);
    EXPECT_TRUE(mismatch.ok) << to_string(Problem(p)) << ": " << mismatch.message;
    EXPECT_LT(mismatch.worst_ratio, 0.6);
  }
}

// Every element is noticed, not only the first ones.
TEST_F(RouteReference, NoticesEveryOutput) {
  RouteProblem p = {.tokens = 9, .experts = 20, .top_k = 4, .order = true};
  for (int i = 0; i < 20; ++i) {
    answer(p);
    ASSERT_EQ(complaint(p), "");
    const auto slot = static_cast<std::size_t>(routes_.draw(0, 35));
    const float before = weight(slot);
    weight(slot) *= 1 + 1e-4F;
    EXPECT_TRUE(complaint(p).starts_with("route: weights[")) << complaint(p);
    weight(slot) = before;
    for (void* const output : {operands().row_index, operands().slots}) {
      auto* const data = static_cast<std::int32_t*>(output);
      ++data[slot];
      EXPECT_NE(complaint(p).find("the reference is"), std::string::npos);
      --data[slot];
    }
    auto* const ends = static_cast<std::int32_t*>(operands().group_ends);
    --ends[slot % 20];
    EXPECT_TRUE(complaint(p).starts_with("route: group_ends[")) << complaint(p);
  }
}

TEST_F(RouteReference, NoticesWrongExperts) {
  RouteProblem p = {.scoring = RouteScoring::sigmoid, .tokens = 1, .experts = 6, .top_k = 2};
  p.num_groups = 3, p.bias = true, p.top_groups = 1;
  answer(p);
  auto* const logits = static_cast<float*>(const_cast<void*>(operands().logits));
  auto* const bias = static_cast<float*>(const_cast<void*>(operands().bias));
  const float given[] = {3, -3, 1, 0.5F, -2, -2};
  std::copy(std::begin(given), std::end(given), logits);
  std::fill(bias, bias + 6, 0.0F);
  PlainRouter(p, operands()).run();
  ASSERT_EQ(complaint(p), "");
  const std::pair<std::array<int, 2>, const char*> rows[] = {
      {{3, 2}, "expert 3 comes before 2, which is better"},
      {{2, 2}, "expert 2 comes twice"},
      {{2, 6}, "6 is no expert"},
      {{-1, 2}, "-1 is no expert"},
      {{0, 1}, "expert 0 is in none of the best groups"},
      {{2, 4}, "expert 4 is in none of the best groups"},
  };
  for (const auto& [ids, sentence] : rows) {
    id(0) = ids[0], id(1) = ids[1];
    EXPECT_EQ(complaint(p), fmt::format("route: ids of token 0: {} (1 of 1 elements checked is "
                                        "outside)",
                                        sentence));
  }
}

// Without a bias logits are compared, which are exact: of equal ones the lower number is wanted.
TEST_F(RouteReference, LowerNumbersComeFirst) {
  RouteProblem p = {.tokens = 1, .experts = 4, .top_k = 2};
  answer(p);
  auto* const logits = static_cast<float*>(const_cast<void*>(operands().logits));
  std::fill(logits, logits + 4, 0.25F);
  PlainRouter(p, operands()).run();
  EXPECT_EQ(complaint(p), "");
  id(0) = 1, id(1) = 0;
  EXPECT_NE(complaint(p), "");
  id(0) = 0, id(1) = 2;
  EXPECT_NE(complaint(p), "");
}

// Scores that are closer than a kernel's errors may change places; the weights must follow.
TEST_F(RouteReference, CloseScoresMayChangePlaces) {
  RouteProblem p = {.scoring = RouteScoring::sigmoid, .tokens = 1, .experts = 3, .top_k = 2};
  p.bias = true, p.renormalize = false;
  answer(p);
  auto* const logits = static_cast<float*>(const_cast<void*>(operands().logits));
  auto* const bias = static_cast<float*>(const_cast<void*>(operands().bias));
  logits[0] = 0, logits[1] = 0, logits[2] = 1;
  bias[0] = 0.5F, bias[1] = std::nextafter(0.5F, 1.0F), bias[2] = -9;
  for (const int first : {0, 1}) {
    id(0) = first, id(1) = 1 - first;
    weight(0) = weight(1) = 0.5F;
    EXPECT_EQ(complaint(p), "");
  }
  weight(1) = 0.51F;
  EXPECT_NE(complaint(p), "");
}

// A large problem has rows spread over all of it; its order is compared as a whole.
TEST_F(RouteReference, LimitsTakeSomeTokens) {
  RouteProblem p = {.tokens = 500, .experts = 20, .top_k = 3, .order = true};
  answer(p);
  const Reference some = family().reference(p, operands_, {.rows = 10});
  const Mismatch mismatch = family().compare(p, operands_, some);
  EXPECT_TRUE(mismatch.ok) << mismatch.message;
  EXPECT_EQ(mismatch.checked, 10 * (1 + 3) + 20 + 2 * 1500);
  id(3 * 499) = -1;
  EXPECT_FALSE(family().compare(p, operands_, some).ok);
}

}  // namespace
}  // namespace tessera::route
