// What each ranker says about a handful of kernels; no rule of any family is involved.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "host/select/fixtures.h"
#include "tessera/select/select_internal.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<std::string> kNames = {
    "gemm_fp32_rcr_packab_96x384x256_1x1x1_12x32x1_avx512",
    "gemm_fp32_rcr_packb_96x384x256_0x0x1_12x32x1_avx512",
    "gemm_fp32_rcr_packb_96x384x256_1x1x1_12x32x1_avx512",
};

class Rankers : public testing::Test {
 protected:
  std::vector<Ranked> rank(const std::shared_ptr<const Ranker>& ranker) {
    return ranker->rank(input());
  }
  RankInput input() { return {problem_, target_, 3, legal_}; }

  Problem problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 64, 64);
  Target target_ = {.name = "avx512", .backend = "cpu"};
  std::vector<KernelSpec> legal_ = parse_names(kNames);
};

std::vector<std::size_t> indices(const std::vector<Ranked>& ranked) {
  std::vector<std::size_t> found;
  for (const Ranked& r : ranked) found.push_back(r.index);
  return found;
}
using Indices = std::vector<std::size_t>;

TEST_F(Rankers, TunedLooksTheProblemUp) {
  std::string asked;
  const auto ranker = make_tuned_ranker(
      [&](const Problem& problem, const Target& target, int threads) -> std::optional<TunedEntry> {
        asked = to_string(problem) + " / " + target.name + " / " + std::to_string(threads);
        return TunedEntry{kNames[2], 41.2e-6};
      });
  EXPECT_EQ(ranker->source(), ChoiceSource::tuned);
  const auto ranked = rank(ranker);
  EXPECT_EQ(asked, to_string(problem_) + " / avx512 / 3");
  ASSERT_EQ(indices(ranked), Indices{2});
  EXPECT_EQ(ranked[0].predicted_seconds, 41.2e-6);
  EXPECT_EQ(ranker->why(input(), ranked[0]), "fastest measured on this device: 41.2 us");
}

TEST_F(Rankers, TunedHasNoOpinionWithoutAWinnerThatIsLegal) {
  const auto answering = [](std::optional<TunedEntry> entry) {
    return make_tuned_ranker([entry](const Problem&, const Target&, int) { return entry; });
  };
  EXPECT_TRUE(rank(answering(std::nullopt)).empty());
  EXPECT_TRUE(rank(answering(TunedEntry{"gemm_gone", 1e-6})).empty());
  EXPECT_TRUE(rank(answering(TunedEntry{"a", 1e-6})).empty());
  EXPECT_TRUE(rank(answering(TunedEntry{"z", 1e-6})).empty());
}

std::shared_ptr<const Ranker> predicting(std::vector<double> times) {
  return make_learned_ranker({[times](const RankInput&, std::span<double> seconds) {
    std::copy(times.begin(), times.end(), seconds.begin());
    return true;
  }});
}

TEST_F(Rankers, LearnedOrdersByTime) {
  const auto ranker = predicting({3e-6, 1e-6, 2e-6});
  EXPECT_EQ(ranker->source(), ChoiceSource::learned);
  const auto ranked = rank(ranker);
  EXPECT_EQ(indices(ranked), (Indices{1, 2, 0}));
  EXPECT_EQ(ranker->why(input(), ranked[0]),
            "least time by the learned model among 3 legal candidates: 1.00 us");
}

TEST_F(Rankers, LearnedTiesGoByName) {
  EXPECT_EQ(indices(rank(predicting({2e-6, 1e-6, 1e-6}))), (Indices{1, 2, 0}));
  EXPECT_EQ(indices(rank(predicting({1e-6, 1e-6, 1e-6}))), (Indices{0, 1, 2}));
  // The last bits of a sum do not decide, a millionth does.
  EXPECT_EQ(indices(rank(predicting({2e-6 * (1 + 1e-12), 2e-6, 1e-6}))), (Indices{2, 0, 1}));
  EXPECT_EQ(indices(rank(predicting({2e-6 * (1 + 1e-5), 2e-6, 1e-6}))), (Indices{2, 1, 0}));
}

// What is shipped need not be compiled: it wins within 1%.
TEST_F(Rankers, LearnedPrefersShippedKernelsAmongEquals) {
  const Family& family = family_of(problem_);
  const std::vector<KernelSpec> shipped =
      family.preselected("fp32_rcr_essential", load_target("avx512"));
  legal_.push_back(shipped.front());
  ASSERT_FALSE(family.is_essential(legal_[0], target_));
  EXPECT_EQ(indices(rank(predicting({1e-6, 3e-6, 2e-6, 1.009e-6}))), (Indices{3, 0, 2, 1}));
  EXPECT_EQ(indices(rank(predicting({1e-6, 3e-6, 2e-6, 1.011e-6}))), (Indices{0, 3, 2, 1}));
}

