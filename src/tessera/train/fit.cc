#include "tessera/train/fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/learn/ranker.h"

namespace tessera::train {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

// What a time means in the model's quantity. With efficiencies the "time" of a prediction is one
// over the share of the best kernel's speed, see to_seconds().
struct Scale {
  ModelQuantity quantity;
  double flops = 0, bytes = 0;

  double of(double seconds) const {
    switch (quantity) {
      case ModelQuantity::seconds:
        return seconds / kMicro;
      case ModelQuantity::tflops:
        return flops / seconds / kTera;
      case ModelQuantity::bandwidth:
        return bytes / seconds / kGiga;
      case ModelQuantity::efficiency:
      case ModelQuantity::rank:
        return 1 / seconds;
    }
    return seconds;
  }
};

std::string_view unit_of(ModelQuantity quantity) {
  switch (quantity) {
    case ModelQuantity::seconds:
      return "us";
    case ModelQuantity::tflops:
      return "TFLOP/s";
    case ModelQuantity::bandwidth:
      return "GB/s";
    case ModelQuantity::efficiency:
    case ModelQuantity::rank:
      return "of the best";
  }
  return {};
}

struct Pairs {
  std::vector<double> measured, predicted;
};

// The rows of one problem. Predictions that are not finite choose nothing, and are left out.
void add_problem(std::span<const Dataset::Row> rows, const Scale& scale,
                 std::span<const double> predicted, Pairs& pairs) {
  double best = rows.front().seconds;
  for (const Dataset::Row& row : rows) best = std::min(best, row.seconds);
  const double one = scale.quantity == ModelQuantity::efficiency ? best : 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double guess = scale.of(predicted[i]);
    if (!std::isfinite(guess)) continue;
    pairs.measured.push_back(scale.of(rows[i].seconds / one));
    pairs.predicted.push_back(guess);
  }
}

}  // namespace

std::optional<Fit> fit_of(std::span<const double> measured, std::span<const double> predicted,
                          std::string_view unit) {
  const std::size_t count = measured.size();
  if (count < 2) return std::nullopt;
  double mean = 0;
  for (const double value : measured) mean += value / static_cast<double>(count);
  double errors = 0;
  double spread = 0;
  for (std::size_t i = 0; i < count; ++i) {
    errors += std::pow(measured[i] - predicted[i], 2);
    spread += std::pow(measured[i] - mean, 2);
  }
  if (spread == 0) return std::nullopt;
  return Fit{count, unit, 1 - errors / spread, std::sqrt(errors / static_cast<double>(count))};
}

std::optional<Fit> fit_of(const Dataset& dataset, const Target& target,
                          const std::shared_ptr<const Model>& model) {
  const ModelQuantity quantity = model->manifest.quantity;
  if (quantity == ModelQuantity::rank) return std::nullopt;
  const Family& family = family_of(op_of(dataset));
  const std::vector<std::size_t> first = first_rows(dataset);
  Pairs pairs;
  std::vector<double> seconds;
  for (std::size_t p = 0; p < dataset.problems.size(); ++p) {
    const auto rows = std::span(dataset.rows).subspan(first[p], first[p + 1] - first[p]);
    std::vector<KernelSpec> specs;
    for (const Dataset::Row& row : rows) specs.push_back(dataset.kernels[row.kernel]);
    const Problem& problem = dataset.problems[p];
    seconds.assign(specs.size(), 0);
    const RankInput input{problem, target, dataset.threads[p], specs};
    if (!predict_seconds(*model, family.extract, input, seconds)) continue;
    add_problem(rows, {quantity, family.flops(problem), family.bytes(problem)}, seconds, pairs);
  }
  return fit_of(pairs.measured, pairs.predicted, unit_of(quantity));
}

}  // namespace tessera::train
