// Groups of unequal sizes: what is valid, operands, numbers that do not fit, names, rules, and the
// reference beside sums that are written down here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

std::string sentence(const Problem& problem) {
  try {
    validate(problem);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Invalid {
  const char* line;
  const char* sentence;
};
class InvalidGroups : public testing::TestWithParam<Invalid> {};

TEST_P(InvalidGroups, GivesTheSentence) {
  EXPECT_EQ(sentence(parse_problem(GetParam().line)), GetParam().sentence);
}

const Invalid kInvalid[] = {
    {"gemm m=8 n=8 k=8 groups=2 grouping=contiguous", ""},
    {"gemm m=8 n=8 k=8 groups=2 grouping=indexed beta=1", ""},
    {"gemm m=8 n=8 k=8 groups=0 grouping=masked epilogue=bias", ""},
    {"gemm m=8 n=8 k=8 groups=2 grouping=along_k layout=crr check_groups=1", ""},
    {"gemm m=8 n=8 k=8 groups=2",
     "gemm: grouping must be contiguous, indexed, masked, along_k or lists with groups=2, got "
     "none"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=lists epilogue=bias group_strides=1", ""},
    {"gemm m=8 n=8 k=8 group_strides=1", "gemm: group_strides must be 0 with grouping=none, got 1"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=masked group_strides=1",
     "gemm: group_strides must be 0 with grouping=masked, got 1"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=masked group_int64=1", ""},
    {"gemm m=8 n=8 k=8 group_int64=1", "gemm: group_int64 must be 0 with grouping=none, got 1"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=lists group_int64=1",
     "gemm: group_int64 must be 0 with grouping=lists, whose sizes have 32 bits, got 1"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=lists batch_stride_a=64",
     "gemm: batch_stride_a must be left out with grouping=lists, where each group has a pointer of "
     "its own, got 64"},
    {"gemm m=8 n=3000000000 k=8 groups=2 grouping=lists",
     "gemm: n must be at most 2147483647 with grouping=lists, since group_n has numbers of 32 "
     "bits, "
     "got 3000000000"},
    {"gemm m=8 n=8 k=8 check_groups=1", "gemm: check_groups must be 0 with grouping=none, got 1"},
    {"gemm m=8 n=8 k=8 groups=-3 grouping=masked",
     "gemm: groups must be between 0 and 2147483647, got -3"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=masked batch=4",
     "gemm: batch must be 1 with grouping=masked, got 4"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=indexed pointer_arrays=1",
     "gemm: pointer_arrays must be 0 with grouping=indexed, got 1"},
    {"gemm m=8 n=8 k=8 dtype=fp8 groups=2 grouping=lists scale_a=1x128 scale_b=128x128",
     "gemm: scale_a, scale_b, gate, indexing and quant must be none with grouping=lists, got "
     "1x128, 128x128, none, none and none"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=lists gate=silu_mul",
     "gemm: scale_a, scale_b, gate, indexing and quant must be none with grouping=lists, got "
     "none, none, silu_mul, none and none"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=contiguous preshuffle=1",
     "gemm: preshuffle must be 0 with grouping=contiguous, got 1"},
    {"gemm m=3000000000 n=8 k=8 groups=2 grouping=contiguous",
     "gemm: m must be at most 2147483647 with grouping=contiguous, since group_ends has numbers of "
     "32 bits, got 3000000000"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=masked batch_stride_out=63",
     "gemm: batch_stride_out must be at least 64 so that batches do not overlap, got 63"},
    {"gemm m=8 n=8 k=8 groups=2 grouping=contiguous batch_stride_b=-1",
     "gemm: batch_stride_b must be at least 0, got -1"},
};
INSTANTIATE_TEST_SUITE_P(All, InvalidGroups, testing::ValuesIn(kInvalid));

// ---- operands ----

std::string operands_of(const char* line) {
  std::string text;
  for (const Tensor& tensor : tensors(parse_problem(line))) {
    text += fmt::format("{} {}x{} of {}; ", tensor.name, tensor.batches, tensor.rows(),
                        tensor.sizes[0]);
  }
  return text;
}

TEST(GroupOperands, HaveMatricesForGroupsWhereTheKindSaysSo) {
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=contiguous epilogue=bias+add"),
            "a 1x9 of 7; b 3x5 of 7; d0 3x1 of 5; d1 1x9 of 5; group_ends 1x1 of 3; "
            "out 1x9 of 5; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=indexed beta=1 check_groups=1"),
            "a 1x9 of 7; b 3x5 of 7; c 1x9 of 5; group_index 1x1 of 9; out 1x9 of 5; "
            "bad_group 1x1 of 4; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=masked epilogue=row_scale"),
            "a 3x9 of 7; b 3x5 of 7; d0 3x1 of 9; group_rows 1x1 of 3; out 3x9 of 5; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=along_k epilogue=add"),
            "a 1x9 of 7; b 1x5 of 7; d0 3x9 of 5; group_ends 1x1 of 3; out 3x9 of 5; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=along_k group_int64=1"),
            "a 1x9 of 7; b 1x5 of 7; group_ends 1x3 of 2; out 3x9 of 5; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=lists epilogue=bias check_groups=1"),
            "a 3x9 of 7; b 3x5 of 7; d0 3x1 of 5; group_m 1x1 of 3; group_n 1x1 of 3; "
            "group_k 1x1 of 3; out 3x9 of 5; bad_group 1x1 of 4; ");
  EXPECT_EQ(operands_of("gemm m=9 n=5 k=7 groups=3 grouping=lists epilogue=add group_strides=1"),
            "a 3x9 of 7; b 3x5 of 7; d0 3x9 of 5; group_m 1x1 of 3; group_n 1x1 of 3; "
            "group_k 1x1 of 3; group_ld_a 1x1 of 3; group_ld_b 1x1 of 3; group_ld_out 1x1 of 3; "
            "group_ld_d0 1x1 of 3; out 3x9 of 5; ");
}

