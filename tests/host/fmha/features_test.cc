// What learned models see of attention: finite, the same in any company, exact, and described.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "host/fmha/append_problems.h"
#include "host/fmha/backward_problems.h"
#include "host/fmha/extend_problems.h"
#include "host/fmha/fmha_problems.h"
#include "host/tile/feature_checks.h"
#include "tessera/families/fmha/features_internal.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

// Problems of every kind, with odd sizes and with those that tensor cores take.
FmhaProblem any_problem(RandomFmhas& random) {
  const std::int64_t kind = random.integer(0, 3);
  FmhaProblem p = kind == 0   ? random.problem(3000, 256)
                  : kind == 1 ? random_append(random, 300, 256)
                  : kind == 2 ? random_extend(random, 300, 128)
                              : random_backward(random, 2000, 128);
  if (kind != 0 || random.coin()) return p;
  p = fmha_problem(DType::bf16, random.integer(0, 5), 8, 4, random.integer(0, 900),
                   random.integer(1, 9000), 8 * random.integer(1, 32));
  if (random.coin()) p.mask = FmhaMask::bottom_right;
  return p;
}

TEST(FmhaFeatures, NamesAreUniqueAndExplained) { expect_unique_names(family()); }

TEST(FmhaFeatures, ProblemAndMachineComeFirst) { expect_shared_first(family()); }

TEST(FmhaFeatures, EveryPipelineHasAFlag) {
  for (const char* name : {"sm90a", "avx512", "avx2", "generic"}) {
    const Target target = load_target(name);
    for (const Pipeline pipeline : tile::space_of(Op::fmha, target).pipelines) {
      const auto flags = pipelines_with_flags();
      EXPECT_NE(std::find(flags.begin(), flags.end(), pipeline), flags.end())
          << to_string(pipeline);
    }
  }
}

TEST(FmhaFeatures, RoomOfTheWrongSize) {
  expect_room_is_checked(small_problem(5, 9, 16), load_target("sm90a"));
}

TEST(FmhaFeatures, BatchEqualsSingle) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomFmhas random(seed);
  const auto draw = [&] { return any_problem(random); };
  EXPECT_GT(expect_whole_columns(random, draw, 250, 1000), 8U);
}

// No two kernels that differ look the same to a model.
TEST(FmhaFeatures, KernelsDiffer) {
  const Target target = load_target("sm90a");
  for (const char* line : {"fmha batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=1000 hdim=64 "
                           "dtype=bf16 mask=bottom_right",
                           "fmha heads=32 seqlen_q=1 seqlen_k=9000 hdim=128 dtype=bf16",
                           "fmha kind=backward heads=8 seqlen_q=500 seqlen_k=500 hdim=64 "
                           "dtype=bf16"}) {
    const Problem p = parse_problem(line);
    const auto specs = serving(p, target);
    ASSERT_GT(specs.size(), 1U);
    const std::vector<double> all = extract_all(p, target, 0, specs);
    std::set<std::vector<double>> rows;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      std::vector<double> row;
      for (std::size_t f = 0; f < features().size(); ++f) row.push_back(all[f * specs.size() + i]);
      EXPECT_TRUE(rows.insert(row).second) << name_of(specs[i]);
    }
  }
}

TEST(FmhaFeatures, HugeProblemsStayFinite) {
  expect_finite({
      "fmha batch=65535 heads=1024 seqlen_q=1 seqlen_k=1000000 hdim=128 dtype=bf16",
      "fmha heads=1 seqlen_q=100000000 seqlen_k=100000000 hdim=64 dtype=bf16 mask=top_left",
      "fmha kind=backward heads=2 seqlen_q=10000000 seqlen_k=10000000 hdim=64",
      "fmha heads=1 seqlen_q=3 seqlen_k=0 hdim=1",
      "fmha batch=0 heads=1 seqlen_q=3 seqlen_k=4 hdim=1",
      "fmha heads=1 seqlen_q=0 seqlen_k=4 hdim=1",
  });
}

TEST(FmhaFeatures, OnlyWhatIsWantedIsWritten) {
  RandomFmhas random(7);
  expect_only_wanted(random, [&] { return any_problem(random); });
}

TEST(FmhaFeatures, EstimatesAreTheFamilys) {
  RandomFmhas random(8);
  expect_estimates([&] { return any_problem(random); });
}

using Expected = std::vector<std::pair<std::string_view, double>>;
void expect_values(const char* line, const char* target_name, const char* kernel, int threads,
                   const Expected& expected) {
  const Problem p = parse_problem(line);
  const Target target = load_target(target_name);
  const std::vector<KernelSpec> specs = {parse_name(kernel)};
  ASSERT_TRUE(family().supports(specs[0], p, target));
  const std::vector<double> all = extract_all(p, target, threads, specs);
  for (const auto& [name, value] : expected) {
    EXPECT_DOUBLE_EQ(all[place_of(name, family())], value) << name << " of " << kernel;
  }
}

