#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "support.h"
#include "targets_with.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

constexpr const char* kPlain = "gemm_fp32_rrr_packb_192x960x256_1x1x1_12x32x1_avx512";
constexpr const char* kWide = "gemm_fp32_rrr_packb_192x1920x256_1x1x1_12x32x1_avx512";

KernelSetBuilder narrow(std::string_view tile) {
  KernelSetBuilder builder("mine", "avx512");
  builder.gemm().dtype("fp32").layout("rrr").variant("standard").pipeline("packb");
  builder.tile(tile).wave("1x1x1").warp_tile("12x32x*");
  return builder;
}

TEST(KernelSetBuilder, ExpandsWildcards) {
  const std::vector<std::string> expected = {kWide, kPlain};
  EXPECT_EQ(names_of(narrow("192x*x256").build().specs), expected);
}

TEST(KernelSetBuilder, NarrowsByAnyField) {
  KernelSetBuilder words("mine", "sm90a");
  words.op(Op::gemm).where("dtype", "bf16").where("layout", "rcr").where("variant", "standard");
  KernelSetBuilder few = words;
  few.where("stages", "4").where("cluster_m", "2").where("tile", "128x*x64");
  const KernelSet set = few.build();
  ASSERT_FALSE(set.specs.empty());
  std::vector<KernelSpec> expected;
  for (const KernelSpec& spec : words.build().specs) {
    const Algorithm& how = spec.algorithm;
    const bool fits =
        how.stages == 4 && how.cluster_m == 2 && how.tile.m == 128 && how.tile.k == 64;
    if (fits) expected.push_back(spec);
  }
  EXPECT_EQ(set.specs, expected);
}

TEST(KernelSetBuilder, TakesAlternatives) {
  KernelSetBuilder builder = narrow("192x960x256");
  const std::vector<std::string> expected = {kWide, kPlain};
  EXPECT_EQ(names_of(builder.tile("192x1920x256").build().specs), expected);
}

TEST(KernelSetBuilder, StarsLeaveEverythingIn) {
  KernelSetBuilder starred("mine", "generic");
  starred.gemm().dtype("*").layout("*").variant("*").pipeline("*").tile("*").wave("*x*x*");
  starred.warp_tile("*");
  EXPECT_EQ(starred.build(), KernelSetBuilder("mine", "generic").gemm().build());
}

TEST(KernelSetBuilder, GroupsAddUpAndEachNameIsThereOnce) {
  KernelSetBuilder builder = narrow("192x960x256");
  builder.add(kPlain).add(kWide).add(kPlain);
  const std::vector<std::string> expected = {kWide, kPlain};
  EXPECT_EQ(names_of(builder.build().specs), expected);
}

TEST(KernelSetBuilder, IsSortedByName) {
  const KernelSet set = KernelSetBuilder("mine", "avx2").gemm().dtype("int8").build();
  const std::vector<std::string> names = names_of(set.specs);
  ASSERT_GT(names.size(), 10U);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(KernelSetBuilder, CopiesGoTheirOwnWays) {
  KernelSetBuilder one("mine", "avx512");
  one.gemm().dtype("fp32").layout("rrr").variant("standard").pipeline("packb").wave("1x1x1");
  one.warp_tile("12x32x1");
  KernelSetBuilder other = one;
  one.tile("192x960x256");
  other.tile("192x1920x256");
  EXPECT_EQ(names_of(one.build().specs), std::vector<std::string>{kPlain});
  EXPECT_EQ(names_of(other.build().specs), std::vector<std::string>{kWide});
}

// Each takes as long as the first one: none copies those before.
TEST(KernelSetBuilder, ManyWildcardsOfAGroup) {
  constexpr int kWildcards = 20'000;
  KernelSetBuilder many("mine", "avx512");
  many.gemm();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kWildcards; ++i) many.tile(fmt::format("192x960x{}", 1000 + i));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 4) << "8 s where each copies those before";
}

