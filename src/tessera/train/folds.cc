#include "tessera/train/folds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"

namespace tessera::train {
namespace {

template <class... Args>
[[noreturn]] void refuse_folds(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "folds: " + fmt::format(sentence, std::forward<Args>(args)...));
}

// Problems with equally many rows are taken in the order of their hashes, so that similar
// neighbours in a list go to different folds.
struct Group {
  std::size_t rows;
  std::uint64_t hash;
  std::size_t id;
};

std::vector<Group> groups_of(const std::map<std::size_t, std::size_t>& rows_of) {
  std::vector<Group> groups;
  for (const auto& [id, rows] : rows_of) groups.push_back({rows, hash_combine(0, id), id});
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    if (a.rows != b.rows) return a.rows > b.rows;
    return a.hash != b.hash ? a.hash < b.hash : a.id < b.id;
  });
  return groups;
}

// The part with the fewest rows relative to its weight takes the next problem.
std::map<std::size_t, int> shared_out(const std::vector<Group>& groups,
                                      const std::vector<double>& weights) {
  std::vector<double> rows(weights.size(), 0);
  std::map<std::size_t, int> part_of;
  for (const Group& group : groups) {
    std::size_t best = 0;
    const auto load = [&](std::size_t part) {
      return (rows[part] + static_cast<double>(group.rows)) / weights[part];
    };
    for (std::size_t part = 1; part < weights.size(); ++part) {
      if (load(part) < load(best)) best = part;
    }
    rows[best] += static_cast<double>(group.rows);
    part_of[group.id] = static_cast<int>(best);
  }
  return part_of;
}

}  // namespace

std::vector<int> group_folds(std::span<const std::size_t> groups, int folds) {
  if (folds < 2) refuse_folds("at least 2 folds are needed, got {}", folds);
  std::map<std::size_t, std::size_t> rows_of;
  for (const std::size_t group : groups) ++rows_of[group];
  if (rows_of.size() < static_cast<std::size_t>(folds)) {
    refuse_folds("{} folds need as many problems, got {}", folds, rows_of.size());
  }
  const auto part_of =
      shared_out(groups_of(rows_of), std::vector<double>(static_cast<std::size_t>(folds), 1));
  std::vector<int> fold_of_row;
  fold_of_row.reserve(groups.size());
  for (const std::size_t group : groups) fold_of_row.push_back(part_of.at(group));
  return fold_of_row;
}

Split split_rows(std::span<const std::size_t> groups, std::span<const int> fold_of_row, int fold,
                 double stop_share) {
  if (groups.size() != fold_of_row.size()) {
    refuse_folds("every row needs a fold, got {} rows and {} folds", groups.size(),
                 fold_of_row.size());
  }
  if (!(stop_share > 0 && stop_share < 1)) {
    refuse_folds("the share of early stopping must be between 0 and 1, got {}", stop_share);
  }
  std::map<std::size_t, std::size_t> rows_of;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (fold_of_row[i] != fold) ++rows_of[groups[i]];
  }
  const auto part_of = shared_out(groups_of(rows_of), {1 - stop_share, stop_share});
  Split split;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool scored = fold_of_row[i] == fold;
    auto& rows = scored ? split.score : part_of.at(groups[i]) == 0 ? split.train : split.stop;
    rows.push_back(i);
  }
  if (split.train.empty() || split.stop.empty() || split.score.empty()) {
    refuse_folds(
        "fold {} leaves {} rows to train, {} to stop and {} to score; each needs a problem", fold,
        split.train.size(), split.stop.size(), split.score.size());
  }
  return split;
}

}  // namespace tessera::train
