#include <gtest/gtest.h>

#include "bench.h"

namespace tessera::cdna_emulator {
namespace {

std::string unknown(const std::string& line) {
  return "The emulator does not know this instruction, or a word of it: '" + line + "'.";
}

TEST(Decode, ReadsRegistersAndConstants) {
  const Instruction i = decode("v_fma_f32 v1, -|s[4]|, 0.5, a7", 0x40);
  ASSERT_EQ(i.num_operands, 4);
  EXPECT_EQ(i.name, "v_fma_f32");
  EXPECT_EQ(i.address, 0x40U);
  EXPECT_EQ(i.operands[0].reg, 1);
  EXPECT_EQ(i.operands[1].kind, Operand::Kind::scalar);
  EXPECT_EQ(i.operands[1].keep, 0x7fffffffU);
  EXPECT_EQ(i.operands[1].flip, 0x80000000U);
  EXPECT_EQ(i.operands[2].bits, 0x3f000000U);
  EXPECT_EQ(i.operands[3].reg, kAccumulators + 7);
  EXPECT_TRUE(i.operands[3].plain);
}

TEST(Decode, ReadsAConstantByWhatItsInstructionTakes) {
  EXPECT_EQ(decode("v_add_f32_e32 v0, 1.0, v0", 0).operands[1].bits, 0x3f800000U);
  EXPECT_EQ(decode("v_add_f16_e32 v0, 1.0, v0", 0).operands[1].bits, 0x3c00U);
  EXPECT_EQ(decode("v_add_u32_e32 v0, -1, v0", 0).operands[1].bits, 0xffffffffU);
  EXPECT_EQ(decode("v_add_f64 v[0:1], 1.0, v[2:3]", 0).operands[1].bits, 0x3ff0000000000000U);
  EXPECT_EQ(decode("v_add_f64 v[0:1], 0x40300000, v[2:3]", 0).operands[1].bits,
            0x4030000000000000U);
  EXPECT_EQ(decode("s_mov_b64 s[0:1], -1", 0).operands[1].bits, ~u64{0});
  EXPECT_EQ(decode("s_mov_b64 s[0:1], 0xffffffff", 0).operands[1].bits, 0xffffffffU);
}

TEST(Decode, ReadsWaits) {
  EXPECT_EQ(decode("s_waitcnt vmcnt(3) lgkmcnt(0)", 0).vm_left, 3);
  EXPECT_EQ(decode("s_waitcnt vmcnt(3) lgkmcnt(0)", 0).lgkm_left, 0);
  EXPECT_EQ(decode("s_waitcnt lgkmcnt(2)", 0).vm_left, -1);
}

TEST(Decode, ReadsMemoryModifiers) {
  const Instruction load = decode("buffer_load_dwordx4 v1, s[8:11], 0 offen offset:16 lds", 0);
  EXPECT_TRUE(load.lds);
  EXPECT_TRUE(load.offen);
  EXPECT_EQ(load.offset, 16);
  const Instruction atomic = decode("global_atomic_add v1, v2, v3, s[0:1] offset:-4 sc0", 0);
  EXPECT_TRUE(atomic.returns);
  EXPECT_EQ(atomic.offset, -4);
  EXPECT_FALSE(decode("global_load_dword v1, v2, s[0:1] sc0 sc1", 0).returns);
}

TEST(Decode, PairsReadBeforeOneWrites) {
  const auto b = make_bench("gfx1100");
  std::fill_n(b->wave->vector(127), kLanes, 5U);
  std::fill_n(b->wave->vector(128), kLanes, 7U);
  run_line(*b, "v_dual_mov_b32 v127, v128 :: v_dual_add_nc_u32 v128, 1, v127");
  EXPECT_EQ(b->wave->vector(127)[31], 7U);
  EXPECT_EQ(b->wave->vector(128)[31], 6U);
}

TEST(Decode, NullIsZeroAndKeepsNothing) {
  const auto b = make_bench("gfx1201");
  std::fill_n(b->wave->vector(1), kLanes, ~0U);
  run_line(*b, "v_add_co_ci_u32_e64 v2, null, 1, v1, null");
  EXPECT_EQ(b->wave->vector(2)[31], 0U);
  EXPECT_EQ(b->wave->exec(), ~u64{0});
}

TEST(Decode, WritesHalvesOfRegisters) {
  const auto b = make_bench("gfx1100");
  std::fill_n(b->wave->vector(1), kLanes, 0x12345678U);
  std::fill_n(b->wave->vector(2), kLanes, 0xaaaabbbbU);
  run_line(*b, "v_mov_b16_e32 v2.h, v1.l");
  EXPECT_EQ(b->wave->vector(2)[31], 0x5678bbbbU);
}

TEST(Decode, NamesWhatItDoesNotKnow) {
  const auto b = make_bench("gfx942");
  for (const char* line :
       {"v_no_such_thing v0, v1", "v_add_u32_e64 v0, v1, v2 clamp", "v_add_u32_e32 v0, v1",
        "v_mov_b32_e32 v0, src_shared_base", "v_add_f32_e32 v0, v1, v2 something:1",
        "buffer_load_dword v0, v1, s[0:3], 0 offen tfe",
        "v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], "
        "v[6:7], 0",
        "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], 0 cbsz:1", "s_waitcnt 0x70",
        "v_not_b32_e32 v0, -v1"}) {
    EXPECT_EQ(finding_of(*b, line), unknown(line));
  }
}

TEST(Decode, KnowsNoModesButThatOfFp8) {
  const auto b = make_bench("gfx942");
  EXPECT_EQ(finding_of(*b, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"), "");
  EXPECT_TRUE(b->wave->saturate_fp8);
  EXPECT_EQ(finding_of(*b, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0"),
            "The emulator follows no change of the mode but that of FP16_OVFL: "
            "'s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0'.");
}

TEST(Decode, AppliesDpp) {
  const auto b = make_bench("gfx942");
  const auto run = [&](const std::string& words) {
    for (u32 l = 0; l < kLanes; ++l) {
      b->wave->vector(0)[l] = 100;
      b->wave->vector(1)[l] = l;
    }
    run_line(*b, "v_mov_b32_dpp v0, v1 " + words);
    return b->wave->vector(0);
  };
  EXPECT_EQ(run("quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf")[6], 7U);
  EXPECT_EQ(run("row_shr:1 row_mask:0xf bank_mask:0xf")[16], 100U);
  EXPECT_EQ(run("row_shr:1 row_mask:0xf bank_mask:0xf")[17], 16U);
  EXPECT_EQ(run("row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1")[16], 0U);
  EXPECT_EQ(run("row_ror:4 row_mask:0xf bank_mask:0xf")[1], 13U);
  EXPECT_EQ(run("row_half_mirror row_mask:0xf bank_mask:0xf")[8], 15U);
  EXPECT_EQ(run("row_bcast:15 row_mask:0xa bank_mask:0xf")[20], 15U);
  EXPECT_EQ(run("row_bcast:15 row_mask:0xa bank_mask:0xf")[40], 100U);
  EXPECT_EQ(run("row_newbcast:3 row_mask:0xf bank_mask:0xf")[63], 51U);
}

TEST(Decode, AppliesSdwaAndOpSel) {
  const auto b = make_bench("gfx942");
  b->wave->vector(0)[0] = 0x11223344;
  b->wave->vector(1)[0] = 0xaabbccdd;
  run_line(*b,
           "v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 "
           "src1_sel:DWORD");
  EXPECT_EQ(b->wave->vector(0)[0], 0x1122bb44U);
  run_line(*b, "v_mov_b32_sdwa v0, sext(v1) dst_sel:WORD_0 dst_unused:UNUSED_PAD src0_sel:BYTE_3");
  EXPECT_EQ(b->wave->vector(0)[0], 0x0000ffaaU);
  b->wave->vector(3)[0] = float_to_half(2.0F) << 16;
  b->wave->vector(4)[0] = float_to_half(3.0F);
  run_line(*b, "v_add_f16_e64 v5, v3, v4 op_sel:[1,0,1]");
  EXPECT_EQ(b->wave->vector(5)[0], float_to_half(5.0F) << 16);
}

TEST(Decode, KeepsLanesThatAreOff) {
  const auto b = make_bench("gfx942");
  b->wave->set_pair(kExec, 0x8000000000000001U);
  run_line(*b, "v_mov_b32_e32 v0, 7");
  for (int l = 0; l < kLanes; ++l) {
    EXPECT_EQ(b->wave->vector(0)[l], l == 0 || l == 63 ? 7U : 0U);
  }
}

}  // namespace
}  // namespace tessera::cdna_emulator
