// Kernels with gates and rows by index compile for Hopper without spilling a register: with groups
// and without, both ways, both schedulers. No GPU is needed.
#include <fmt/format.h>

#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class OutputsKernels : public NvrtcTest {
 protected:
  std::vector<Source> sources_named(const std::vector<std::string>& names) const {
    std::vector<Source> all;
    for (const std::string& rest : names) {
      const std::string name = "gemm_" + rest + "_sm90a";
      const KernelSpec spec = parse_name(name);
      EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name;
      all.push_back(gemm::family().emit(spec, target_));
    }
    return all;
  }
};

TEST_F(OutputsKernels, OfEveryKindDoNotSpill) {
  expect_no_spills(sources_named({
      "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_outfp8_groupscontiguous_gatesilumul_rowsgathered_"
      "quantblock_s3",
      "bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupscontiguous_gatesilumul_rowsgathered_"
      "cooperative_s4",
      "bf16_rcr_tmaws_128x16x64_1x1x1_64x16x16_groupscontiguous_gatesilumul_rowsgathered_"
      "cooperative_s5_swap",
      "bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_dfp32_groupscontiguous_rowsscattered_rowscale_"
      "cooperative_s4",
  }));
}

TEST_F(OutputsKernels, ByWarpsDoNotSpill) {
  expect_no_spills(sources_named({
      "tf32_rrr_cpasync_128x128x32_2x4x1_16x8x8_groupscontiguous_gatesilumul_s3",
      "fp16_ccr_cpasync_128x128x64_2x4x1_16x8x16_groupsalongk_gategelumul_s3",
      "bf16_crr_cpasync_128x128x64_2x4x1_16x8x16_outbf8_dfp32_groupsmasked_gategelutanhmul_"
      "quantrow_"
      "rowscale_s3",
      "fp8_rcr_cpasync_128x128x128_2x4x1_16x8x16_outbf16_groupsindexed_rowsscattered_rowscale_s3",
      "int8_rcr_cpasync_128x128x128_2x4x1_16x8x32_groupscontiguous_rowsgathered_s3",
  }));
}

TEST_F(OutputsKernels, ByTheCopyEngineDoNotSpill) {
  std::vector<std::string> names;
  for (const char* grouping : {"", "_groupscontiguous", "_groupsindexed"}) {
    for (const char* rest : {
             "bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16{}_gategelumul_rowsgathered_cooperative_s3",
             "bf16_rcr_tmaws_64x256x64_2x1x1_64x256x16{}_gatesilumul_rowsgathered_pingpong_s4",
             "fp16_rrr_tmaws_128x256x64_2x1x1_64x256x16{}_gatesilumul_rowsgathered_cooperative_s3",
             "bf16_rcr_tmaws_256x128x64_2x1x1_64x128x16{}_gatesilumul_cooperative_s4",
             "bf16_rcr_tmaws_128x64x64_1x1x1_64x64x16{}_gatesilumul_interleaved_rowsgathered_"
             "cooperative_s4_swap",
             "bf16_rcr_tmaws_128x192x64_2x1x1_64x192x16{}_rowsgathered_bias_gelu_cooperative_s4",
             "bf16_rcr_tmaws_192x128x64_3x1x1_64x128x16{}_rowsscattered_rowscale_cooperative_s4",
             "bf16_rcr_tmaws_64x64x64_1x1x1_64x64x16{}_rowsgathered_cooperative_s8_swap",
             "bf16_rrr_tmaws_64x256x64_2x1x1_64x256x16_dfp32{}_rowsscattered_rowscale_bias_"
             "pingpong_"
             "s4",
             "bf16_rcr_tmaws_128x64x64_2x1x1_64x64x16{}_rowsscattered_multidadd2_cooperative_s5_"
             "swap",
             "fp8_rcr_tmaws_128x256x128_2x1x1_64x256x32_outbf16{}_gatesilumul_rowsgathered_"
             "cooperative_s3",
             "int8_rcr_tmaws_128x128x128_2x1x1_64x128x32{}_rowsscattered_cooperative_s4",
             "tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8{}_rowsscattered_cooperative_s4",
         }) {
      names.push_back(fmt::format(fmt::runtime(rest), grouping));
    }
  }
  expect_no_spills(sources_named(names));
}

}  // namespace
}  // namespace tessera
