// Measurements as learning wants them: the problems, the kernels and the times of one operation on
// one class of machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/learn/model.h"
#include "tessera/measure/sweep_store.h"
#include "tessera/select/select.h"
#include "tessera/train/metrics.h"

namespace tessera::train {

struct Dataset {
  // problem and kernel are places in the lists.
  struct Row {
    std::uint32_t problem = 0;
    std::uint32_t kernel = 0;
    double seconds = 0;
    friend bool operator==(const Row&, const Row&) = default;
  };
  std::string target;
  int threads = 1;
  std::vector<Problem> problems;  // sorted by their text; at least one, all of one operation
  std::vector<KernelSpec> kernels;
  std::vector<std::string> kernel_names;  // sorted
  std::vector<Row> rows;                  // sorted by problem, then kernel name
  std::string hash;                       // of what was learned from: all of the above
};

Op op_of(const Dataset& dataset);

// The rows of several sweeps as one.
measure::SweepData joined(std::span<const measure::SweepData> parts);

// What of a sweep is learned from. Rows that are not ok never are: they have no time.
struct DatasetFilter {
  std::optional<Op> op = {};        // unset: the only one there is
  std::string target = {};          // empty: the only one there is
  std::vector<std::string> dtypes;  // keys of Family::model_key, "bf16", "fp8_bf8"; empty: all
  int threads = 0;                  // 0: the only number there is
  bool drop_unseen = true;          // leave out problems that only scoring may look at
  bool only_unseen = false;         // leave out all others
  std::size_t least_problems = 1;
};

// A time measured more than once (on several devices, or in several runs) counts by its median.
// Throws Error{invalid_argument} where nothing is left or several targets, numbers of threads or
// operations are, or fewer problems than needed; Error{parse_error} with the number of the first
// row whose problem or kernel cannot be read.
Dataset make_dataset(const measure::SweepData& data, const DatasetFilter& filter);

// For each problem, where its rows begin; and at the end, how many rows there are.
std::vector<std::size_t> first_rows(const Dataset& dataset);

// rows x features numbers, row by row.
std::vector<double> feature_rows(const Dataset& dataset, const Target& target);

// Fills in seconds for the candidates, or returns false when it has no opinion on the problem.
using Predict = std::function<bool(const RankInput&, std::span<double> seconds)>;

// The score of every row is minus its predicted seconds; minus infinity where that is no number. A
// problem without an opinion gets the analytic ranker's, which is who would be asked next.
std::vector<ScoredRow> score(const Dataset& dataset, const Target& target, const Predict& predict);

// By a model, with the analytic ranker where it has no opinion.
std::vector<ScoredRow> score_model(const Dataset& dataset, const Target& target,
                                   const std::shared_ptr<const Model>& model);
// By the analytic ranker: in its order, which prefers shipped kernels among nearly equal ones.
std::vector<ScoredRow> score_analytic(const Dataset& dataset, const Target& target);
// At random: what no knowledge at all is worth.
std::vector<ScoredRow> score_random(const Dataset& dataset, std::uint64_t seed);

// The problems on which the model has no opinion, with the reason.
struct Outside {
  std::size_t problem = 0;
  std::string reason;
};
std::vector<Outside> outside_of(const Dataset& dataset, const Target& target,
                                const std::shared_ptr<const Model>& model);

}  // namespace tessera::train
