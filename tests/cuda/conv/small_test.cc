// Every essential convolution on one small problem: little enough for compute-sanitizer, which
// makes kernels a hundred times slower. tools/gpu_check.sh runs it there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "cuda/gpu_test.h"

namespace tessera {
namespace {

class GpuConvSmall : public GpuTest {
 protected:
  std::vector<KernelSpec> essential(ConvDirection direction) const {
    std::vector<KernelSpec> specs;
    for (const std::string& set : family_.preselected_names()) {
      for (KernelSpec& spec : family_.preselected(set, target_)) {
        const auto& signature = std::get<ConvSignature>(spec.signature);
        if (signature.direction == direction) specs.push_back(std::move(spec));
      }
    }
    return specs;
  }

  // Of the kernel's samples, all of which are small, the one with the most operations: its loops
  // go round several times.
  Problem sample(const KernelSpec& spec) const {
    const std::vector<Problem> samples = family_.samples(spec, target_);
    const auto most = std::max_element(
        samples.begin(), samples.end(),
        [&](const Problem& a, const Problem& b) { return family_.flops(a) < family_.flops(b); });
    if (most == samples.end()) throw std::runtime_error(name_of(spec) + " has no sample");
    return *most;
  }

  void check_all(ConvDirection direction) {
    const std::vector<KernelSpec> specs = essential(direction);
    ASSERT_FALSE(specs.empty());
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      const Problem problem = sample(spec);
      SCOPED_TRACE(fmt::format("{} on '{}'", name_of(spec), to_string(problem)));
      measure::OwnedOperands owned = measure::random_operands(problem, seed_);
      measure::PlacedOperands placed = measure::place_operands(owned, place_);
      run(problem, owned, placed, placed.operands, name_of(spec));
      EXPECT_EQ(measure::gaps_intact(owned), "");
      expect_correct(problem, owned);
    }
    fmt::print("{} kernels, one problem each\n", specs.size());
  }

  const Family& family_ = family_of(Op::conv);
};

TEST_F(GpuConvSmall, Forward) { check_all(ConvDirection::forward); }
TEST_F(GpuConvSmall, BackwardData) { check_all(ConvDirection::backward_data); }
TEST_F(GpuConvSmall, BackwardWeight) { check_all(ConvDirection::backward_weight); }

}  // namespace
}  // namespace tessera
