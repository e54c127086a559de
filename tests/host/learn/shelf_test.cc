#include "tessera/learn/shelf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "host/learn/models.h"
#include "tessera/base/embedded.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// A forest of one leaf over the features of today, and a manifest for fp32 on avx512.
struct ConstantModel {
  std::string manifest;
  std::string forest;
};

ConstantModel constant_model(double log_seconds, const std::string& hash = "") {
  const std::span<const Feature> features = family_of(Op::gemm).features();
  Manifest m = small_manifest();
  m.features.clear();
  m.ranges.clear();
  std::string infos;
  for (const Feature& feature : features) {
    m.features.emplace_back(feature.name);
    infos += infos.empty() ? "none" : " none";
    if (feature.group == FeatureGroup::problem) {
      m.ranges.push_back({std::string(feature.name), -1e6, 1e15});
    }
  }
  m.ranges[0].min = 16;  // of m
  m.feature_hash = hash.empty() ? feature_hash_text(features) : hash;
  ConstantModel model;
  model.forest = fmt::format(
      "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
      "max_feature_idx={}\nobjective=regression\nfeature_names={}\nfeature_infos={}\n"
      "tree_sizes=60\n\nTree=0\nnum_leaves=1\nnum_cat=0\nleaf_value={}\nis_linear=0\n"
      "shrinkage=1\n\n\nend of trees\n",
      features.size() - 1, fmt::join(m.features, " "), infos, log_seconds);
  m.model_hash = hash_hex(model.forest);
  model.manifest = to_json(m);
  return model;
}

class Shelf : public testing::Test {
 protected:
  Shelf() {
    set_log_sink([this](LogLevel, std::string_view text) { notes_.emplace_back(text); });
  }
  ~Shelf() override {
    set_log_sink({});
    remove_tree(own_);
  }

  std::vector<EmbeddedFile> shipped(const ConstantModel& model) const {
    return {{"gemm_avx512_fp32/manifest.json", model.manifest},
            {"gemm_avx512_fp32/model.txt", model.forest}};
  }
  Decision decide(const ModelShelf& shelf, const Problem& problem) const {
    const auto borrowed = std::shared_ptr<const ModelShelf>(std::shared_ptr<void>(), &shelf);
    ChooseOptions options;
    options.threads = 1;
    options.rankers = {make_shelf_ranker(borrowed), make_analytic_ranker()};
    return choose(problem, target_, options);
  }
  std::string without_folder(std::string text) const {
    const auto at = text.find(own_.string());
    return at == std::string::npos ? text : text.replace(at, own_.string().size(), "OWN");
  }

  fs::path own_ = make_unique_folder(fs::temp_directory_path(), "tessera-shelf-test-");
  std::vector<std::string> notes_;
  Target target_ = load_target("avx512");
  Problem problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 512, 512, 512);
};

TEST_F(Shelf, ShippedModelDecides) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const ModelShelf shelf("", files);
  const Decision decision = decide(shelf, problem_);
  EXPECT_EQ(decision.source, ChoiceSource::learned);
  EXPECT_EQ(decision.predicted_seconds, std::exp(-7.0));
  EXPECT_TRUE(decision.why.starts_with("least time by the learned model among ")) << decision.why;
  EXPECT_TRUE(notes_.empty());
}

// Tensor cores take fp16 and bf16 alike; a CPU multiplies fp16 as fp32. For 64 rows there are no
// kernels beside those that the model knows.
TEST_F(Shelf, AsksTheModelOfATwin) {
  const Problem problem = gemm_problem(DType::fp16, GemmLayout::rcr, 64, 1024, 2048);
  ConstantModel model = constant_model(-7);
  Manifest manifest = parse_manifest(model.manifest, "test");
  manifest.dtypes = {"bf16"};
  for (const char* target : {"sm90a", "avx512"}) {
    manifest.target = target;
    model.manifest = to_json(manifest);
    const std::string folder = fmt::format("gemm_{}_bf16", target);
    const std::string names[] = {folder + "/manifest.json", folder + "/model.txt"};
    const std::vector<EmbeddedFile> files = {{names[0], model.manifest}, {names[1], model.forest}};
    const ModelShelf shelf(own_, files);
    target_ = load_target(target);
    const Decision decision = decide(shelf, problem);
    if (target_.backend == "cpu") {
      EXPECT_EQ(decision.source, ChoiceSource::analytic);
      EXPECT_NE(decision.why.find("there is no learned model gemm_avx512_fp16"), std::string::npos)
          << decision.why;
      continue;
    }
    EXPECT_EQ(decision.source, ChoiceSource::learned);
    EXPECT_EQ(decision.predicted_seconds, std::exp(-7.0));
    EXPECT_NE(decision.why.find(", asked as if for bf16"), std::string::npos) << decision.why;
    EXPECT_EQ(std::get<GemmSignature>(decision.spec.signature).a, DType::fp16);
  }
}