void expect_set_and_read(const Problem& problem) {
  Operands operands = no_operands(problem);
  std::vector<std::int32_t> memory(tensors(problem).size());
  std::size_t next = 0;
  for (const Tensor& tensor : tensors(problem)) {
    set_pointer(operands, tensor.operand, &memory[next]);
    next += 1;
  }
  next = 0;
  for (const Tensor& tensor : tensors(problem)) {
    EXPECT_EQ(pointer(operands, tensor.operand), &memory[next++]) << tensor.name;
  }
}

TEST(GroupOperands, ArePointersThatCanBeSetAndRead) {
  expect_set_and_read(parse_problem("gemm m=9 n=5 k=7 groups=3 grouping=masked check_groups=1"));
  expect_set_and_read(parse_problem(
      "gemm m=9 n=5 k=7 groups=3 grouping=lists check_groups=1 group_strides=1 beta=1 "
      "epilogue=add+multiply+add"));
}

// ---- numbers that do not fit ----

struct BadNumbers {
  const char* line;
  std::vector<std::int32_t> numbers;
  const char* sentence;
};
class GroupNumbers : public testing::TestWithParam<BadNumbers> {};

std::string sentence_about(const Problem& problem, const std::vector<std::int32_t>& numbers) {
  GemmOperands operands;
  operands.group_ends = operands.group_index = operands.group_rows = numbers.data();
  const auto groups = static_cast<std::size_t>(std::get<GemmProblem>(problem).groups);
  if (std::get<GemmProblem>(problem).grouping == GemmGrouping::lists) {
    for (std::size_t i = 0; i < 3; ++i) operands.group_sizes[i] = numbers.data() + i * groups;
  }
  try {
    value_check(problem)(problem, operands);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(GroupNumbers, AreRefusedWithBothNumbers) {
  const Problem problem = parse_problem(GetParam().line);
  EXPECT_EQ(sentence_about(problem, GetParam().numbers), GetParam().sentence);
}

const BadNumbers kNumbers[] = {
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous", {0, 4, 9}, ""},
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous", {2, 2, 2}, ""},
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous",
     {4, 3, 9},
     "gemm: group_ends[1] must be at least 4, the end before it, so that ends do not decrease, "
     "got 3"},
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous",
     {-1, 3, 9},
     "gemm: group_ends[0] must be at least 0, the least number, got -1"},
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous",
     {4, 8, 10},
     "gemm: group_ends[2] must be at most 9, the room, m=9, got 10"},
    {"gemm m=9 n=5 k=7 groups=2 grouping=along_k",
     {4, 8},
     "gemm: group_ends[1] must be at most 7, the room, k=7, got 8"},
    {"gemm m=4 n=5 k=7 groups=3 grouping=indexed", {0, -1, 2, 2}, ""},
    {"gemm m=4 n=5 k=7 groups=3 grouping=indexed",
     {0, 2, -1, 1},
     "gemm: group_index[3] must be at least 2, the index before it, or -1, got 1"},
    {"gemm m=4 n=5 k=7 groups=3 grouping=indexed",
     {0, 0, 3, 3},
     "gemm: group_index[2] must be at most 2, with groups=3, got 3"},
    {"gemm m=4 n=5 k=7 groups=3 grouping=indexed",
     {-1, -2, 0, 1},
     "gemm: group_index[1] must be at least 0, the first group, or -1, got -2"},
    {"gemm m=9 n=5 k=7 groups=3 grouping=masked", {9, 0, 3}, ""},
    {"gemm m=9 n=5 k=7 groups=3 grouping=masked",
     {9, 10, 3},
     "gemm: group_rows[1] must be at most 9, the room, m=9, got 10"},
    {"gemm m=9 n=5 k=7 groups=3 grouping=masked",
     {9, 0, -2},
     "gemm: group_rows[2] must be at least 0, the least number, got -2"},
    // Numbers of 64 bits, the lower word first.
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous group_int64=1", {0, 0, 4, 0, 9, 0}, ""},
    {"gemm m=4 n=5 k=7 groups=3 grouping=indexed group_int64=1", {0, 0, -1, -1, 2, 0, 2, 0}, ""},
    {"gemm m=9 n=5 k=7 groups=3 grouping=contiguous group_int64=1",
     {4, 0, 3, 1, 9, 0},
     "gemm: group_ends[1] must be at most 9, the room, m=9, got 4294967299"},
    {"gemm m=9 n=5 k=7 groups=3 grouping=masked group_int64=1",
     {4, 0, 3, 0, -2, -1},
     "gemm: group_rows[2] must be at least 0, the least number, got -2"},
};
INSTANTIATE_TEST_SUITE_P(All, GroupNumbers, testing::ValuesIn(kNumbers));

