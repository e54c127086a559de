// Routers on a GPU against the fp64 reference: every essential kernel, random problems over all
// fields, as many slots and experts as are served, special values, and what the dispatcher chooses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/gpu_test.h"
#include "routing.h"

namespace tessera {
namespace {

class GpuRoute : public GpuTest {
 protected:
  void check(const std::string& kernel, const Problem& problem) {
    check_twice(kernel, problem, expect_correct);
  }
  // At the last edge, with operands that `prepare` changes.
  template <class Prepare>
  void check_prepared(const std::string& kernel, const RouteProblem& p, const Prepare& prepare) {
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("{} on '{}', seed {}", kernel, to_string(Problem(p)), seed));
    measure::OwnedOperands owned = measure::random_operands(p, seed);
    prepare(owned.operands);
    run_at(Edge::last, kernel, p, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    expect_correct(p, owned);
  }

  const Family& family_ = family_of(Op::route);
  testing_support::RandomRoutes routes_{random_};
};

TEST_F(GpuRoute, EveryEssentialKernelIsCorrect) {
  const std::vector<KernelSpec> specs = essential(family_);
  ASSERT_EQ(specs.size(), 15U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    const std::string name = name_of(spec);
    for (const Problem& problem : family_.samples(spec, target_)) check(name, problem);
    for (const std::int64_t most_tokens : {70, 5000}) {
      check(name, routes_.problem(std::get<RouteSignature>(spec.signature), spec.algorithm.tile.n,
                                  most_tokens));
    }
  }
}

TEST_F(GpuRoute, OtherSignaturesAreCorrect) {
  for (int i = 0; i < 12; ++i) {
    const RouteProblem p = routes_.problem(routes_.signature(), 1024, i % 2 == 0 ? 40 : 3000);
    const std::vector<KernelSpec> all = family_.legal_candidates(p, target_);
    std::vector<KernelSpec> serving;
    for (const KernelSpec& spec : all) {
      if (family_.supports(spec, p, target_)) serving.push_back(spec);
    }
    ASSERT_FALSE(serving.empty());
    check(name_of(serving[random_() % serving.size()]), p);
  }
}

// More tokens than warps at a time, more slots than one block brings into their places.
TEST_F(GpuRoute, ManySlotsAndExpertsAreCorrect) {
  for (const char* line :
       {"route tokens=16384 experts=128 top_k=8 dtype=bf16 order=1",
        "route tokens=16384 experts=256 top_k=8 scoring=sigmoid bias=1 num_groups=8 top_groups=4 "
        "scaling_factor=2.5 order=1",
        "route tokens=131072 experts=1024 top_k=1 dtype=bf16 order=1",
        "route tokens=70001 experts=8 top_k=2 order=1",
        "route tokens=2000 experts=1024 top_k=65 scoring=given order=1"}) {
    const Problem problem = parse_problem(line);
    check(name_of(dispatcher_->kernel_for(problem).spec), problem);
  }
}

TEST_F(GpuRoute, SpecialValues) {
  for (const char* kernel :
       {"softmax_rows_16x128x1_16x1x1_1x1x1_order", "softmax_rows_16x128x1_16x1x1_1x1x1_bias_order",
        "sigmoid_rows_16x128x1_16x1x1_1x1x1_order", "sigmoid_rows_16x128x1_16x1x1_1x1x1_bias"}) {
    const std::string name = fmt::format("route_fp32_{}_sm90a", kernel);
    const KernelSpec spec = parse_name(name);
    for (const std::int64_t tokens : {40, 300}) {
      RouteProblem p = routes_.problem(std::get<RouteSignature>(spec.signature), 128, 1);
      p.tokens = tokens, p.ld_logits = kPacked;
      check_prepared(name, p, [&](const Operands& operands) {
        testing_support::put_special_logits(p, operands);
      });
    }
  }
}

TEST_F(GpuRoute, IdsOfNoExpertComeLast) {
  const std::string name = "route_fp32_given_rows_16x256x1_16x1x1_1x1x1_order_sm90a";
  for (const std::int64_t tokens : {0, 1, 300, 20000}) {
    RouteProblem p = routes_.problem({.scoring = RouteScoring::given, .order = true}, 256, 1);
    p.tokens = tokens;
    check_prepared(name, p, [&](const Operands& operands) {
      testing_support::put_ids_of_none(p, operands, random_);
    });
  }
}

TEST_F(GpuRoute, RunVerifiesOnTheDevice) {
  run_and_verify(parse_problem("route tokens=77 experts=128 top_k=8 dtype=bf16 order=1"));
}

}  // namespace
}  // namespace tessera