TEST(KernelSetBuilder, FusesTheEpilogue) {
  const KernelSet plain = narrow("192x*x256").build();
  KernelSetBuilder builder = narrow("192x*x256");
  const KernelSet fused = builder.epilogue("bias+gelu").build();
  ASSERT_EQ(fused.specs.size(), plain.specs.size());
  std::set<std::string> expected;
  for (KernelSpec spec : plain.specs) {
    std::get<GemmSignature>(spec.signature).epilogue = parse_epilogue("bias+gelu");
    expected.insert(name_of(spec));
  }
  const std::vector<std::string> names = names_of(fused.specs);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

// int32 takes no epilogue: the kernels of a fused int8 group store fp32.
TEST(KernelSetBuilder, FusesTheEpilogueOfIntegers) {
  KernelSetBuilder builder("mine", "avx512");
  builder.gemm().dtype("int8").layout("rcr").tile("192x960x256").epilogue("bias+tanh");
  const KernelSet set = builder.build();
  ASSERT_FALSE(set.specs.empty());
  for (const KernelSpec& spec : set.specs) {
    const auto& signature = std::get<GemmSignature>(spec.signature);
    EXPECT_EQ(signature.out, DType::fp32);
    EXPECT_EQ(signature.epilogue, parse_epilogue("bias+tanh"));
  }
}

TEST(KernelSetBuilder, TakesPreselectedSets) {
  const Target target = load_target("avx512");
  const std::vector<KernelSpec> set = family_of(Op::gemm).preselected("fp32_rcr_essential", target);
  ASSERT_FALSE(set.empty());
  std::vector<std::string> expected = names_of(set);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(
      names_of(KernelSetBuilder("mine", target).preselected("fp32_rcr_essential").build().specs),
      expected);
}

TEST(KernelSetBuilder, TakesTheBestForAProblem) {
  const Target target = load_target("avx512");
  const Problem problem = parse_problem("gemm m=512 n=512 k=512 layout=rrr");
  const Family& family = family_of(problem);
  const KernelSet best = KernelSetBuilder("mine", target).for_problem(problem, 3).build();
  ASSERT_EQ(best.specs.size(), 3U);
  double slowest = 0;
  for (const KernelSpec& spec : best.specs) {
    EXPECT_TRUE(family.supports(spec, problem, target)) << name_of(spec);
    slowest = std::max(slowest, family.estimate(spec, problem, target, target.units).seconds);
  }
  for (const KernelSpec& spec : family.candidates(problem, target)) {
    if (!family.is_legal(spec, target) || !family.supports(spec, problem, target)) continue;
    const bool chosen = std::count(best.specs.begin(), best.specs.end(), spec) != 0;
    if (!chosen) {
      EXPECT_GE(family.estimate(spec, problem, target, target.units).seconds, slowest);
    }
  }
}

TEST(KernelSetBuilder, RefusesWhatMatchesNothing) {
  EXPECT_EQ(message_of([] { narrow("128x*x64").build(); }, ErrorCode::not_found),
            "kernel set 'mine': on target 'avx512', tile=128x*x64 matches none of 8x1024x512, "
            "8x4096x512, 24x960x1024, 48x1920x512, 96x960x512, 192x960x256, 192x1920x256, "
            "96x960x2048, 960x960x1024");
  EXPECT_EQ(message_of([] { KernelSetBuilder("mine", "avx512").gemm().pipeline("tmaws").build(); },
                       ErrorCode::not_found),
            "kernel set 'mine': on target 'avx512', pipeline=tmaws matches none of packab, packb, "
            "packa, direct, stream, small, amx");
  EXPECT_EQ(message_of([] { KernelSetBuilder("mine", "avx512").gemm().wave("4x4x1").build(); },
                       ErrorCode::not_found),
            "kernel set 'mine': on target 'avx512', wave=4x4x1 matches none of 0x0x1, 1x1x0, "
            "1x1x1");
  EXPECT_EQ(message_of([] { KernelSetBuilder("mine", "avx512").gemm().dtype("int32").build(); },
                       ErrorCode::not_found),
            "kernel set 'mine': on target 'avx512', dtype=int32 matches none of fp32, fp16, bf16, "
            "fp8, bf8, int8");
  EXPECT_EQ(
      message_of(
          [] { KernelSetBuilder("mine", "avx2").gemm().dtype("fp16").warp_tile("*x*x2").build(); },
          ErrorCode::not_found),
      "kernel set 'mine': on target 'avx2', warp_tile=*x*x2 matches none of 6x16x1, 4x24x1, "
      "12x8x1, 8x8x1, 4x16x1");
}

// All values exist, but no kernel has them together: the rule is quoted.
TEST(KernelSetBuilder, RefusesACombinationWithItsRule) {
  const std::string refused = "gemm_fp32_rcr_packb_8x1024x512_1x1x1_24x16x1_avx512";
  const std::string reason =
      family_of(Op::gemm).is_legal(parse_name(refused), load_target("avx512")).reason;
  ASSERT_NE(reason, "");
  EXPECT_EQ(message_of(
                [] {
                  KernelSetBuilder builder("mine", "avx512");
                  builder.gemm().dtype("fp32").layout("rcr").variant("standard");
                  builder.pipeline("packb").tile("8x1024x512").wave("1x1x1").warp_tile("24x16x1");
                  builder.build();
                },
                ErrorCode::not_found),
            fmt::format("kernel set 'mine': no kernel of target 'avx512' is legal with gemm "
                        "dtype=fp32 layout=rcr variant=standard pipeline=packb tile=8x1024x512 "
                        "wave=1x1x1 warp_tile=24x16x1; for one, {}: {}",
                        refused, reason));
}

// The first kernel that the wishes leave has 4 splits, and breaks another rule than most do.
TEST(KernelSetBuilder, RefusesACombinationWithTheRuleOfMost) {
  KernelSetBuilder builder("mine", "sm90a");
  builder.gemm().dtype("bf16").layout("rcr").variant("standard").pipeline("tmaws");
  builder.tile("128x128x64").where("stages", "10").where("slices", "4");
  EXPECT_EQ(message_of([&] { builder.build(); }, ErrorCode::not_found),
            "kernel set 'mine': no kernel of target 'sm90a' is legal with gemm dtype=bf16 "
            "layout=rcr variant=standard pipeline=tmaws tile=128x128x64 stages=10 slices=4; for "
            "one, gemm_bf16_rcr_tmaws_128x128x64_1x1x1_64x128x16_cooperative_splitordered8_"
            "slices4_s10_sm90a: needs 387240 bytes of shared memory (10 stages of 32768 and the "
            "rest), sm90a has 232448");
}

// The row lists tiles for 16-bit operands, and kernels of fp8 take as many bytes of k.
TEST(KernelSetBuilder, RefusesWhatOtherTypesHave) {
  KernelSetBuilder builder("mine", "sm90a");
  builder.gemm().layout("rcr").variant("standard").dtype("fp8");
  const std::size_t count = builder.build().specs.size();
  EXPECT_EQ(message_of([&] { builder.tile("128x256x64").build(); }, ErrorCode::not_found),
            fmt::format("kernel set 'mine': no kernel of target 'sm90a' is legal with gemm "
                        "layout=rcr variant=standard dtype=fp8 tile=128x256x64; without "
                        "tile=128x256x64 there are {}",
                        count));
}

TEST(KernelSetBuilder, RefusesAnIllegalKernelWithItsRule) {
  const std::string name = "gemm_fp32_rrr_packb_193x960x256_1x1x1_12x32x1_avx512";
  const std::string reason =
      family_of(Op::gemm).is_legal(parse_name(name), load_target("avx512")).reason;
  ASSERT_NE(reason, "");
  EXPECT_EQ(message_of([&] { KernelSetBuilder("mine", "avx512").add(name).build(); },
                       ErrorCode::illegal_spec),
            fmt::format("kernel set 'mine': {}: {}", name, reason));
}

TEST(KernelSetBuilder, RefusesAKernelOfAnotherTarget) {
  EXPECT_EQ(
      message_of([] { KernelSetBuilder("mine", "avx2").add(kPlain).build(); },
                 ErrorCode::illegal_spec),
      fmt::format("kernel set 'mine': {} is for target 'avx512', the set is for 'avx2'", kPlain));
}

TEST(KernelSetBuilder, RefusesUnknownWords) {
  KernelSetBuilder builder("mine", "avx512");
  builder.gemm();
  EXPECT_EQ(message_of([&] { builder.variant("preshufle"); }, ErrorCode::parse_error),
            "unknown variant 'preshufle', did you mean 'preshuffle'?");
  EXPECT_EQ(message_of([&] { builder.where("tiel", "*"); }, ErrorCode::parse_error),
            "unknown gemm field 'tiel', did you mean 'tile'?");
  EXPECT_NE(message_of([&] { builder.dtype("bf166"); }, ErrorCode::parse_error).find("'bf16'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { builder.layout("rcc"); }, ErrorCode::parse_error).find("'rcr'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { builder.pipeline("pakb"); }, ErrorCode::parse_error).find("'packb'"),
            std::string::npos);
  EXPECT_NE(message_of([&] { builder.epilogue("gelo"); }, ErrorCode::parse_error).find("'gelu'"),
            std::string::npos);
  EXPECT_NE(message_of([] { KernelSetBuilder("mine", "avx513"); }, ErrorCode::not_found)
                .find("did you mean 'avx512'?"),
            std::string::npos);
}

TEST(KernelSetBuilder, RefusesMalformedShapes) {
  for (const char* bad : {"128x64", "128x*x64x1", "128xx64", "axbxc", "-1x2x3", "1x2x9999999999"}) {
    EXPECT_EQ(message_of([&] { KernelSetBuilder("mine", "avx512").gemm().tile(bad); },
                         ErrorCode::invalid_argument),
              fmt::format("tile must be three numbers or '*' such as 128x*x64, got '{}'", bad));
  }
}

TEST(KernelSetBuilder, RefusesASetterWithoutAGroup) {
  EXPECT_EQ(
      message_of([] { KernelSetBuilder("mine", "avx512").tile("*"); }, ErrorCode::invalid_argument),
      "kernel set 'mine': tile() narrows a group of kernels; call gemm() first");
  EXPECT_EQ(message_of([] { KernelSetBuilder("mine", "avx512").add(kPlain).dtype("fp32"); },
                       ErrorCode::invalid_argument),
            "kernel set 'mine': dtype() narrows a group of kernels; call gemm() first");
}

TEST(KernelSetBuilder, RefusesNoKernelsForAProblem) {
  EXPECT_EQ(message_of(
                [] {
                  KernelSetBuilder("mine", "avx512")
                      .for_problem(gemm_problem(DType::fp32, GemmLayout::rcr, 1, 1, 1), 0);
                },
                ErrorCode::invalid_argument),
            "kernel set 'mine': for_problem() takes at least 1 kernel, got best=0");
}

TEST(KernelSetBuilder, RefusesAnUnknownSet) {
  const std::string text = message_of(
      [] { KernelSetBuilder("mine", "avx512").preselected("fp32_rcr_essentail").build(); },
      ErrorCode::not_found);
  EXPECT_EQ(text.rfind("unknown kernel set 'fp32_rcr_essentail', did you mean "
                       "'fp32_rcr_essential'? (known: ",
                       0),
            0U)
      << text;
}

TEST(KernelSetJson, RoundTripsTheSpaceOfEveryTarget) {
  for (const std::string& name : targets_with(Op::gemm)) {
    const KernelSet all =
        KernelSetBuilder("all of " + name, name).gemm().variant("standard").build();
    ASSERT_GT(all.specs.size(), 1000U) << name;
    EXPECT_TRUE(kernel_set_from_json(to_json(all)) == all) << name;
  }
}

TEST(KernelSetJson, RoundTripsAWholeSpaceWithEveryVariant) {
  const KernelSet all = KernelSetBuilder("all", "generic").gemm().build();
  EXPECT_TRUE(kernel_set_from_json(to_json(all)) == all);
}

TEST(KernelSetJson, IsAListOfNames) {
  EXPECT_EQ(
      to_json(KernelSet{"mine", {parse_name(kWide), parse_name(kPlain)}}),
      fmt::format("{{\n  \"name\": \"mine\",\n  \"kernels\": [\n    \"{}\",\n    \"{}\"\n  ]\n}}",
                  kWide, kPlain));
  EXPECT_EQ(to_json(KernelSet{}), "{\n  \"name\": \"\",\n  \"kernels\": []\n}");
}

TEST(KernelSetJson, DeclaresWhatTheBuilderDeclares) {
  const KernelSet set = kernel_set_from_json(R"({
    "name": "mine", "target": "avx512",
    "groups": [{"op": "gemm", "dtype": "fp32", "layout": ["rrr"], "variant": "standard",
                "pipeline": "packb", "tile": "192x*x256", "wave": "1x1x1",
                "warp_tile": "12x32x1"}],
    "preselected": "fp32_rcr_essential",
    "problems": ["gemm m=8 n=4096 k=4096 dtype=bf16"],
    "kernels": ["gemm_fp32_rrr_packb_48x1920x512_1x1x1_12x32x1_avx512"]
  })");
  KernelSetBuilder builder = narrow("192x*x256");
  builder.preselected("fp32_rcr_essential")
      .for_problem(parse_problem("gemm m=8 n=4096 k=4096 dtype=bf16"))
      .add("gemm_fp32_rrr_packb_48x1920x512_1x1x1_12x32x1_avx512");
  EXPECT_EQ(set, builder.build());
}

