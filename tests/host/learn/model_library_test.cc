#include "tessera/learn/model_library.h"

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

class Library : public testing::Test {
 protected:
  Library() {
    set_log_sink([this](LogLevel, std::string_view text) { notes_.emplace_back(text); });
  }
  ~Library() override {
    set_log_sink({});
    remove_tree(own_);
  }

  std::vector<EmbeddedFile> shipped(const ConstantModel& model) const {
    return {{"gemm_avx512_fp32/manifest.json", model.manifest},
            {"gemm_avx512_fp32/model.txt", model.forest}};
  }
  void save_own(const std::string& name, const ConstantModel& model) const {
    save_model(own_ / name, parse_manifest(model.manifest, name), model.forest, ModelFile::gzip);
  }
  // The same model, trained on a core with another second cache.
  ConstantModel on_another_core(ConstantModel model) const {
    Target other = target_;
    other.caches[1].bytes = 3 << 20;
    Manifest manifest = parse_manifest(model.manifest, "test");
    manifest.machine = to_json(other);
    model.manifest = to_json(manifest);
    return model;
  }
  Decision decide(const ModelLibrary& library, const Problem& problem) const {
    const auto borrowed = std::shared_ptr<const ModelLibrary>(std::shared_ptr<void>(), &library);
    ChooseOptions options;
    options.threads = 1;
    options.rankers = {make_library_ranker(borrowed), make_analytic_ranker()};
    return choose(problem, target_, options);
  }
  std::string without_folder(std::string text) const {
    const auto at = text.find(own_.string());
    return at == std::string::npos ? text : text.replace(at, own_.string().size(), "OWN");
  }

  fs::path own_ = make_unique_folder(fs::temp_directory_path(), "tessera-library-test-");
  std::vector<std::string> notes_;
  Target target_ = load_target("avx512");
  Problem problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 512, 512, 512);
};

TEST_F(Library, ShippedModelDecides) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const ModelLibrary library("", files);
  const Decision decision = decide(library, problem_);
  EXPECT_EQ(decision.source, ChoiceSource::learned);
  EXPECT_EQ(decision.predicted_seconds, std::exp(-7.0));
  EXPECT_TRUE(decision.why.starts_with("least time by the learned model among ")) << decision.why;
  EXPECT_TRUE(notes_.empty());
}

// Tensor cores take fp16 and bf16 alike; a CPU multiplies fp16 as fp32. For 64 rows there are no
// kernels beside those that the model knows.
TEST_F(Library, AsksTheModelOfATwin) {
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
    const ModelLibrary library(own_, files);
    target_ = load_target(target);
    const Decision decision = decide(library, problem);
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
TEST_F(Library, ShippedModelOfATwinChoosesTheSameAlgorithms) {
  target_ = load_target("sm90a");
  std::vector<EmbeddedFile> without;
  for (const EmbeddedFile& file : shipped_models()) {
    if (!file.path.starts_with("gemm_sm90a_fp16/")) without.push_back(file);
  }
  const ModelLibrary library("", without);
  for (const char* epilogue : {"none", "bias+gelu", "add"}) {
    GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1000, 2048, 4096);
    p.epilogue = parse_epilogue(epilogue);
    const Decision bf16 = decide(library, p);
    p.a = p.b = p.out = p.d = DType::fp16;
    const Decision fp16 = decide(library, p);
    EXPECT_EQ(bf16.source, ChoiceSource::learned);
    EXPECT_EQ(fp16.source, ChoiceSource::learned);
    EXPECT_EQ(fp16.spec.algorithm, bf16.spec.algorithm) << epilogue;
    EXPECT_EQ(fp16.predicted_seconds, bf16.predicted_seconds) << epilogue;
  }
}

// int8 is multiplied as fast as fp8, but its sums are twice as long to store: at 4096 cubed that is
// worth hiding behind the next tile's multiplication. Where rows of fp16 begin at odd places and
// rows of int32 do not, no kernel gains by it.
TEST_F(Library, ATwinWithANarrowerOutput) {
  target_ = load_target("sm90a");
  const ModelLibrary library("");
  const auto decided = [&](DType type, std::int64_t n) {
    const Decision decision = decide(library, gemm_problem(type, GemmLayout::rcr, 4096, n, 4096));
    EXPECT_EQ(decision.source, ChoiceSource::learned);
    EXPECT_EQ(decision.why.find(", asked as if for fp8") != std::string::npos, type == DType::int8);
    return decision;
  };
  EXPECT_EQ(decided(DType::int8, 4096).spec.algorithm.scheduler, Scheduler::pingpong);
  EXPECT_GT(decided(DType::int8, 4096).predicted_seconds,
            decided(DType::fp8, 4096).predicted_seconds);
  EXPECT_EQ(decided(DType::int8, 4092).spec.algorithm, decided(DType::fp8, 4092).spec.algorithm);
}

