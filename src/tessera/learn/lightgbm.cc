#include "tessera/learn/lightgbm.h"

#include <fmt/format.h>

#include <limits>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/learn/lightgbm_api_internal.h"

namespace tessera::lightgbm {
namespace {

// The numbers of the C API.
enum DataType : int { kFloat = 0, kDouble = 1, kInt = 2 };
constexpr int kPrediction = 0;
constexpr int kAllIterations = -1;
constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();

void check(int status, std::string_view what) {
  if (status == 0) return;
  throw Error(ErrorCode::internal, fmt::format("LightGBM: {}: {}", what, api().last_error()));
}

int count_of(std::size_t count, std::string_view what) {
  if (count <= kMost) return static_cast<int>(count);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("LightGBM: at most {} {}, got {}", kMost, what, count));
}

void check_matrix(std::span<const double> values, std::size_t rows, std::size_t columns) {
  if (rows != 0 && columns != 0 && values.size() / rows == columns && values.size() % rows == 0) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("LightGBM: {} rows of {} columns cannot be {} numbers", rows, columns,
                          values.size()));
}

void set_any(const Dataset& dataset, const char* name, const void* data, std::size_t count,
             DataType type) {
  check(api().dataset_set_field(dataset.get(), name, data, count_of(count, "values"), type),
        fmt::format("cannot set {}", name));
}

Booster owned(void* booster) {
  return {booster, [](void* handle) { api().booster_free(handle); }};
}

}  // namespace

Dataset make_dataset(std::span<const double> values, std::size_t rows, std::size_t columns,
                     Order order, const std::string& parameters, const Dataset& reference) {
  check_enum("LightGBM: order", order, Order::by_column);
  check_matrix(values, rows, columns);
  void* dataset = nullptr;
  check(api().dataset_from_mat(values.data(), kDouble, count_of(rows, "rows"),
                               count_of(columns, "columns"), order == Order::by_row ? 1 : 0,
                               parameters.c_str(), reference.get(), &dataset),
        "cannot make a data set");
  // A data set for validation uses the bins of its reference.
  return {dataset, [reference](void* handle) { api().dataset_free(handle); }};
}

void set_field(const Dataset& dataset, const char* name, std::span<const float> values) {
  set_any(dataset, name, values.data(), values.size(), kFloat);
}
void set_field(const Dataset& dataset, const char* name, std::span<const double> values) {
  set_any(dataset, name, values.data(), values.size(), kDouble);
}
void set_field(const Dataset& dataset, const char* name, std::span<const std::int32_t> values) {
  set_any(dataset, name, values.data(), values.size(), kInt);
}

void set_feature_names(const Dataset& dataset, std::span<const std::string_view> names) {
  std::vector<std::string> copies(names.begin(), names.end());
  std::vector<const char*> pointers;
  for (const std::string& name : copies) pointers.push_back(name.c_str());
  check(api().dataset_set_names(dataset.get(), pointers.data(), count_of(names.size(), "names")),
        "cannot name the features");
}

Booster make_booster(const Dataset& train, const std::string& parameters) {
  void* booster = nullptr;
  check(api().booster_create(train.get(), parameters.c_str(), &booster), "cannot make a booster");
  return {booster, [train](void* handle) { api().booster_free(handle); }};
}

Booster load_booster(const std::string& text) {
  void* booster = nullptr;
  int iterations = 0;
  check(api().booster_from_string(text.c_str(), &iterations, &booster), "cannot read a model");
  return owned(booster);
}

void add_validation(Booster& booster, const Dataset& dataset) {
  check(api().booster_add_valid(booster.get(), dataset.get()), "cannot add a validation set");
  booster = {booster.get(), [booster, dataset](void*) {}};
}

bool update(const Booster& booster) {
  int finished = 0;
  check(api().booster_update(booster.get(), &finished), "cannot add a tree");
  return finished == 0;
}

void roll_back(const Booster& booster) {
  check(api().booster_roll_back(booster.get()), "cannot take the last tree away");
}

std::vector<double> evaluate(const Booster& booster, int index) {
  int count = 0;
  check(api().booster_eval_counts(booster.get(), &count), "cannot count the metrics");
  std::vector<double> metrics(static_cast<std::size_t>(count));
  check(api().booster_eval(booster.get(), index, &count, metrics.data()), "cannot evaluate");
  metrics.resize(static_cast<std::size_t>(count));
  return metrics;
}

void merge(const Booster& booster, const Booster& other) {
  check(api().booster_merge(booster.get(), other.get()), "cannot merge two boosters");
}

std::string save_text(const Booster& booster, int num_iterations) {
  const int iterations = num_iterations > 0 ? num_iterations : kAllIterations;
  constexpr int kSplits = 0;
  std::int64_t needed = 0;
  check(api().booster_to_string(booster.get(), 0, iterations, kSplits, 0, &needed, nullptr),
        "cannot write a model");
  std::string text(static_cast<std::size_t>(needed), '\0');
  check(
      api().booster_to_string(booster.get(), 0, iterations, kSplits, needed, &needed, text.data()),
      "cannot write a model");
  text.pop_back();  // the zero byte
  return text;
}

std::vector<double> importance(const Booster& booster, std::size_t features, Importance kind) {
  check_enum("LightGBM: importance", kind, Importance::gain);
  std::vector<double> out(features);
  check(api().booster_importance(booster.get(), kAllIterations, static_cast<int>(kind), out.data()),
        "cannot tell the importance of features");
  return out;
}

std::vector<double> predict(const Booster& booster, std::span<const double> values,
                            std::size_t rows, std::size_t columns, Order order,
                            const std::string& parameters) {
  check_enum("LightGBM: order", order, Order::by_column);
  check_matrix(values, rows, columns);
  std::vector<double> out(rows);
  std::int64_t count = 0;
  check(api().booster_predict_mat(booster.get(), values.data(), kDouble, count_of(rows, "rows"),
                                  count_of(columns, "columns"), order == Order::by_row ? 1 : 0,
                                  kPrediction, 0, kAllIterations, parameters.c_str(), &count,
                                  out.data()),
        "cannot predict");
  if (count == static_cast<std::int64_t>(rows)) return out;
  throw Error(ErrorCode::internal,
              fmt::format("LightGBM: expected {} predictions, got {}", rows, count));
}

}  // namespace tessera::lightgbm
