// Values of features, worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/families/gemm/features_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

struct Expected {
  std::string_view name;
  double value;
};

void expect_features(const GemmProblem& p, const std::string& target_name, int threads,
                     const std::string& kernel, std::span<const Expected> expected) {
  const Target target = load_target(target_name);
  const std::vector<KernelSpec> specs = {parse_name(kernel)};
  ASSERT_TRUE(family().is_legal(specs[0], target)) << family().is_legal(specs[0], target).reason;
  std::vector<double> columns(features().size());
  extract(p, target, threads, specs, columns);
  for (const Expected& e : expected) {
    const auto found = std::find_if(features().begin(), features().end(),
                                    [&](const Feature& f) { return f.name == e.name; });
    ASSERT_NE(found, features().end()) << e.name;
    EXPECT_NEAR(columns[static_cast<std::size_t>(found - features().begin())], e.value,
                1e-12 * std::max(1.0, std::abs(e.value)))
        << e.name;
  }
}

std::vector<Expected> together(std::vector<Expected> one, const std::vector<Expected>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

// ---- a problem on sm90a: every feature that candidates share ----

constexpr double kHertz = 1.83e9;
constexpr double kFp8Flops = 2.0 * 1000 * 3000 * 520 * 3;
constexpr double kFp8Bytes = 3 * 520e3 + 3000.0 * 520 + 3 * 2 * 3e6 * 3 + 3 * 2 * 1000.0;
constexpr double kFp8Peak = 2 * (0.0078125 * 64 * 256 * 32) * 132 * 1.83;  // Gflop/s

std::vector<Expected> sizes_by_hand() {
  return {
      {"m", 1000},
      {"n", 3000},
      {"k", 520},
      {"batch", 3},
      {"log2_m", std::log2(1000)},
      {"log2_n", std::log2(3000)},
      {"log2_k", std::log2(520)},
      {"log2_mnk", std::log2(1000.0 * 3000 * 520)},
      {"narrow_side", 1000},
      {"wide_side", 3000},
      {"log2_m_over_n", std::log2(1.0 / 3)},
      {"log2_m_over_k", std::log2(1000.0 / 520)},
      {"log2_n_over_k", std::log2(3000.0 / 520)},
      {"log2_flops", std::log2(1 + kFp8Flops)},
      {"log2_bytes", std::log2(1 + kFp8Bytes)},
      {"arithmetic_intensity", kFp8Flops / kFp8Bytes},
  };
}

std::vector<Expected> operands_by_hand() {
  return {
      {"layout", 2},
      {"a_row_major", 0},
      {"b_row_major", 1},
      {"a_type", 4},
      {"b_type", 4},
      {"out_type", 2},
      {"acc_is_integer", 0},
      {"a_size", 1},
      {"b_size", 1},
      {"out_size", 2},
      {"d_size", 2},
      {"epilogue_steps", 3},
      {"epilogue_functions", 1},
      {"d_matrices", 1},
      {"d_vectors", 1},
      {"reads_c", 1},
      {"scales", 0},
      {"a_row_mod16", 12},
      {"b_row_mod16", 8},
      {"out_row_mod16", 2},
      {"a_align", 2},
      {"b_align", 3},
      {"out_align", 1},
      {"a_vector", 4},
      {"b_vector", 8},
      {"out_vector", 1},
      {"a_vector_share", 0.25},
      {"b_vector_share", 0.5},
      {"out_vector_share", 0.125},
      {"a_padding", 1.004},
      {"b_padding", 1},
      {"out_padding", 3001.0 / 3000},
      {"a_shared", 0},
      {"b_shared", 1},
      {"preshuffled_b", 0},
      {"grouping", 0},
      {"groups", 0},
      {"scale_a", 0},
      {"scale_b", 0},
      {"scale_type", 0},
  };
}

std::vector<Expected> machine_by_hand() {
  return {
      {"bytes_over_l2", kFp8Bytes / 52428800},
      {"bytes_over_l3", 0},
      {"log2_ideal_seconds", std::log2(std::max(kFp8Flops / kFp8Peak / 1e9, kFp8Bytes / 4.8e12))},
      {"hw_units", 132},
      {"hw_threads", 0},
      {"hw_clock", 1.83},
      {"hw_bandwidth", 4800},
      {"hw_launch", 3.3},
      {"hw_shared_kb", 227},
      {"hw_l1_kb", 256},
      {"hw_l2_kb", 51200},
      {"hw_l3_kb", 0},
      {"hw_warp_size", 32},
      {"hw_vector_bytes", 0},
      {"hw_registers", 65536},
      {"hw_block_threads", 1024},
      {"hw_peak", kFp8Peak},
      {"hw_balance", kFp8Peak / 4800},
  };
}

TEST(GemmFeatureValues, OfAProblem) {
  GemmProblem p = gemm_problem(DType::fp8, GemmLayout::crr, 1000, 3000, 520);
  p.batch = 3;
  p.batch_stride_b = 0;
  p.ld_a = 1004;
  p.ld_out = 3001;
  p.beta = 0.5F;
  p.epilogue = parse_epilogue("row_scale+add+gelu");
  const auto expected = together(together(sizes_by_hand(), operands_by_hand()), machine_by_hand());
  ASSERT_EQ(expected.size(), kFirstLane);
  expect_features(p, "sm90a", 0, name_of(general(p, load_target("sm90a"))), expected);
}

// ---- a tmaws kernel: every feature of candidates ----

std::vector<Expected> tmaws_by_hand() {
  return {
      {"tile_m", 128},
      {"tile_n", 256},
      {"tile_k", 64},
      {"wave_m", 2},
      {"wave_n", 1},
      {"wave_k", 1},
      {"warp_tile_m", 64},
      {"warp_tile_n", 256},
      {"warp_tile_k", 16},
      {"pipeline", 5},
      {"scheduler", 1},
      {"splits", 1},
      {"slices", 1},
      {"split_kind", 0},
      {"stages", 4},
      {"cluster_m", 1},
      {"cluster_n", 1},
      {"cluster_blocks", 1},
      {"swap_ab", 0},
      {"repack", 0},
      {"takes_tiles", 1},
      {"streamk", 0},
      {"num_waves", 2},
      {"block_threads", 384},
      {"tile_mn", 32768},
      {"tile_volume", 2097152},
      {"tile_intensity", 32768.0 / 384},
      {"warp_tiles", 2},
      {"accumulators", 128},
      {"stage_bytes", 49152},
      {"bytes_in_flight", 147456},
      {"shared_bytes", 4 * 49152 + 9 * 8 + 2 * 64 * 64 * 4},
      {"shared_ratio", 229448.0 / 232448},
      {"stores_by_copy", 1},
  };
}

std::vector<Expected> tmaws_tiling_by_hand() {
  return {
      {"tiles_m", 8},
      {"tiles_n", 12},
      {"tiles_k", 9},
      {"total_tiles", 192},
      {"tile_ratio_m", 7.8125},
      {"tile_ratio_n", 11.71875},
      {"tile_ratio_k", 8.125},
      {"tile_eff_m", 7.8125 / 8},
      {"tile_eff_n", 11.71875 / 12},
      {"tile_eff_k", 8.125 / 9},
      {"tile_efficiency", 7.8125 / 8 * 11.71875 / 12 * 8.125 / 9},
      {"unit_utilisation", 192.0 / 132},
      {"smaller_than_tile_m", 0},
      {"smaller_than_tile_n", 0},
      {"smaller_than_tile_k", 0},
      {"smaller_than_tile", 0},
      {"cut_tile_m", 1},
      {"cut_tile_n", 1},
      {"cut_tile_k", 1},
      {"cut_tile", 1},
      {"k_steps", 9},
      {"k_steps_per_stage", 2.25},
      {"resident", 1},
      {"blocks", 192},
      {"full_rounds", 1},
      {"tail", 60.0 / 132},
      {"wave_efficiency", 192.0 / 264},
      {"group_tiles", 0},
      {"group_waste", 0},
      {"grid_batch", 0},
      {"grid_m", 0},
      {"grid_n", 0},
      {"grid_k", 0},
      {"share_rows", 0},
      {"share_columns", 0},
      {"a_panel_over_l1", 0},
      {"b_panel_over_l1", 0},
      {"a_block_over_l2", 0},
      {"b_block_over_l2", 0},
      {"b_block_over_l3", 0},
  };
}

std::vector<Expected> tmaws_seconds_by_hand() {
  const double flops = 2.0 * 1000 * 3000 * 520 * 2;
  const double bytes = 2.0 * 2 * (520e3 + 1560e3 + 3e6);
  const double compute = 2.0 * 9 * 128 * 256 * 64 / 2048 / kHertz;
  const double tiled = 192.0 * 9 * 64 * (128 + 256) * 2;
  const double operand = 192.0 * 9 * 64 * (128 + 2 * 256) * 2;
  const double seconds = compute + 3.3e-6;
  return {
      {"packed_ratio", 0},
      {"copied_ratio", 0},
      {"log2_tiled_bytes", std::log2(1 + tiled)},
      {"tiled_ratio", tiled / bytes},
      {"log2_operand_bytes", std::log2(1 + operand)},
      {"utilisation", flops / 2 / (compute * kHertz * 2048 * 132)},
      {"compute_share", compute / seconds},
      {"tiled_share", tiled / (132 * 64 * kHertz) / seconds},
      {"operand_share", operand / (132 * 128 * kHertz) / seconds},
      {"memory_share", bytes / 4.8e12 / seconds},
      {"log2_seconds", std::log2(seconds)},
      {"log2_over_ideal", std::log2(seconds) - std::log2(flops / (2 * 2048.0 * 132 * kHertz))},
  };
}

TEST(GemmFeatureValues, OfTmaws) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1000, 3000, 520);
  p.batch = 2;
  const auto expected =
      together(together(tmaws_by_hand(), tmaws_tiling_by_hand()), tmaws_seconds_by_hand());
  constexpr std::size_t kEstimates = 6;  // features_test.cc compares them with the estimate
  ASSERT_EQ(expected.size(), kNumLanes - kEstimates);
  expect_features(p, "sm90a", 0,
                  "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a", expected);
}

