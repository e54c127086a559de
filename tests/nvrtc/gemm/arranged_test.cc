// Kernels that arrange their operands compile for Hopper without spilling a register, by every way.
// No GPU is needed.
#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class ArrangedKernels : public NvrtcTest {
 protected:
  Source source(const std::string& name) const {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name;
    return gemm::family().emit(spec, target_);
  }
};

TEST_F(ArrangedKernels, OfEveryWayCompile) {
  expect_no_spills(
      {source("gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_arranged_cooperative_s4_sm90a"),
       source("gemm_fp16_rrr_cpasync_64x64x32_2x2x1_16x8x16_arranged_s3_sm90a"),
       source("gemm_fp32_crr_cpasync_16x64x32_2x1x1_4x4x1_arranged_s8_sm90a")});
}

}  // namespace
}  // namespace tessera