// Whatever the times, near equals and shipped kernels among them: who asks for the best alone gets
// the first of the whole order.
TEST(OnlyBest, IsTheFirstOfAll) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 engine(seed);
  const Target target = load_target("avx512");
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 512, 512, 512);
  const std::vector<KernelSpec> legal = family_of(problem).candidates(problem, target);
  ASSERT_GT(legal.size(), 500U);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> times;
    const double spread = std::pow(10.0, std::uniform_real_distribution(-7.0, 0.0)(engine));
    std::uniform_real_distribution time(1e-3, 1e-3 * (1 + spread));
    for (std::size_t i = 0; i < legal.size(); ++i) times.push_back(time(engine));
    const auto ranker = predicting(times);
    const RankInput all{problem, target, 1, legal};
    const RankInput best{problem, target, 1, legal, true};
    const Ranked expected = ranker->rank(all).front();
    const std::vector<Ranked> got = ranker->rank(best);
    EXPECT_EQ(got.front().index, expected.index) << spread;
    EXPECT_EQ(got.front().predicted_seconds, expected.predicted_seconds) << spread;
    EXPECT_EQ(ranker->rank(all).size(), legal.size());
  }
}

TEST_F(Rankers, LearnedIgnoresWhatIsNoTime) {
  EXPECT_EQ(indices(rank(predicting({kNan, 2e-6, 1e-6}))), (Indices{2, 1}));
  EXPECT_EQ(indices(rank(predicting({-1, kInfinity, 1e-6}))), (Indices{2}));
  EXPECT_TRUE(rank(predicting({kNan, 0, -1})).empty());
}

TEST_F(Rankers, LearnedOutsideItsRangeHasNoOpinion) {
  const auto ranker = make_learned_ranker({[](const RankInput&, std::span<double> seconds) {
    std::fill(seconds.begin(), seconds.end(), 1e-6);
    return false;
  }});
  EXPECT_TRUE(rank(ranker).empty());
}

TEST_F(Rankers, LearnedSaysWhyItHasNoOpinion) {
  const auto nothing = [](const RankInput&, std::span<double>) { return false; };
  EXPECT_EQ(make_learned_ranker({nothing})->why_not(input()), "");
  const auto ranker = make_learned_ranker(
      {nothing, [](const RankInput& asked) { return fmt::format("threads {}", asked.threads); }});
  EXPECT_EQ(ranker->why_not(input()), "threads 3");
}

TEST_F(Rankers, LearnedScoresOrderButAreNoTimes) {
  const auto ranker = make_learned_ranker({.predict =
                                               [](const RankInput&, std::span<double> values) {
                                                 const std::vector<double> all = {-1, kNan, -1.5};
                                                 std::copy(all.begin(), all.end(), values.begin());
                                                 return true;
                                               },
                                           .value = LearnedValue::score});
  const auto ranked = rank(ranker);
  EXPECT_EQ(indices(ranked), (Indices{2, 0}));
  EXPECT_EQ(ranked[0].predicted_seconds, 0);
  EXPECT_EQ(ranker->why(input(), ranked[0]), "first by the learned model among 3 legal candidates");
}

// The first gets the estimate's time, the others theirs in proportion.
TEST_F(Rankers, LearnedRatiosBecomeTimesByTheEstimate) {
  const auto ranker = make_learned_ranker({.predict =
                                               [](const RankInput&, std::span<double> values) {
                                                 const std::vector<double> all = {3, kNan, 1.5};
                                                 std::copy(all.begin(), all.end(), values.begin());
                                                 return true;
                                               },
                                           .value = LearnedValue::ratio});
  const auto ranked = rank(ranker);
  ASSERT_EQ(indices(ranked), (Indices{2, 0}));
  const RankInput in = input();
  const double seconds =
      family_of(in.problem).estimate(in.legal[2], in.problem, in.target, in.threads).seconds;
  EXPECT_DOUBLE_EQ(ranked[0].predicted_seconds, seconds);
  EXPECT_DOUBLE_EQ(ranked[1].predicted_seconds, 2 * seconds);
  EXPECT_EQ(ranker->why(in, ranked[0]),
            "least time by the learned model among 3 legal candidates: " + format_seconds(seconds) +
                " by the estimate");
}

TEST_F(Rankers, FirstLegalKeepsTheOrderOfNames) {
  const auto ranker = make_first_legal_ranker();
  EXPECT_EQ(ranker->source(), ChoiceSource::first_legal);
  const auto ranked = rank(ranker);
  EXPECT_EQ(indices(ranked), (Indices{0, 1, 2}));
  EXPECT_EQ(ranker->why(input(), ranked[0]), "first by name of 3 legal candidates");
}

