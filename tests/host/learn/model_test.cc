#include <gtest/gtest.h>

#include <cmath>

#include "host/learn/models.h"
#include "resource_limit.h"
#include "tessera/base/files.h"

namespace tessera {
namespace {

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override { folder_ = make_unique_folder(fs::temp_directory_path(), "model-test-"); }
  void TearDown() override { remove_tree(folder_); }
  std::string in_folder(const std::string& text) const {
    std::string out = text;
    for (std::size_t at; (at = out.find(folder_.string())) != std::string::npos;) {
      out = fmt::format("{}F{}", out.substr(0, at), out.substr(at + folder_.string().size()));
    }
    return out;
  }

  fs::path folder_;
};

TEST(Manifest, RoundTrip) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(parse_manifest(to_json(manifest), "manifest"), manifest);
}

TEST(Manifest, EveryErrorSaysWhere) {
  const std::string json = to_json(small_manifest());
  const auto error = [&](const std::string& from, const std::string& to) {
    return error_of([&] { parse_manifest(edited(json, from, to), "m.json"); });
  };
  EXPECT_EQ(error("\"target\"", "target"),
            "parse_error: m.json: line 4, column 4: syntax error while parsing object key - "
            "invalid literal; last read: '\"gemm\",<U+000A>  ta'; expected string literal");
  EXPECT_EQ(error("\"format\": 1", "\"format\": 2"),
            "parse_error: m.json: format must be 1, the one that this version reads, got 2");
  EXPECT_EQ(error("\"format\": 1,", ""), "parse_error: m.json: format is missing");
  EXPECT_EQ(error("\"date\"", "\"dat\""),
            "parse_error: m.json: dat is not a known field, did you mean 'date'?");
  EXPECT_EQ(error("\"seconds\"", "\"second\""),
            "parse_error: m.json: quantity must be one of seconds, tflops, bandwidth, efficiency, "
            "rank, got "
            "\"second\", did you mean 'seconds'?");
  EXPECT_EQ(error("\"log\"", "\"log2\""),
            "parse_error: m.json: transform must be one of none, log, log1p, got \"log2\", did you "
            "mean 'log'?");
  EXPECT_EQ(error("\"rows\": 1000", "\"rows\": -1"),
            "parse_error: m.json: rows must be a positive integer, got -1");
  EXPECT_EQ(error("4096", "\"inf\""),
            "parse_error: m.json: ranges[0].max must be a number, got \"inf\"");
  EXPECT_EQ(error("4096", "4"),
            "parse_error: m.json: ranges[0].min must not be above its max, got 16 and 4");
  EXPECT_EQ(error("model.txt", "../model.txt"),
            "parse_error: m.json: file must be 'model.txt' or 'model.txt.gz', got "
            "'../model.txt'");
  EXPECT_EQ(error_of([] { parse_manifest("[]", "m.json"); }),
            "parse_error: m.json: the document must be an object, got []");
}