// Whatever epilogues a model of bf16 learned, it is asked the same of fp16 where that has no model.
TEST_F(Shelf, ShippedModelOfATwinChoosesTheSameAlgorithms) {
  target_ = load_target("sm90a");
  std::vector<EmbeddedFile> without;
  for (const EmbeddedFile& file : shipped_models()) {
    if (!file.path.starts_with("gemm_sm90a_fp16/")) without.push_back(file);
  }
  const ModelShelf shelf("", without);
  for (const char* epilogue : {"none", "bias+gelu", "add"}) {
    GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1000, 2048, 4096);
    p.epilogue = parse_epilogue(epilogue);
    const Decision bf16 = decide(shelf, p);
    p.a = p.b = p.out = p.d = DType::fp16;
    const Decision fp16 = decide(shelf, p);
    EXPECT_EQ(bf16.source, ChoiceSource::learned);
    EXPECT_EQ(fp16.source, ChoiceSource::learned);
    EXPECT_EQ(fp16.spec.algorithm, bf16.spec.algorithm) << epilogue;
    EXPECT_EQ(fp16.predicted_seconds, bf16.predicted_seconds) << epilogue;
  }
}

// int8 is multiplied as fast as fp8, but its sums are twice as long to store: at 4096 cubed that is
// worth hiding behind the next tile's multiplication. Where rows of fp16 begin at odd places and
// those of int32 do not, no kernel gains by it.
TEST_F(Shelf, ATwinWithANarrowerOutput) {
  target_ = load_target("sm90a");
  const ModelShelf shelf("");
  const auto decided = [&](DType type, std::int64_t n) {
    const Decision decision = decide(shelf, gemm_problem(type, GemmLayout::rcr, 4096, n, 4096));
    EXPECT_EQ(decision.source, ChoiceSource::learned);
    EXPECT_EQ(decision.why.find(", asked as if for fp8") != std::string::npos, type == DType::int8);
    return decision;
  };
  EXPECT_EQ(decided(DType::int8, 4096).spec.algorithm.scheduler, Scheduler::pingpong);
  EXPECT_GT(decided(DType::int8, 4096).predicted_seconds,
            decided(DType::fp8, 4096).predicted_seconds);
  EXPECT_EQ(decided(DType::int8, 4092).spec.algorithm, decided(DType::fp8, 4092).spec.algorithm);
}

TEST_F(Shelf, WithoutAModelTheEstimateDecides) {
  const ModelShelf shelf(own_, {});
  const Decision decision = decide(shelf, problem_);
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(decision.why.ends_with("; there is no learned model gemm_avx512_fp32"))
      << decision.why;
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Shelf, OutsideOfItsRange) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const Decision decision =
      decide(ModelShelf("", files), gemm_problem(DType::fp32, GemmLayout::rcr, 8, 64, 64));
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(
      decision.why.ends_with("; the learned model has no opinion: m = 8 is 8 below the 16 "
                             "to 1e+15 that were trained"))
      << decision.why;
}

TEST_F(Shelf, OwnModelReplacesTheShippedOne) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const ConstantModel own = constant_model(-3);
  save_model(own_ / "gemm_avx512_fp32", parse_manifest(own.manifest, "m"), own.forest,
             ModelFile::gzip);
  EXPECT_EQ(decide(ModelShelf(own_, files), problem_).predicted_seconds, std::exp(-3.0));
  EXPECT_EQ(decide(ModelShelf(own_ / "empty", files), problem_).predicted_seconds, std::exp(-7.0));
}

// It is read once, reported once, and the analytic ranker stands in.
TEST_F(Shelf, BrokenModelsAreReportedOnce) {
  ConstantModel model = constant_model(-7);
  model.forest.pop_back();
  const auto files = shipped(model);
  const ModelShelf shelf("", files);
  for (int i = 0; i < 3; ++i) {
    const Decision decision = decide(shelf, problem_);
    EXPECT_EQ(decision.source, ChoiceSource::analytic);
    EXPECT_NE(decision.why.find("; the learned model gemm_avx512_fp32 cannot be used: the shipped "
                                "model gemm_avx512_fp32: model.txt has hash "),
              std::string::npos)
        << decision.why;
  }
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_TRUE(notes_[0].ends_with("; kernels are chosen without it")) << notes_[0];
}