// ---- what other kernels do otherwise ----

TEST(GemmFeatureValues, OfSlicedTmawsThatRepacks) {
  const GemmProblem p = gemm_problem(DType::fp8, GemmLayout::rrr, 100, 200, 4096);
  const std::vector<Expected> expected = {
      {"splits", 4},
      {"slices", 3},
      {"repack", 1},
      {"k_steps", 3},  // of 32 tiles in 12 parts
      {"unit_utilisation", 2.0 * 4 * 4 * 3 / 132},
      {"blocks", 96},
      {"stage_bytes", (64 + 64) * 128},  // B lies along k by then
      {"copied_ratio", 200.0 * 4096 / (100.0 * 4096 + 200 * 4096 + 2 * 100 * 200)},
  };
  expect_features(
      p, "sm90a", 0,
      "gemm_fp8_rrr_tmaws_64x64x128_1x1x1_64x64x32_cooperative_splitordered4_slices3_s4_"
      "repack_sm90a",
      expected);
}

// 1000 rows, or as much of k, go by 8 groups: 125 each.
TEST(GemmFeatureValues, OfGroups) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1000, 3000, 520);
  p.groups = 8, p.grouping = GemmGrouping::contiguous;
  const double tiles = 125.0 / 128 + 0.5;
  expect_features(p, "sm90a", 0,
                  "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupscontiguous_cooperative_s4_"
                  "sm90a",
                  std::vector<Expected>{{"m", 125},
                                        {"batch", 8},
                                        {"grouping", 1},
                                        {"groups", 8},
                                        {"tiles_m", 1},
                                        {"group_tiles", tiles},
                                        {"group_waste", 1 - 125.0 / 128 / tiles}});
  p.grouping = GemmGrouping::masked;
  expect_features(p, "sm90a", 0,
                  "gemm_bf16_rcr_tmaws_64x16x64_1x1x1_64x16x16_groupsmasked_cooperative_s8_swap_"
                  "sm90a",
                  std::vector<Expected>{{"m", 1000},
                                        {"batch", 8},
                                        {"grouping", 3},
                                        {"group_tiles", 63},
                                        {"group_waste", 1 - 62.5 / 63}});
  p.grouping = GemmGrouping::along_k, p.layout = GemmLayout::crr, p.k = 1000;
  expect_features(p, "avx512", 1,
                  "gemm_bf16_crr_packab_48x1920x512_1x1x1_12x32x2_groupsalongk_avx512",
                  std::vector<Expected>{{"m", 1000},
                                        {"k", 125},
                                        {"batch", 8},
                                        {"grouping", 4},
                                        {"group_tiles", 125.0 / 512 + 0.5},
                                        {"group_waste", 1 - 125.0 / 512 / (125.0 / 512 + 0.5)}});
}

