#include "tessera/tune/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "host/spec/expect_error.h"
#include "tessera/targets/targets.h"

namespace tessera::tune {
namespace {

const Problem kProblem = gemm_problem(DType::bf16, GemmLayout::rcr, 4096, 4096, 4096);

// A valley: the further from the best tile and number of stages, the slower.
double valley(const Algorithm& a) {
  const auto away = [](int value, int best) { return std::abs(std::log2(double(value) / best)); };
  return 1e-6 * (1 + away(a.tile.m, 128) + away(a.tile.n, 96) + 0.5 * std::abs(a.stages - 4) +
                 0.5 * (a.cluster_m - 1) + 0.3 * a.swap_ab + 0.2 * a.splits);
}

LearnedModel synthetic(std::vector<std::string>* asked = nullptr) {
  LearnedModel model;
  model.predict = [asked](const RankInput& input, std::span<double> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = valley(input.legal[i].algorithm);
      if (asked != nullptr) asked->push_back(name_of(input.legal[i]));
    }
    return true;
  };
  return model;
}

SearchResult find(SearchStrategy strategy, std::size_t evaluations, std::uint64_t seed,
                  std::vector<std::string>* asked = nullptr) {
  SearchOptions options;
  options.strategy = strategy;
  options.evaluations = evaluations;
  options.seed = seed;
  return search(kProblem, load_target("sm90a"), synthetic(asked), options);
}

std::vector<std::pair<std::string, double>> found_of(const SearchResult& result) {
  std::vector<std::pair<std::string, double>> found;
  for (const FoundKernel& kernel : result.found) found.emplace_back(kernel.name, kernel.value);
  return found;
}

TEST(Search, ExhaustiveFindsTheOptimum) {
  const Target target = load_target("sm90a");
  double least = std::numeric_limits<double>::infinity();
  std::size_t legal = 0;
  const Family& family = family_of(kProblem);
  for (const KernelSpec& spec : family.candidates(kProblem, target)) {
    if (!family.is_legal(spec, target) || !family.supports(spec, kProblem, target)) continue;
    least = std::min(least, valley(spec.algorithm));
    ++legal;
  }
  const SearchResult result = find(SearchStrategy::exhaustive, 1, 1);
  EXPECT_EQ(result.found.front().value, least);
  EXPECT_EQ(result.space, legal);
  EXPECT_EQ(result.evaluations, legal);
  EXPECT_EQ(result.found.size(), legal);
}

// The rank of the best of k kernels drawn from n has the mean (n + 1) / (k + 1) and less than that
// as its standard deviation. Over s seeds the mean rank is therefore below half of it with a chance
// that shrinks as 1 / (s / 4) (Chebyshev), if evolution did no better than drawing.
TEST(Search, EvolutionBeatsDrawing) {
  constexpr std::size_t kBudget = 60;
  constexpr int kSeeds = 100;
  const auto first = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", first));
  const SearchResult all = find(SearchStrategy::exhaustive, 1, 1);
  const auto rank = [&](const SearchResult& result) {
    double better = 1;
    for (const FoundKernel& kernel : all.found) {
      better += kernel.value < result.found.front().value ? 1 : 0;
    }
    return better;
  };
  double drawn = 0;
  double evolved = 0;
  for (int i = 0; i < kSeeds; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    drawn += rank(find(SearchStrategy::random, kBudget, seed)) / kSeeds;
    evolved += rank(find(SearchStrategy::evolution, kBudget, seed)) / kSeeds;
  }
  const double expected = (static_cast<double>(all.space) + 1) / (kBudget + 1);
  EXPECT_LT(evolved, expected / 2);
  EXPECT_LT(evolved, drawn);
}

TEST(Search, ProposesLegalKernelsOnce) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const Target target = load_target("sm90a");
  const Family& family = family_of(kProblem);
  for (const SearchStrategy strategy : {SearchStrategy::random, SearchStrategy::evolution}) {
    std::vector<std::string> asked;
    const SearchResult result = find(strategy, 100000, seed, &asked);
    EXPECT_EQ(result.evaluations, result.space);
    EXPECT_EQ(asked.size(), result.space);
    EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()).size(), result.space);
    for (const std::string& name : asked) {
      const KernelSpec spec = parse_name(name);
      EXPECT_TRUE(family.is_legal(spec, target) && family.supports(spec, kProblem, target)) << name;
    }
  }
}

