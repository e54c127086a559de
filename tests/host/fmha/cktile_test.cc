// Attention as instances of CK Tile's templates: names, and what there is none for.
#include <gtest/gtest.h>

#include "tessera/families/fmha/fmha.h"
#include "tessera/families/instances.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

const InstanceSource& cktile() { return *find_instance_source(family(), "cktile"); }

std::string reason(const std::string& name) {
  const KernelSpec spec = parse_name(name);
  return cktile().is_legal(spec, load_target(spec.target)).reason;
}

// The digits are those that Python's json and hashlib make of the same kernel.
TEST(FmhaInstances, NamesAreTheGenerators) {
  const Target target = load_target("gfx942");
  const auto name = [&](const std::string& ours) {
    return cktile().emit(parse_name(ours), target).name;
  };
  EXPECT_EQ(name("fmha_forward_bf16_qrasync_128x128x128_4x1x1_32x32x16_packed_masked_gfx942"),
            "fmha_fwd_bf16_group_h128x128_qr_async_0554654eecd0");
  EXPECT_EQ(name("fmha_forward_fp16_qr_128x128x192_4x1x1_32x32x16_softcap_lse_gfx942"),
            "fmha_fwd_fp16_batch_h192x128_qr_d811da0df678");
}

TEST(FmhaInstances, SayWhatThereIsNoneFor) {
  struct Row {
    const char* name;
    const char* reason;
  };
  for (const Row& row : {
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_gfx942", ""},
           Row{"fmha_forward_fp16_flash_128x64x128_4x1x1_32x32x16_gfx942",
               "CK Tile has no attention with pipeline flash for gfx942"},
           Row{"fmha_forward_fp16_qrasync_64x64x128_4x1x1_16x16x16_gfx1201",
               "CK Tile has no attention with pipeline qrasync for gfx1201"},
           Row{"fmha_append_fp16_qr_128x64x128_4x1x1_32x32x16_gfx942",
               "instances of attention are written for kind=forward, got append"},
           Row{"fmha_forward_fp32_qr_128x64x128_4x1x1_32x32x16_gfx942",
               "CK Tile's instances of attention have one type, fp16 or bf16, got in fp32, out "
               "fp32 and dtype_bias fp32"},
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_padded_gfx942",
               "CK Tile has sequences of equal lengths (batch) and packed ones (group), got "
               "padded"},
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_padded_pagestable_gfx942",
               "CK Tile has sequences of equal lengths (batch) and packed ones (group), got "
               "padded"},
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_dropout_random_gfx942",
               "instances of attention are written without random"},
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_biasalibi_softcap_gfx942",
               "CK Tile has no soft cap beside a bias, got bias alibi"},
           Row{"fmha_forward_fp16_qr_128x64x128_4x1x1_32x32x16_s2_gfx942",
               "CK Tile's instances of attention have no options"},
           Row{"fmha_forward_fp16_qr_128x64x100_4x1x1_32x32x16_gfx942",
               "CK Tile's tables for gfx942 have no tile 128x64x100"},
           Row{"fmha_forward_fp16_qr_128x64x128_1x1x1_32x32x16_gfx942",
               "waves and warp tile must be listed for gfx942 and have 128 rows together, got "
               "1x1x1 and 32x32x16"},
           Row{"fmha_forward_fp16_qrasync_32x32x128_1x1x1_32x32x16_gfx942",
               "qrasync has tiles of 128 rows, for heads of 128 elements 128x128x128, got "
               "32x32x128"},
       }) {
    EXPECT_EQ(reason(row.name), row.reason) << row.name;
  }
}

// CK Tile has tiles that no kernel of ours takes.
TEST(FmhaInstances, LeaveOurOwnKernelsToTheRowsSpace) {
  const Target target = load_target("gfx1100");
  EXPECT_EQ(
      family()
          .is_legal(parse_name("fmha_forward_fp16_qr_64x64x128_4x1x1_16x16x16_gfx1100"), target)
          .reason,
      "tile 64x64x128 needs about 312 registers a lane, gfx1100 has 256");
}

}  // namespace
}  // namespace tessera::fmha