TEST(GemmFeatureValues, OfScales) {
  GemmProblem p = gemm_problem(DType::fp8, GemmLayout::rcr, 1000, 3072, 512);
  p.out = p.d = DType::bf16;
  p.scale_a = GemmScale::by_1x128, p.scale_b = GemmScale::by_128x128;
  const KernelSpec spec = general(p, load_target("sm90a"));
  expect_features(p, "sm90a", 0, name_of(spec),
                  std::vector<Expected>{{"m", 1000},
                                        {"scale_a", 2},
                                        {"scale_b", 3},
                                        {"scale_type", 0},
                                        {"groups", 0},
                                        {"group_tiles", 0}});
}

TEST(GemmFeatureValues, OfStreamK) {
  const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1000, 5120, 4096);
  const std::vector<Expected> expected = {
      {"streamk", 1}, {"takes_tiles", 1}, {"splits", 1},   {"slices", 1},        {"split_kind", 1},
      {"swap_ab", 0}, {"stages", 6},      {"k_steps", 64}, {"total_tiles", 320},
  };
  expect_features(p, "sm90a", 0,
                  "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_cooperative_splitordered1_"
                  "streamk_s6_sm90a",
                  expected);
}

TEST(GemmFeatureValues, OfSwappedSplitTmaws) {
  const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 5, 4096, 4096);
  const std::vector<Expected> expected = {
      {"swap_ab", 1},
      {"splits", 2},
      {"split_kind", 1},
      {"cluster_blocks", 2},
      {"takes_tiles", 0},
      {"block_threads", 160},
      {"accumulators", 8},
      {"stage_bytes", (64 + 16) * 128 * 2},
      {"bytes_in_flight", 7 * 20480},
      {"shared_bytes", 8 * 20480 + 2048 + 17 * 8 + 2048},
      {"tiles_m", 64},
      {"tiles_n", 1},
      {"tiles_k", 32},
      {"tile_ratio_n", 5.0 / 16},
      {"tile_eff_m", 1},
      {"tile_eff_n", 5.0 / 16},
      {"unit_utilisation", 128.0 / 132},
      {"smaller_than_tile_m", 0},
      {"smaller_than_tile_n", 1},
      {"smaller_than_tile", 1},
      {"cut_tile_m", 0},
      {"cut_tile_n", 1},
      {"cut_tile_k", 0},
      {"cut_tile", 1},
      {"k_steps", 16},
      {"k_steps_per_stage", 2},
      {"resident", 1},
      {"blocks", 128},
      {"full_rounds", 0},
      {"tail", 128.0 / 132},
      {"wave_efficiency", 128.0 / 132},
      {"tiled_ratio", 128.0 * 16 * 128 * 160 / (2.0 * (5 * 4096 + 4096.0 * 4096 + 5 * 4096))},
  };
  expect_features(
      p, "sm90a", 0,
      "gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered2_s8_swap_sm90a",
      expected);
}

