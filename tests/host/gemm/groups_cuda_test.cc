// Groups of unequal sizes on Hopper: which problems kernels serve, with sentences, which kernels
// there are, their text, and their launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tessera/device/cuda/gemm/group_arguments.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

constexpr const char* kByTma =
    "gemm_bf16_rcr_tmaws_128x256x64_2x1x1_64x256x16_groups{}_cooperative_s4_sm90a";
constexpr const char* kByTmaAlongK =
    "gemm_bf16_crr_tmaws_128x256x64_2x1x1_64x256x16_groups{}_cooperative_s4_sm90a";
constexpr const char* kSwapped =
    "gemm_bf16_rcr_tmaws_64x16x64_1x1x1_64x16x16_groups{}_cooperative_s8_swap_sm90a";
constexpr const char* kByWarps = "gemm_bf16_rcr_cpasync_64x64x64_2x2x1_16x8x16_groups{}_s3_sm90a";

const Target& hopper() {
  static const Target target = load_target("sm90a");
  return target;
}

KernelSpec kernel_for(const char* pattern, const GemmProblem& p) {
  std::string word(to_string(p.grouping));
  std::erase(word, '_');
  return parse_name(fmt::format(fmt::runtime(pattern), word));
}

// ---- which problems are served ----

struct ServedRow {
  const char* pattern;
  const char* line;
  const char* sentence;
};
class GroupsOnHopper : public testing::TestWithParam<ServedRow> {};

TEST_P(GroupsOnHopper, AreServedOrRefusedWithTheSentence) {
  const Problem problem = parse_problem(GetParam().line);
  const KernelSpec spec = kernel_for(GetParam().pattern, std::get<GemmProblem>(problem));
  ASSERT_EQ(family().is_legal(spec, hopper()).reason, "");
  EXPECT_EQ(gemm::supports(spec, problem, hopper()).reason, GetParam().sentence);
}

const ServedRow kServed[] = {
    {kByTma, "gemm m=5 n=7 k=64 dtype=bf16 groups=3 grouping=contiguous", ""},
    {kByTma, "gemm m=5 n=7 k=64 dtype=bf16 groups=700 grouping=contiguous", ""},
    {kByTma, "gemm m=5 n=7 k=64 dtype=bf16 groups=4096 grouping=contiguous",
     "a block keeps a sum of tiles for each of groups=4096, which takes 16432 bytes of shared "
     "memory "
     "beside 229448, sm90a has 232448; use a cpasync kernel or fewer stages"},
    {kByTma, "gemm m=131072 n=7 k=64 dtype=bf16 groups=3 grouping=indexed",
     "a block keeps a sum of tiles for each 128 of m=131072 rows, which takes 4144 bytes of shared "
     "memory beside 229448, sm90a has 232448; use a cpasync kernel or fewer stages"},
    {kByTmaAlongK, "gemm m=64 n=8 k=64 dtype=bf16 layout=crr groups=100000 grouping=along_k", ""},
    {kSwapped, "gemm m=64 n=1536 k=2048 dtype=bf16 groups=4096 grouping=masked", ""},
    {kByTma, "gemm m=5 n=7 k=65 dtype=bf16 groups=3 grouping=contiguous",
     "k must be a multiple of 8 for bf16 operands with tmaws, got k=65"},
    {kByTma, "gemm m=5 n=7 k=64 dtype=bf16 groups=3 grouping=masked batch_stride_a=321",
     "batch_stride_a must be a multiple of 8 for bf16 operands with tmaws, got batch_stride_a=321"},
    {kByTma, "gemm m=5 n=7 k=64 dtype=bf16 groups=3 grouping=contiguous batch_stride_a=321", ""},
    {kByTmaAlongK, "gemm m=64 n=8 k=64 dtype=bf16 layout=crr groups=2147483647 grouping=along_k",
     "groups must be at most 2147482624 with tmaws, got 2147483647"},
    {kByTmaAlongK, "gemm m=136 n=264 k=64 dtype=bf16 layout=crr groups=1000000000 grouping=along_k",
     "tmaws counts its tiles up to 2147482624, got up to 4000000000 of 128x256"},
    {kByWarps, "gemm m=5 n=7 k=65 dtype=bf16 groups=2147483647 grouping=contiguous", ""},
    {kByWarps, "gemm m=5 n=7 k=65 dtype=bf16 groups=3 grouping=masked batch_stride_a=325", ""},
    {kByWarps, "gemm m=5 n=7 k=65 dtype=bf16 groups=2147483647 grouping=lists", ""},
    {kByWarps, "gemm m=5 n=7 k=65 dtype=bf16 groups=3 grouping=lists group_strides=1 ld_a=67", ""},
};
INSTANTIATE_TEST_SUITE_P(All, GroupsOnHopper, testing::ValuesIn(kServed));

