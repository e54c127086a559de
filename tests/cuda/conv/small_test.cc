// Every essential convolution on one small problem: little enough for compute-sanitizer, which
// makes kernels a hundred times slower. tools/gpu_check.sh runs it there.
#include <gtest/gtest.h>

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

  const Family& family_ = family_of(Op::conv);
};

TEST_F(GpuConvSmall, Forward) { check_small(family_, essential(ConvDirection::forward)); }
TEST_F(GpuConvSmall, BackwardData) {
  check_small(family_, essential(ConvDirection::backward_data));
}
TEST_F(GpuConvSmall, BackwardWeight) {
  check_small(family_, essential(ConvDirection::backward_weight));
}

}  // namespace
}  // namespace tessera