TEST(GemmFeatureValues, OfCpasync) {
  const GemmProblem p = gemm_problem(DType::fp8, GemmLayout::rrr, 300, 256, 1024);
  const double bytes = 300.0 * 1024 + 256 * 1024 + 2 * 300 * 256;
  const double compute = 8 * (128.0 * 128 * 128) / (0.39 * 16 * 8 * 16) / kHertz;
  const std::vector<Expected> expected = {
      {"pipeline", 6},
      {"scheduler", 0},
      {"takes_tiles", 0},
      {"stores_by_copy", 0},
      {"num_waves", 8},
      {"block_threads", 256},
      {"accumulators", 64},
      {"stage_bytes", 32768},
      {"shared_bytes", 98304},
      {"shared_ratio", 98304.0 / 232448},
      {"warp_tiles", 128},
      {"resident", 1},  // registers: 65536 / ((88 + 64) * 256)
      {"blocks", 6},
      {"tiled_ratio", 6 * 8 * 128 * 256 / bytes},
      {"log2_operand_bytes", std::log2(1 + 6.0 * 8 * 128 * (128 * 4 + 128 * 2))},
      {"utilisation", 300.0 * 256 * 1024 / (compute * kHertz * 0.39 * 16 * 8 * 16 * 132)},
      {"log2_seconds", std::log2(compute + 3.3e-6)},
  };
  expect_features(p, "sm90a", 0, "gemm_fp8_rrr_cpasync_128x128x128_2x4x1_16x8x16_s3_sm90a",
                  expected);
}