TEST(SortBestFirst, DoesNotDependOnTheOrderGiven) {
  std::vector<Ranked> ranked = {{4, 1.0}, {2, 1.0 + 1e-9}, {3, 0.5}, {0, 2.0}, {1, 1.0 - 1e-9}};
  sort_best_first(ranked);
  EXPECT_EQ(indices(ranked), (Indices{3, 1, 2, 4, 0}));
  std::reverse(ranked.begin(), ranked.end());
  sort_best_first(ranked);
  EXPECT_EQ(indices(ranked), (Indices{3, 1, 2, 4, 0}));
}

TEST(SortBestFirst, ThousandsOfTimes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 engine(seed);
  std::vector<Ranked> ranked;
  for (std::size_t i = 0; i < 5000; ++i) {  // whole powers of 1.001: equal or clearly different
    const int power = std::uniform_int_distribution(-9000, 9000)(engine);
    ranked.push_back({i, std::pow(1.001, power) * (i % 50 == 0 ? -1 : 1)});
  }
  std::vector<Ranked> expected = ranked;
  std::stable_sort(expected.begin(), expected.end(), [](const Ranked& a, const Ranked& b) {
    return a.predicted_seconds < b.predicted_seconds;
  });
  sort_best_first(ranked);
  EXPECT_EQ(indices(ranked), indices(expected));
}

TEST(SortBestFirst, TakesZeroAndNothing) {
  std::vector<Ranked> ranked = {{1, 0.0}, {0, 0.0}, {2, -1.0}};
  sort_best_first(ranked);
  EXPECT_EQ(indices(ranked), (Indices{2, 0, 1}));
  ranked.clear();
  sort_best_first(ranked);
  EXPECT_TRUE(ranked.empty());
}

TEST(ChoiceSource, HasTheSpellingOfItsEnum) {
  EXPECT_EQ(to_string(ChoiceSource::pinned), "pinned");
  EXPECT_EQ(to_string(ChoiceSource::tuned), "tuned");
  EXPECT_EQ(to_string(ChoiceSource::learned), "learned");
  EXPECT_EQ(to_string(ChoiceSource::analytic), "analytic");
  EXPECT_EQ(to_string(ChoiceSource::first_legal), "first_legal");
}

TEST(FormatSeconds, HasThreeDigitsAndAUnit) {
  struct Case {
    double seconds;
    std::string text;
  };
  const std::vector<Case> cases = {
      {0, "0 s"},
      {-1, "0 s"},
      {kNan, "0 s"},
      {41.2e-6, "41.2 us"},
      {1e-6, "1.00 us"},
      {812e-9, "812 ns"},
      {9.996e-6, "10.0 us"},
      {99.96e-6, "100 us"},
      {999.6e-6, "1.00 ms"},
      {3.05e-3, "3.05 ms"},
      {1.2, "1.20 s"},
      {1234.0, "1234 s"},
      {2.5e-10, "0.25 ns"},
  };
  for (const Case& c : cases) EXPECT_EQ(format_seconds(c.seconds), c.text) << c.seconds;
}

// The length that a kernel of attention is tuned for is the rows of its tile.
struct LengthCase {
  const char* name;
  int queries;
  int rows;  // of the tile of the kernel that comes first
};
class LengthRanker : public testing::TestWithParam<LengthCase> {};
INSTANTIATE_TEST_SUITE_P(Queries, LengthRanker,
                         testing::Values(LengthCase{"one", 1, 16}, LengthCase{"tile", 16, 16},
                                         LengthCase{"longer", 17, 64}, LengthCase{"most", 192, 192},
                                         LengthCase{"beyond", 4096, 192}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(LengthRanker, TakesTheShortestThatReaches) {
  const Target target = load_target("sm90a");
  const Problem problem = parse_problem(
      fmt::format("fmha heads=8 seqlen_q={} seqlen_k=4096 hdim=64 dtype=bf16", GetParam().queries));
  ChooseOptions options;
  options.rankers = {make_length_ranker(), make_analytic_ranker()};
  options.explain = true;
  const Decision decision = choose(problem, target, options);
  EXPECT_EQ(decision.spec.algorithm.tile.m, GetParam().rows) << decision.name;
  EXPECT_EQ(decision.source, ChoiceSource::first_legal);
  EXPECT_EQ(decision.why.substr(0, decision.why.find(" best")),
            fmt::format("the length that it is tuned for, {}, suits {}", GetParam().rows,
                        GetParam().queries));
}

TEST(LengthRankerElsewhere, HasNoOpinion) {
  ChooseOptions options;
  options.rankers = {make_length_ranker(), make_analytic_ranker()};
  const Problem problem = parse_problem("gemm m=64 n=64 k=64");
  EXPECT_EQ(choose(problem, load_target("avx512"), options).source, ChoiceSource::analytic);
}

}  // namespace
}  // namespace tessera
