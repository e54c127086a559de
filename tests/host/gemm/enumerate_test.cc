#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

// Everything that a target's enumeration must be.
class GemmEnumerate : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, GemmEnumerate, testing::ValuesIn(target_names()),
                         [](const auto& row) { return row.param; });

// One walk for all three, because the spaces are large.
TEST_P(GemmEnumerate, NamesAreSortedUniqueAndRoundTripAndSpecsLegal) {
  const auto specs = enumerate(target_, {});
  ASSERT_GT(specs.size(), 1000U);
  std::string last;
  for (const KernelSpec& spec : specs) {
    std::string name = name_of(spec);
    ASSERT_LT(last, name);
    ASSERT_EQ(parse_name(name), spec) << name;
    ASSERT_EQ(is_legal(spec, target_).reason, "") << name;
    last = std::move(name);
  }
}

TEST_P(GemmEnumerate, OrderOfListsDoesNotMatter) {
  const SpecFilter filter = {.dtypes = {"int8"}, .layouts = {"rcr"}};
  const auto expected = enumerate(target_, filter);
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  AlgorithmSpace& space = target_.spaces.at(Op::gemm);
  std::shuffle(space.pipelines.begin(), space.pipelines.end(), random);
  std::shuffle(space.tiles.begin(), space.tiles.end(), random);
  std::shuffle(space.waves.begin(), space.waves.end(), random);
  std::shuffle(space.stages.begin(), space.stages.end(), random);
  std::shuffle(space.clusters.begin(), space.clusters.end(), random);
  for (auto& [dtype, tiles] : space.warp_tiles) std::shuffle(tiles.begin(), tiles.end(), random);
  space.tiles.push_back(space.tiles.front());  // nor do repeated entries
  EXPECT_EQ(enumerate(target_, filter), expected);
}

TEST_P(GemmEnumerate, CandidatesAreSortedByName) {
  const auto specs = candidates(gemm_problem(DType::bf16, GemmLayout::rcr, 64, 64, 64), target_);
  ASSERT_GT(specs.size(), 100U);
  for (std::size_t i = 1; i < specs.size(); ++i) {
    ASSERT_LT(name_of(specs[i - 1]), name_of(specs[i]));
  }
}

TEST_P(GemmEnumerate, CandidatesHoldWhatEnumerationLists) {
  // Of odd length, so that kernels that repack have something to do.
  const auto all = candidates(gemm_problem(DType::fp16, GemmLayout::rcr, 64, 64, 63), target_);
  std::vector<KernelSpec> legal;
  for (const KernelSpec& spec : all) {
    if (is_legal(spec, target_)) legal.push_back(spec);
  }
  EXPECT_EQ(legal,
            enumerate(target_, {.dtypes = {"fp16"}, .layouts = {"rcr"}, .variants = {"standard"}}));
}

std::vector<std::string> names(const std::vector<KernelSpec>& specs) {
  std::vector<std::string> all;
  for (const KernelSpec& spec : specs) all.push_back(name_of(spec));
  return all;
}

TEST(GemmFilter, NarrowsToOneKernel) {
  const std::vector<std::string> expected = {
      "gemm_fp32_rcr_packab_192x960x256_0x0x1_12x32x1_avx512"};
  EXPECT_EQ(names(enumerate(load_target("avx512"), {.dtypes = {"fp32"},
                                                    .layouts = {"rcr"},
                                                    .variants = {"standard"},
                                                    .pipeline = "packab",
                                                    .tile = "192x960x*",
                                                    .wave = "0x*x1",
                                                    .warp_tile = "12x32x1"})),
            expected);
  EXPECT_EQ(names(enumerate(load_target("avx512"),
                            {.name = "gemm_fp32_rcr_packab_192x960x256_0x0x1_12x32x1_avx*"})),
            expected);
}

TEST(GemmFilter, EachPartIsObeyed) {
  const Target target = load_target("avx512");
  const SpecFilter filter = {.dtypes = {"bf16", "int8"},
                             .layouts = {"crr", "rrr"},
                             .variants = {"multi_d"},
                             .pipeline = "packab",
                             .tile = "*x960x*",
                             .warp_tile = "12x*x*"};
  const auto specs = enumerate(target, filter);
  ASSERT_FALSE(specs.empty());
  for (const KernelSpec& spec : specs) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    EXPECT_TRUE(s.a == DType::bf16 || s.a == DType::int8);
    EXPECT_TRUE(s.layout == GemmLayout::crr || s.layout == GemmLayout::rrr);
    EXPECT_GT(num_ops(s.epilogue), 0);
    EXPECT_FALSE(s.preshuffled_b);
    EXPECT_EQ(spec.algorithm.pipeline, Pipeline::packab);
    EXPECT_EQ(spec.algorithm.tile.n, 960);
    EXPECT_EQ(spec.algorithm.warp_tile.m, 12);
  }
}