// Any type, layout and grouping, and odd sizes.
TEST(GroupsOnAnyProblem, HaveAGeneralKernel) {
  for (const DType type :
       {DType::fp32, DType::tf32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    for (const GemmLayout layout :
         {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
      for (const GemmGrouping grouping :
           {GemmGrouping::contiguous, GemmGrouping::indexed, GemmGrouping::masked,
            GemmGrouping::along_k, GemmGrouping::lists}) {
        GemmProblem p = gemm_problem(type, layout, 131, 77, 67);
        p.groups = 5, p.grouping = grouping;
        const KernelSpec spec = general(p, hopper());
        EXPECT_EQ(family().is_legal(spec, hopper()).reason, "") << name_of(spec);
        EXPECT_EQ(gemm::supports(spec, p, hopper()).reason, "") << name_of(spec);
      }
    }
  }
}

// Tiles of few rows are among the candidates where groups have few.
TEST(GroupsOfFewRows, HaveNarrowTiles) {
  const Problem problem =
      parse_problem("gemm m=64 n=1536 k=2048 dtype=bf16 groups=128 grouping=masked");
  const std::vector<KernelSpec> all = gemm::legal_candidates(problem, hopper());
  for (const int rows : {16, 32, 64}) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const KernelSpec& spec) {
      return spec.algorithm.swap_ab && spec.algorithm.tile.n == rows;
    })) << rows;
  }
}

TEST(GroupsOnHopperEnumeration, ListsBothWaysWhereAWishNamesTheGrouping) {
  const Wish type = {"a", "bf16"}, layout = {"layout", "rcr"};
  for (const char* pipeline : {"tmaws", "cpasync"}) {
    const std::vector<Wish> wishes = {type,
                                      layout,
                                      {"pipeline", pipeline},
                                      {"variant", "standard"},
                                      {"stages", "4"},
                                      {"grouping", "masked"}};
    EXPECT_GT(family().enumerate(hopper(), wishes).size(), 0U) << pipeline;
  }
}

// Lists have one way alone.
TEST(GroupsOnHopperEnumeration, ListsOneWayForLists) {
  const auto count = [](const char* pipeline) {
    const std::vector<Wish> wishes = {{"a", "bf16"},          {"layout", "rcr"},
                                      {"pipeline", pipeline}, {"variant", "standard"},
                                      {"stages", "4"},        {"grouping", "lists"}};
    return family().enumerate(hopper(), wishes).size();
  };
  EXPECT_EQ(count("tmaws"), 0U);
  EXPECT_GT(count("cpasync"), 0U);
}

// ---- text ----