// Query i of 300 sees 701 + i keys: 850.5 on average.
constexpr const char* kGroups =
    "fmha batch=2 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=1000 hdim=96 hdim_v=64 "
    "mask=bottom_right dtype=bf16";

// LDS is no part of a launch there, and the step that checks pages comes first.
TEST(FmhaFeatures, StepsOfAmdGpus) {
  expect_values(
      "fmha heads=32 heads_kv=8 seqlen_q=1 seqlen_k=16384 hdim=128 dtype=bf16 pages=table "
      "page_size=16 check_pages=1 num_splits=16",
      "gfx942", "fmha_forward_bf16_splitkv_32x128x128_1x4x1_32x32x16_pagestable_slices304_gfx942",
      0,
      {{"shared_bytes", 65536},
       {"block_threads", 256},
       {"launch_steps", 3},
       {"parts", 16},
       {"log2_jobs", 7}});
  expect_values("fmha heads=4 seqlen_q=300 seqlen_k=500 hdim=64 dtype=fp16 kind=backward", "gfx942",
                "fmha_backward_fp16_direct_16x64x64_4x1x1_1x1x1_gfx942", 0,
                {{"shared_bytes", 8192}, {"launch_steps", 3}});
}

TEST(FmhaFeatures, OfHeadsInGroupsOnHopper) {
  expect_values(kGroups, "sm90a", "fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_masked_s4_sm90a",
                0,
                {{"group", 4},
                 {"log2_pairs", 4},
                 {"log2_pairs_kv", 2},
                 {"hdim_align", 5},
                 {"hdim_mod64", 32},
                 {"queries_mod192", 108},
                 {"keys_mod128", 104},
                 {"is_masked", 1},
                 {"is_top_left", 0},
                 {"is_few_rows", 0},
                 {"visible", 0.8505},
                 {"query_fill", 1},
                 {"rows", 300},
                 {"tiles_m", 3},
                 {"log2_items", std::log2(48)},
                 {"row_efficiency", 300.0 / 384},
                 {"key_efficiency", 1000.0 / 1024},
                 {"head_efficiency", 160.0 / 256},
                 {"diagonal_waste", 128 / 850.5},
                 {"part_steps", 850.5 / 128},
                 {"parts", 1},
                 {"block_threads", 384},
                 {"sum_registers", 128.0 * 128 / 384},
                 {"resident", 1},
                 {"below_one_round", 1},
                 {"unit_efficiency", 48.0 / 132},
                 {"tail", 48.0 / 132},
                 {"is_tmaws", 1},
                 {"is_direct", 0}});
  // A tile has rows of all four heads.
  expect_values(kGroups, "sm90a",
                "fmha_forward_bf16_splitkv_64x32x128_4x1x1_1x1x1_masked_slices132_s5_sm90a", 0,
                {{"rows", 1200},
                 {"tiles_m", 19},
                 {"log2_items", std::log2(76)},
                 {"row_efficiency", 1200.0 / 1216},
                 {"diagonal_waste", 24 / 850.5},
                 {"block_threads", 128},
                 {"is_splitkv", 1}});
  expect_values(kGroups, "sm90a", "fmha_forward_bf16_direct_16x32x128_4x1x1_1x1x1_masked_sm90a", 0,
                {{"rows", 300},
                 {"log2_items", std::log2(19 * 16)},
                 {"log2_jobs", std::log2(19 * 16)},
                 {"is_direct", 1}});
}

TEST(FmhaFeatures, OfOneQueryWhoseKeysAreInParts) {
  const char* line = "fmha heads=8 heads_kv=2 seqlen_q=1 seqlen_k=65536 hdim=128 dtype=bf16";
  const char* kernel = "fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_slices132_s3_sm90a";
  const Problem p = parse_problem(line);
  const Launch launch = fmha::bind(parse_name(kernel), p, load_target("sm90a"), FmhaOperands{});
  const auto parts = static_cast<double>(launch.parts);
  EXPECT_GT(parts, 8);
  expect_values(line, "sm90a", kernel, 0,
                {{"is_one_query", 1},
                 {"is_few_rows", 1},
                 {"arithmetic_intensity", flops(p) / bytes(p)},
                 {"log2_items", 1},
                 {"parts", parts},
                 {"log2_jobs", std::log2(2 * parts)},
                 {"part_steps", 65536 / (16 * 4 * parts)},
                 {"workspace_ratio", double(launch.workspace.bytes) / bytes(p)},
                 {"fewer_rows_than_tile", 1}});
}

