#include "tessera/families/tile/sets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "golden.h"
#include "targets_with.h"
#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/targets/targets.h"

namespace tessera::tile {
namespace {

Verdict any_is_legal(const KernelSpec&, const Target&) { return {}; }

// The names of a set's kernels, a line each; nothing when the target has no such set.
std::string kernels_of(Op op, const std::string& set, const Target& target) {
  std::string text;
  try {
    for (const KernelSpec& spec : preselected(op, set, target, any_is_legal)) {
      text += fmt::format("{} {} {}\n", target.name, set, name_of(spec));
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
  }
  return text;
}

// What the rows stand for: "gemm avx512: 96 sets, 701 names, 0123456789abcdef".
TEST(TileSets, RowsStandForTheseKernels) {
  std::string lines;
  for (const Family* family : all_families()) {
    const Op op = family->op;
    for (const std::string& name : targets_with(op)) {
      const Target target = load_target(name);
      int sets = 0;
      std::string kernels;
      for (const std::string& set : preselected_names(op)) {
        const std::string of_set = kernels_of(op, set, target);
        sets += of_set.empty() ? 0 : 1;
        kernels += of_set;
      }
      const auto names = std::count(kernels.begin(), kernels.end(), '\n');
      lines += fmt::format("{} {}: {} sets, {} names, {:016x}\n", to_string(op), name, sets, names,
                           hash64(kernels));
    }
  }
  expect_golden("sets.txt", lines);
}

// A row of a user's own may lack instructions; a shipped row must not.
TEST(TileSets, EveryKernelIsLegalOnShippedRows) {
  for (const Family* family : all_families()) {
    const Op op = family->op;
    for (const std::string& name : targets_with(op)) {
      const Target target = load_target(name);
      for (const std::string& set : preselected_names(op)) {
        if (kernels_of(op, set, target).empty()) continue;
        EXPECT_EQ(family->preselected(set, target).size(),
                  preselected(op, set, target, any_is_legal).size())
            << name << " " << set;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::tile