TEST(GroupsOnHopperText, HasTheGroupingAndTheCheck) {
  for (const auto& [pattern, header] :
       {std::pair{kByTma, "tma_grouped_gemm.h"}, std::pair{kByWarps, "mma_groups.h"}}) {
    GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 8, 8, 8);
    p.groups = 2, p.grouping = GemmGrouping::along_k;
    const Source source = family().emit(kernel_for(pattern, p), hopper());
    for (const char* part : {header, "kGrouping = Grouping::along_k;", "GroupCheck::run",
                             "const __grid_constant__ CudaGroupArguments arguments"}) {
      EXPECT_NE(source.text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(source.entries, (std::vector<std::string>{"", "_prepare"}));
  }
}

TEST(GroupsOnHopperText, OfListsLooksAtEverySize) {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 8, 8, 8);
  p.groups = 2, p.grouping = GemmGrouping::lists;
  const std::string text = family().emit(kernel_for(kByWarps, p), hopper()).text;
  for (const char* part : {"mma_groups.h", "kGrouping = Grouping::lists;", "ListCheck::run"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(text.find("GroupCheck::run"), std::string::npos);
}

// ---- launches ----

struct Bound {
  Launch launch;
  device::CudaGroupArguments arguments;
};
alignas(64) char some_place[8];
Bound bound(const char* pattern, const char* line) {
  const Problem problem = parse_problem(line);
  Operands operands = no_operands(problem);
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_empty()) set_pointer(operands, tensor.operand, some_place);
  }
  const KernelSpec spec = kernel_for(pattern, std::get<GemmProblem>(problem));
  Bound x{gemm::bind(spec, problem, hopper(), operands), {}};
  std::memcpy(static_cast<void*>(&x.arguments), x.launch.arguments.data(), sizeof(x.arguments));
  return x;
}