TEST(FmhaFeatures, OnCpus) {
  expect_values("fmha batch=2 heads=8 heads_kv=2 seqlen_q=30 seqlen_k=100 hdim=64", "avx512",
                "fmha_forward_fp32_flash_24x64x576_0x1x1_6x64x1_avx512", 4,
                {{"hw_threads", 4},
                 {"rows", 120},
                 {"tiles_m", 5},
                 {"log2_jobs", std::log2(20)},
                 {"full_rounds", 5},
                 {"round_efficiency", 1},
                 {"score_registers", 6 * 64},
                 {"is_flash", 1}});
  // Tiles of gradients have keys as rows.
  expect_values("fmha kind=backward batch=2 heads=8 heads_kv=2 seqlen_q=30 seqlen_k=100 hdim=64",
                "avx512", "fmha_backward_fp32_flash_24x64x576_0x1x1_6x64x1_avx512", 4,
                {{"kind", 3},
                 {"rows", 30},
                 {"key_efficiency_m", 100.0 / 120},
                 {"query_efficiency_n", 30.0 / 64}});
}

// What comes on top of attention is left out, and the rest stays valid.
TEST(FmhaFeatures, PlainProblems) {
  const auto plain_line = [](const std::string& line) {
    return to_string(plain(parse_problem(line)));
  };
  const std::string sizes =
      "fmha batch=2 heads=8 heads_kv=2 seqlen_q=30 seqlen_k=100 hdim=64 lengths=padded dtype=bf16 "
      "mask=bottom_right window_left=40";
  EXPECT_EQ(plain_line(sizes), sizes);
  EXPECT_EQ(plain_line(sizes + " sink=3 soft_cap=2 p_drop=0.5 lse=1 skip_q=1 num_splits=3"), sizes);
  EXPECT_EQ(plain_line(sizes + " bias=elementwise bias_stride_b=0 dtype_bias=fp32"), sizes);
  EXPECT_EQ(plain_line(sizes + " bias=alibi pages=table page_size=16 check_pages=1"), sizes);
  const std::uint64_t seed = std::random_device{}();
  RandomFmhas random(seed);
  const Target target = load_target("sm90a");
  for (int round = 0; round < 200; ++round) {
    const Problem p = any_problem(random);
    SCOPED_TRACE(to_string(p) + ", seed " + std::to_string(seed));
    for (const Problem& other : {plain(p), twin(p, target), plain(twin(p, target))}) {
      validate(other);
      EXPECT_FALSE(serving(other, target).empty());
    }
  }
}

TEST(FmhaFeatures, TwinsAreOfTheModelsThatThereAre) {
  const auto key = [](const std::string& line, const char* target) {
    return model_key(twin(parse_problem(line), load_target(target)));
  };
  const std::string sizes = " heads=4 seqlen_q=3 seqlen_k=50 hdim=64";
  EXPECT_EQ(key("fmha" + sizes + " dtype=fp16", "sm90a"), "forward_bf16");
  EXPECT_EQ(key("fmha kind=backward" + sizes + " dtype=fp16", "sm90a"), "backward_bf16");
  EXPECT_EQ(key("fmha" + sizes + " dtype=fp16", "avx512"), "forward_fp16");
  EXPECT_EQ(key("fmha" + sizes, "sm90a"), "forward_fp32");
  const std::string extend = "fmha kind=extend rotary=half rotate_q=1 lengths=padded" + sizes;
  EXPECT_EQ(key(extend + " dtype=fp16", "sm90a"), "forward_bf16");
  EXPECT_EQ(key(extend, "avx512"), "forward_fp32");
}

TEST(FmhaFeatures, NoFeatureDescribesElementsApart) {
  const std::string line = "fmha heads=2 seqlen_q=5 seqlen_k=7 hdim=8";
  const auto reason = [&](const std::string& more) {
    return features_fit(parse_problem(line + more)).reason;
  };
  EXPECT_EQ(reason(""), "");
  EXPECT_EQ(reason(" k_stride_h=56 k_stride_s=8"), "");
  EXPECT_EQ(reason(" v_stride_s=1 v_stride_d=9"),
            "no feature describes elements of v that lie apart, got a stride of 9");
}

TEST(FmhaFeatures, NoFeatureDescribesValuesInKeys) {
  const std::string line = "fmha heads=16 heads_kv=1 seqlen_q=1 seqlen_k=70 hdim=576 hdim_v=512";
  EXPECT_TRUE(features_fit(parse_problem(line)));
  EXPECT_EQ(features_fit(parse_problem(line + " v_in_k=1")).reason,
            "no feature says that values are a part of the keys, got v_in_k=1");
}

}  // namespace
}  // namespace tessera::fmha
