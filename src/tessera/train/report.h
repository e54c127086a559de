// What a model is worth on measurements, as numbers and as one page for a browser.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/learn/gains.h"
#include "tessera/learn/model.h"
#include "tessera/train/dataset.h"
#include "tessera/train/metrics.h"

namespace tessera::train {

struct PredictedTime {
  double predicted = 0;  // seconds
  double measured = 0;
};

// What a machine can do at most on operands of one kind.
struct Roof {
  std::string name;             // "bf16"
  double flops_per_second = 0;  // of the units used
  double bytes_per_second = 0;  // of memory
};

// A chosen kernel under its roof.
struct RoofPoint {
  std::size_t problem = 0;      // index into the list of problems
  double intensity = 0;         // useful operations per byte of least traffic
  double flops_per_second = 0;  // useful ones, achieved
};

struct ReportData {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // of machine, data and model
  std::vector<Problem> problems;
  Evaluation learned, analytic, random;
  std::vector<FeatureGain> importance;  // most gain first
  std::vector<PredictedTime> times;     // a sample; none for a model that only ranks
  std::vector<RoofPoint> chosen;        // by the model
  std::vector<Roof> roofs;
};

// The most points that a page's charts of rows show.
inline constexpr std::size_t kMostPoints = 4000;

// Scores the data set by the model (with the analytic ranker where the model has no opinion), by
// the analytic ranker alone, and by chance. Throws what evaluate() throws.
ReportData make_report(const Dataset& data, const Target& target,
                       const std::shared_ptr<const Model>& model,
                       std::vector<FeatureGain> importance);

// One HTML page that needs nothing else: no network, and for its tables no script either. Names
// may hold anything.
std::string report_page(const ReportData& data);

}  // namespace tessera::train
