// Computes from measured times and predicted scores how good a way of choosing kernels is.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/spec/problem.h"

namespace tessera::train {

// A kernel on a problem: its measured time and its predicted score.
struct ScoredRow {
  std::size_t problem = 0;  // index into the list of problems
  std::string kernel;       // name
  double seconds = 0;       // measured
  double score = 0;         // the highest is chosen: minus predicted seconds, or a rank's score
};

// The result for one problem. Equal scores and equal times are ordered by name.
struct ProblemResult {
  std::size_t problem = 0;
  std::string chosen, best;  // the kernel with the best score; the fastest kernel
  double chosen_seconds = 0, best_seconds = 0;
  double efficiency = 0;  // best_seconds / chosen_seconds, at most 1
  double ndcg = 0;
  int rank_of_best = 0;                   // 1: the chosen kernel is as fast as the best
  std::array<double, 4> regret_of_top{};  // for each k of kTop: time of the fastest among the k
                                          // best scores / best - 1, at least 0
};
inline constexpr std::array kTop = {1, 3, 5, 10};

// Statistics over a list of problems or a part of it. Percentiles interpolate linearly between
// sorted neighbours (Hyndman and Fan's type 7).
struct Summary {
  std::size_t problems = 0;
  double mean = 0, p50 = 0, p10 = 0, min = 0;  // of efficiency
  double top1 = 0, top3 = 0, top5 = 0;  // share of problems whose best kernel has one of the 1, 3,
                                        // 5 best scores
  // Normalised discounted cumulative gain of the whole order. A kernel's gain is best_seconds /
  // seconds, discounted by log2(1 + place) (Jarvelin and Kekalainen, Cumulated gain-based
  // evaluation of IR techniques, ACM TOIS 20, 2002). The value is the mean over problems.
  double ndcg = 0;
  std::array<double, 4> mean_regret{};  // for each k of kTop
  std::array<double, 4> worst_regret{};
};

// The problems of one class: those with a label of the family's facts, or those whose chosen kernel
// has a "pipeline".
struct Slice {
  std::string by, value;
  Summary summary;
};

struct Evaluation {
  Summary summary;
  std::vector<Slice> slices;           // sorted by their words, without empty ones
  std::vector<ProblemResult> results;  // by problem
  std::vector<ProblemResult> worst;    // the ten with the least efficiency, least first
};

// The name of the best kernel for each problem (by index in the list of problems). The fastest of
// hundreds of readings is also the luckiest one. When an earlier measurement names the best kernel,
// its time comes from the same readings as any other choice. A choice that is faster than it counts
// as 100%.
using Oracle = std::map<std::size_t, std::string>;
Oracle fastest_of(std::span<const ScoredRow> rows);

// Evaluates the rows. With an empty oracle, the best kernel of a problem is its fastest row.
// Problems without rows are left out, and so are problems whose best kernel by the oracle has no
// row. Throws Error{invalid_argument} for no rows, a problem that is not in the list, seconds that
// are not positive, a score that is not a number, and a kernel that occurs twice. Throws
// Error{parse_error} when the name of a chosen kernel cannot be read.
Evaluation evaluate(std::span<const Problem> problems, std::span<const ScoredRow> rows,
                    const Oracle& oracle = {});

// Whether the choices `after` may replace the choices `before`, evaluated on the same problems.
// Compared with before, the mean and median of efficiency may lose at most 0.5%, the 10th
// percentile at most 2%, and each problem at most 10%.
struct Comparison {
  bool accepted = true;
  double mean = 1, p50 = 1, p10 = 1, worst = 1;  // after / before
  std::size_t worst_problem = 0;                 // index into the list of problems
  std::vector<std::string> reasons;              // a sentence for every broken rule
  // How many problems get the same kernel; and how many a faster, an equally fast or a slower one.
  std::size_t agreeing = 0, improved = 0, same = 0, degraded = 0;
};
Comparison compare(const Evaluation& before, const Evaluation& after,
                   std::span<const Problem> problems);

}  // namespace tessera::train
