// Kernel sets of attention: every field and the documented words, wildcards, JSON.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/spec/expect_error.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

const FmhaSignature& signature_in(const KernelSpec& spec) {
  return std::get<FmhaSignature>(spec.signature);
}

KernelSet set_of(std::string_view target, std::initializer_list<Wish> wishes) {
  KernelSetBuilder builder("mine", target);
  builder.op(Op::fmha);
  for (const Wish& wish : wishes) builder.where(wish.field, wish.pattern);
  return builder.build();
}

class FmhaKernelSets : public testing::TestWithParam<const char*> {
 protected:
  // How many kernels have the words, each of which must be as `fits` says, and none left out.
  void expect_those(std::initializer_list<Wish> wishes, bool (*fits)(const FmhaSignature&)) const {
    const KernelSet all = set_of(GetParam(), {});
    std::vector<KernelSpec> expected;
    for (const KernelSpec& spec : all.specs) {
      if (fits(signature_in(spec))) expected.push_back(spec);
    }
    EXPECT_GT(expected.size(), 0U);
    EXPECT_LT(expected.size(), all.specs.size());
    EXPECT_EQ(set_of(GetParam(), wishes).specs, expected) << wishes.begin()->field;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, FmhaKernelSets, testing::Values("avx512", "generic", "sm90a"),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(FmhaKernelSets, DocumentedWords) {
  using S = FmhaSignature;
  expect_those({{"dtype", "bf16"}}, [](const S& s) { return s.in == DType::bf16; });
  expect_those({{"mode", "batch"}}, [](const S& s) { return s.lengths == FmhaLengths::equal; });
  expect_those({{"mode", "group"}}, [](const S& s) { return s.lengths != FmhaLengths::equal; });
  expect_those({{"mask", "no"}}, [](const S& s) { return !s.masked; });
  expect_those({{"mask", "generic"}}, [](const S& s) { return s.masked; });
  expect_those({{"logits", "true"}}, [](const S& s) { return s.soft_cap; });
  expect_those({{"logits", "false"}}, [](const S& s) { return !s.soft_cap; });
  expect_those({{"lse", "true"}}, [](const S& s) { return s.lse; });
  expect_those({{"dropout", "true"}}, [](const S& s) { return s.dropout; });
}

TEST_P(FmhaKernelSets, OwnFields) {
  using S = FmhaSignature;
  expect_those({{"lengths", "pa*ed"}}, [](const S& s) { return s.lengths != FmhaLengths::equal; });
  expect_those({{"lengths", "packed"}},
               [](const S& s) { return s.lengths == FmhaLengths::packed; });
  expect_those({{"bias", "alibi"}}, [](const S& s) { return s.bias == FmhaBias::alibi; });
  expect_those({{"bias", "e*"}, {"bias", "alibi"}},
               [](const S& s) { return s.bias != FmhaBias::none; });
  expect_those({{"masked", "true"}, {"soft_cap", "true"}, {"in", "fp*"}},
               [](const S& s) { return s.masked && s.soft_cap && s.in != DType::bf16; });
}

TEST_P(FmhaKernelSets, StarsLeaveEverythingIn) {
  EXPECT_EQ(set_of(GetParam(), {{"dtype", "*"},
                                {"variant", "*"},
                                {"mode", "*"},
                                {"mask", "*"},
                                {"logits", "*"},
                                {"bias", "*"},
                                {"tile", "*x*x*"},
                                {"pipeline", "*"}}),
            set_of(GetParam(), {}));
}

// Each kernel of a set serves the problem that its words describe.
TEST_P(FmhaKernelSets, ServeWhatTheirWordsSay) {
  const Target target = load_target(GetParam());
  const Problem problem = parse_problem(
      "fmha batch=2 heads=4 heads_kv=2 seqlen_q=9 seqlen_k=17 hdim=40 lengths=packed "
      "mask=bottom_right window_left=3 bias=alibi soft_cap=20 lse=1 dtype=bf16");
  const KernelSet set = set_of(GetParam(), {{"dtype", "bf16"},
                                            {"mode", "group"},
                                            {"lengths", "packed"},
                                            {"mask", "generic"},
                                            {"bias", "alibi"},
                                            {"logits", "true"},
                                            {"lse", "true"},
                                            {"dropout", "false"}});
  ASSERT_FALSE(set.specs.empty());
  for (const KernelSpec& spec : set.specs) {
    // On GPUs kernels of latent attention serve long heads alone.
    const bool is_latent =
        spec.algorithm.pipeline == Pipeline::splitkv && spec.algorithm.tile.k > 256;
    EXPECT_EQ(family().supports(spec, problem, target).reason,
              is_latent
                  ? "tile 64x32x576 serves heads of more than 256 elements, got 40 (hdim) and "
                    "40 (hdim_v)"
                  : "")
        << name_of(spec);
  }
}

// hdim is the last number of a tile: the longest head that the kernel serves.
TEST(FmhaKernelSet, TilesOfAHead) {
  const KernelSet set = set_of("sm90a", {{"tile", "*x*x128"}, {"dtype", "fp16"}});
  ASSERT_FALSE(set.specs.empty());
  for (const KernelSpec& spec : set.specs) EXPECT_EQ(spec.algorithm.tile.k, 128);
  const KernelSet all = set_of("sm90a", {{"dtype", "fp16"}, {"variant", "forward"}});
  EXPECT_EQ(std::count_if(all.specs.begin(), all.specs.end(),
                          [](const KernelSpec& spec) { return spec.algorithm.tile.k == 128; }),
            std::ssize(set.specs));
}

TEST(FmhaKernelSet, FromJson) {
  const KernelSet set = kernel_set_from_json(R"({"name": "mine", "target": "sm90a",
    "groups": [{"op": "fmha", "dtype": ["fp16", "bf16"], "mode": "group", "lengths": "packed",
                "mask": "*", "bias": "none", "logits": "false", "lse": "true", "dropout": "false",
                "pipeline": "direct", "tile": "16x*x64"},
               {"op": "fmha", "dtype": "bf16", "mode": "batch", "mask": "generic", "bias": "alibi",
                "soft_cap": "true", "lse": "false", "dropout": "true", "tile": "*x*x576"}],
    "preselected": "forward_fp32_essential",
    "problems": ["fmha heads=2 seqlen_q=8 seqlen_k=8 hdim=200 dtype=fp16 soft_cap=9"]})");
  const std::vector<std::string> expected = {
      "fmha_forward_bf16_direct_16x32x576_4x1x1_1x1x1_masked_biasalibi_softcap_dropout_sm90a",
      "fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_packed_lse_sm90a",
      "fmha_forward_bf16_direct_16x32x64_4x1x1_1x1x1_packed_masked_lse_sm90a",
      "fmha_forward_fp16_direct_16x32x64_4x1x1_1x1x1_packed_lse_sm90a",
      "fmha_forward_fp16_direct_16x32x64_4x1x1_1x1x1_packed_masked_lse_sm90a",
      "fmha_forward_fp16_tmaws_128x64x256_2x1x1_1x1x1_softcap_s4_sm90a"};
  std::vector<std::string> names;
  for (const KernelSpec& spec : set.specs) {
    if (signature_in(spec).in != DType::fp32) names.push_back(name_of(spec));
  }
  EXPECT_EQ(names, expected);
  const auto shipped = family().preselected("forward_fp32_essential", load_target("sm90a"));
  EXPECT_EQ(set.specs.size(), expected.size() + shipped.size());
  EXPECT_EQ(kernel_set_from_json(to_json(set)), set);
}

TEST(FmhaKernelSet, WrongWords) {
  const auto refuse = [](ErrorCode code, std::string_view field, std::string_view pattern,
                         const std::string& sentence) {
    expect_error(code, sentence,
                 [&] { KernelSetBuilder("mine", "avx512").op(Op::fmha).where(field, pattern); });
  };
  refuse(ErrorCode::parse_error, "mode", "batched",
         "unknown mode 'batched', did you mean 'batch'?");
  refuse(ErrorCode::parse_error, "mask", "top_left",
         "unknown mask 'top_left': it must be one of no, generic");
  refuse(ErrorCode::parse_error, "logits", "yes",
         "unknown logits 'yes': it must be one of false, true");
  refuse(ErrorCode::parse_error, "bias", "alibbi", "unknown bias 'alibbi', did you mean 'alibi'?");
  refuse(ErrorCode::invalid_argument, "lse", "yes", "lse must be true or false, got 'yes'");
  refuse(ErrorCode::invalid_argument, "tile", "128x128",
         "tile must be three numbers or '*' such as 128x*x64, got '128x128'");
  refuse(ErrorCode::invalid_argument, "stages", "many",
         "stages must be a number or '*', got 'many'");
}

}  // namespace
}  // namespace tessera::fmha