TEST(GroupsOnHopperLaunch, HasAStepThatChecksNumbersOnlyWhereItIsAskedFor) {
  for (const char* pattern : {kByTma, kByWarps}) {
    const Bound plain =
        bound(pattern, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous");
    ASSERT_EQ(plain.launch.steps.size(), 1U);
    EXPECT_EQ(plain.launch.steps[0].entry, 0);
    EXPECT_EQ(plain.launch.steps[0].extent, Step::Extent::resident);
    EXPECT_EQ(plain.arguments.groups.bad_group, nullptr);
    const Bound checked = bound(
        pattern, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous check_groups=1");
    ASSERT_EQ(checked.launch.steps.size(), 2U);
    EXPECT_EQ(checked.launch.steps[0].entry, kPackEntry);
    EXPECT_EQ(checked.launch.steps[0].grid[0], 1U);
    EXPECT_EQ(checked.launch.steps[1], plain.launch.steps[0]);
    EXPECT_NE(checked.arguments.groups.bad_group, nullptr);
    const Bound nothing =
        bound(pattern, "gemm m=0 n=8 k=64 dtype=bf16 groups=3 grouping=masked check_groups=1");
    EXPECT_EQ(nothing.launch.steps.size(), 1U);
    EXPECT_EQ(
        bound(pattern, "gemm m=8 n=8 k=64 dtype=bf16 groups=0 grouping=masked").launch.steps.size(),
        0U);
  }
}

// The kernel reads three sizes and, with strides, the distances of A, B and out.
TEST(GroupsOnHopperLaunch, OfListsNamesEveryArrayThatTheKernelReads) {
  const auto pointers = [](const char* more) {
    const Bound x = bound(
        kByWarps,
        fmt::format("gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=lists{}", more).c_str());
    EXPECT_EQ(x.arguments.groups.sizes[2], reinterpret_cast<const std::int32_t*>(some_place));
    EXPECT_EQ(x.launch.steps[x.launch.steps.size() - 1].grid[0], 3U * 7U * 8U);
    return x.launch.pointers.size();
  };
  EXPECT_EQ(pointers(""), 3U + 3U);
  EXPECT_EQ(pointers(" group_strides=1"), 3U + 3U + 3U);
  EXPECT_EQ(pointers(" check_groups=1 beta=1"), 4U + 3U + 1U);
}

// As many blocks as there can be tiles at most: whole ones of the room, and one more of each group.
TEST(GroupsOnHopperLaunch, HasABlockForEachTileThatThereMayBe) {
  const auto blocks = [](const char* pattern, const char* line) {
    return bound(pattern, line).launch.steps[0].grid[0];
  };
  EXPECT_EQ(blocks(kByTma, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous"),
            (4U + 3U) * 2U);
  EXPECT_EQ(blocks(kByTma, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=masked"),
            4U * 3U * 2U);
  EXPECT_EQ(blocks(kSwapped, "gemm m=40 n=512 k=64 dtype=bf16 groups=3 grouping=masked"),
            3U * 3U * 8U);
  EXPECT_EQ(blocks(kByWarps, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=indexed"),
            (7U + 3U) * 8U);
}

// Two blocks of two warps of a unit multiply longer than four such blocks. With batches the
// estimates are equal within a hundredth.
TEST(GroupsOnHopperEstimate, OfListsCountsWarps) {
  const auto seconds = [](const char* stages, const char* lists) {
    const KernelSpec spec = parse_name(
        fmt::format("gemm_bf16_rcr_cpasync_64x64x64_2x1x1_16x8x16{}_{}_sm90a", lists, stages));
    const char* const groups = *lists == 0 ? "batch=8" : "groups=8 grouping=lists";
    const Problem problem =
        parse_problem(fmt::format("gemm m=4096 n=4096 k=4096 dtype=bf16 {}", groups));
    return family().estimate(spec, problem, hopper(), 0).seconds;
  };
  EXPECT_NEAR(seconds("s6", "") / seconds("s3", ""), 1, 0.01);
  EXPECT_GT(seconds("s6", "_groupslists"), 1.5 * seconds("s3", "_groupslists"));
}

std::string windows(const char* pattern, const char* line) {
  std::string text;
  for (const TensorMap& map : bound(pattern, line).launch.tensor_maps) {
    text += fmt::format("{}x{}x{} by {} and {}; ", map.sizes[0], map.sizes[1], map.sizes[2],
                        map.strides[0], map.strides[1]);
  }
  return text;
}

TEST(GroupsOnHopperLaunch, HasOneWindowForEachOperandOfAllGroups) {
  EXPECT_EQ(windows(kByTma, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=contiguous"),
            "64x400x1 by 128 and 128; 64x512x3 by 128 and 65536; 512x400x1 by 1024 and 1024; ");
  EXPECT_EQ(windows(kByTma, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=masked"),
            "64x400x3 by 128 and 51200; 64x512x3 by 128 and 65536; 512x400x3 by 1024 and 409600; ");
  EXPECT_EQ(windows(kByTma, "gemm m=400 n=512 k=64 dtype=bf16 groups=3 grouping=along_k"),
            "64x400x1 by 128 and 128; 64x512x1 by 128 and 128; 512x400x3 by 1024 and 409600; ");
  // The copy engine does not write rows of 7; threads do.
  EXPECT_EQ(windows(kByTma, "gemm m=400 n=7 k=64 dtype=bf16 groups=3 grouping=contiguous"),
            "64x400x1 by 128 and 128; 64x7x3 by 128 and 896; ");
}

TEST(GroupsOnHopperLaunch, KeepsSumsBehindTheOtherSharedMemory) {
  const auto bytes = [](const char* line) {
    return bound(kByTma, line).launch.steps[0].shared_memory_bytes;
  };
  const std::size_t along_k = bytes("gemm m=400 n=512 k=64 dtype=bf16 groups=9 grouping=along_k");
  EXPECT_EQ(bytes("gemm m=400 n=512 k=64 dtype=bf16 groups=9 grouping=contiguous"), along_k + 36);
  EXPECT_EQ(bytes("gemm m=400 n=512 k=64 dtype=bf16 groups=9 grouping=indexed"), along_k + 16);
}

}  // namespace
}  // namespace tessera::gemm
