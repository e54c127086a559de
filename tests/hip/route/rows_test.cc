// Routers for AMD GPUs: compiled, counted, and run instruction by instruction on the emulator on
// random problems, against the fp64 reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "hip/emulated_test.h"
#include "routing.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostEmulatedTokens = 90;  // of a problem: the emulator takes its time

// Every scoring and type, waves of one expert a lane and of many.
constexpr const char* kRouters[] = {
    "route_fp32_softmax_rows_16x128x1_16x1x1_1x1x1",
    "route_bf16_softmax_rows_16x128x1_16x1x1_1x1x1_order",
    "route_fp16_softmax_rows_16x256x1_16x1x1_1x1x1_bias_order",
    "route_bf16_sigmoid_rows_8x128x1_8x1x1_1x1x1_order",
    "route_fp32_sigmoid_rows_16x512x1_16x1x1_1x1x1_bias_order",
    "route_bf16_sigmoid_rows_8x1024x1_8x1x1_1x1x1_bias_order",
    "route_fp32_given_rows_16x256x1_16x1x1_1x1x1_order",
};

class EmulatedRoute : public EmulatedTest {
 protected:
  EmulatedRoute() : EmulatedTest(Op::route) {}

  RouteProblem random_problem(const KernelSpec& spec, std::int64_t most_tokens) {
    return routes_.problem(std::get<RouteSignature>(spec.signature), spec.algorithm.tile.n,
                           most_tokens);
  }

  testing_support::RandomRoutes routes_{random_};
};
INSTANTIATE_TEST_SUITE_P(Targets, EmulatedRoute,
                         testing::Values("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"),
                         [](const auto& row) { return row.param; });

TEST_P(EmulatedRoute, KernelsAreLeanAndCorrect) {
  const std::vector<std::string> names = {std::begin(kRouters), std::end(kRouters)};
  for_each_kernel(some(names, 4),
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    check(spec, source, kernel, random_problem(spec, 8));  // one workgroup
                    check(spec, source, kernel, random_problem(spec, kMostEmulatedTokens));
                  });
}

// Blocks know where their slots go from the numbers of all ids.
TEST_P(EmulatedRoute, BlocksPutTheirSlotsInOrder) {
  for_each_kernel({"route_fp32_given_rows_8x128x1_8x1x1_1x1x1_order"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    RouteProblem p = random_problem(spec, 1);
                    p.tokens = 1300, p.top_k = std::min<std::int64_t>(p.experts, 4);
                    check(spec, source, kernel, p, [&](const Operands& operands) {
                      testing_support::put_ids_of_none(p, operands, random_);
                    });
                  });
}

TEST_P(EmulatedRoute, SpecialValues) {
  for_each_kernel({"route_fp32_softmax_rows_16x128x1_16x1x1_1x1x1_order",
                   "route_fp32_sigmoid_rows_16x128x1_16x1x1_1x1x1_bias"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    RouteProblem p = random_problem(spec, 1);
                    p.tokens = 48, p.ld_logits = kPacked;
                    check(spec, source, kernel, p, [&](const Operands& operands) {
                      testing_support::put_special_logits(p, operands);
                    });
                  });
}

}  // namespace
}  // namespace tessera
