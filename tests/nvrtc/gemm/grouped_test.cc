// Kernels for groups of unequal sizes compile for Hopper without spilling a register: every type,
// layout and grouping, both ways, both schedulers, and epilogues. No GPU is needed.
#include <fmt/format.h>

#include "nvrtc/no_spills.h"
#include "tessera/families/gemm/gemm.h"

namespace tessera {
namespace {

class GroupedKernels : public NvrtcTest {
 protected:
  std::vector<Source> sources(const std::vector<std::string>& names) const {
    std::vector<Source> all;
    for (const std::string& name : names) {
      const KernelSpec spec = parse_name(name);
      EXPECT_EQ(gemm::family().is_legal(spec, target_).reason, "") << name;
      all.push_back(gemm::family().emit(spec, target_));
    }
    return all;
  }
};

std::string named(const char* rest) { return fmt::format("gemm_{}_sm90a", rest); }

TEST_F(GroupedKernels, OfEveryKindDoNotSpill) {
  expect_no_spills(sources({
      named("fp32_rcr_cpasync_128x128x32_2x4x1_8x8x1_groupsmasked_s3"),
      named("bf16_crr_cpasync_128x128x64_2x4x1_16x8x16_groupsindexed_bias_gelu_s3"),
      named("bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupscontiguous_cooperative_s4"),
      named("bf16_rrr_tmaws_128x128x64_2x1x1_64x128x16_groupsindexed_pingpong_s4"),
      named("bf16_crr_tmaws_128x256x64_2x1x1_64x256x16_outfp32_groupsalongk_cooperative_s3"),
      named("fp8_rcr_tmaws_64x16x128_1x1x1_64x16x32_groupsmasked_cooperative_s8_swap"),
  }));
}

// Between the tiles of fp32, a few numbers of the walk may lie in memory.
TEST_F(GroupedKernels, OfFp32HardlySpill) {
  constexpr int kMostBytes = 48;
  std::vector<std::string> names;
  for (const char* rest : {"fp32_rcr_cpasync_128x128x32_2x4x1_8x8x1_groupscontiguous_s3",
                           "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groupsalongk_s3",
                           "fp32_ccr_cpasync_64x64x32_2x2x1_8x4x1_groupsindexed_multidadd2_s3",
                           "fp32_rrr_cpasync_128x128x32_2x4x1_8x8x1_groupsmasked_bias_gelu_s3",
                           "fp32_crr_cpasync_128x128x32_2x4x1_8x8x1_groupslists_bias_gelu_s3"}) {
    names.push_back(named(rest));
  }
  expect_spills(sources(names), kMostBytes);
}

TEST_F(GroupedKernels, ByWarpsDoNotSpill) {
  std::vector<std::string> names;
  for (const char* rest : {

           "tf32_rrr_cpasync_128x128x32_2x4x1_16x8x8_groupscontiguous_s3",
           "fp16_ccr_cpasync_128x128x64_2x4x1_16x8x16_groupsalongk_s3",
           "bf16_crr_cpasync_128x128x64_2x4x1_16x8x16_outfp32_groupsalongk_s3",
           "bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groupscontiguous_rowscale_colscale_bias_s3",
           "fp8_rcr_cpasync_128x128x128_2x4x1_16x8x16_groupsmasked_s3",
           "fp8_bf8_rrr_cpasync_64x64x128_2x2x1_16x8x16_groupsindexed_s3",
           "int8_rcr_cpasync_128x128x128_2x4x1_16x8x32_groupscontiguous_s3",
           "int8_crr_cpasync_64x64x128_2x2x1_16x8x32_outint8_groupsmasked_s3"}) {
    names.push_back(named(rest));
  }
  expect_no_spills(sources(names));
}

TEST_F(GroupedKernels, OfListsDoNotSpill) {
  std::vector<std::string> names;
  for (const char* rest : {"fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groupslists_s3",
                           "tf32_rrr_cpasync_128x128x32_2x4x1_16x8x8_groupslists_s3",
                           "fp16_ccr_cpasync_128x128x64_2x4x1_16x8x16_groupslists_multidadd2_s3",
                           "bf16_rcr_cpasync_128x128x64_2x4x1_16x8x16_groupslists_s3",
                           "bf16_crr_cpasync_128x128x64_2x4x1_16x8x16_outfp32_groupslists_s3",
                           "fp8_rcr_cpasync_128x128x128_2x4x1_16x8x16_groupslists_s3",
                           "fp8_bf8_rrr_cpasync_64x64x128_2x2x1_16x8x16_groupslists_s3",
                           "int8_rcr_cpasync_128x128x128_2x4x1_16x8x32_groupslists_s3",
                           "int8_crr_cpasync_64x64x128_2x2x1_16x8x32_outint8_groupslists_s3"}) {
    names.push_back(named(rest));
  }
  expect_no_spills(sources(names));
}

TEST_F(GroupedKernels, ByTheCopyEngineDoNotSpill) {
  std::vector<std::string> names;
  for (const char* grouping : {"contiguous", "indexed", "masked", "alongk"}) {
    for (const char* rest :
         {"bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groups{}_cooperative_s3",
          "bf16_rcr_tmaws_64x256x64_2x1x1_64x256x16_groups{}_pingpong_s4",
          "bf16_crr_tmaws_192x128x64_3x1x1_64x128x16_groups{}_bias_gelu_cooperative_s4",
          "bf16_crr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_pingpong_s4",
          "bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groups{}_multidadd2_cooperative_s4",
          "fp16_rcr_tmaws_64x32x64_1x1x1_64x32x16_groups{}_bias_silu_cooperative_s8_swap",
          "fp8_rcr_tmaws_128x256x128_2x1x1_64x256x32_groups{}_cooperative_s3",
          "int8_rcr_tmaws_128x128x128_2x1x1_64x128x32_groups{}_pingpong_s4",
          "tf32_rcr_tmaws_128x128x32_2x1x1_64x128x8_groups{}_cooperative_s4",
          "fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_groups{}_rowscale_colscale_cooperative_s4_"
          "swap"}) {
      const std::string name = named(fmt::format(fmt::runtime(rest), grouping).c_str());
      if (family_of(Op::gemm).is_legal(parse_name(name), load_target("sm90a"))) {
        names.push_back(name);
      }
    }
  }
  expect_no_spills(sources(names));
}

}  // namespace
}  // namespace tessera
