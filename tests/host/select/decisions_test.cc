// Decisions by kernel name on pretended targets. The properties hold for any sensible model; the
// table is what the present model says, and moves with it: a failing run prints the new table.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "host/select/fixtures.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// "amx" is the row avx512 as a machine with tiles has it, "avx512" the row of a machine without.
Target load_named(const std::string& name) {
  Target target = load_target(name == "amx" ? "avx512" : name);
  if (name != "avx512") return target;
  std::erase_if(target.instructions, [](const Instruction& i) { return i.shape.m > 1; });
  return target;
}

const Target& target_named(const std::string& name) {
  static std::map<std::string, Target> targets;
  const auto found = targets.find(name);
  if (found != targets.end()) return found->second;
  return targets.emplace(name, load_named(name)).first->second;
}

Decision decide(const std::string& target, int threads, const std::string& line) {
  return choose(parse_problem(line), target_named(target), {.threads = threads});
}

// ---- properties ----

struct Property {
  std::string target;
  int threads;
  std::string problem;
  std::vector<Pipeline> pipelines;  // one of these
};

TEST(Decisions, PipelineFitsTheShape) {
  const std::vector<Property> properties = {
      {"avx512", 1, "gemm m=1 n=8192 k=8192", {Pipeline::stream}},
      {"avx512", 1, "gemm m=8192 n=1 k=8192", {Pipeline::stream}},
      {"avx512", 8, "gemm m=1 n=8192 k=8192", {Pipeline::stream}},
      {"avx512", 1, "gemm m=1 n=8192 k=8192 dtype=bf16", {Pipeline::stream}},
      {"avx512", 1, "gemm m=1 n=8192 k=8192 dtype=int8", {Pipeline::stream}},
      {"avx2", 1, "gemm m=1 n=8192 k=8192", {Pipeline::stream}},
      {"generic", 1, "gemm m=1 n=8192 k=8192", {Pipeline::stream}},
      {"avx512", 1, "gemm m=2048 n=2048 k=2048", {Pipeline::packab, Pipeline::packb}},
      {"avx512",
       1,
       "gemm m=2048 n=2048 k=2048 layout=rrr",
       {Pipeline::packab, Pipeline::packb, Pipeline::packa}},
      {"avx512", 1, "gemm m=2048 n=2048 k=2048 dtype=bf16", {Pipeline::packab, Pipeline::packb}},
      {"avx512", 1, "gemm m=2048 n=2048 k=2048 dtype=int8", {Pipeline::packab, Pipeline::packb}},
      {"amx", 1, "gemm m=2048 n=2048 k=2048 dtype=bf16", {Pipeline::amx}},
      {"amx", 8, "gemm m=2048 n=2048 k=2048 dtype=int8 layout=rrr", {Pipeline::amx}},
      {"amx", 1, "gemm m=1 n=8192 k=8192 dtype=bf16", {Pipeline::stream}},
      {"amx", 1, "gemm m=2048 n=2048 k=2048", {Pipeline::packab, Pipeline::packb}},
      {"avx2", 1, "gemm m=2048 n=2048 k=2048", {Pipeline::packab, Pipeline::packb}},
      {"generic", 1, "gemm m=2048 n=2048 k=2048", {Pipeline::packab, Pipeline::packb}},
      {"sm90a", 0, "gemm m=4096 n=4096 k=4096 dtype=bf16", {Pipeline::tmaws}},
      {"sm90a", 0, "gemm m=1 n=4096 k=4096 dtype=bf16", {Pipeline::tmaws}},
      {"sm90a", 0, "gemm m=1 n=4097 k=4095 dtype=bf16", {Pipeline::stream}},
      {"sm90a", 0, "gemm m=4097 n=3 k=4095 dtype=fp16", {Pipeline::stream}},
      {"sm90a", 0, "gemm m=1 n=1000 k=4096", {Pipeline::stream}},
      {"sm90a", 0, "gemm m=4096 n=4 k=4096", {Pipeline::stream}},
      {"sm90a", 0, "gemm m=5 n=4096 k=4096", {Pipeline::cpasync}},
  };
  for (const Property& p : properties) {
    const Decision decision = decide(p.target, p.threads, p.problem);
    const Pipeline got = decision.spec.algorithm.pipeline;
    EXPECT_EQ(std::count(p.pipelines.begin(), p.pipelines.end(), got), 1)
        << p.problem << " on " << p.target << " got " << decision.name;
  }
}

