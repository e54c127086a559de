// GEMM's kernels as instances of CK Tile's templates: names, and what there is none for.
#include <gtest/gtest.h>

#include "tessera/families/gemm/gemm.h"
#include "tessera/families/instances.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

const InstanceSource& cktile() { return *find_instance_source(family(), "cktile"); }

TEST(GemmInstances, NamesAreTheDocuments) {
  struct Row {
    const char* ours;
    const char* theirs;
  };
  for (const Row& row : {
           Row{"gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave_storecshuffle_gfx942",
               "gemm_fp16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_"
               "32x32x16"},
           Row{"gemm_bf16_rrr_mem_64x64x64_2x2x1_16x16x32_interwave_gfx950",
               "gemm_bf16_rrr_mem_default_interwave_True_True_True_False_64x64x64_2x2x1_16x16x32"},
           Row{"gemm_int8_rcr_compv3_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle_persistent_"
               "gfx942",
               "gemm_int8_rcr_compv3_cshuffle_intrawave_True_True_True_True_128x128x64_2x2x1_"
               "32x32x16"},
           Row{"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x16_intrawave_storecshuffle_"
               "splitatomic4_gfx90a",
               "gemm_fp16_rcr_compv3_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_"
               "32x32x16_splitk4"},
           Row{"gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_presh_intrawave_storecshuffle_"
               "gfx942",
               "gemm_fp16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_"
               "32x32x16_preshuffle"},
           Row{"gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_multiply_intrawave_storecshuffle_"
               "gfx942",
               "gemm_fp16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_"
               "32x32x16_multid_MultiDMultiply_d1"},
           Row{"gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_multidadd3_intrawave_"
               "storecshuffle_gfx942",
               "gemm_fp16_rcr_compv4_cshuffle_intrawave_True_True_True_False_128x128x32_2x2x1_"
               "32x32x16_multid_MultiDAdd_d3"},
       }) {
    const KernelSpec spec = parse_name(row.ours);
    const Target target = load_target(spec.target);
    EXPECT_EQ(cktile().is_legal(spec, target).reason, "") << row.ours;
    EXPECT_EQ(cktile().emit(spec, target).name, row.theirs);
  }
}

TEST(GemmInstances, SayWhatThereIsNoneFor) {
  struct Row {
    const char* name;
    const char* reason;
  };
  for (const Row& row : {
           Row{"gemm_fp8_bf8_rcr_compv3_128x128x64_2x2x1_32x32x16_intrawave_storecshuffle_gfx942",
               "names of CK Tile's instances have one type: b must be fp8, acc fp32, out and d "
               "fp16, got bf8, fp32, fp16 and fp16"},
           Row{"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_outfp32_intrawave_storecshuffle_"
               "gfx942",
               "names of CK Tile's instances have one type: b must be fp16, acc fp32, out and d "
               "fp16, got fp16, fp32, fp32 and fp32"},
           Row{"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_relu_intrawave_storecshuffle_gfx942",
               "CK Tile's instances have the epilogues none, add, multiply, multi_d_add and "
               "multi_d_multiply of 2 to 4 tensors, got relu"},
           Row{"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_multidadd1_intrawave_storecshuffle_"
               "gfx942",
               "CK Tile's instances have the epilogues none, add, multiply, multi_d_add and "
               "multi_d_multiply of 2 to 4 tensors, got multi_d_add1"},
           Row{"gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_presh_add_intrawave_storecshuffle_"
               "gfx942",
               "CK Tile's instances with preshuffle have no epilogue"},
           Row{"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_add_intrawave_storecshuffle_"
               "splitatomic2_gfx942",
               "CK Tile's instances with an epilogue have splits=1, got 2"},
           Row{"gemm_fp16_rcr_compv3_128x128x64_2x2x1_32x32x16_add_intrawave_gfx942",
               "CK Tile's instances with an epilogue store cshuffle, got standard"},
           Row{"gemm_fp16_rcr_compv3_128x128x32_2x2x1_32x32x16_presh_intrawave_storecshuffle_"
               "gfx942",
               "CK Tile's instances with preshuffle are written as pipeline compv4 that stores "
               "cshuffle, got compv3 and cshuffle"},
       }) {
    const KernelSpec spec = parse_name(row.name);
    EXPECT_EQ(cktile().is_legal(spec, load_target(spec.target)).reason, row.reason) << row.name;
  }
}

}  // namespace
}  // namespace tessera::gemm
