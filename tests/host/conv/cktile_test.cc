// Convolutions as instances of CK Tile's templates: names, and what there is none for.
#include <gtest/gtest.h>

#include "tessera/families/conv/conv.h"
#include "tessera/families/instances.h"
#include "tessera/targets/targets.h"

namespace tessera::conv {
namespace {

const InstanceSource& cktile() { return *find_instance_source(family(), "cktile"); }

TEST(ConvInstances, NamesAreTheDocuments) {
  const Target target = load_target("gfx942");
  const auto name = [&](const std::string& ours) {
    return cktile().emit(parse_name(ours), target).name;
  };
  EXPECT_EQ(name("conv_forward_fp16_nhwgc_2d_compv4_128x128x32_2x2x1_32x32x16_intrawave_"
                 "storecshuffle_gfx942"),
            "grouped_conv_fwd_fp16_nhwgc_2d_compv4_cshuffle_intrawave_128x128x32_2x2x1_32x32x16_"
            "dsb");
  EXPECT_EQ(name("conv_backwarddata_bf16_nhwgc_1d_compv3_128x128x32_2x2x1_32x32x16_intrawave_"
                 "storecshuffle_gfx942"),
            "grouped_conv_bwd_data_bf16_nwgc_1d_compv3_cshuffle_intrawave_128x128x32_2x2x1_"
            "32x32x16");
  EXPECT_EQ(name("conv_backwardweight_bf16_nhwgc_3d_mem_64x64x64_2x2x1_16x16x32_interwave_"
                 "storecshuffle_gfx942"),
            "grouped_conv_bwd_weight_bf16_ndhwgc_3d_mem_cshuffle_interwave_64x64x64_2x2x1_"
            "16x16x32_vec8_8_8");
}

TEST(ConvInstances, SayWhatThereIsNoneFor) {
  struct Row {
    const char* name;
    const char* reason;
  };
  for (const Row& row : {
           Row{"conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx950",
               ""},
           Row{"conv_forward_fp16_nhwgc_2d_compv4_128x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               ""},
           Row{"conv_forward_fp16_nhwgc_2d_compv4_256x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               "needs 49152 bytes of LDS, compv4 allows 32768 of gfx942's 65536"},
           Row{"conv_forward_fp16_nhwgc_2d_direct_64x64x16_2x2x1_4x8x1_gfx942",
               "CK Tile has no convolution with pipeline direct for gfx942"},
           Row{"conv_forward_fp16_nchw_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               "CK Tile's instances of convolutions have layout nhwgc, got nchw"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_outfp32_intrawave_"
               "storecshuffle_gfx942",
               "CK Tile's instances of convolutions have one type and acc fp32, got fp16, fp16, "
               "fp32, fp32 and acc fp32"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_relu_intrawave_"
               "storecshuffle_gfx942",
               "CK Tile's instances of convolutions have no epilogue, got relu"},
           Row{"conv_backwarddata_fp16_nhwgc_2d_compv4_128x128x32_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               "CK Tile's gradients of convolutions have pipelines compv3 and mem, got compv4"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_interwave_"
               "storecshuffle_gfx942",
               "the scheduler must be intrawave, or interwave with mem, got interwave with compv3"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_gfx942",
               "CK Tile's instances of convolutions store cshuffle, got standard"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_persistent_gfx942",
               "CK Tile's instances of convolutions have no option but scheduler and store"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_128x128x64_2x4x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               "gfx942 does not list waves 2x4x1 of warp tile 32x32x16 for fp16"},
           Row{"conv_forward_fp16_nhwgc_2d_compv3_96x128x64_2x2x1_32x32x16_intrawave_"
               "storecshuffle_gfx942",
               "tile 96x128x64 does not divide over waves 2x2x1 of warp tile 32x32x16"},
       }) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(cktile().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
}

}  // namespace
}  // namespace tessera::conv
