// Lists of features that are tables of rows: what a person reads, and a function that computes it.
// A family has one table for its problems and one for its kernels. Those of the least time, the
// machine and the estimate are the same for all families, and so is the loop over the rows.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/families/tile/simd_double.h"

namespace tessera::tile {

// Throws Error{invalid_argument} unless there is room for `features` numbers of each kernel, and
// there are as many uses or none.
void check_features(Op op, std::size_t features, std::size_t specs, std::size_t room,
                    std::size_t wanted);

// How many of the candidates want the feature; `wanted` is as for Family::extract.
std::size_t wanted_count(Op op, std::span<const FeatureUse> wanted, std::size_t feature,
                         std::size_t specs);

inline constexpr double kLeastSeconds = 1e-9;  // of any predicted time

inline double number(std::int64_t value) { return static_cast<double>(value); }
inline double log2_from_1(double value) { return log2_of(at_least(value, 1)); }
double bytes_of_cache(const Target& target, std::size_t level);  // 0: there is no such cache
inline double quotient(double part, double whole) { return whole > 0 ? part / whole : 0; }
// The share of whole tiles that is not padding.
inline double used_share(double size, double tile) {
  return quotient(size, ceil_of(size / tile) * tile);
}
// log2 of the largest power of 2 up to 64 that divides the count; more alignment changes nothing.
inline double alignment_of(std::int64_t count) {
  return log2_from_1(number(std::min<std::int64_t>(count & -count, 64)));
}

// What all kernels of a problem share besides what only its family knows. A cache of 0 bytes does
// not exist. A unit is a core or an SM.
struct MachineFacts {
  const Target* target = nullptr;
  int threads = 1;
  bool on_cpu = false;
  double units = 1;                // on a CPU, the threads
  double peak = 1, bandwidth = 1;  // each second
  double l1 = 0, l2 = 0, l3 = 0;   // bytes
};
struct WorkFacts {
  double flops = 0, bytes = 0;  // every operand once
  double ideal_log2 = 0;        // of the seconds that the machine takes at its peak
};
struct EstimateFacts {
  Estimate estimate = {};
  double seconds = kLeastSeconds;  // at least that
};

// `best` is the fastest instruction for the problem's types, or null: fp32's rate stands for types
// without an instruction, which kernels convert.
MachineFacts machine_facts(const Target& target, int threads, const Instruction* best);
WorkFacts work_facts(double flops, double bytes, const MachineFacts& machine);
EstimateFacts estimate_facts(const Estimate& estimate);

// Blocks that run side by side on a unit of a GPU, as far as its shared memory and threads go.
double blocks_on_unit(const MachineFacts& machine, double shared_bytes, double block_threads);

// A problem's facts, P, have the members `work` and `machine`; a kernel's facts on the problem, K,
// have the member `estimated`, which is filled in only where a feature of it is wanted.
template <class P>
struct ProblemFeature {
  Feature feature;
  double (*value)(const P&);
};
struct MachineFeature {
  Feature feature;
  double (*value)(const WorkFacts&, const MachineFacts&);
};
template <class P, class K>
struct KernelFeature {
  Feature feature;
  double (*value)(const P&, const K&);
  bool is_estimated = false;  // needs K::estimated
};
struct EstimateFeature {
  Feature feature;
  double (*value)(const WorkFacts&, const EstimateFacts&);
};
std::span<const MachineFeature> machine_features();
std::span<const EstimateFeature> estimate_features();

// The tables of a family. Its list has the problem's rows, the machine's, the kernel's and the
// estimate's. All candidates share the values of the first two.
template <class P, class K>
struct FeatureTables {
  std::span<const ProblemFeature<P>> problem;
  std::span<const KernelFeature<P, K>> kernel;
};

template <class P, class K>
std::vector<Feature> list_of(const FeatureTables<P, K>& tables) {
  std::vector<Feature> all;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) all.push_back(row.feature);
  };
  add(tables.problem), add(machine_features()), add(tables.kernel), add(estimate_features());
  return all;
}

// The room for the features of a list of candidates, as Family::extract has it.
struct FeatureRoom {
  Op op;
  std::size_t specs;
  std::span<double> columns;
  std::span<const FeatureUse> wanted;
};
// What is to be written of a feature: nothing, the first candidate's number, or all.
inline std::span<double> column_of(const FeatureRoom& room, std::size_t feature) {
  return {room.columns.data() + feature * room.specs,
          wanted_count(room.op, room.wanted, feature, room.specs)};
}

template <class Row>
struct WantedRow {
  const Row* row;
  std::span<double> column;
};
// Those of the rows of which something is wanted; the first one is the feature `at` of the list,
// which then becomes the one behind the last.
template <class Row>
std::vector<WantedRow<Row>> wanted_rows(std::span<const Row> rows, const FeatureRoom& room,
                                        std::size_t& at) {
  std::vector<WantedRow<Row>> wanted;
  for (const Row& row : rows) {
    const std::span<double> column = column_of(room, at++);
    if (!column.empty()) wanted.push_back({&row, column});
  }
  return wanted;
}

// Writes what is wanted. `facts_of(i)` and `estimate_of(i)` are a K and an Estimate of candidate i.
template <class P, class K, class FactsOf, class EstimateOf>
void fill_columns(const FeatureTables<P, K>& tables, const P& f, const FeatureRoom& room,
                  const FactsOf& facts_of, const EstimateOf& estimate_of) {
  std::size_t at = 0;
  for (const auto& [row, column] : wanted_rows(tables.problem, room, at)) {
    std::fill(column.begin(), column.end(), row->value(f));
  }
  for (const auto& [row, column] : wanted_rows(machine_features(), room, at)) {
    std::fill(column.begin(), column.end(), row->value(f.work, f.machine));
  }
  const auto of_kernel = wanted_rows(tables.kernel, room, at);
  const auto of_estimate = wanted_rows(estimate_features(), room, at);
  const bool is_estimated =
      !of_estimate.empty() || std::any_of(of_kernel.begin(), of_kernel.end(),
                                          [](const auto& w) { return w.row->is_estimated; });
  if (of_kernel.empty() && of_estimate.empty()) return;
  for (std::size_t i = 0; i < room.specs; ++i) {
    K x = facts_of(i);
    if (is_estimated) x.estimated = estimate_facts(estimate_of(i));
    for (const auto& [row, column] : of_kernel) {
      if (i < column.size()) column[i] = row->value(f, x);
    }
    for (const auto& [row, column] : of_estimate) {
      if (i < column.size()) column[i] = row->value(f.work, x.estimated);
    }
  }
}

// ---- families that have no features of their own making ----

// The sizes that charts have axes for, least traffic, the algorithm, and the estimate.
std::span<const Feature> usual_features();
void extract_usual(const Problem& problem, const Target& target, int threads,
                   std::span<const KernelSpec> specs, std::span<double> columns,
                   std::span<const FeatureUse> wanted);

}  // namespace tessera::tile
