#include "tessera/learn/ranker.h"

#include <gtest/gtest.h>

#include <cmath>

#include "host/learn/models.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// x0 is m, x1 the number of stages; the candidates differ in nothing else.
void extract(const Problem& problem, const Target&, int, std::span<const KernelSpec> specs,
             std::span<double> columns, std::span<const FeatureUse>) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    columns[i] = static_cast<double>(std::get<GemmProblem>(problem).m);
    columns[specs.size() + i] = specs[i].algorithm.stages;
  }
}

// Left of x0 <= 100 the kernel with one stage takes exp(1.25) s and all others exp(2.25) s; right
// of it all take exp(4.25) s.
std::shared_ptr<const Model> model_of(Manifest manifest) {
  const std::string text = edited(kSmall, "threshold=0.5", "threshold=100");
  manifest.model_hash = hash_hex(text);
  return std::make_shared<const Model>(make_model(to_json(manifest), text, kSmallUse, "small"));
}

class ModelRanker : public testing::Test {
 protected:
  ModelRanker() {
    for (const int stages : {2, 1, 3}) {
      KernelSpec spec = parse_name("gemm_fp32_rcr_packb_96x384x256_1x1x1_12x32x1_avx512");
      spec.algorithm.stages = stages;
      legal_.push_back(spec);
    }
  }
  RankInput input() const { return {problem_, target_, 1, legal_}; }

  Problem problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 64, 64);
  Target target_ = load_target("avx512");
  std::vector<KernelSpec> legal_;
};

TEST_F(ModelRanker, OrdersByPredictedTime) {
  const auto ranker = make_model_ranker(model_of(small_manifest()), extract);
  const std::vector<Ranked> ranked = ranker->rank(input());
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked[0].index, 1u);
  EXPECT_EQ(ranked[0].predicted_seconds, std::exp(1.25));
  EXPECT_EQ(ranked[1].predicted_seconds, std::exp(2.25));
  EXPECT_EQ(ranker->source(), ChoiceSource::learned);
  EXPECT_EQ(ranker->why_not(input()), "");
}

TEST_F(ModelRanker, ThroughputBecomesTime) {
  Manifest manifest = small_manifest();
  manifest.quantity = ModelQuantity::tflops;
  manifest.transform = ModelTransform::log1p;
  const auto ranked = make_model_ranker(model_of(manifest), extract)->rank(input());
  EXPECT_EQ(ranked.at(0).index, 0u);  // more is better: exp(2.25), the first of two equal ones
  EXPECT_EQ(ranked[0].predicted_seconds, 2.0 * 64 * 64 * 64 / (std::expm1(2.25) * 1e12));
  EXPECT_EQ(ranked.at(2).index, 1u);
}

TEST_F(ModelRanker, RanksAreNoTimes) {
  Manifest manifest = small_manifest();
  manifest.quantity = ModelQuantity::rank;
  manifest.transform = ModelTransform::none;
  const auto ranked = make_model_ranker(model_of(manifest), extract)->rank(input());
  EXPECT_EQ(ranked.at(0).index, 0u);
  EXPECT_EQ(ranked[0].predicted_seconds, 0);
}

TEST_F(ModelRanker, NoOpinionAndWhy) {
  const auto why_not = [&](const Manifest& manifest) {
    const auto ranker = make_model_ranker(model_of(manifest), extract);
    EXPECT_TRUE(ranker->rank(input()).empty());
    return ranker->why_not(input());
  };
  problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 8, 64, 64);
  EXPECT_EQ(why_not(small_manifest()),
            "the learned model has no opinion: x0 = 8 is 8 below the 16 to 4096 that were trained");
  GemmProblem arrays = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 64, 64);
  arrays.pointer_arrays = true;
  problem_ = arrays;
  EXPECT_EQ(why_not(small_manifest()),
            "the learned model has no opinion: no feature describes pointer_arrays");
  problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 64, 64);
  Manifest manifest = small_manifest();
  manifest.dtypes = {"bf16", "fp32_fp32"};
  EXPECT_EQ(why_not(manifest),
            "the learned model has no opinion: it is for bf16, fp32_fp32, not for kernels such as "
            "gemm_fp32_rcr_packb_96x384x256_1x1x1_12x32x1_s2_avx512");
  target_ = load_target("avx2");
  EXPECT_EQ(why_not(small_manifest()),
            "the learned model has no opinion: it is for gemm on avx512");
}

// A kernel that no feature describes goes beside the model's best, whatever the model says of it.
TEST_F(ModelRanker, PlacesUndescribedKernelsByTheRatioOfEstimates) {
  legal_.push_back(parse_name("gemm_fp32_rcr_small_3072x32x1_1x1x1_12x32x1_avx512"));
  const std::size_t small = legal_.size() - 1;
  const Family& family = family_of(problem_);
  const auto estimated = [&](std::size_t i) {
    return family.estimate(legal_[i], problem_, target_, 1).seconds;
  };
  const double ratio = 1.05 * estimated(small) / estimated(1);
  ASSERT_LT(ratio, 1);
  const auto ranker = make_model_ranker(model_of(small_manifest()), extract);
  const auto times = ranker->rank(input());
  ASSERT_EQ(times.size(), 4u);
  EXPECT_EQ(ranker->why(input(), times[0]),
            "by the estimate before the first by the learned model among 4 legal candidates");
  EXPECT_EQ(times[0].index, small);
  EXPECT_EQ(times[0].predicted_seconds, std::exp(1.25) * ratio);
  EXPECT_EQ(times[1].index, 1u);
  EXPECT_EQ(times[1].predicted_seconds, std::exp(1.25));

  Manifest manifest = small_manifest();
  manifest.quantity = ModelQuantity::rank;
  manifest.transform = ModelTransform::none;
  const auto ranks = make_model_ranker(model_of(manifest), extract)->rank(input());
  EXPECT_EQ(ranks.at(0).index, small);

  legal_.erase(legal_.begin(), legal_.end() - 1);
  EXPECT_TRUE(make_model_ranker(model_of(manifest), extract)->rank(input()).empty());
}

