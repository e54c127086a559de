// Splits of measured rows by problem: all rows of a problem are on one side.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::train {

// The fold, from 0 to folds - 1, of every row. `groups` names the problem of each row by any
// number. Folds have about as many rows each: the problem with most rows goes first, always to the
// fold with the fewest rows (LPT, Graham 1969). The same groups give the same folds in whatever
// order rows come. Throws Error{invalid_argument} for fewer than 2 folds, or fewer problems than
// folds.
std::vector<int> group_folds(std::span<const std::size_t> groups, int folds);

// Row numbers. Trees are fitted to `train`, their number is decided by `stop`, and `score` is
// looked at once, when all is decided.
struct Split {
  std::vector<std::size_t> train, stop, score;
};

// One fold scored, of the other problems' rows about `stop_share` for early stopping. Throws
// Error{invalid_argument} unless every part gets a problem.
Split split_rows(std::span<const std::size_t> groups, std::span<const int> fold_of_row, int fold,
                 double stop_share);

}  // namespace tessera::train