TEST(Model, KnowsWhichFeaturesAreShared) {
  const Model model = small_model(small_manifest());
  EXPECT_EQ(model.shared, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(model.range_features, (std::vector<std::size_t>{0}));
  EXPECT_EQ(model.wanted, (std::vector<FeatureUse>{FeatureUse::first, FeatureUse::all}));
  EXPECT_EQ(model.judged, (std::vector<FeatureUse>{FeatureUse::first, FeatureUse::none}));
}

TEST(Model, OtherUseIsRefused) {
  const std::string json = to_json(small_manifest());
  const auto error = [&](const ModelUse& use) {
    return error_of([&] { make_model(json, kSmall, use, "small"); });
  };
  EXPECT_EQ(error({"conv", "avx512", kSmallFeatures}),
            "invalid_argument: small: the model is for operation 'gemm', wanted is 'conv'");
  EXPECT_EQ(error({"gemm", "avx2", kSmallFeatures}),
            "invalid_argument: small: the model is for target 'avx512', wanted is 'avx2'");

  std::vector<Feature> features(kSmallFeatures.begin(), kSmallFeatures.end());
  features[0].formula = "log2(m)";
  EXPECT_EQ(error({"gemm", "avx512", features}),
            fmt::format("invalid_argument: small: the model was trained on features with hash {}, "
                        "those of today have {}: all 2 names agree, so that a unit, formula or "
                        "group has changed; train it again",
                        feature_hash_text(kSmallFeatures), feature_hash_text(features)));
  const auto gone = [&](const std::string& name) {
    EXPECT_EQ(error({"gemm", "avx512", features}),
              fmt::format("invalid_argument: small: the model was trained on 2 features, of which "
                          "'{}' is not among the {} of today, or in another order; train it again",
                          name, features.size()));
  };
  features[1].name = "splits";
  gone("x1");
  features = {kSmallFeatures[1], kSmallFeatures[0]};
  gone("x1");
  features = {kSmallFeatures[0]};
  gone("x1");
}

TEST(Model, PredictsAlikeWithFeaturesThatAreNewSince) {
  const std::array features = {Feature{"new0", "1", "k", FeatureGroup::kernel}, kSmallFeatures[0],
                               Feature{"new1", "1", "n", FeatureGroup::problem}, kSmallFeatures[1],
                               Feature{"new2", "1", "m + n", FeatureGroup::interaction}};
  const Model now =
      make_model(to_json(small_manifest()), kSmall, {"gemm", "avx512", features}, "small");
  const Model then = small_model(small_manifest());
  EXPECT_EQ(now.shared, (std::vector<std::uint8_t>{0, 1, 1, 0, 0}));
  EXPECT_EQ(now.range_features, (std::vector<std::size_t>{1}));
  EXPECT_EQ(now.wanted,
            (std::vector<FeatureUse>{FeatureUse::none, FeatureUse::first, FeatureUse::none,
                                     FeatureUse::all, FeatureUse::none}));
  for (const double m : {-1.0, 0.0, 3.0, 100.0, 1e9}) {
    for (const double stages : {-1.0, 0.0, 2.0, 5.0, 1e9}) {
      EXPECT_EQ(predict(now.forest, std::vector<double>{7, m, 8, stages, 9}),
                predict(then.forest, std::vector<double>{m, stages}))
          << m << " " << stages;
    }
  }
}

TEST(Model, FilesThatDoNotBelongTogether) {
  Manifest manifest = small_manifest();
  const auto error = [&] { return error_of([&] { small_model(manifest); }); };
  manifest.model_hash = "0";
  EXPECT_EQ(error(), fmt::format("parse_error: small: model.txt has hash {}, the manifest is of 0: "
                                 "the two do not belong together, or the file is damaged",
                                 hash_hex(kSmall)));
  manifest = small_manifest();
  manifest.features = {"x0"};
  manifest.feature_hash = feature_hash_text(std::span(kSmallFeatures).first(1));
  EXPECT_EQ(error(), "parse_error: small: the forest has 2 features, the manifest's hash is of 1");
  manifest = small_manifest();
  manifest.ranges = {};
  EXPECT_EQ(error(),
            "parse_error: small/manifest.json: ranges must name the problem feature 'x0' once, got "
            "it 0 times");
  manifest.ranges = {{"x0", 1, 2}, {"x0", 1, 2}};
  EXPECT_EQ(error(),
            "parse_error: small/manifest.json: ranges must name the problem feature 'x0' once, got "
            "it 2 times");
  manifest.ranges = {{"x0", 1, 2}, {"x1", 1, 2}};
  EXPECT_EQ(
      error(),
      "parse_error: small/manifest.json: ranges names 'x1', which is no feature of problems or "
      "machines");
  manifest = small_manifest();
  const std::string text = edited(kSmall, "feature_names=x0 x1", "feature_names=x0 z");
  manifest.model_hash = hash_hex(text);
  EXPECT_EQ(error_of([&] { make_model(to_json(manifest), text, kSmallUse, "small"); }),
            "parse_error: small: feature 1 must be 'x1', got 'z'");
}

TEST(Model, RangeSaysWhichAndByHowMuch) {
  const Model model = small_model(small_manifest());
  const auto reason = [&](double x0) {
    return in_range(model, std::vector<double>{x0, 1e9}).reason;
  };
  EXPECT_EQ(reason(16), "");
  EXPECT_EQ(reason(4096), "");
  EXPECT_EQ(reason(3), "x0 = 3 is 13 below the 16 to 4096 that were trained");
  EXPECT_EQ(reason(5000), "x0 = 5000 is 904 above the 16 to 4096 that were trained");
  EXPECT_EQ(reason(std::nan("")), "x0 is not a number, trained were 16 to 4096");
}

TEST(Model, InverseTransforms) {
  const auto seconds = [](ModelQuantity quantity, ModelTransform transform, double y) {
    Manifest manifest;
    manifest.quantity = quantity;
    manifest.transform = transform;
    to_seconds(manifest, 2e9, {&y, 1});
    return y;
  };
  EXPECT_EQ(seconds(ModelQuantity::seconds, ModelTransform::none, 0.5), 0.5);
  EXPECT_EQ(seconds(ModelQuantity::seconds, ModelTransform::log, -2), std::exp(-2.0));
  EXPECT_EQ(seconds(ModelQuantity::tflops, ModelTransform::log1p, 1), 2e9 / (std::expm1(1) * 1e12));
  EXPECT_EQ(seconds(ModelQuantity::bandwidth, ModelTransform::none, 4), 0.5);
  EXPECT_EQ(seconds(ModelQuantity::efficiency, ModelTransform::none, 0.25), 4);
  EXPECT_EQ(seconds(ModelQuantity::efficiency, ModelTransform::log, -2), 1 / std::exp(-2.0));
  EXPECT_EQ(seconds(ModelQuantity::rank, ModelTransform::none, 4), -4);
}

TEST_F(ModelFolder, SavedAndLoaded) {
  for (const ModelFile form : {ModelFile::text, ModelFile::gzip}) {
    save_model(folder_ / "m", small_manifest(), kSmall, form);
    const Model model = load_model(folder_ / "m", kSmallUse);
    EXPECT_EQ(model.forest.leaves, (std::vector<double>{1, 4, 2, 0.25}));
    EXPECT_EQ(model.manifest.file, form == ModelFile::gzip ? "model.txt.gz" : "model.txt");
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& file : fs::directory_iterator(folder_ / "m")) ++files;
    EXPECT_EQ(files, 2u);
  }
  std::size_t folders = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++folders;
  EXPECT_EQ(folders, 1u);
}