TEST(Search, SameSeedSameOrder) {
  for (const SearchStrategy strategy : {SearchStrategy::random, SearchStrategy::evolution}) {
    std::vector<std::string> one;
    std::vector<std::string> two;
    std::vector<std::string> other;
    EXPECT_EQ(found_of(find(strategy, 90, 7, &one)), found_of(find(strategy, 90, 7, &two)));
    find(strategy, 90, 8, &other);
    EXPECT_EQ(one, two);
    EXPECT_NE(one, other);
    EXPECT_EQ(one.size(), 90U);
  }
}

TEST(Search, BudgetOfOne) {
  for (const SearchStrategy strategy : {SearchStrategy::random, SearchStrategy::evolution}) {
    const SearchResult result = find(strategy, 1, 3);
    EXPECT_EQ(result.evaluations, 1U);
    EXPECT_EQ(result.found.size(), 1U);
  }
}

TEST(Search, BudgetOfNone) {
  for (const SearchStrategy strategy : {SearchStrategy::random, SearchStrategy::evolution}) {
    expect_error(ErrorCode::invalid_argument,
                 "search: the budget must be at least 1 evaluation, got 0",
                 [&] { find(strategy, 0, 1); });
  }
}

TEST(Search, TimeEndsIt) {
  SearchOptions options;
  options.evaluations = 100000;
  options.seconds = 1e-9;
  const SearchResult result = search(kProblem, load_target("sm90a"), synthetic(), options);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_LT(result.evaluations, result.space);
  EXPECT_FALSE(result.found.empty());
}

TEST(Search, EmptySpace) {
  Target target = load_target("avx512");
  target.spaces[Op::gemm].tiles.clear();
  expect_error(ErrorCode::unsupported,
               "search: no kernel of avx512's space can run 'gemm m=4096 n=4096 k=4096 "
               "dtype=bf16'; 'tessera explain' says why",
               [&] { search(kProblem, target, analytic_surrogate(), {}); });
}

TEST(Search, AnalyticPredictsTheEstimate) {
  const Target target = load_target("avx512");
  SearchOptions options;
  options.strategy = SearchStrategy::exhaustive;
  options.threads = 1;
  const SearchResult result = search(kProblem, target, analytic_surrogate(), options);
  const KernelSpec& best = result.found.front().spec;
  EXPECT_EQ(result.found.front().value,
            family_of(kProblem).estimate(best, kProblem, target, 1).seconds);
}

TEST(Search, SurrogateWithoutOpinion) {
  LearnedModel model;
  model.predict = [](const RankInput&, std::span<double>) { return false; };
  model.why_not = [](const RankInput&) { return "it is for gemm on avx2"; };
  expect_error(ErrorCode::unsupported, "search: it is for gemm on avx2",
               [&] { search(kProblem, load_target("avx512"), model, {}); });
}

TEST(Search, KernelsWithoutPredictionAreLeftOut) {
  LearnedModel model = synthetic();
  const auto predict = model.predict;
  model.predict = [predict](const RankInput& input, std::span<double> values) {
    predict(input, values);
    values[0] = std::numeric_limits<double>::quiet_NaN();
    return true;
  };
  SearchOptions options;
  options.strategy = SearchStrategy::exhaustive;
  const SearchResult result = search(kProblem, load_target("avx512"), model, options);
  EXPECT_LT(result.found.size(), result.evaluations);
}

TEST(Search, StrategyWords) {
  for (const char* word : {"random", "evolution", "exhaustive"}) {
    EXPECT_EQ(to_string(parse_search_strategy(word)), word);
  }
  expect_error(ErrorCode::not_found,
               "search: unknown strategy 'evolutoin', did you mean 'evolution'? (known: random, "
               "evolution, exhaustive)",
               [] { parse_search_strategy("evolutoin"); });
}

}  // namespace
}  // namespace tessera::tune
