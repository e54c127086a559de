#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "targets_with.h"
#include "tessera/base/error.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

using Wishes = std::vector<Wish>;

// Whether the kernels for the middle have such algorithms.
bool is_fitted(const Algorithm& a) {
  return a.pipeline == Pipeline::tmaws && (a.streamk || (a.swap_ab && a.tile.n > kSkinnyTile));
}

// Everything that a target's enumeration must be.
class GemmEnumerate : public testing::TestWithParam<std::string> {
 protected:
  Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, GemmEnumerate, testing::ValuesIn(targets_with(Op::gemm)),
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
    ASSERT_EQ(family().is_legal(spec, target_).reason, "") << name;
    last = std::move(name);
  }
}

TEST_P(GemmEnumerate, OrderOfListsDoesNotMatter) {
  const Wishes wishes = {{"dtype", "int8"}, {"layout", "rcr"}};
  const auto expected = enumerate(target_, wishes);
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
  EXPECT_EQ(enumerate(target_, wishes), expected);
}

TEST_P(GemmEnumerate, CandidatesAreSortedByName) {
  const auto specs = candidates(gemm_problem(DType::bf16, GemmLayout::rcr, 64, 64, 64), target_);
  ASSERT_GT(specs.size(), 100U);
  for (std::size_t i = 1; i < specs.size(); ++i) {
    ASSERT_LT(name_of(specs[i - 1]), name_of(specs[i]));
  }
}

std::vector<std::string> names(const std::vector<KernelSpec>& specs) {
  std::vector<std::string> all;
  for (const KernelSpec& spec : specs) all.push_back(name_of(spec));
  return all;
}

TEST_P(GemmEnumerate, CandidatesHoldWhatEnumerationLists) {
  // The depth is odd, so that kernels that repack have something to do.
  const auto all = candidates(gemm_problem(DType::fp16, GemmLayout::rcr, 64, 64, 63), target_);
  std::vector<KernelSpec> legal;
  for (const KernelSpec& spec : all) {
    if (family().is_legal(spec, target_)) legal.push_back(spec);
  }
  auto listed =
      enumerate(target_, Wishes{{"dtype", "fp16"}, {"layout", "rcr"}, {"variant", "standard"}});
  // No tile fits 64 rows, which are too many to be kept.
  std::erase_if(listed, [&](const KernelSpec& spec) {
    const bool streams = is_gpu(target_) && spec.algorithm.pipeline == Pipeline::stream;
    return is_fitted(spec.algorithm) || streams;
  });
  EXPECT_TRUE(legal == listed);
}

// A problem's candidates have the tiles that its rows need, among all that enumeration lists.
TEST(GemmFitted, CandidatesFitTheRows) {
  const Target target = load_target("sm90a");
  const auto listed = names(
      enumerate(target, Wishes{{"dtype", "fp16"}, {"layout", "rcr"}, {"variant", "standard"}}));
  const std::set<std::string> known(listed.begin(), listed.end());
  for (const int rows : {65, 96, 200, 1111, 2000}) {
    std::set<int> sides;
    for (const KernelSpec& spec :
         legal_candidates(gemm_problem(DType::fp16, GemmLayout::rcr, rows, 5120, 5120), target)) {
      const Algorithm& a = spec.algorithm;
      if (!is_fitted(a)) continue;
      EXPECT_TRUE(known.contains(name_of(spec))) << name_of(spec);
      if (a.swap_ab) sides.insert(a.tile.n);
    }
    ASSERT_FALSE(sides.empty()) << rows;
    // The tiles of the side that fits best leave at most an eighth of their rows empty.
    const auto left = [&](int side) { return (rows + side - 1) / side * side - rows; };
    int least = left(*sides.begin());
    for (const int side : sides) least = std::min(least, left(side));
    EXPECT_LE(least * 8, rows) << rows;
  }
  const auto wide =
      legal_candidates(gemm_problem(DType::fp16, GemmLayout::rcr, 5120, 200, 5120), target);
  EXPECT_FALSE(std::any_of(wide.begin(), wide.end(), [](const KernelSpec& spec) {
    return is_fitted(spec.algorithm) && spec.algorithm.swap_ab;
  }));
}

TEST(GemmWishes, NarrowToOneKernel) {
  const std::vector<std::string> expected = {
      "gemm_fp32_rcr_packab_192x960x256_0x0x1_12x32x1_avx512"};
  const Wishes wishes = {{"dtype", "fp32"},       {"layout", "rcr"},     {"variant", "standard"},
                         {"pipeline", "packab"},  {"tile", "192x960x*"}, {"wave", "0x*x1"},
                         {"warp_tile", "12x32x1"}};
  EXPECT_EQ(names(enumerate(load_target("avx512"), wishes)), expected);
  const Wishes name = {{"name", "gemm_fp32_rcr_packab_192x960x256_0x0x1_12x32x1_avx*"}};
  EXPECT_EQ(names(enumerate(load_target("avx512"), name)), expected);
}