TEST(GroupNumbers, OfListsAreRefusedBySize) {
  const Problem problem = parse_problem("gemm m=9 n=5 k=7 groups=2 grouping=lists");
  EXPECT_EQ(sentence_about(problem, {9, 0, 5, 1, 0, 7}), "");
  EXPECT_EQ(sentence_about(problem, {9, 10, 5, 1, 0, 7}),
            "gemm: group_m[1] must be at most 9, the problem's m, got 10");
  EXPECT_EQ(sentence_about(problem, {9, 0, 6, 1, 0, 7}),
            "gemm: group_n[0] must be at most 5, the problem's n, got 6");
  EXPECT_EQ(sentence_about(problem, {9, 0, 5, 1, 0, -7}),
            "gemm: group_k[1] must be at least 0, the least number, got -7");
}

TEST(GroupNumbers, AreNotAskedForWithoutGroups) {
  EXPECT_EQ(value_check(parse_problem("gemm m=9 n=5 k=7")), nullptr);
}

// ---- names, rules, choice ----

TEST(GroupNames, AreReadBack) {
  const char* const name =
      "gemm_bf16_rcr_packab_240x480x256_0x0x1_12x32x2_groupsalongk_bias_avx512";
  const KernelSpec spec = parse_name(name);
  EXPECT_EQ(std::get<GemmSignature>(spec.signature).grouping, GemmGrouping::along_k);
  EXPECT_EQ(name_of(spec), name);
  EXPECT_EQ(family().is_legal(spec, load_target("avx512")).reason, "");
}