TEST_F(Library, WithoutAModelTheEstimateDecides) {
  const ModelLibrary library(own_, {});
  const Decision decision = decide(library, problem_);
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(decision.why.ends_with("; there is no learned model gemm_avx512_fp32"))
      << decision.why;
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Library, OutsideOfItsRange) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const Decision decision =
      decide(ModelLibrary("", files), gemm_problem(DType::fp32, GemmLayout::rcr, 8, 64, 64));
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(
      decision.why.ends_with("; the learned model has no opinion: m = 8 is 8 below the 16 "
                             "to 1e+15 that were trained"))
      << decision.why;
}

TEST_F(Library, OwnModelComesBeforeTheShippedOne) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  const ConstantModel own = constant_model(-3);
  save_model(own_ / "gemm_avx512_fp32", parse_manifest(own.manifest, "m"), own.forest,
             ModelFile::gzip);
  EXPECT_EQ(decide(ModelLibrary(own_, files), problem_).predicted_seconds, std::exp(-3.0));
  EXPECT_EQ(decide(ModelLibrary(own_ / "empty", files), problem_).predicted_seconds,
            std::exp(-7.0));
}

TEST_F(Library, TheFirstModelWithAnOpinionDecides) {
  const ConstantModel plain = on_another_core(constant_model(-7));
  const ConstantModel further = constant_model(-6);
  std::vector<EmbeddedFile> files = {{"gemm_avx512_fp32.zen_5/manifest.json", further.manifest},
                                     {"gemm_avx512_fp32.zen_5/model.txt", further.forest}};
  for (const EmbeddedFile& file : shipped(plain)) files.push_back(file);
  const auto seconds = [&] {
    return decide(ModelLibrary(own_, files), problem_).predicted_seconds;
  };
  EXPECT_EQ(seconds(), std::exp(-6.0));
  save_own("gemm_avx512_fp32", on_another_core(constant_model(-5)));
  EXPECT_EQ(seconds(), std::exp(-6.0));
  save_own("gemm_avx512_fp32.b", constant_model(-4));
  EXPECT_EQ(seconds(), std::exp(-4.0));
  save_own("gemm_avx512_fp32.a1", constant_model(-3));
  EXPECT_EQ(seconds(), std::exp(-3.0));
  save_own("gemm_avx512_fp32", constant_model(-2));
  EXPECT_EQ(seconds(), std::exp(-2.0));
  EXPECT_TRUE(notes_.empty());
}

TEST_F(Library, ThePlainShippedModelComesBeforeAFurtherOne) {
  const ConstantModel plain = constant_model(-7);
  const ConstantModel further = constant_model(-6);
  std::vector<EmbeddedFile> files = {{"gemm_avx512_fp32.a/manifest.json", further.manifest},
                                     {"gemm_avx512_fp32.a/model.txt", further.forest}};
  for (const EmbeddedFile& file : shipped(plain)) files.push_back(file);
  EXPECT_EQ(decide(ModelLibrary(own_, files), problem_).predicted_seconds, std::exp(-7.0));
  const auto others = std::make_shared<const ModelLibrary>("", files);
  const ModelLibrary library(own_, {}, others);
  EXPECT_EQ(library.count(Op::gemm, "avx512", "fp32"), 2U);
  EXPECT_EQ(library.head(Op::gemm, "avx512", "fp32", 1).what,
            "the shipped model gemm_avx512_fp32.a");
  EXPECT_EQ(library.find(Op::gemm, "avx512", "fp32", 2).why_not,
            "there is no learned model gemm_avx512_fp32");
}

TEST_F(Library, WhyNoneOfSeveralModelsDecides) {
  const ConstantModel shipped_one = on_another_core(constant_model(-7));
  const auto files = shipped(shipped_one);
  save_own("gemm_avx512_fp32.emerald_rapids", constant_model(-3));
  const Decision decision =
      decide(ModelLibrary(own_, files), gemm_problem(DType::fp32, GemmLayout::rcr, 8, 64, 64));
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(decision.why.ends_with(
      "; the own model gemm_avx512_fp32.emerald_rapids has no opinion: m = 8 is 8 below the 16 to "
      "1e+15 that were trained; the shipped model gemm_avx512_fp32 has no opinion: it was trained "
      "on a core with 3145728 bytes of l2, this one has 1048576"))
      << decision.why;
}