TEST(GemmWishes, EachIsObeyed) {
  const Target target = load_target("avx512");
  const Wishes wishes = {{"dtype", "bf16"},   {"dtype", "int8"},      {"layout", "crr"},
                         {"layout", "rrr"},   {"variant", "multi_d"}, {"pipeline", "packab"},
                         {"tile", "*x960x*"}, {"warp_tile", "12x*x*"}};
  const auto specs = enumerate(target, wishes);
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

// `words` has the words of every field that the kernels of a list have. Each kernel passes exactly
// one of them, and the wishes for all leave the whole list.
TEST(GemmWishes, EveryFieldNarrowsByItsWords) {
  const Target target = load_target("sm90a");
  const auto all = enumerate(target, Wishes{{"dtype", "bf16"}, {"layout", "rcr"}});
  const std::map<std::string, std::vector<std::string>> words = {
      {"dtype", {"bf16", "fp16"}},
      {"variant", {"standard", "preshuffle", "multi_d"}},
      {"a", {"bf16", "fp16"}},
      {"b", {"bf16", "fp16"}},
      {"acc", {"fp32"}},
      {"out", {"bf16", "fp32"}},
      {"d", {"bf16", "fp32"}},
      {"layout", {"rcr", "rrr"}},
      {"epilogue", {"none", "*bias*", "multi_d_*", "add+re*", "multiply"}},
      {"preshuffle", {"true", "false"}},
      {"grouping", {"none", "masked"}},
      {"scale_a", {"none", "1x*"}},
      {"scale_b", {"none", "1*x128"}},
      {"scale_type", {"fp32", "e8m0"}},
      {"gate", {"none", "*_mul"}},
      {"gate_interleaved", {"true", "false"}},
      {"indexing", {"none", "gathered"}},
      {"quant", {"none", "row"}},
      {"arranged", {"true", "false"}},
      {"pipeline", {"tmaws", "cp*", "stream"}},
      {"tile",
       {"1x*x*", "2x*x*", "4x*x*", "8x*x*", "16x*x*", "32x*x*", "64x*x*", "128x*x*", "192x*x*",
        "256x*x*"}},
      {"wave", {"1x*x*", "2x*x*", "3x*x*", "4x*x*"}},
      {"warp_tile", {"*x*x1", "*x*x8", "*x*x16", "*x*x32"}},
      {"scheduler", {"cooperative", "pingpong", "standard"}},
      {"store", {"standard", "direct", "tma"}},
      {"split_k", {"none", "ordered"}},
      {"splits", {"1", "2", "4", "8"}},
      {"slices", {"1", "2", "3", "4", "16"}},
      {"streamk", {"true", "false"}},
      {"stages", {"1", "2", "3", "4", "5", "6", "7", "8", "10", "12"}},
      {"cluster_m", {"1", "2", "4"}},
      {"cluster_n", {"1", "2", "4"}},
      {"persistent", {"true", "false"}},
      {"swap_ab", {"true", "false"}},
      {"repack", {"true", "false"}},
      {"pointwise", {"true", "false"}},
      {"name", {"*"}}};
  for (const std::string& field : wish_fields(family())) {
    ASSERT_EQ(words.count(field), 1U) << field;
    std::vector<KernelFilter> one;
    for (const std::string& word : words.at(field)) {
      one.emplace_back(family(), Wishes{{field, word}});
    }
    for (std::size_t i = 0; i < all.size(); i += 19) {
      const auto passes = [&](const KernelFilter& wishes) { return wishes.accepts(all[i]); };
      ASSERT_EQ(std::count_if(one.begin(), one.end(), passes), 1) << field << name_of(all[i]);
    }
  }
}

TEST(GemmWishes, StarsLeaveEverythingIn) {
  const Target target = load_target("generic");
  Wishes stars = {{"wave", "*x*x*"}};
  for (const std::string& field : wish_fields(family())) stars.push_back({field, "*"});
  EXPECT_EQ(enumerate(target, stars).size(), enumerate(target, {}).size());
}

TEST(GemmWishes, VariantsPartitionTheSpace) {
  const Target target = load_target("avx2");
  std::size_t sum = 0;
  for (const char* variant : {"standard", "preshuffle", "multi_d"}) {
    const auto specs = enumerate(target, Wishes{{"dtype", "fp32"}, {"variant", variant}});
    EXPECT_FALSE(specs.empty()) << variant;
    sum += specs.size();
  }
  EXPECT_EQ(sum, enumerate(target, Wishes{{"dtype", "fp32"}}).size());
}

// A chain that is named whole is put on the kernels that have none, listed or not.
TEST(GemmWishes, NamedChainNeedNotBeListed) {
  const Target target = load_target("avx2");
  const auto bare_count = [&](const char* variant) {
    return enumerate(target, Wishes{{"dtype", "fp32"}, {"variant", variant}}).size();
  };
  const std::size_t standard = bare_count("standard");
  for (const char* variant : {"*", "standard", "multi_d", "preshuffle"}) {
    const auto specs = enumerate(
        target, Wishes{{"dtype", "fp32"}, {"variant", variant}, {"epilogue", "add+tanh"}});
    const bool preshuffled = variant == std::string("preshuffle");
    EXPECT_EQ(specs.size(), preshuffled ? bare_count(variant) : standard) << variant;
    for (const KernelSpec& spec : specs) {
      const auto& s = std::get<GemmSignature>(spec.signature);
      ASSERT_EQ(to_string(s.epilogue), "add+tanh");
      ASSERT_EQ(s.preshuffled_b, preshuffled);
    }
  }
  const auto two = enumerate(target, Wishes{{"dtype", "fp32"},
                                            {"epilogue", "add+tanh"},
                                            {"epilogue", "bias+g*"},
                                            {"epilogue", "add+tanh"}});
  EXPECT_EQ(two.size(), 2 * standard);
}

TEST(GemmWishes, CombinationsHoldTheIllegalToo) {
  const Target target = load_target("avx512");
  const Wishes wishes = {{"dtype", "fp32"}, {"layout", "rcr"}, {"variant", "standard"}};
  const auto legal = enumerate(target, wishes);
  const auto all = combinations(target, wishes, 1'000'000);
  std::vector<KernelSpec> passing;
  for (const KernelSpec& spec : all) {
    if (family().is_legal(spec, target)) passing.push_back(spec);
  }
  EXPECT_EQ(passing.size(), legal.size());
  EXPECT_GT(all.size(), legal.size());
  EXPECT_EQ(combinations(target, wishes, 10).size(), 10U);
}

struct BadWish {
  Wish wish;
  ErrorCode code;
  const char* message;
};

TEST(GemmWishes, MalformedOnesAreRefused) {
  const BadWish rows[] = {
      {{"tile", "128x*"},
       ErrorCode::invalid_argument,
       "tile must be three numbers or '*' such as 128x*x64, got '128x*'"},
      {{"tile", "1*"},
       ErrorCode::invalid_argument,
       "tile must be three numbers or '*' such as 128x*x64, got '1*'"},
      {{"wave", "1x1x-1"},
       ErrorCode::invalid_argument,
       "wave must be three numbers or '*' such as 128x*x64, got '1x1x-1'"},
      {{"warp_tile", "1x1xa"},
       ErrorCode::invalid_argument,
       "warp_tile must be three numbers or '*' such as 128x*x64, got '1x1xa'"},
      {{"stages", "four"},
       ErrorCode::invalid_argument,
       "stages must be a number or '*', got 'four'"},
      {{"swap_ab", "1"}, ErrorCode::invalid_argument, "swap_ab must be true or false, got '1'"},
      {{"variant", "preshufle"},
       ErrorCode::parse_error,
       "unknown variant 'preshufle', did you mean 'preshuffle'?"},
      {{"variant", "x"},
       ErrorCode::parse_error,
       "unknown variant 'x': it must be one of standard, preshuffle, multi_d"},
      {{"scheduler", "pingpon"},
       ErrorCode::parse_error,
       "unknown scheduler 'pingpon', did you mean 'pingpong'?"},
      {{"epilogue", "bias+geluu"},
       ErrorCode::parse_error,
       "unknown epilogue op 'geluu', did you mean 'gelu'?"},
      {{"tiles", "*"}, ErrorCode::parse_error, "unknown gemm field 'tiles', did you mean 'tile'?"},
  };
  for (const BadWish& row : rows) {
    try {
      enumerate(load_target("avx2"), {&row.wish, 1});
      ADD_FAILURE() << row.message;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(row.code)) << row.message;
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
          EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
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
  EXPECT_EQ(family().is_legal(spec, target).reason, "");
  EXPECT_EQ(supports(spec, p, target).reason, "");
}

TEST(GemmGeneral, ServesEveryValidProblemOnAmd) {
  for (const char* name : {"gfx90a", "gfx942", "gfx950"}) {
    const Target target = load_target(name);
    for (const GeneralTypes& types : kGeneralTypes) {
      if (find_instruction(target, types.a, types.a, types.acc) == nullptr) continue;
      for (const GemmLayout layout :
           {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
        GemmProblem p = gemm_problem(types.a, layout, 3, 5, 7);
        p.b = types.b;
        p.acc = types.acc;
        p.out = p.d = types.out;
        p.pointer_arrays = layout == GemmLayout::ccr;
        if (types.out != DType::int32) {
          p.epilogue = parse_epilogue("add+multi_d_multiply3+gelu_tanh+clamp");
        }
        const KernelSpec spec = general(p, target);
        EXPECT_EQ(family().is_legal(spec, target).reason, "") << name_of(spec);
        EXPECT_EQ(supports(spec, p, target).reason, "") << name_of(spec);
        EXPECT_EQ(spec.algorithm.pipeline, Pipeline::direct);
        p.epilogue = {};
        p.pointer_arrays = false;
        p.preshuffled_b = true;
        EXPECT_TRUE(family().is_legal(general(p, target), target));
      }
    }
  }
}

TEST(GemmGeneral, RefusesTypesThatTheMachineLacks) {
  try {
    general(gemm_problem(DType::fp8, GemmLayout::rcr, 1, 1, 1), load_target("gfx90a"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gemm: gfx90a lists no legal kernel for fp8 x fp8 with layout rcr");
  }
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