// Why no such kernel exists; empty where one does.
std::string reason(const char* name) {
  const KernelSpec spec = parse_name(name);
  return family().is_legal(spec, load_target(spec.target)).reason;
}

TEST(GroupRules, RefuseWhatHasNoKernelsForGroups) {
  EXPECT_EQ(
      reason(
          "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupsmasked_cooperative_s4_c2x1_sm90a"),
      "kernels for groups, gates and rows by index share nothing between blocks and copy no "
      "operand: they need a 1x1 cluster "
      "and splits=1 slices=1 streamk=0 repack=0, got 2x1 and splits=1 slices=1 streamk=0 repack=0");
  EXPECT_EQ(
      reason("gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupsalongk_cooperative_s4_sm90a"),
      "tmaws reads from whole 16 bytes of a line on, where groups do not begin: layout must be crr "
      "with grouping=along_k, got rcr");
  EXPECT_EQ(
      reason("gemm_bf16_crr_tmaws_128x256x64_2x1x1_64x256x16_groupsindexed_cooperative_s4_sm90a"),
      "tmaws reads from whole 16 bytes of a line on, where groups do not begin: layout must be rcr "
      "or rrr with grouping=indexed, got crr");
  EXPECT_EQ(reason("gemm_fp32_rcr_cpasync_64x64x32_2x2x1_8x4x1_groupsindexed_splitordered1_slices2_"
                   "s2_sm90a"),
            "cpasync does not cut the K of groups into slices, got slices=2 with grouping=indexed");
  EXPECT_EQ(
      reason("gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groupslists_cooperative_s4_sm90a"),
      "sm90a has no tmaws kernels for groups with sizes and pointers of their own, got "
      "grouping=lists");
  EXPECT_EQ(reason("gemm_fp8_rcr_cpasync_64x64x128_2x2x1_16x8x16_groupslists_scalea1x128_s3_sm90a"),
            "scale_a, scale_b, gate, indexing and quant must be none with grouping=lists, got "
            "1x128, none, none, none and none");
  EXPECT_EQ(reason("gemm_bf16_rcr_stream_1x16x16384_1x8x1_1x2x32_groupsmasked_sm90a"),
            "sm90a has no stream kernels for groups of unequal sizes, got grouping=masked");
  EXPECT_EQ(reason("gemm_fp32_rcr_small_12x16x1_0x0x1_12x16x1_groupsindexed_avx512"),
            "avx512 has no small kernels for groups of unequal sizes, got grouping=indexed");
  EXPECT_EQ(reason("gemm_fp32_rcr_packab_240x480x256_0x0x0_12x32x1_groupsmasked_avx512"),
            "threads do not share the k of groups: wave_k must be 1 with grouping=masked, got 0");
  EXPECT_EQ(reason("gemm_fp32_rcr_packab_240x480x256_0x0x1_12x32x1_presh_groupsmasked_avx512"),
            "a preshuffled B has no groups: preshuffle must be 0 with grouping=masked, got 1");
}

TEST(GroupRules, RefuseKernelsForAmdGpusThatShareK) {
  const auto reason = [](const char* name) {
    const KernelSpec spec = parse_name(name);
    return family().is_legal(spec, load_target(spec.target)).reason;
  };
  EXPECT_EQ(reason("gemm_bf16_rcr_compv3_64x64x32_2x2x1_16x16x32_groupslists_intrawave_gfx942"),
            "");
  EXPECT_EQ(reason("gemm_bf16_rcr_compv3_64x64x32_2x2x1_16x16x32_groupsmasked_intrawave_"
                   "splitordered1_slices4_gfx942"),
            "workgroups take one tile of groups after the other and share no k: grouping=masked "
            "needs slices=1 streamk=false persistent=false, got slices=4 streamk=false "
            "persistent=false");
}