// Its manifest says enough, so that nobody finds out that its forest is damaged.
TEST_F(Library, ModelOfAnotherCoreIsNotRead) {
  ConstantModel model = on_another_core(constant_model(-7));
  model.forest.pop_back();
  const auto files = shipped(model);
  const Decision decision = decide(ModelLibrary(own_, files), problem_);
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_TRUE(
      decision.why.ends_with("; the learned model has no opinion: it was trained on a core with "
                             "3145728 bytes of l2, this one has 1048576"))
      << decision.why;
  EXPECT_TRUE(notes_.empty());
}

// It is read when the models before it have no opinion, and reported once.
TEST_F(Library, BrokenFurtherModelHidesNoOther) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  save_own("gemm_avx512_fp32", constant_model(-3));
  save_own("gemm_avx512_fp32.zen_5", constant_model(-2));
  write_file(own_ / "gemm_avx512_fp32.zen_5" / "manifest.json", "{}");
  const ModelLibrary library(own_, files);
  EXPECT_EQ(decide(library, problem_).predicted_seconds, std::exp(-3.0));
  EXPECT_TRUE(notes_.empty());
  for (int i = 0; i < 3; ++i) {
    const Decision decision =
        decide(library, gemm_problem(DType::fp32, GemmLayout::rcr, 8, 64, 64));
    EXPECT_EQ(decision.source, ChoiceSource::analytic);
    const std::string range = "m = 8 is 8 below the 16 to 1e+15 that were trained";
    const std::string sentence = fmt::format(
        "; the own model gemm_avx512_fp32 has no opinion: {}; the learned model "
        "gemm_avx512_fp32.zen_5 cannot be used: OWN/gemm_avx512_fp32.zen_5/manifest.json: format "
        "is missing; the shipped model gemm_avx512_fp32 has no opinion: {}",
        range, range);
    EXPECT_TRUE(without_folder(decision.why).ends_with(sentence)) << decision.why;
  }
  EXPECT_EQ(notes_.size(), 1U);
  EXPECT_EQ(decide(library, problem_).predicted_seconds, std::exp(-3.0));
}

TEST_F(Library, BrokenPlainModelHidesNoOther) {
  const ConstantModel model = constant_model(-7);
  const auto files = shipped(model);
  save_own("gemm_avx512_fp32", constant_model(-3));
  write_file(own_ / "gemm_avx512_fp32" / "manifest.json", "{}");
  const ModelLibrary library(own_, files);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(decide(library, problem_).predicted_seconds, std::exp(-7.0));
  }
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_EQ(without_folder(notes_[0]),
            "OWN/gemm_avx512_fp32/manifest.json: format is missing; kernels are chosen without it");
}

// A twin's types are asked only where the problem's own types have no model that can be read.
TEST_F(Library, FurtherModelOfATwin) {
  target_ = load_target("sm90a");
  const Problem problem = gemm_problem(DType::fp16, GemmLayout::rcr, 64, 1024, 2048);
  ConstantModel model = constant_model(-7);
  Manifest manifest = parse_manifest(model.manifest, "test");
  manifest.target = "sm90a";
  for (const std::string type : {"bf16", "fp16"}) {
    manifest.dtypes = {type};
    manifest.ranges[0].min = type == "bf16" ? 16 : 128;
    model.manifest = to_json(manifest);
    save_own("gemm_sm90a_" + type + ".h100", model);
    const Decision decision = decide(ModelLibrary(own_, {}), problem);
    if (type == "bf16") {
      EXPECT_EQ(decision.predicted_seconds, std::exp(-7.0)) << decision.why;
      EXPECT_NE(decision.why.find(", asked as if for bf16"), std::string::npos) << decision.why;
    } else {
      EXPECT_TRUE(
          decision.why.ends_with("; the learned model has no opinion: m = 64 is 64 below "
                                 "the 128 to 1e+15 that were trained"))
          << decision.why;
    }
  }
}

