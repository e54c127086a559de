// From measurements to a model: LightGBM's forests, scored on problems that they have not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/train/dataset.h"
#include "tessera/train/folds.h"

namespace tessera::train {

// The quantity that the trees are fitted to, where s is a row's seconds. seconds: log(s). tflops:
// log(flops / s / 10^12). bandwidth: log(bytes / s / 10^9). efficiency: log(best s of the problem /
// s), which predicts ratios but no times. ranking: LambdaRank (Burges, From RankNet to LambdaRank
// to LambdaMART, MSR-TR-2010-82) within problems, with gains from 0 to 30 in proportion to best s /
// s.
enum class Goal : std::uint8_t { seconds, tflops, bandwidth, efficiency, ranking };
std::string_view to_string(Goal goal);
// Throws Error{not_found} with the nearest word.
Goal parse_goal(std::string_view word);

struct TrainOptions {
  Goal goal = Goal::efficiency;
  // Replaces the logarithm for goals with a time. log1p gives the slowest kernels little weight.
  std::optional<ModelTransform> transform;
  int trees = 300;  // the most trees; with a warm start, the most new ones
  int leaves = 63;
  // A row's weight is (best seconds of its problem / its seconds) to this power, because the choice
  // is made among the fastest kernels.
  double weight_power = 6;
  std::map<std::string, std::string> params;  // LightGBM's parameters; they override ours
  int folds = 5;
  double stop_share = 0.15;  // share of the training rows for early stopping
  // Iterative hard-example mining: how often the forests are fitted again after the rows of the
  // quarter of problems with the worst choices, out of fold, got twice their weight. The round with
  // the greatest mean efficiency out of fold counts, the first one included.
  int hard_rounds = 0;
  int patience = 50;  // training stops after so many trees without improvement; 0: never
  std::uint64_t seed = 1;
  int threads = 4;  // LightGBM's threads, at most kMaxThreads; their number affects the forest's
                    // bits
  // The model whose trees training continues from. There are no folds then, because the old trees
  // may have been fitted to any problem.
  std::shared_ptr<const Model> warm_start;
  std::string warm_start_text;  // the same model as LightGBM's text
  std::string version;          // this library's version, for the manifest
  std::string date;             // "2026-11-21"; empty: today (UTC)
  // Called with the split before each forest is fitted. The last forest scores no rows.
  std::function<void(int forest, int forests, const Split&)> on_forest;
};

struct FoldResult {
  int trees = 0;  // trees that early stopping kept
  Evaluation evaluation;
};

struct FeatureImportance {
  std::string name;
  double gain = 0;    // share of the gain of all trees
  double splits = 0;  // number of splits
};

struct TrainResult {
  std::string forest;  // LightGBM's text
  Manifest manifest;   // complete except file and model_hash, which save_model() fills in
  std::vector<FoldResult> folds;
  std::vector<double> out_of_fold;       // for every row, the prediction of the forest that did not
                                         // train on it
  std::optional<Evaluation> evaluation;  // by out_of_fold; none after a warm start
  std::vector<Summary> rounds;  // of hard-example mining, the one without it first; empty without
  std::vector<FeatureImportance> importances;  // the greatest gain first
};

// Trains with LightGBM. The same data, options and version of LightGBM give the same bytes. Throws
// Error{invalid_argument} for fewer problems than folds, options out of range, or a warm start from
// a model of another goal; Error{not_found} without LightGBM; Error{internal} with LightGBM's
// message.
TrainResult train(const Dataset& dataset, const Target& target, const TrainOptions& options);

}  // namespace tessera::train