TEST(GemmFilter, StarsMatchEverything) {
  const Target target = load_target("generic");
  const SpecFilter stars = {.dtypes = {"*"},
                            .layouts = {"*"},
                            .variants = {"*"},
                            .pipeline = "*",
                            .tile = "*",
                            .wave = "*x*x*",
                            .warp_tile = "*",
                            .name = "*"};
  EXPECT_EQ(enumerate(target, stars).size(), enumerate(target, {}).size());
}

TEST(GemmFilter, VariantsPartitionTheSpace) {
  const Target target = load_target("avx2");
  std::size_t sum = 0;
  for (const char* variant : {"standard", "preshuffle", "multi_d"}) {
    const auto specs = enumerate(target, {.dtypes = {"fp32"}, .variants = {variant}});
    EXPECT_FALSE(specs.empty()) << variant;
    sum += specs.size();
  }
  EXPECT_EQ(sum, enumerate(target, {.dtypes = {"fp32"}}).size());
}

struct BadFilter {
  SpecFilter filter;
  const char* message;
};

TEST(GemmFilter, MalformedOnesAreRefused) {
  const BadFilter rows[] = {
      {{.tile = "128x*"},
       "tile must be three numbers or '*' joined by 'x', such as 128x*x64, got '128x*'"},
      {{.wave = "1x1x-1"},
       "wave must be three numbers or '*' joined by 'x', such as 128x*x64, got '1x1x-1'"},
      {{.warp_tile = "1x1xa"},
       "warp_tile must be three numbers or '*' joined by 'x', such as 128x*x64, got '1x1xa'"},
      {{.variants = {"preshufle"}},
       "unknown gemm variant 'preshufle', did you mean 'preshuffle'?; there are standard, "
       "preshuffle, multi_d"},
  };
  for (const BadFilter& row : rows) {
    try {
      enumerate(load_target("avx2"), row.filter);
      ADD_FAILURE() << row.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::parse_error);
      EXPECT_STREQ(error.what(), row.message);
    }
  }
}

// ---- the general kernel ----

struct GeneralTypes {
  DType a, b, acc, out;
};
constexpr GeneralTypes kGeneralTypes[] = {
    {DType::fp32, DType::fp32, DType::fp32, DType::fp32},
    {DType::tf32, DType::tf32, DType::fp32, DType::fp32},
    {DType::fp16, DType::fp16, DType::fp32, DType::fp32},
    {DType::bf16, DType::bf16, DType::fp32, DType::bf16},
    {DType::fp8, DType::bf8, DType::fp32, DType::bf16},
    {DType::bf8, DType::bf8, DType::fp32, DType::fp16},
    {DType::int8, DType::int8, DType::int32, DType::int32},
    {DType::int8, DType::int8, DType::int32, DType::int8},
};

TEST(GemmGeneral, ServesEveryValidProblemOnEveryCpu) {
  for (const char* name : {"avx512", "avx2", "generic"}) {
    const Target target = load_target(name);
    for (const GeneralTypes& types : kGeneralTypes) {
      for (const GemmLayout layout :
           {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
        for (const char* epilogue : {"none", "add+multi_d_multiply3+gelu_tanh+clamp"}) {
          GemmProblem p = gemm_problem(types.a, layout, 3, 5, 7);
          p.b = types.b;
          p.acc = types.acc;
          p.out = p.d = types.out;
          if (types.out != DType::int32) p.epilogue = parse_epilogue(epilogue);
          p.preshuffled_b = layout == GemmLayout::crr;
          const KernelSpec spec = general(p, target);
          EXPECT_EQ(is_legal(spec, target).reason, "") << name_of(spec);
          EXPECT_EQ(supports(spec, p, target).reason, "") << name_of(spec);
          EXPECT_EQ(spec.algorithm.pipeline, Pipeline::packab);
          EXPECT_EQ(spec.algorithm.wave, (Shape3{0, 0, 1}));
        }
      }
    }
  }
}

TEST(GemmGeneral, TakesAnySizeOnHopper) {
  const Target target = load_target("sm90a");
  const GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 77, 99, 33);
  const KernelSpec spec = general(p, target);
  EXPECT_EQ(is_legal(spec, target).reason, "");
  EXPECT_EQ(supports(spec, p, target).reason, "");
}

TEST(GemmGeneral, TargetWithoutAnythingForTheTypes) {
  Target target = load_target("avx2");
  target.spaces.at(Op::gemm).warp_tiles.erase(DType::int8);
  try {
    general(gemm_problem(DType::int8, GemmLayout::rrr, 1, 1, 1), target);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gemm: avx2 lists no legal kernel for int8 x int8 with layout rrr");
  }
  target.spaces.clear();
  try {
    enumerate(target, {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "gemm: the row of target avx2 has no space for gemm; add spaces.gemm to it");
  }
}

}  // namespace
}  // namespace tessera::gemm