TEST(Decisions, FastestInstructionIsUsed) {
  EXPECT_EQ(decide("avx512", 1, "gemm m=1024 n=1024 k=1024 dtype=bf16").spec.algorithm.warp_tile.k,
            2);
  EXPECT_EQ(decide("avx512", 1, "gemm m=1024 n=1024 k=1024 dtype=int8").spec.algorithm.warp_tile.k,
            4);
  EXPECT_EQ(decide("amx", 1, "gemm m=1024 n=1024 k=1024 dtype=bf16").spec.algorithm.warp_tile.k,
            32);
  EXPECT_EQ(decide("avx2", 1, "gemm m=1024 n=1024 k=1024 dtype=bf16").spec.algorithm.warp_tile.k,
            1);
}

TEST(Decisions, LargerProblemsAreNotPredictedFaster) {
  for (const char* dtype : {"fp32", "bf16", "int8"}) {
    double last = 0;
    for (const char* size : {"64", "128", "256", "512", "1024", "2048"}) {
      const std::string line =
          std::string("gemm m=") + size + " n=" + size + " k=" + size + " dtype=" + dtype;
      const double seconds = decide("avx512", 1, line).predicted_seconds;
      EXPECT_GT(seconds, last) << line;
      last = seconds;
    }
  }
}

TEST(Decisions, ThreadsHelpLargeProblems) {
  const std::string line = "gemm m=2048 n=2048 k=2048";
  EXPECT_LT(decide("avx512", 8, line).predicted_seconds,
            decide("avx512", 1, line).predicted_seconds / 4);
}

// ---- the table ----

struct Row {
  std::string target;
  int threads;
  std::string problem;
  std::string kernel;
};

