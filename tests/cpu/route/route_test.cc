// Routers on CPUs against the fp64 reference: fresh random problems over all fields, odd sizes,
// numbers of threads, special values, and nothing written elsewhere. To repeat a failure:
// --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "routing.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& route_registry() { return testing_support::registry_in("route_test"); }

class RouteKernels : public testing::Test {
 protected:
  void SetUp() override { fmt::print("seed {}\n", seed_); }

  void check(
      const KernelSpec& spec, const RouteProblem& p, int threads,
      const std::function<void(const Operands&)>& prepare = [](const Operands&) {}) {
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}', {} threads", seed_, name_of(spec),
                             to_string(Problem(p)), threads));
    family_.validate(p);
    ASSERT_EQ(family_.supports(spec, p, load_target(spec.target)).reason, "");
    measure::OwnedOperands owned = measure::random_operands(p, random_());
    prepare(owned.operands);
    testing_support::launch_at_edges(route_registry(), spec, p, owned, threads);
    testing_support::expect_verified(p, owned);
  }

  const Family& family_ = family_of(Op::route);
  std::uint64_t seed_ = testing_support::seed_of_run();
  std::mt19937_64 random_{seed_};
  testing_support::RandomRoutes routes_{random_};
};

TEST_F(RouteKernels, EssentialOnesAreCorrect) {
  for (const Target& target : targets_of_run(seed_)) {
    for (const std::string& set : family_.preselected_names()) {
      for (const KernelSpec& spec : family_.preselected(set, target)) {
        for (const Problem& problem : family_.samples(spec, target)) {
          check(spec, std::get<RouteProblem>(problem), static_cast<int>(routes_.draw(1, 4)));
        }
      }
    }
  }
}

TEST_F(RouteKernels, RandomOnesAreCorrectOnRandomProblems) {
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 12; ++i) {
      const RouteProblem p = routes_.problem(routes_.signature(), 1024, 300);
      const auto specs = family_.candidates(p, target);
      check(specs[random_() % specs.size()], p, static_cast<int>(routes_.draw(1, 5)));
      check(family_.general(p, target), p, 2);
    }
  }
}

TEST_F(RouteKernels, SpecialValues) {
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 6; ++i) {
      RouteSignature s = {static_cast<RouteScoring>(i % 2), DType::fp32, i % 3 == 1, true};
      RouteProblem p = routes_.problem(s, 300, 100);
      p.tokens = routes_.draw(24, 60), p.ld_logits = kPacked;
      check(family_.general(p, target), p, 2,
            [&](const Operands& operands) { testing_support::put_special_logits(p, operands); });
    }
  }
}

TEST_F(RouteKernels, IdsOfNoExpertComeLast) {
  const RouteSignature s = {.scoring = RouteScoring::given, .order = true};
  for (const Target& target : targets_of_run(seed_)) {
    for (const std::int64_t most : {3, 1000}) {
      const RouteProblem p = routes_.problem(s, 200, most);
      check(family_.general(p, target), p, 3, [&](const Operands& operands) {
        testing_support::put_ids_of_none(p, operands, random_);
      });
    }
  }
}

// By hand: the sum of a group's two best scores with a bias, ties, and what a bias does not change.
TEST_F(RouteKernels, GroupsAreAsGoodAsTheirTwoBest) {
  RouteProblem p = {.scoring = RouteScoring::sigmoid, .tokens = 2, .experts = 6, .top_k = 2};
  p.num_groups = 3, p.top_groups = 1, p.bias = true, p.order = true;
  const float logits[] = {9, -9, 1, 1, -9, -9, 0, 0, 0, 0, 0, 0};
  const float bias[] = {0, 0, 0, 0, 0, 0};
  std::int32_t ids[4], ends[6], rows[4], slots[4];
  float weights[4];
  const RouteOperands o = {logits, bias, ids, weights, ends, rows, slots};
  const KernelSpec spec = family_.general(p, targets_here().front());
  testing_support::launch(route_registry(), spec, p, o, 1);
  EXPECT_EQ(std::vector(ids, ids + 4), (std::vector<std::int32_t>{2, 3, 0, 1}));
  for (const float weight : weights) EXPECT_NEAR(weight, 0.5F, 1e-6F);
  EXPECT_EQ(std::vector(ends, ends + 6), (std::vector<std::int32_t>{1, 2, 3, 4, 4, 4}));
  EXPECT_EQ(std::vector(slots, slots + 4), (std::vector<std::int32_t>{2, 3, 0, 1}));
  EXPECT_EQ(std::vector(rows, rows + 4), (std::vector<std::int32_t>{1, 1, 0, 0}));
}

TEST_F(RouteKernels, BitsAreTheSameOnAnyNumberOfThreads) {
  RouteProblem p = {.in = DType::bf16, .tokens = 211, .experts = 64, .top_k = 6, .order = true};
  const KernelSpec spec = family_.general(p, targets_here().front());
  measure::OwnedOperands owned = measure::random_operands(p, random_());
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3, 7}) {
    measure::reset_outputs(owned);
    testing_support::launch(route_registry(), spec, p, owned.operands, threads);
    std::vector<std::vector<std::byte>> now;
    for (const std::size_t output : owned.outputs) {
      const auto* const bytes = static_cast<const std::byte*>(owned.storage.at(output).data());
      now.emplace_back(bytes, bytes + owned.storage.at(output).size());
    }
    if (first.empty()) first = now;
    EXPECT_EQ(now, first) << threads << " threads";
  }
}

}  // namespace
}  // namespace tessera