TEST_F(Library, NamesOfFurtherModels) {
  for (const char* word : {"emerald_rapids", "zen4", "4", "_"}) {
    EXPECT_TRUE(is_further_name(fmt::format("gemm_avx512_fp8.{}", word), "gemm_avx512_fp8"))
        << word;
  }
  for (const char* end :
       {"", ".", "_bf8", "_bf8.zen4", ".Zen4", ".zen-4", ".zen.4", ".zen4 ", "x.a"}) {
    EXPECT_FALSE(is_further_name(fmt::format("gemm_avx512_fp8{}", end), "gemm_avx512_fp8")) << end;
  }
  EXPECT_FALSE(is_further_name("gemm_avx512_fp", "gemm_avx512_fp8"));
}

// The keys of some models begin like the keys of others. Other folders and files are no models.
TEST_F(Library, KeysThatBeginAlikeDoNotMix) {
  for (const char* name :
       {"gemm_avx512_fp8_bf8", "gemm_avx512_fp8_bf8.zen4", "gemm_avx512_fp8.zen4",
        "gemm_avx512_fp8.Zen4", "gemm_avx512_fp8.old-1", "conv_avx512_backward_data_fp32.zen4"}) {
    fs::create_directories(own_ / name);
  }
  write_file(own_ / "gemm_avx512_fp8.txt", "");
  fs::create_symlink("nowhere", own_ / "gemm_avx512_fp8.gone");
  fs::create_symlink("gemm_avx512_fp8.zen4", own_ / "gemm_avx512_fp8.linked");
  const ConstantModel model = constant_model(-7);
  const std::vector<EmbeddedFile> files = {{"gemm_avx512_fp8_bf8.a/manifest.json", model.manifest},
                                           {"gemm_avx512_fp8.a/manifest.json", model.manifest},
                                           {"gemm_avx512_fp8.a/model.txt", model.forest},
                                           {"gemm_avx512_fp8.a/b/manifest.json", model.manifest}};
  const ModelLibrary library(own_, files);
  const auto names = [&](Op op, std::string_view key) {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < library.count(op, "avx512", key); ++i) {
      found.push_back(library.head(op, "avx512", key, i).what);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(Op::gemm, "fp8"),
            (Names{"the own model gemm_avx512_fp8.linked", "the own model gemm_avx512_fp8.zen4",
                   "the shipped model gemm_avx512_fp8.a"}));
  EXPECT_EQ(names(Op::gemm, "fp8_bf8"),
            (Names{"the own model gemm_avx512_fp8_bf8", "the own model gemm_avx512_fp8_bf8.zen4",
                   "the shipped model gemm_avx512_fp8_bf8.a"}));
  EXPECT_EQ(names(Op::conv, "backward_data_fp32"),
            Names{"the own model conv_avx512_backward_data_fp32.zen4"});
  EXPECT_EQ(names(Op::conv, "backward_data"), Names{});
}

// It is read once, reported once, and the analytic ranker stands in.
TEST_F(Library, BrokenModelsAreReportedOnce) {
  ConstantModel model = constant_model(-7);
  model.forest.pop_back();
  const auto files = shipped(model);
  const ModelLibrary library("", files);
  for (int i = 0; i < 3; ++i) {
    const Decision decision = decide(library, problem_);
    EXPECT_EQ(decision.source, ChoiceSource::analytic);
    EXPECT_NE(decision.why.find("; the learned model gemm_avx512_fp32 cannot be used: the shipped "
                                "model gemm_avx512_fp32: model.txt has hash "),
              std::string::npos)
        << decision.why;
  }
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_TRUE(notes_[0].ends_with("; kernels are chosen without it")) << notes_[0];
}

TEST_F(Library, ModelOfOtherFeatures) {
  const ConstantModel own = constant_model(-3, "0123456789abcdef");
  save_model(own_ / "gemm_avx512_fp32", parse_manifest(own.manifest, "m"), own.forest,
             ModelFile::gzip);
  EXPECT_EQ(decide(ModelLibrary(own_, {}), problem_).source, ChoiceSource::analytic);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_EQ(without_folder(notes_[0]).find(
                "OWN/gemm_avx512_fp32: the model was trained on features with hash "
                "0123456789abcdef, those of today have "),
            0U)
      << notes_[0];
}

