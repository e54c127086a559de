// Splits measured rows by problem: all rows of a problem are on the same side.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::train {

// The fold of every row, from 0 to folds - 1. `groups` has a number for each row that identifies
// its problem. Folds have about equally many rows: problems are taken by decreasing number of rows,
// and each goes to the fold with the fewest rows (LPT, Graham 1969). The order of rows does not
// change the folds. Throws Error{invalid_argument} for fewer than 2 folds, and for fewer problems
// than folds.
std::vector<int> group_folds(std::span<const std::size_t> groups, int folds);

// Lists of row numbers. Trees are fitted to `train`, early stopping uses `stop`, and `score` is
// used once, when the forest is finished.
struct Split {
  std::vector<std::size_t> train, stop, score;
};

// The split that scores one fold and takes about `stop_share` of the other rows for early stopping.
// Throws Error{invalid_argument} unless every part gets a problem.
Split split_rows(std::span<const std::size_t> groups, std::span<const int> fold_of_row, int fold,
                 double stop_share);

}  // namespace tessera::train
