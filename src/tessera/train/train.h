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

// What the trees are fitted to. seconds: log(s). tflops: log(flops / s / 10^12). bandwidth:
// log(bytes / s / 10^9). efficiency: log(best of the problem / s), ratios without a time. ranking:
// LambdaRank (Burges, From RankNet to LambdaRank to LambdaMART, MSR-TR-2010-82) within problems,
// with gains of 0 to 30 in proportion to best / s.
enum class Goal : std::uint8_t { seconds, tflops, bandwidth, efficiency, ranking };
std::string_view to_string(Goal goal);
// Throws Error{not_found} with the nearest word.
Goal parse_goal(std::string_view word);

struct TrainOptions {
  Goal goal = Goal::efficiency;
  // Instead of the logarithm, for goals with a time: log1p makes little of the slowest kernels.
  std::optional<ModelTransform> transform;
  int trees = 300;  // at most; of a warm start: new ones
  int leaves = 63;
  // A row counts as (best of its problem / its seconds) to this power: near the best is where the
  // choice is made.
  double weight_power = 6;
  std::map<std::string, std::string> params;  // LightGBM's, over ours
  int folds = 5;
  double stop_share = 0.15;  // of the problems to learn from, for early stopping
  int patience = 50;         // trees without gain before it stops
  std::uint64_t seed = 1;
  int threads = 4;  // of LightGBM, at most kMaxThreads; part of what decides the forest's bits
  // Trees to go on from, and the manifest that they came with. There are no folds then: the old
  // trees may have been fitted to any problem.
  std::shared_ptr<const Model> warm_start;
  std::string warm_start_text;  // the same as LightGBM's text
  std::string version;          // of this library, for the manifest
  std::string date;             // "2026-11-21"; empty: today (UTC)
  // Told the rows of each part before a forest is fitted; the final one has no part to score.
  std::function<void(int forest, int forests, const Split&)> on_forest;
};

struct FoldResult {
  int trees = 0;  // that early stopping kept
  Evaluation evaluation;
};

struct FeatureImportance {
  std::string name;
  double gain = 0;    // of all trees, sum to 1
  double splits = 0;  // how many
};

struct TrainResult {
  std::string forest;  // LightGBM's text
  Manifest manifest;   // all but file and model_hash, which save_model() fills in
  std::vector<FoldResult> folds;
  std::vector<double> out_of_fold;       // of every row: what the forest says that has not seen it
  std::optional<Evaluation> evaluation;  // by them; none after a warm start
  std::vector<FeatureImportance> importances;  // the greatest gain first
};

// Trains with LightGBM. The same data, options and version of LightGBM give the same bytes. Throws
// Error{invalid_argument} for fewer problems than folds, options out of range, or a warm start from
// a model of another goal; Error{not_found} without LightGBM; Error{internal} with its words.
TrainResult train(const Dataset& dataset, const Target& target, const TrainOptions& options);

}  // namespace tessera::train