TEST_F(Library, TruncatedManifestAndMissingForest) {
  write_file((fs::create_directories(own_ / "gemm_avx512_fp32"),
              own_ / "gemm_avx512_fp32" / "manifest.json"),
             constant_model(-3).manifest.substr(0, 100));
  EXPECT_EQ(decide(ModelLibrary(own_, {}), problem_).source, ChoiceSource::analytic);
  write_file(own_ / "gemm_avx512_fp32" / "manifest.json", constant_model(-3).manifest);
  EXPECT_EQ(decide(ModelLibrary(own_, {}), problem_).source, ChoiceSource::analytic);
  const ConstantModel model = constant_model(-7);
  const EmbeddedFile manifest{"gemm_avx512_fp32/manifest.json", model.manifest};
  EXPECT_EQ(decide(ModelLibrary("", {&manifest, 1}), problem_).source, ChoiceSource::analytic);
  EXPECT_EQ(notes_.size(), 3U);
}

// Whatever is shipped can be read and found by its name. A model beside the plain one says on which
// machine it was trained.
TEST_F(Library, ShippedModelsAreSound) {
  const ModelLibrary library("");
  for (const EmbeddedFile& file : shipped_models()) {
    if (!file.path.ends_with("/manifest.json")) continue;
    const Manifest manifest = parse_manifest(file.content, file.path);
    const std::string folder(file.path.substr(0, file.path.find('/')));
    const std::string plain = folder.substr(0, folder.find('.'));
    EXPECT_TRUE(folder == plain || is_further_name(folder, plain)) << folder;
    EXPECT_TRUE(folder == plain || !manifest.machine.empty()) << folder;
    // A model that learned from several types is shipped for one of them.
    const std::string place = fmt::format("{}_{}_", manifest.op, manifest.target);
    ASSERT_TRUE(plain.starts_with(place)) << folder;
    const std::string key = plain.substr(place.size());
    EXPECT_EQ(std::ranges::count(manifest.dtypes, key), 1) << folder;
    const Op op = parse_op(manifest.op);
    const std::vector<std::string> names = shipped_model_names(op, manifest.target, key);
    const auto at = static_cast<std::size_t>(std::ranges::find(names, folder) - names.begin());
    ASSERT_LT(at, names.size()) << folder;
    const ShelvedModel& found = library.find(op, manifest.target, key, at);
    EXPECT_EQ(library.head(op, manifest.target, key, at).what, "the shipped model " + folder);
    EXPECT_TRUE(found.ranker) << found.why_not;
    EXPECT_EQ(load_shipped_model(folder).manifest, manifest);
  }
}

// A service may make a dispatcher with a cache folder of its own for each customer.
TEST_F(Library, FoldersShareTheShippedModels) {
  const ShelvedModel& one = shared_model_library(own_ / "1")->find(Op::gemm, "avx512", "fp32");
  const ShelvedModel& two = shared_model_library(own_ / "2")->find(Op::gemm, "avx512", "fp32");
  ASSERT_TRUE(one.ranker);
  EXPECT_EQ(one.ranker, two.ranker);
  EXPECT_EQ(one.ranker, shared_model_library("")->find(Op::gemm, "avx512", "fp32").ranker);
}

TEST_F(Library, FoldersThatNobodyUsesAreForgotten) {
  const std::weak_ptr<const ModelLibrary> idle = shared_model_library(own_);
  const std::shared_ptr<const ModelLibrary> used = shared_model_library(own_ / "used");
  EXPECT_EQ(shared_model_library(own_ / "used"), used);
  EXPECT_FALSE(idle.expired());
  for (int i = 0; i < 8; ++i) shared_model_library(own_ / std::to_string(i));
  EXPECT_TRUE(idle.expired());
  EXPECT_TRUE(used->find(Op::gemm, "avx512", "fp32").ranker);
}

// The models of CPUs were trained on a Zen 4, and must have an opinion where a user has one.
TEST_F(Library, ShippedCpuModelsDecideOnTheirCore) {
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
  const ModelLibrary library("");
  for (const DType dtype : {DType::fp32, DType::bf16, DType::int8}) {
    const Problem problem = gemm_problem(dtype, GemmLayout::rrr, 320, 256, 192);
    const ShelvedModel& found = library.find(Op::gemm, "avx512", std::string(to_string(dtype)));
    ASSERT_TRUE(found.ranker) << found.why_not;
    const Decision decision =
        choose(problem, zen4, {.threads = 1, .rankers = {found.ranker, make_analytic_ranker()}});
    EXPECT_EQ(decision.source, ChoiceSource::learned) << decision.why;
  }
}

}  // namespace
}  // namespace tessera