TEST(GroupChoice, FindsKernelsForEveryKindOnAmdGpus) {
  for (const char* const target : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}) {
    for (const char* const kind : {"contiguous", "indexed", "masked", "along_k", "lists"}) {
      const Problem problem = parse_problem(
          fmt::format("gemm m=512 n=768 k=256 dtype=bf16 groups=8 grouping={}", kind));
      EXPECT_FALSE(gemm::legal_candidates(problem, load_target(target)).empty());
      EXPECT_EQ(general(problem, load_target(target)).algorithm.pipeline, Pipeline::direct);
    }
  }
}

TEST(GroupRules, SayOfATargetWithoutThemThatNoKernelIsLegal) {
  const Problem problem = parse_problem("gemm m=64 n=64 k=64 dtype=fp8 groups=4 grouping=lists");
  EXPECT_TRUE(gemm::legal_candidates(problem, load_target("gfx90a")).empty());
  try {
    general(problem, load_target("gfx90a"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "gemm: gfx90a lists no legal kernel for fp8 x fp8 with layout rcr and grouping "
              "lists");
  }
}

TEST(GroupEnumeration, ListsThemWhereAWishNamesTheGrouping) {
  const Target target = load_target("avx512");
  const Wish type = {"a", "fp32"}, layout = {"layout", "rrr"}, pipeline = {"pipeline", "direct"};
  const auto count = [&](const std::vector<Wish>& wishes) {
    return family().enumerate(target, wishes).size();
  };
  const std::size_t plain = count({type, layout, pipeline});
  EXPECT_GT(plain, 0U);
  EXPECT_EQ(count({type, layout, pipeline, {"grouping", "none"}}), plain);
  EXPECT_GT(count({type, layout, pipeline, {"grouping", "masked"}}), 0U);
  EXPECT_EQ(count({type, layout, {"pipeline", "small"}, {"grouping", "masked"}}), 0U);
}

// A dense kernel that streams has 8 rows; one for groups has the register block that multiplies
// groups of many rows, too.
TEST(GroupRules, StreamTakesAnyBlockWithGroups) {
  EXPECT_EQ(reason("gemm_bf16_rcr_stream_96x960x2048_0x0x1_12x32x2_groupscontiguous_avx512"), "");
  EXPECT_EQ(reason("gemm_bf16_rcr_stream_96x960x2048_0x0x1_12x32x2_avx512"),
            "stream multiplies 8 rows at once: tile_m and warp_tile_m must be 8, got 96 and 12");
}

TEST(GroupEstimate, StreamsBPastFewRowsOfAGroupAlone) {
  const Target target = load_target("avx512");
  const KernelSpec packs =
      parse_name("gemm_fp32_rcr_packab_24x960x1024_0x0x1_12x32x1_groupscontiguous_avx512");
  KernelSpec streams = packs;
  streams.algorithm.pipeline = Pipeline::stream;
  const auto seconds = [&](const KernelSpec& spec, std::int64_t m) {
    const Problem problem =
        parse_problem(fmt::format("gemm m={} n=1536 k=2048 groups=64 grouping=contiguous", m));
    return family().estimate(spec, problem, target, 1).seconds;
  };
  EXPECT_LT(1.1 * seconds(streams, 64), seconds(packs, 64));
  EXPECT_LT(1.05 * seconds(streams, 256), seconds(packs, 256));
  EXPECT_NEAR(seconds(streams, 64 * 500), seconds(packs, 64 * 500), 0.02 * seconds(packs, 32000));
}

TEST(GroupEstimate, CountsTheRoomOnce) {
  const auto flops_of_line = [](const char* line) { return flops(parse_problem(line)); };
  EXPECT_EQ(flops_of_line("gemm m=60 n=5 k=7 groups=3 grouping=contiguous"), 2.0 * 60 * 5 * 7);
  EXPECT_EQ(flops_of_line("gemm m=60 n=5 k=7 groups=3 grouping=masked"), 2.0 * 60 * 5 * 7 * 3);
  EXPECT_EQ(flops_of_line("gemm m=60 n=5 k=21 groups=3 grouping=along_k"), 2.0 * 60 * 5 * 21);
}

// ---- the reference ----

// A problem of ones and small numbers in row-major matrices, whose sums are exact.
struct Matrices {
  explicit Matrices(const GemmProblem& given) : p(given) {
    std::mt19937_64 random(7);
    const auto fill = [&](std::size_t count) {
      std::vector<float> values(count);
      for (float& x : values) x = static_cast<float>(random() % 7) - 3;
      return values;
    };
    const auto size = [&](std::int64_t rows, std::int64_t columns) {
      return static_cast<std::size_t>(p.groups * rows * columns);
    };
    a = fill(size(p.m, p.k)), b = fill(size(p.k, p.n));
    out.assign(size(p.m, p.n), -77.0F);
    operands = {.a = a.data(), .b = b.data(), .out = out.data()};
  }
  float product(std::int64_t a_at, std::int64_t b_at, std::int64_t from, std::int64_t to) const {
    float sum = 0;
    for (std::int64_t k = from; k < to; ++k) {
      sum += a[static_cast<std::size_t>(a_at + k)] * b[static_cast<std::size_t>(b_at + k * p.n)];
    }
    return sum;
  }
  GemmProblem p;
  std::vector<float> a, b, out;
  GemmOperands operands;
};

TEST(GroupReference, KnowsWhereEachGroupLies) {
  const std::vector<std::int32_t> ends = {2, 2, 5}, rows = {2, 0, 6}, index = {0, 0, -1, 2, 2, -1};
  for (const GemmGrouping grouping : {GemmGrouping::contiguous, GemmGrouping::indexed,
                                      GemmGrouping::masked, GemmGrouping::along_k}) {
    GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rrr, 6, 4, 6);
    p.groups = 3, p.grouping = grouping;
    Matrices x(p);
    x.operands.group_ends = ends.data();
    x.operands.group_rows = rows.data();
    x.operands.group_index = index.data();
    std::int64_t written = 0;
    const auto set = [&](std::int64_t out_row, std::int64_t a_at, std::int64_t b_at,
                         std::int64_t from, std::int64_t to) {
      for (std::int64_t j = 0; j < p.n; ++j, ++written) {
        x.out[static_cast<std::size_t>(out_row * p.n + j)] = x.product(a_at, b_at + j, from, to);
      }
    };
    for (std::int64_t group = 0, at = 0; group < 3; ++group) {
      const auto g = static_cast<std::size_t>(group);
      for (std::int64_t i = 0; i < 6; ++i) {
        const auto row = static_cast<std::size_t>(i);
        if (grouping == GemmGrouping::contiguous && i >= at && i < ends[g])
          set(i, i * 6, group * 24, 0, 6);
        if (grouping == GemmGrouping::indexed && index[row] == group)
          set(i, i * 6, group * 24, 0, 6);
        if (grouping == GemmGrouping::masked && i < rows[g]) {
          set(group * 6 + i, (group * 6 + i) * 6, group * 24, 0, 6);
        }
        if (grouping == GemmGrouping::along_k) set(group * 6 + i, i * 6, 0, at, ends[g]);
      }
      at = ends[g];
    }
    const Mismatch right = verify(p, x.operands);
    EXPECT_TRUE(right.ok) << right.message;
    EXPECT_EQ(right.checked, written) << to_string(grouping);
    x.out[0] += 1;
    const Mismatch wrong = verify(p, x.operands);
    EXPECT_FALSE(wrong.ok);
    EXPECT_NE(wrong.message.find("(of group 0)"), std::string::npos) << wrong.message;
  }
}

TEST(GroupReference, RefusesNumbersThatDoNotFit) {
  GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rrr, 6, 4, 6);
  p.groups = 2, p.grouping = GemmGrouping::contiguous;
  Matrices x(p);
  const std::vector<std::int32_t> ends = {3, 1};
  x.operands.group_ends = ends.data();
  EXPECT_THROW(verify(p, x.operands), Error);
}

}  // namespace
}  // namespace tessera::gemm