TEST(KernelSetJson, GroupsNameAnyField) {
  const KernelSet set = kernel_set_from_json(R"({
    "name": "mine", "target": "sm90a",
    "groups": [{"dtype": ["bf16", "fp16"], "layout": "rcr", "variant": "standard", "stages": "4",
                "swap_ab": "true"}]
  })");
  KernelSetBuilder builder("mine", "sm90a");
  builder.gemm().dtype("bf16").dtype("fp16").layout("rcr").variant("standard");
  EXPECT_EQ(set, builder.where("stages", "4").where("swap_ab", "true").build());
  ASSERT_FALSE(set.specs.empty());
}

TEST(KernelSetJson, TakesKernelsAsObjects) {
  const KernelSpec spec = parse_name(kPlain);
  const KernelSet set =
      kernel_set_from_json(fmt::format(R"({{"name": "mine", "kernels": [{}]}})", to_json(spec)));
  EXPECT_EQ(set.specs, std::vector<KernelSpec>{spec});
}

TEST(KernelSetJson, RefusesMalformedText) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"[]", "kernel set: the document must be an object, got []"},
           Case{"{}", "kernel set: name is missing"},
           Case{R"({"name": 3})", "kernel set: name must be a string, got 3"},
           Case{R"({"name": "x", "kernel": []})",
                "kernel set: kernel is not a known field, did you mean 'kernels'?"},
           Case{R"({"name": "x", "kernels": 5})", "kernel set: kernels must be a list, got 5"},
           Case{R"({"name": "x", "kernels": [5]})",
                "kernel set: kernels[0] must be a kernel name or an object, got 5"},
           Case{R"({"name": "x", "groups": []})", "kernel set: target is missing"},
           Case{R"({"name": "x", "target": "avx2", "groups": [{"tiles": "*"}]})",
                "kernel set: groups[0].tiles is not a known field, did you mean 'tile'?"},
           Case{R"({"name": "x", "target": "avx2", "groups": [{"dtype": [1]}]})",
                "kernel set: groups[0].dtype[0] must be a string, got 1"},
           Case{R"({"name": "x", "target": "avx2", "groups": [{"op": "fmla"}]})",
                "kernel set: groups[0].op must be one of gemm, norm, conv, fmha, route, got "
                "\"fmla\", did "
                "you mean 'fmha'?"},
           Case{R"({"name": "x", "target": "avx2", "preselected": 7})",
                "kernel set: preselected must be a string or a list of strings, got 7"},
       }) {
    EXPECT_EQ(message_of([&] { kernel_set_from_json(c.text); }, ErrorCode::parse_error), c.message);
  }
}

TEST(KernelSetJson, NamesLineAndColumn) {
  const std::string text =
      message_of([] { kernel_set_from_json("{\n  \"name\": \"x\",\n  \"kernels\": [}\n"); },
                 ErrorCode::parse_error);
  EXPECT_EQ(text.rfind("kernel set: line 3, column 15: ", 0), 0U) << text;
}

TEST(KernelSetJson, NamesTheKernelThatDoesNotParse) {
  const std::string text =
      message_of([] { kernel_set_from_json(R"({"name": "x", "kernels": ["gemm_fp33_rcr"]})"); },
                 ErrorCode::parse_error);
  EXPECT_EQ(text.rfind("kernel set: kernels[0]: ", 0), 0U) << text;
}

}  // namespace
}  // namespace tessera