// clang-format off
const std::vector<Row> kTable = {
    {"avx512", 1, "gemm m=64 n=64 k=64",
     "gemm_fp32_rcr_small_3072x32x1_0x0x1_12x32x1_avx512"},
    {"avx512", 1, "gemm m=512 n=512 k=512",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_12x32x1_avx512"},
    {"avx512", 1, "gemm m=2048 n=2048 k=2048",
     "gemm_fp32_rcr_packb_96x960x2048_0x0x1_8x32x1_avx512"},
    {"avx512", 1, "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x1024x512_0x0x1_8x16x1_avx512"},
    {"avx512", 1, "gemm m=127 n=513 k=1031",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_12x32x1_avx512"},
    {"avx512", 1, "gemm m=16 n=16 k=16384",
     "gemm_fp32_rcr_packb_24x960x1024_0x0x1_8x16x1_avx512"},
    {"avx512", 1, "gemm m=512 n=512 k=512 dtype=bf16",
     "gemm_bf16_rcr_packb_960x960x1024_0x0x1_12x32x2_avx512"},
    {"avx512", 1, "gemm m=512 n=512 k=512 dtype=int8",
     "gemm_int8_rcr_packb_960x960x1024_0x0x1_12x32x4_avx512"},
    {"avx512", 1, "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu",
     "gemm_bf16_rcr_packb_960x960x1024_0x0x1_12x32x2_bias_gelu_avx512"},
    {"avx512", 1, "gemm m=512 n=512 k=512 preshuffle=1",
     "gemm_fp32_rcr_packb_96x960x2048_0x0x1_12x32x1_presh_avx512"},
    {"avx512", 2, "gemm m=64 n=64 k=64",
     "gemm_fp32_rcr_small_3072x32x1_1x1x1_12x32x1_avx512"},
    {"avx512", 2, "gemm m=512 n=512 k=512",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_12x32x1_avx512"},
    {"avx512", 2, "gemm m=2048 n=2048 k=2048",
     "gemm_fp32_rcr_packb_96x960x2048_0x0x1_8x32x1_avx512"},
    {"avx512", 2, "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x1024x512_0x0x1_8x16x1_avx512"},
    {"avx512", 2, "gemm m=127 n=513 k=1031",
     "gemm_fp32_rcr_packb_96x960x2048_0x0x1_8x48x1_avx512"},
    {"avx512", 2, "gemm m=16 n=16 k=16384",
     "gemm_fp32_rcr_packb_24x960x1024_0x0x1_8x16x1_avx512"},
    {"avx512", 2, "gemm m=512 n=512 k=512 dtype=bf16",
     "gemm_bf16_rcr_packb_960x960x1024_0x0x1_12x32x2_avx512"},
    {"avx512", 2, "gemm m=512 n=512 k=512 dtype=int8",
     "gemm_int8_rcr_packb_96x960x2048_0x0x1_8x32x4_avx512"},
    {"avx512", 2, "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu",
     "gemm_bf16_rcr_packb_960x960x1024_0x0x1_12x32x2_bias_gelu_avx512"},
    {"avx512", 2, "gemm m=512 n=512 k=512 preshuffle=1",
     "gemm_fp32_rcr_packb_96x960x2048_0x0x1_12x32x1_presh_avx512"},
    {"avx2", 1, "gemm m=64 n=64 k=64",
     "gemm_fp32_rcr_small_3072x16x1_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=512 n=512 k=512",
     "gemm_fp32_rcr_packb_240x1536x256_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=2048 n=2048 k=2048",
     "gemm_fp32_rcr_packb_240x1536x256_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x384x512_0x0x1_8x8x1_avx2"},
    {"avx2", 1, "gemm m=127 n=513 k=1031",
     "gemm_fp32_rcr_packb_240x1536x256_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=16 n=16 k=16384",
     "gemm_fp32_rcr_packb_240x1536x256_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=512 n=512 k=512 dtype=bf16",
     "gemm_bf16_rcr_packab_240x1536x256_0x0x1_6x16x1_avx2"},
    {"avx2", 1, "gemm m=512 n=512 k=512 dtype=int8",
     "gemm_int8_rcr_packab_240x1536x256_0x0x1_6x16x2_avx2"},
    {"avx2", 1, "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu",
     "gemm_bf16_rcr_packab_120x1536x256_0x0x1_4x24x1_bias_gelu_avx2"},
    {"avx2", 1, "gemm m=512 n=512 k=512 preshuffle=1",
     "gemm_fp32_rcr_packb_24x384x512_0x0x1_12x8x1_presh_avx2"},
    {"generic", 1, "gemm m=64 n=64 k=64",
     "gemm_fp32_rcr_packb_120x768x256_0x0x1_6x8x1_generic"},
    {"generic", 1, "gemm m=512 n=512 k=512",
     "gemm_fp32_rcr_packab_240x480x256_0x0x1_6x8x1_generic"},
    {"generic", 1, "gemm m=2048 n=2048 k=2048",
     "gemm_fp32_rcr_packab_240x480x256_0x0x1_6x8x1_generic"},
    {"generic", 1, "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x384x512_0x0x1_8x4x1_generic"},
    {"generic", 1, "gemm m=127 n=513 k=1031",
     "gemm_fp32_rcr_packb_120x768x256_0x0x1_4x12x1_generic"},
    {"generic", 1, "gemm m=16 n=16 k=16384",
     "gemm_fp32_rcr_packb_240x480x256_0x0x1_4x8x1_generic"},
    {"generic", 1, "gemm m=512 n=512 k=512 dtype=bf16",
     "gemm_bf16_rcr_packab_240x480x256_0x0x1_6x8x1_generic"},
    {"generic", 1, "gemm m=512 n=512 k=512 dtype=int8",
     "gemm_int8_rcr_packab_240x480x256_0x0x1_6x8x1_generic"},
    {"generic", 1, "gemm m=128 n=3072 k=768 dtype=bf16 epilogue=bias+gelu",
     "gemm_bf16_rcr_packab_120x768x256_0x0x1_4x12x1_bias_gelu_generic"},
    {"generic", 1, "gemm m=512 n=512 k=512 preshuffle=1",
     "gemm_fp32_rcr_packb_240x480x256_0x0x1_12x4x1_presh_generic"},
    {"sm90a", 0, "gemm m=4096 n=4096 k=4096 dtype=bf16",
     "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a"},
    {"sm90a", 0, "gemm m=1 n=4096 k=4096 dtype=bf16",
     "gemm_bf16_rcr_tmaws_64x8x128_1x1x1_64x8x16_cooperative_splitordered2_s10_swap_sm90a"},
    {"sm90a", 0, "gemm m=127 n=512 k=1032 dtype=fp16",
     "gemm_fp16_rcr_tmaws_64x32x64_1x1x1_64x32x16_cooperative_splitordered4_s8_swap_sm90a"},
    {"sm90a", 0, "gemm m=4096 n=4096 k=4096",
     "gemm_fp32_rcr_cpasync_128x128x32_2x4x1_8x8x1_s3_sm90a"},
    {"sm90a", 0, "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_1x16x16384_1x8x1_1x2x16_sm90a"},
};
// clang-format on

std::string as_source(const Row& row) {
  return "    {\"" + row.target + "\", " + std::to_string(row.threads) + ", \"" + row.problem +
         "\",\n     \"" + row.kernel + "\"},\n";
}

TEST(Decisions, AreThoseOfTheTable) {
  std::string now;
  bool differs = kTable.empty();
  for (Row row : kTable) {
    const std::string got = decide(row.target, row.threads, row.problem).name;
    differs = differs || got != row.kernel;
    row.kernel = got;
    now += as_source(row);
  }
  EXPECT_FALSE(differs) << "the model decides otherwise; if that is meant, the table becomes\n"
                        << now;
}

}  // namespace
}  // namespace tessera
