// How good a model is on measurements: as numbers, and as one page for a browser.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/learn/feature_importance.h"
#include "tessera/learn/model.h"
#include "tessera/train/dataset.h"
#include "tessera/train/metrics.h"

namespace tessera::train {

struct PredictedTime {
  double predicted = 0;  // seconds
  double measured = 0;
};

// The peak rates of a machine on operands of one kind.
struct Roof {
  std::string name;             // "bf16"
  double flops_per_second = 0;  // peak of the units that kernels use
  double bytes_per_second = 0;  // peak of the memory
};

// A chosen kernel under its roof.
struct RoofPoint {
  std::size_t problem = 0;      // index into the list of problems
  double intensity = 0;         // useful operations per byte of least traffic
  double flops_per_second = 0;  // achieved useful operations per second
};

struct ReportData {
  std::string title;
  // facts about the machine, the data and the model
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<Problem> problems;
  Evaluation learned, analytic, random;
  std::vector<FeatureGain> importance;  // most gain first
  std::vector<PredictedTime> times;     // a sample of rows; empty for a model that only ranks
  std::vector<RoofPoint> chosen;        // the model's choices
  std::vector<Roof> roofs;
};

// The most points in a chart of rows.
inline constexpr std::size_t kMostPoints = 4000;

// Scores the data set in three ways: by the model (and by the analytic ranker where the model has
// no opinion), by the analytic ranker alone, and at random. Throws what evaluate() throws.
ReportData make_report(const Dataset& data, const Target& target,
                       const std::shared_ptr<const Model>& model,
                       std::vector<FeatureGain> importance);

// One HTML page that needs no other file and no network. Its tables need no script. Names are
// escaped.
std::string report_page(const ReportData& data);
// The page's style sheet, for other pages.
std::string_view report_style();

}  // namespace tessera::train
