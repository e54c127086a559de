// What the shipped models choose, by name, on the machines that they were trained for. A model that
// is trained anew may choose otherwise; then its rows move with it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <set>

#include "tessera/base/embedded.h"
#include "tessera/learn/model_library.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

struct Choice {
  const char* model;
  const char* problem;
  const char* kernel;
};

const Choice kChoices[] = {
    {"gemm_avx512_fp32", "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x4096x512_0x0x1_8x32x1_avx512"},
    {"gemm_avx512_fp32", "gemm m=512 n=768 k=3072",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_8x32x1_avx512"},
    {"gemm_avx512_fp32", "gemm m=333 n=77 k=1001",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_12x32x1_avx512"},
    {"gemm_avx512_fp32.emerald_rapids", "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_stream_8x4096x512_0x0x1_8x32x1_avx512"},
    {"gemm_avx512_fp32.emerald_rapids", "gemm m=512 n=768 k=3072",
     "gemm_fp32_rcr_packab_960x960x1024_0x0x1_8x48x1_avx512"},
    {"gemm_avx512_fp32.emerald_rapids", "gemm m=333 n=77 k=1001",
     "gemm_fp32_rcr_packb_960x960x1024_0x0x1_12x32x1_avx512"},
    {"gemm_avx512_bf16", "gemm m=1 n=4096 k=4096 dtype=bf16",
     "gemm_bf16_rcr_stream_8x4096x512_0x0x1_8x16x2_avx512"},
    {"gemm_avx512_bf16", "gemm m=512 n=768 k=3072 dtype=bf16",
     "gemm_bf16_rcr_packb_96x960x2048_0x0x1_8x32x2_avx512"},
    {"gemm_avx512_bf16", "gemm m=333 n=77 k=1001 dtype=bf16",
     "gemm_bf16_rcr_packb_96x960x2048_0x0x1_8x32x2_avx512"},
    {"gemm_avx512_int8", "gemm m=1 n=4096 k=4096 dtype=int8",
     "gemm_int8_rcr_stream_8x4096x512_0x0x1_8x32x4_avx512"},
    {"gemm_avx512_int8", "gemm m=512 n=768 k=3072 dtype=int8",
     "gemm_int8_rcr_packb_96x960x2048_0x0x1_8x32x4_avx512"},
    {"gemm_avx512_int8", "gemm m=333 n=77 k=1001 dtype=int8",
     "gemm_int8_rcr_packb_960x960x1024_0x0x1_8x32x4_avx512"},
    {"gemm_sm90a_bf16", "gemm m=1 n=4096 k=4096 dtype=bf16",
     "gemm_bf16_rcr_tmaws_64x8x128_1x1x1_64x8x16_cooperative_splitordered2_s5_swap_sm90a"},
    {"gemm_sm90a_bf16", "gemm m=512 n=768 k=3072 dtype=bf16",
     "gemm_bf16_rcr_tmaws_64x64x64_2x1x1_64x64x16_pingpong_s10_sm90a"},
    {"gemm_sm90a_bf16", "gemm m=2048 n=2048 k=2048 dtype=bf16",
     "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_sm90a"},
    {"gemm_sm90a_bf16", "gemm m=333 n=77 k=1001 dtype=bf16",
     "gemm_bf16_rcr_tmaws_64x8x128_1x1x1_64x8x16_cooperative_s8_repack_sm90a"},
    {"gemm_sm90a_fp32", "gemm m=1 n=4096 k=4096",
     "gemm_fp32_rcr_cpasync_32x128x32_1x4x1_8x4x1_splitordered1_slices4_s3_sm90a"},
    {"gemm_sm90a_fp32", "gemm m=4096 n=4096 k=8",
     "gemm_fp32_rcr_cpasync_64x64x32_2x1x1_8x8x1_s3_sm90a"},
    {"gemm_sm90a_fp32", "gemm m=2048 n=2048 k=2048",
     "gemm_fp32_rcr_cpasync_128x128x32_2x4x1_8x8x1_s3_sm90a"},
    {"gemm_sm90a_fp32", "gemm m=333 n=77 k=1001",
     "gemm_fp32_rcr_cpasync_64x32x32_1x4x1_4x4x1_splitordered1_slices4_s3_sm90a"},
    {"gemm_sm90a_fp16", "gemm m=1 n=4096 k=4096 dtype=fp16",
     "gemm_fp16_rcr_tmaws_64x8x128_1x1x1_64x8x16_cooperative_splitordered2_s6_swap_sm90a"},
    {"gemm_sm90a_fp16", "gemm m=512 n=768 k=3072 dtype=fp16",
     "gemm_fp16_rcr_tmaws_64x64x64_2x1x1_64x64x16_pingpong_s10_sm90a"},
    {"gemm_sm90a_fp16", "gemm m=2048 n=2048 k=2048 dtype=fp16",
     "gemm_fp16_rcr_tmaws_128x256x64_2x1x1_64x256x16_cooperative_s4_sm90a"},
    {"gemm_sm90a_fp16", "gemm m=333 n=77 k=1001 dtype=fp16",
     "gemm_fp16_rcr_tmaws_64x8x128_1x1x1_64x8x16_cooperative_s8_repack_sm90a"},
    {"gemm_sm90a_fp8", "gemm m=1 n=4096 k=4096 dtype=fp8",
     "gemm_fp8_rcr_tmaws_64x16x256_1x1x1_64x16x32_cooperative_s8_swap_sm90a"},
    {"gemm_sm90a_fp8", "gemm m=512 n=768 k=3072 dtype=fp8",
     "gemm_fp8_rcr_tmaws_64x64x128_2x1x1_64x64x32_pingpong_s10_sm90a"},
    {"gemm_sm90a_fp8", "gemm m=2048 n=2048 k=2048 dtype=fp8",
     "gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_pingpong_s6_sm90a"},
    {"gemm_sm90a_fp8", "gemm m=333 n=77 k=1001 dtype=fp8",
     "gemm_fp8_rcr_tmaws_64x16x256_1x1x1_64x16x32_cooperative_s6_repack_sm90a"},
    {"gemm_sm90a_fp8_scaled",
     "gemm m=64 n=4096 k=7168 dtype=fp8 out=bf16 scale_a=1x128 scale_b=128x128",
     "gemm_fp8_rcr_tmaws_64x32x128_1x1x1_64x32x32_outbf16_scalea1x128_scaleb128x128_cooperative_"
     "s10_swap_sm90a"},
    {"gemm_sm90a_fp8_scaled",
     "gemm m=4096 n=7168 k=2048 dtype=fp8 out=bf16 scale_a=1x128 scale_b=128x128",
     "gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outbf16_scalea1x128_scaleb128x128_cooperative_"
     "s4_sm90a"},
    {"gemm_sm90a_fp8_grouped_scaled",
     "gemm m=64 n=4096 k=7168 dtype=fp8 out=bf16 groups=32 grouping=masked scale_a=1x128 "
     "scale_b=128x128",
     "gemm_fp8_rcr_tmaws_64x32x128_1x1x1_64x32x32_outbf16_groupsmasked_scalea1x128_scaleb128x128_"
     "cooperative_s3_swap_sm90a"},
    {"gemm_sm90a_fp8_grouped_scaled",
     "gemm m=8192 n=1536 k=2048 dtype=fp8 out=bf16 groups=128 grouping=contiguous scale_a=1x128 "
     "scale_b=128x128",
     "gemm_fp8_rcr_tmaws_64x64x128_1x1x1_64x64x32_outbf16_groupscontiguous_scalea1x128_"
     "scaleb128x128_cooperative_s5_sm90a"},
    {"gemm_sm90a_bf16_grouped",
     "gemm m=65536 n=1536 k=2048 dtype=bf16 groups=128 grouping=contiguous",
     "gemm_bf16_rcr_tmaws_128x128x64_2x1x1_64x128x16_groupscontiguous_pingpong_s6_sm90a"},
    {"gemm_sm90a_bf16_grouped", "gemm m=64 n=1536 k=2048 dtype=bf16 groups=128 grouping=masked",
     "gemm_bf16_rcr_tmaws_64x128x64_2x1x1_64x128x16_groupsmasked_pingpong_s8_sm90a"},
    {"gemm_sm90a_bf16_grouped",
     "gemm m=2048 n=1536 k=65536 dtype=bf16 layout=crr groups=128 grouping=along_k",
     "gemm_bf16_crr_tmaws_128x192x64_2x1x1_64x192x16_groupsalongk_pingpong_s4_sm90a"},
    {"gemm_sm90a_bf16_grouped", "gemm m=333 n=77 k=1001 dtype=bf16 groups=9 grouping=contiguous",
     "gemm_bf16_rcr_cpasync_64x64x64_2x4x1_16x8x16_groupscontiguous_s3_sm90a"},
    {"conv_avx512_forward_fp32",
     "conv direction=forward n=8 c=64 k=64 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
     "conv_forward_fp32_nhwgc_2d_packab_14x512x576_0x0x1_14x32x1_avx512"},
    {"conv_avx512_forward_fp32",
     "conv direction=forward n=4 c=96 k=96 g=96 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3",
     "conv_forward_fp32_nhwgc_2d_depthwise_1x1x1_0x0x1_7x32x7_avx512"},
    {"conv_avx512_forward_fp32", "conv direction=forward n=4 c=256 k=64 h=28 w=28",
     "conv_forward_fp32_nhwgc_2d_packb_96x960x2048_0x0x1_8x32x1_pointwise_avx512"},
    {"conv_avx512_backward_data_fp32",
     "conv direction=backward_data n=8 c=64 k=64 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
     "conv_backwarddata_fp32_nhwgc_2d_packab_14x512x576_0x0x1_14x32x1_avx512"},
    {"conv_avx512_backward_data_fp32",
     "conv direction=backward_data n=4 c=96 k=96 g=96 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3",
     "conv_backwarddata_fp32_nhwgc_2d_depthwise_1x1x1_0x0x1_7x32x7_avx512"},
    {"conv_avx512_backward_data_fp32", "conv direction=backward_data n=4 c=256 k=64 h=28 w=28",
     "conv_backwarddata_fp32_nhwgc_2d_packb_96x960x2048_0x0x1_8x32x1_pointwise_avx512"},
    {"conv_avx512_backward_weight_fp32",
     "conv direction=backward_weight n=8 c=64 k=64 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
     "conv_backwardweight_fp32_nhwgc_2d_packab_224x1024x576_0x0x1_14x32x1_avx512"},
    {"conv_avx512_backward_weight_fp32",
     "conv direction=backward_weight n=4 c=96 k=96 g=96 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3",
     "conv_backwardweight_fp32_nhwgc_2d_depthwise_1x1x1_0x0x1_7x32x7_avx512"},
    {"conv_avx512_backward_weight_fp32", "conv direction=backward_weight n=4 c=256 k=64 h=28 w=28",
     "conv_backwardweight_fp32_nhwgc_2d_direct_960x960x1024_0x0x1_12x32x1_pointwise_avx512"},
    {"conv_sm90a_forward_bf16",
     "conv direction=forward n=32 c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16",
     "conv_forward_bf16_nhwgc_2d_tmaws_256x64x64_2x1x1_64x64x16_cooperative_s5_sm90a"},
    {"conv_sm90a_forward_bf16", "conv direction=forward n=32 c=512 k=2048 h=7 w=7 dtype=bf16",
     "conv_forward_bf16_nhwgc_2d_tmaws_128x128x64_2x1x1_64x128x16_pingpong_s6_repack_pointwise_"
     "sm90a"},
    {"conv_sm90a_forward_bf16",
     "conv direction=forward n=32 c=192 k=192 g=192 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3 dtype=bf16",
     "conv_forward_bf16_nhwgc_2d_depthwise_112x64x1_2x2x1_4x7x7_sm90a"},
    {"conv_sm90a_backward_data_bf16",
     "conv direction=backward_data n=32 c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16",
     "conv_backwarddata_bf16_nhwgc_2d_tmaws_256x64x64_2x1x1_64x64x16_cooperative_s5_sm90a"},
    {"conv_sm90a_backward_data_bf16",
     "conv direction=backward_data n=32 c=512 k=2048 h=7 w=7 dtype=bf16",
     "conv_backwarddata_bf16_nhwgc_2d_tmaws_64x128x64_2x1x1_64x128x16_pingpong_s8_repack_pointwise_"
     "sm90a"},
    {"conv_sm90a_backward_data_bf16",
     "conv direction=backward_data n=32 c=192 k=192 g=192 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3 "
     "dtype=bf16",
     "conv_backwarddata_bf16_nhwgc_2d_depthwise_112x64x1_2x2x1_4x7x7_sm90a"},
    {"conv_sm90a_backward_weight_bf16",
     "conv direction=backward_weight n=32 c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1 dtype=bf16",
     "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x192x64_1x1x1_64x192x16_cooperative_splitordered1_"
     "slices44_s6_sm90a"},
    {"conv_sm90a_backward_weight_bf16",
     "conv direction=backward_weight n=32 c=512 k=2048 h=7 w=7 dtype=bf16",
     "conv_backwardweight_bf16_nhwgc_2d_tmaws_64x128x64_2x1x1_64x128x16_pingpong_s8_repack_"
     "pointwise_sm90a"},
    {"conv_sm90a_backward_weight_bf16",
     "conv direction=backward_weight n=32 c=192 k=192 g=192 h=28 w=28 y=7 x=7 pad_h=3 pad_w=3 "
     "dtype=bf16",
     "conv_backwardweight_bf16_nhwgc_2d_depthwise_64x128x1_2x2x1_8x4x7_splitordered1_slices64_"
     "sm90a"},
    {"fmha_sm90a_forward_bf16",
     "fmha heads=16 seqlen_q=4096 seqlen_k=4096 hdim=128 mask=top_left dtype=bf16",
     "fmha_forward_bf16_tmaws_128x128x128_2x1x1_1x1x1_masked_s4_sm90a"},
    {"fmha_sm90a_forward_bf16",
     "fmha batch=8 heads=12 seqlen_q=512 seqlen_k=512 hdim=64 dtype=bf16",
     "fmha_forward_bf16_tmaws_128x128x64_2x1x1_1x1x1_s6_sm90a"},
    {"fmha_sm90a_forward_bf16",
     "fmha heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192 hdim=128 dtype=bf16",
     "fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_slices132_s3_sm90a"},
    {"fmha_sm90a_backward_bf16",
     "fmha kind=backward batch=2 heads=16 seqlen_q=4096 seqlen_k=4096 hdim=128 dtype=bf16 "
     "mask=top_left",
     "fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_masked_splitatomic1_s3_sm90a"},
    {"fmha_sm90a_backward_bf16",
     "fmha kind=backward batch=8 heads=12 seqlen_q=512 seqlen_k=512 hdim=64 dtype=bf16",
     "fmha_backward_bf16_tmaws_128x128x64_2x1x1_1x1x1_splitatomic1_s3_sm90a"},
};

Manifest manifest_of(const std::string& model) {
  for (const EmbeddedFile& file : shipped_models()) {
    if (file.path == model + "/manifest.json") return parse_manifest(file.content, file.path);
  }
  ADD_FAILURE() << "no model " << model << " is shipped";
  return {};
}

TEST(ShippedModels, ChooseTheseKernels) {
  const auto library = std::make_shared<const ModelLibrary>("");
  for (const Choice& choice : kChoices) {
    const Manifest manifest = manifest_of(choice.model);
    const Target target = manifest.machine.empty() ? load_target(manifest.target)
                                                   : target_from_json(manifest.machine);
    ChooseOptions options;
    options.threads = manifest.threads;
    options.rankers = {make_library_ranker(library), make_analytic_ranker()};
    const Decision decision = choose(parse_problem(choice.problem), target, options);
    EXPECT_EQ(decision.name, choice.kernel) << choice.model << ": " << choice.problem;
    EXPECT_EQ(decision.source, ChoiceSource::learned)
        << choice.model << ": " << choice.problem << ": " << decision.why;
  }
}

// What may not come first is left out early where only the first is wanted.
TEST(ShippedModels, TheFirstIsTheSameWhereOnlyItIsWanted) {
  const auto ranker = make_library_ranker(std::make_shared<const ModelLibrary>(""));
  const Target target = load_target("sm90a");
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<const char*> all) {
    return all.begin()[random() % all.size()];
  };
  for (int i = 0; i < 60; ++i) {
    const auto size = [&] { return 8 * (1 + random() % (1U << (1 + random() % 9))); };
    const Problem problem = parse_problem(fmt::format(
        "gemm m={} n={} k={} dtype={} epilogue={}", size(), size(), size(),
        one_of({"bf16", "fp16", "fp8", "int8"}), one_of({"none", "bias+gelu", "silu", "add"})));
    const Family& family = family_of(problem);
    std::vector<KernelSpec> legal = family.legal_candidates(problem, target);
    std::erase_if(legal,
                  [&](const KernelSpec& spec) { return !family.supports(spec, problem, target); });
    RankInput input{problem, target, target.units, legal};
    const std::vector<Ranked> all = ranker->rank(input);
    input.only_best = true;
    const std::vector<Ranked> best = ranker->rank(input);
    ASSERT_EQ(all.empty(), best.empty()) << to_string(problem);
    if (all.empty()) continue;
    EXPECT_EQ(best[0].index, all[0].index) << to_string(problem);
    EXPECT_EQ(best[0].predicted_seconds, all[0].predicted_seconds) << to_string(problem);
    EXPECT_LT(best.size(), all.size() / 2) << to_string(problem);
  }
}

Decision decide_on_hopper(const std::string& problem, bool deterministic = false) {
  ChooseOptions options;
  options.deterministic = deterministic;
  options.rankers = {make_library_ranker(std::make_shared<const ModelLibrary>("")),
                     make_analytic_ranker()};
  return choose(parse_problem(problem), load_target("sm90a"), options);
}

// Models have rated the kernels whose sums have no order as well, so that these are mostly first.
TEST(ShippedModels, GradientsAreAddedInOrderWhereAsked) {
  for (const std::string types : {"bf16", "fp16"}) {
    for (const std::string sizes :
         {"batch=2 heads=16 seqlen_q=4096 seqlen_k=4096 hdim=128 mask=top_left",
          "batch=8 heads=12 seqlen_q=512 seqlen_k=512 hdim=64",
          "batch=4 heads=32 heads_kv=8 seqlen_q=1000 seqlen_k=1000 hdim=96 mask=bottom_right"}) {
      const std::string line = "fmha kind=backward dtype=" + types + " " + sizes;
      const Decision any = decide_on_hopper(line);
      EXPECT_EQ(any.source, ChoiceSource::learned) << line << ": " << any.why;
      EXPECT_EQ(any.spec.algorithm.pipeline, Pipeline::tmaws) << any.name;
      const Decision ordered = decide_on_hopper(line, true);
      EXPECT_EQ(ordered.source, ChoiceSource::learned) << line << ": " << ordered.why;
      EXPECT_EQ(ordered.spec.algorithm.pipeline, Pipeline::tmaws) << ordered.name;
      EXPECT_EQ(ordered.spec.algorithm.split_k, SplitK::ordered) << ordered.name;
    }
  }
}

// A model answers for what it has learned and for what its family puts in its place.
TEST(ShippedModels, AttentionBesideWhatWasLearned) {
  for (const std::string line : {
           "fmha batch=4 heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192 hdim=128 lengths=padded "
           "dtype=bf16",
           "fmha batch=4 heads=32 heads_kv=8 seqlen_q=4 seqlen_k=8192 hdim=128 lengths=padded "
           "dtype=bf16 mask=bottom_right",
           "fmha batch=16 heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192 hdim=128 lengths=padded "
           "dtype=bf16 pages=table page_size=64",
           "fmha heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192 hdim=128 dtype=bf16 num_splits=4",
           "fmha batch=2 heads=32 seqlen_q=2048 seqlen_k=2048 hdim=128 lengths=padded dtype=fp16 "
           "mask=top_left bias=alibi lse=1",
           "fmha kind=extend batch=4 heads=32 heads_kv=8 seqlen_q=2 seqlen_k=4096 hdim=128 "
           "dtype=bf16 lengths=padded mask=bottom_right rotary=half rotate_q=1",
       }) {
    const Decision decision = decide_on_hopper(line);
    EXPECT_EQ(decision.source, ChoiceSource::learned) << line << ": " << decision.why;
    EXPECT_NE(decision.spec.algorithm.pipeline, Pipeline::direct) << decision.name;
  }
  for (const std::string line : {
           "fmha heads=1 seqlen_q=500000 seqlen_k=500000 hdim=128 dtype=bf16",
           "fmha heads=16 seqlen_q=0 seqlen_k=77 hdim=64 dtype=bf16",
           "fmha batch=16 heads=16 heads_kv=1 seqlen_q=1 seqlen_k=8192 hdim=576 hdim_v=512 "
           "v_in_k=1 dtype=bf16",
           "fmha batch=4 heads=16 seqlen_q=4096 seqlen_k=4096 hdim=128 dtype=fp8 out=bf16",
           "fmha heads=16 seqlen_q=64 seqlen_k=64 hdim=64",
       }) {
    const Decision decision = decide_on_hopper(line);
    EXPECT_EQ(decision.source, ChoiceSource::analytic) << line << ": " << decision.why;
  }
}

TEST(ShippedModels, EachHasChoicesInTheTable) {
  std::set<std::string> tested;
  for (const Choice& choice : kChoices) tested.insert(choice.model);
  for (const EmbeddedFile& file : shipped_models()) {
    const std::string model(file.path.substr(0, file.path.find('/')));
    EXPECT_TRUE(tested.contains(model)) << model;
  }
}

}  // namespace
}  // namespace tessera
