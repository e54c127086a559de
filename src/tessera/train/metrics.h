// How good a way of choosing kernels is, from measured times and predicted scores.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/spec/problem.h"

namespace tessera::train {

// A kernel measured on a problem, and what was predicted of it.
struct ScoredRow {
  std::size_t problem = 0;  // index into the list of problems
  std::string kernel;       // name
  double seconds = 0;       // measured
  double score = 0;         // the highest is chosen: minus predicted seconds, or a rank's score
};

// What happens on one problem. Equal scores and equal times are ordered by name.
struct ProblemResult {
  std::size_t problem = 0;
  std::string chosen, best;  // by score; by time
  double chosen_seconds = 0, best_seconds = 0;
  double efficiency = 0;  // best_seconds / chosen_seconds, at most 1
  double ndcg = 0;
  int rank_of_best = 0;                   // 1: of the kernels as fast as the best, one was chosen
  std::array<double, 4> regret_of_top{};  // fastest of kTop best scores / best - 1, at least 0
};
inline constexpr std::array kTop = {1, 3, 5, 10};

// Over the problems of a list or of a part of it. Percentiles interpolate linearly between the
// neighbours in order (Hyndman and Fan's type 7).
struct Summary {
  std::size_t problems = 0;
  double mean = 0, p50 = 0, p10 = 0, min = 0;  // of efficiency
  double top1 = 0, top3 = 0, top5 = 0;         // share of problems whose best is among those scores
  // Normalised discounted cumulative gain of the whole order, a kernel's gain being
  // best_seconds / seconds, discounted by log2(1 + place) (Jarvelin and Kekalainen, Cumulated
  // gain-based evaluation of IR techniques, ACM TOIS 20, 2002); the mean over problems.
  double ndcg = 0;
  std::array<double, 4> mean_regret{};  // by kTop
  std::array<double, 4> worst_regret{};
};

// The problems of one class: by a label of the family's facts, or by the "pipeline" of the chosen
// kernel.
struct Slice {
  std::string by, value;
  Summary summary;
};

struct Evaluation {
  Summary summary;
  std::vector<Slice> slices;           // sorted by words, empty ones left out
  std::vector<ProblemResult> results;  // by problem
  std::vector<ProblemResult> worst;    // the ten with the least efficiency, least first
};

// What counts as a problem's best kernel, by place in the list of problems. The fastest of hundreds
// of readings is also the luckiest: named by an earlier measurement, the best is judged by the same
// readings as any other choice. One that is faster counts as 100%: that is luck again.
using Oracle = std::map<std::size_t, std::string>;
Oracle fastest_of(std::span<const ScoredRow> rows);

// Problems without rows are left out, and with an oracle those whose named kernel has no row; an
// empty oracle is the fastest row. Throws Error{invalid_argument} for no rows, a problem that is
// not in the list, seconds that are not positive, a score that is no number, or a kernel that
// comes twice; Error{parse_error} for a chosen kernel whose name is none.
Evaluation evaluate(std::span<const Problem> problems, std::span<const ScoredRow> rows,
                    const Oracle& oracle = {});

// Whether `after` may replace `before`, evaluated on the same problems: relative to before, mean
// and median of efficiency lose at most 0.5%, P10 at most 2%, and no problem more than 10%.
struct Comparison {
  bool accepted = true;
  double mean = 1, p50 = 1, p10 = 1, worst = 1;  // after / before
  std::size_t worst_problem = 0;                 // index into the list of problems
  std::vector<std::string> reasons;              // a sentence for every broken rule
};
Comparison compare(const Evaluation& before, const Evaluation& after,
                   std::span<const Problem> problems);

}  // namespace tessera::train