TEST_F(Shelf, ModelOfOtherFeatures) {
  const ConstantModel own = constant_model(-3, "0123456789abcdef");
  save_model(own_ / "gemm_avx512_fp32", parse_manifest(own.manifest, "m"), own.forest,
             ModelFile::gzip);
  EXPECT_EQ(decide(ModelShelf(own_, {}), problem_).source, ChoiceSource::analytic);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_EQ(without_folder(notes_[0]).find(
                "OWN/gemm_avx512_fp32: the model was trained on features with hash "
                "0123456789abcdef, those of today have "),
            0U)
      << notes_[0];
}

TEST_F(Shelf, TruncatedManifestAndMissingForest) {
  write_file((fs::create_directories(own_ / "gemm_avx512_fp32"),
              own_ / "gemm_avx512_fp32" / "manifest.json"),
             constant_model(-3).manifest.substr(0, 100));
  EXPECT_EQ(decide(ModelShelf(own_, {}), problem_).source, ChoiceSource::analytic);
  write_file(own_ / "gemm_avx512_fp32" / "manifest.json", constant_model(-3).manifest);
  EXPECT_EQ(decide(ModelShelf(own_, {}), problem_).source, ChoiceSource::analytic);
  const ConstantModel model = constant_model(-7);
  const EmbeddedFile manifest{"gemm_avx512_fp32/manifest.json", model.manifest};
  EXPECT_EQ(decide(ModelShelf("", {&manifest, 1}), problem_).source, ChoiceSource::analytic);
  EXPECT_EQ(notes_.size(), 3U);
}

// Whatever is shipped can be read.
TEST_F(Shelf, ShippedModelsAreSound) {
  const ModelShelf shelf("");
  for (const EmbeddedFile& file : shipped_models()) {
    if (!file.path.ends_with("/manifest.json")) continue;
    const Manifest manifest = parse_manifest(file.content, file.path);
    // A model that learned from several types is shipped for one of them.
    const std::string place = fmt::format("{}_{}_", manifest.op, manifest.target);
    ASSERT_TRUE(file.path.starts_with(place)) << file.path;
    const std::string key(file.path.substr(place.size(), file.path.find('/') - place.size()));
    EXPECT_EQ(std::ranges::count(manifest.dtypes, key), 1) << file.path;
    const ShelvedModel& found = shelf.find(parse_op(manifest.op), manifest.target, key);
    EXPECT_TRUE(found.ranker) << found.why_not;
  }
}

// A service may make a dispatcher with a cache folder of its own for each customer.
TEST_F(Shelf, FoldersShareTheShippedModels) {
  const ShelvedModel& one = shared_shelf(own_ / "1")->find(Op::gemm, "avx512", "fp32");
  const ShelvedModel& two = shared_shelf(own_ / "2")->find(Op::gemm, "avx512", "fp32");
  ASSERT_TRUE(one.ranker);
  EXPECT_EQ(one.ranker, two.ranker);
  EXPECT_EQ(one.ranker, shared_shelf("")->find(Op::gemm, "avx512", "fp32").ranker);
}

TEST_F(Shelf, FoldersThatNobodyUsesAreForgotten) {
  const std::weak_ptr<const ModelShelf> idle = shared_shelf(own_);
  const std::shared_ptr<const ModelShelf> used = shared_shelf(own_ / "used");
  EXPECT_EQ(shared_shelf(own_ / "used"), used);
  EXPECT_FALSE(idle.expired());
  for (int i = 0; i < 8; ++i) shared_shelf(own_ / std::to_string(i));
  EXPECT_TRUE(idle.expired());
  EXPECT_TRUE(used->find(Op::gemm, "avx512", "fp32").ranker);
}

// The models of CPUs were trained on a Zen 4, and must have an opinion where a user has one.
TEST_F(Shelf, ShippedCpuModelsDecideOnTheirCore) {
  HostInfo host;
  host.cpu_model = "AMD EPYC";
  host.cpu_vendor = "AuthenticAMD";
  host.cpu_family = 0x19;
  host.features = load_target("avx512").features;
  std::erase_if(host.features, [](const std::string& word) { return word.starts_with("amx"); });
  host.cores = 16;
  host.l1_bytes = 32 << 10;
  host.l2_bytes = 1 << 20;
  host.l3_bytes = 32 << 20;
  const Target zen4 = host_target(host);
  ASSERT_EQ(zen4.name, "avx512");
  const ModelShelf shelf("");
  for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {
    const Problem problem = gemm_problem(dtype, GemmLayout::rrr, 320, 256, 192);
    const ShelvedModel& found = shelf.find(Op::gemm, "avx512", std::string(to_string(dtype)));
    ASSERT_TRUE(found.ranker) << found.why_not;
    const Decision decision =
        choose(problem, zen4, {.threads = 1, .rankers = {found.ranker, make_analytic_ranker()}});
    EXPECT_EQ(decision.source, ChoiceSource::learned) << decision.why;
  }
}

}  // namespace
}  // namespace tessera
