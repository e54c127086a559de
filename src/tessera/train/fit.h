// How near a model's predictions are to what was measured, whatever is chosen by them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tessera/train/dataset.h"

namespace tessera::train {

// Over the rows of problems on which the model has an opinion, in the quantity that it predicts.
struct Fit {
  std::size_t rows = 0;
  std::string_view unit;  // "us", "TFLOP/s", "GB/s", "of the best"
  // The coefficient of determination: 1 - the sum of (measured - predicted)^2 over the sum of
  // (measured - mean of measured)^2. 1 is perfect; the mean of all rows as prediction gives 0.
  double r2 = 0;
  double rmse = 0;  // the root of the mean of (measured - predicted)^2, in the unit
};

// None for fewer than two rows, and where all measured values are equal. The lists are equally
// long.
std::optional<Fit> fit_of(std::span<const double> measured, std::span<const double> predicted,
                          std::string_view unit);

// None for a model that only ranks, and where the rows leave nothing to determine.
std::optional<Fit> fit_of(const Dataset& dataset, const Target& target,
                          const std::shared_ptr<const Model>& model);

}  // namespace tessera::train