TEST(GemmFeatureValues, OfACpuGrid) {
  const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 100, 2000, 1000);
  const double bytes = 2.0 * (100e3 + 2e6 + 200e3);
  const double compute = 108.0 * 512 * 1000 / 32 / 3e9;
  const double packed = 4 * (200e3 + 1024e3);
  const double tiled = 4 * (200e3 + 3 * 1024e3);
  const double operand = 4.0 * 9 * 16 * 500 * (12 + 32) * 4;
  const double pack = packed / (4 * 64 * 3e9);
  const double seconds = compute + pack + 2e-6;
  const std::vector<Expected> expected = {
      {"hw_threads", 4},
      {"hw_vector_bytes", 64},
      {"hw_registers", 32},
      {"hw_peak", 2 * 32 * 3.0 * 8},
      {"a_vector", 8},
      {"a_vector_share", 0.25},
      {"bytes_over_l2", bytes / (4 * 1048576.0)},
      {"bytes_over_l3", bytes / 33554432},
      {"pipeline", 0},
      {"wave_m", 0},
      {"num_waves", 0},
      {"block_threads", 1},
      {"accumulators", 24},
      {"stage_bytes", (48 + 1920) * 512 * 2},
      {"shared_ratio", (48 + 1920) * 512 * 2 / 1048576.0},
      {"bytes_in_flight", 0},
      {"tiles_m", 3},
      {"tiles_n", 2},
      {"unit_utilisation", 1.5},
      {"resident", 1},
      {"blocks", 4},
      {"full_rounds", 1},
      {"tail", 0},
      {"wave_efficiency", 100.0 * 2000 / (4 * 100 * 512)},
      {"grid_batch", 1},
      {"grid_m", 1},
      {"grid_n", 4},
      {"grid_k", 1},
      {"share_rows", 100},
      {"share_columns", 512},
      {"a_panel_over_l1", 512.0 * 2 * 12 / 32768},
      {"b_panel_over_l1", 1},
      {"a_block_over_l2", 1024.0 * 48 / 1048576},
      {"b_block_over_l2", 0.5},
      {"b_block_over_l3", 1024.0 * 512 * 4 / 33554432},
      {"packed_ratio", packed / bytes},
      {"tiled_ratio", tiled / bytes},
      {"log2_operand_bytes", std::log2(1 + operand)},
      {"utilisation", 2e8 / (108.0 * 512 * 1000 * 4)},
      {"compute_share", compute / seconds},
      {"tiled_share", tiled / (4 * 64 * 3e9) / seconds},
      {"operand_share", operand / (4 * 128 * 3e9) / seconds},
      {"memory_share", bytes / 204.8e9 / seconds},
      {"log2_seconds", std::log2(seconds)},
  };
  expect_features(p, "avx512", 4, "gemm_bf16_rcr_packab_48x1920x512_0x0x1_12x32x2_avx512",
                  expected);
}

TEST(GemmFeatureValues, OfThreadsOverK) {
  const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 100, 2000, 1000);
  const std::vector<Expected> expected = {
      {"grid_batch", 1},
      {"grid_m", 1},
      {"grid_n", 1},
      {"grid_k", 4},
      {"share_rows", 100},
      {"share_columns", 2000},
      {"blocks", 4},
      {"wave_efficiency", 1000.0 / (4 * 256)},
      {"b_block_over_l2", 1024.0 * 1920 / 1048576},
      {"packed_ratio", 4 * (100.0 * 256 * 2 * 2 + 2000 * 256 * 2) / (2.0 * (100e3 + 2e6 + 200e3))},
  };
  expect_features(p, "avx512", 4, "gemm_bf16_rcr_packab_48x1920x512_1x1x0_12x32x2_avx512",
                  expected);
}

}  // namespace
}  // namespace tessera::gemm
