// Measurements in the form for learning: the problems, kernels and times of one operation on one
// class of machine.
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
  // problem and kernel are indices into the lists.
  struct Row {
    std::uint32_t problem = 0;
    std::uint32_t kernel = 0;
    double seconds = 0;
    int readings = 0;  // how often the clock was read, in all its measurements
    friend bool operator==(const Row&, const Row&) = default;
  };
  std::string target;
  std::vector<std::string> devices;  // that measured, sorted
  // Sorted by their text, then by threads; at least one, all of one operation. A problem that was
  // measured with several numbers of threads is there once for each.
  std::vector<Problem> problems;
  std::vector<int> threads;  // of each problem
  std::vector<KernelSpec> kernels;
  std::vector<std::string> kernel_names;  // sorted
  std::vector<Row> rows;                  // sorted by problem, then kernel name
  std::string hash;                       // hash of all of the above
};

Op op_of(const Dataset& dataset);

// The numbers of threads that there are, in their order.
std::vector<int> thread_numbers(const Dataset& dataset);
std::vector<int> thread_numbers(const measure::SweepData& data);

// Joins the rows of several sweeps.
measure::SweepData joined(std::span<const measure::SweepData> parts);

// Which rows of a sweep to use. Rows that are not ok are never used, because they have no time.
struct DatasetFilter {
  std::optional<Op> op = {};        // unset: the only one in the data
  std::string target = {};          // empty: the only one in the data
  std::vector<std::string> dtypes;  // keys of Family::model_key, "bf16", "fp8_bf8"; empty: all
  std::vector<std::string> kernels = {};  // wildcards over their names; empty: all
  std::vector<int> threads = {};          // empty: the only number in the data
  bool drop_unseen = true;   // leave out what only scoring may look at: problems of that
                             // side of the split, and kernels that no feature describes
  bool only_unseen = false;  // leave out all others
  std::size_t least_problems = 1;
};

// Makes a data set. A kernel that was measured several times on a problem (on several devices or in
// several runs) gets the median of its times. Throws Error{invalid_argument} when no rows are left,
// when rows of several targets or operations are left, or of several numbers of threads although
// none was asked for, and when there are fewer problems than needed. Throws Error{parse_error} with
// the number of the first row whose problem or kernel cannot be read.
Dataset make_dataset(const measure::SweepData& data, const DatasetFilter& filter);

// The index of each problem's first row, followed by the number of rows.
std::vector<std::size_t> first_rows(const Dataset& dataset);

// For each row the first problem that is equal to its own, which may differ in threads. What must
// not be torn apart, such as the learned side and the judged one of a fold, goes by these.
std::vector<std::size_t> groups_of(const Dataset& dataset);

// rows x features numbers, row by row.
std::vector<double> feature_rows(const Dataset& dataset, const Target& target);

// A function that fills in seconds for the candidates, or returns false when it has no opinion.
using Predict = std::function<bool(const RankInput&, std::span<double> seconds)>;

// Scores every row with minus its predicted seconds, or minus infinity when the prediction is not a
// number. Problems on which `predict` has no opinion get the analytic ranker's scores, because the
// dispatcher would ask that ranker next.
std::vector<ScoredRow> score(const Dataset& dataset, const Target& target, const Predict& predict);

// Scores by a model, and by the analytic ranker where the model has no opinion.
std::vector<ScoredRow> score_model(const Dataset& dataset, const Target& target,
                                   const std::shared_ptr<const Model>& model);
// Scores in the analytic ranker's order, which prefers shipped kernels among nearly equal ones.
std::vector<ScoredRow> score_analytic(const Dataset& dataset, const Target& target);
// Random scores, to compare with a choice by chance.
std::vector<ScoredRow> score_random(const Dataset& dataset, std::uint64_t seed);

// Gives the worst score to kernels that are no candidates of their problem, such as a tile that is
// one only where it fits: sweeps measure them, and the dispatcher never chooses them.
void keep_offered(const Dataset& dataset, const Target& target, std::vector<ScoredRow>& rows);

// The problems on which the model has no opinion, with the reason.
struct Outside {
  std::size_t problem = 0;
  std::string reason;
};
std::vector<Outside> outside_of(const Dataset& dataset, const Target& target,
                                const std::shared_ptr<const Model>& model);

}  // namespace tessera::train