TEST_F(ModelFolder, RelativeAndEndingInASlash) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  save_model("m/", small_manifest(), kSmall, ModelFile::text);
  save_model("n", small_manifest(), kSmall, ModelFile::text);
  EXPECT_EQ(load_model("m/", kSmallUse).forest.leaves.size(), 4u);
  EXPECT_EQ(load_model("n", kSmallUse).forest.leaves.size(), 4u);
  fs::current_path(before);
}

TEST_F(ModelFolder, MissingFiles) {
  EXPECT_EQ(in_folder(error_of([&] { load_model(folder_, kSmallUse); })),
            "io_error: cannot read F/manifest.json: No such file or directory");
  write_file(folder_ / "manifest.json", to_json(small_manifest()));
  EXPECT_EQ(in_folder(error_of([&] { load_model(folder_, kSmallUse); })),
            "io_error: cannot read F/model.txt: No such file or directory");
}

// A limit on the size of files acts as a disk that fills up in mid-write.
TEST_F(ModelFolder, FullDiskLeavesTheOldModel) {
  save_model(folder_ / "m", small_manifest(), kSmall, ModelFile::text);
  const std::string before = load_model(folder_ / "m", kSmallUse).manifest.model_hash;
  const std::string error = error_of([&] {
    const ResourceLimit small(RLIMIT_FSIZE, kSmall.size() / 2);
    save_model(folder_ / "m", small_manifest(), kSmall + "\n", ModelFile::text);
  });
  EXPECT_EQ(in_folder(error).find("io_error: cannot write F/m/.tessera-"), 0u) << error;
  EXPECT_NE(error.find("/model.txt: File too large"), std::string::npos) << error;
  EXPECT_EQ(load_model(folder_ / "m", kSmallUse).manifest.model_hash, before);
}

TEST_F(ModelFolder, LeavesOutWhatNoPredictionAsksFor) {
  save_model(folder_ / "m", small_manifest(), kSmall, ModelFile::text);
  const std::string text = read_file(folder_ / "m" / "model.txt");
  std::string wanted = kSmall;
  for (const char* line :
       {"tree_sizes=400 60\n", "leaf_weight=1 1 1\n", "leaf_count=1 1 1\n", "internal_value=0 0\n",
        "internal_weight=0 0\n", "internal_count=3 2\n", "leaf_weight=\n", "leaf_count=\n",
        "internal_value=\n", "internal_weight=\n", "internal_count=\n"}) {
    const std::size_t at = wanted.find(line);
    if (at != std::string::npos) wanted.erase(at, std::string(line).size());
  }
  EXPECT_EQ(text, wanted);
  EXPECT_LT(text.size(), kSmall.size());
}

// The two renames are two: what is between them is noticed.
TEST_F(ModelFolder, HalfRenamedIsNoticed) {
  save_model(folder_, small_manifest(), kSmall, ModelFile::text);
  write_file(folder_ / "model.txt", kSmall + "\n");
  const std::string error = error_of([&] { load_model(folder_, kSmallUse); });
  EXPECT_NE(error.find("the two do not belong together"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