// x0 counts the steps, of which only plain problems were learned.
void extract_steps(const Problem& problem, const Target&, int, std::span<const KernelSpec> specs,
                   std::span<double> columns, std::span<const FeatureUse>) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    columns[i] = num_ops(std::get<GemmProblem>(problem).epilogue);
    columns[specs.size() + i] = specs[i].algorithm.stages;
  }
}

TEST_F(ModelRanker, IsAskedWithoutAnEpilogueThatItNeverSaw) {
  Manifest manifest = small_manifest();
  manifest.ranges = {{"x0", 0, 0}};
  const auto ranker = make_model_ranker(model_of(manifest), extract_steps);
  const std::vector<Ranked> plain = ranker->rank(input());
  EXPECT_EQ(ranker->why(input(), plain.at(0)).find("plain"), std::string::npos);

  const std::vector<KernelSpec> bare = legal_;
  const Problem without = problem_;
  GemmProblem fused = std::get<GemmProblem>(problem_);
  fused.epilogue = parse_epilogue("bias+gelu");
  problem_ = fused;
  for (KernelSpec& spec : legal_) spec.signature = signature_of(problem_);
  const std::vector<Ranked> ranked = ranker->rank(input());
  ASSERT_EQ(ranked.size(), plain.size());
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    EXPECT_EQ(ranked[i].index, plain[i].index);
    const std::size_t index = ranked[i].index;
    const Family& family = family_of(problem_);
    const double longer = family.estimate(legal_[index], problem_, target_, 1).seconds /
                          family.estimate(bare[index], without, target_, 1).seconds;
    EXPECT_GT(longer, 1);
    EXPECT_EQ(ranked[i].predicted_seconds, plain[i].predicted_seconds * longer);
  }
  EXPECT_NE(ranker->why(input(), ranked[0]).find("asked about the plain problem"),
            std::string::npos);
  EXPECT_EQ(ranker->why_not(input()), "");
}

// Another core has other times for the same features; what cores share does not count.
TEST_F(ModelRanker, AnotherCore) {
  Manifest manifest = small_manifest();
  manifest.machine = to_json(target_);
  const auto ranker = make_model_ranker(model_of(manifest), extract);
  const auto why_not = [&](auto&& change) {
    Target here = target_;
    change(here);
    return ranker->why_not({problem_, here, 1, legal_});
  };
  const std::string opening = "the learned model has no opinion: it was trained on a core with ";
  EXPECT_EQ(why_not([](Target& t) { t.caches.at(2).bytes *= 2; }), "");
  EXPECT_EQ(why_not([](Target& t) { t.units = 64; }), "");
  EXPECT_EQ(why_not([](Target& t) { t.caches.at(1).bytes = 2097152; }),
            opening + "1048576 bytes of l2, this one has 2097152");
  EXPECT_EQ(why_not([](Target& t) { t.instructions.at(0).per_cycle = 1; }),
            opening + "other rates of instructions");
  EXPECT_EQ(why_not([](Target& t) { std::erase(t.features, "avx512bf16"); }),
            opening +
                "avx512f avx512bw avx512vl avx512dq fma f16c avx512bf16 avx512vnni amxtile amxint8 "
                "amxbf16, this one has avx512f avx512bw avx512vl avx512dq fma f16c avx512vnni "
                "amxtile amxint8 amxbf16");
}

// On a GPU the row's name says it all.
TEST_F(ModelRanker, AnotherCacheOfAGpu) {
  target_ = load_target("sm90a");
  legal_ = {parse_name("gemm_fp32_rcr_cpasync_16x64x32_1x4x1_16x8x8_s3_sm90a")};
  legal_[0].algorithm.stages = 1;
  Manifest manifest = small_manifest();
  manifest.target = "sm90a";
  manifest.machine = to_json(target_);
  const std::string text = edited(kSmall, "threshold=0.5", "threshold=100");
  manifest.model_hash = hash_hex(text);
  ModelUse use = kSmallUse;
  use.target = "sm90a";
  const auto model = std::make_shared<const Model>(make_model(to_json(manifest), text, use, "gpu"));
  for (CacheLevel& cache : target_.caches) cache.bytes *= 2;
  EXPECT_EQ(make_model_ranker(model, extract)->why_not(input()), "");
}

// What `tessera explain` prints: the next ranker's choice, and why the model did not choose.
TEST_F(ModelRanker, ExplainTellsThatTheModelWasPassedOver) {
  const Problem tiny = gemm_problem(DType::fp32, GemmLayout::rcr, 8, 640, 640);
  ChooseOptions options;
  options.rankers = {make_model_ranker(model_of(small_manifest()), extract),
                     make_first_legal_ranker()};
  const Decision decision = choose(tiny, target_, options);
  EXPECT_EQ(decision.source, ChoiceSource::first_legal);
  const std::string clause =
      "; the learned model has no opinion: x0 = 8 is 8 below the 16 to 4096 that were trained";
  EXPECT_TRUE(decision.why.ends_with(clause)) << decision.why;
  EXPECT_NE(explain(tiny, target_, decision).find(clause), std::string::npos);
}

}  // namespace
}  // namespace tessera
