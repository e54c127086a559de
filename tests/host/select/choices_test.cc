// What the estimate chooses for drawn problems, on every shipped target: a change that is not meant
// to change choices leaves these lines alone. TESSERA_WRITE_GOLDEN=1 writes them anew, and
// TESSERA_PRINT_CHOICES=1 prints each choice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "golden.h"
#include "targets_with.h"
#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/select/select.h"

namespace tessera {
namespace {

constexpr std::size_t kProblems = 6;  // of each list

const TypeWords kTypes[] = {{"fp32", ""},    {"fp32", "rrr"}, {"bf16", ""},
                            {"bf16", "rrr"}, {"fp8", ""},     {"int8", ""},
                            {"int8", "rrr"}, {"tf32", ""},    {"fp16", "nchw"}};

// The first problems of a list; none where the operation has no such types.
std::vector<Problem> first_problems(const Family& family, std::string_view set,
                                    const Target& target, const TypeWords& types) {
  try {
    std::vector<Problem> all = family.draw(set, ProblemSide::unseen, target, types);
    all.resize(std::min(all.size(), kProblems));
    return all;
  } catch (const Error&) {
    return {};
  }
}

// The kernel, its predicted time, and how many candidates there were; or the refusal.
std::string choice_of(const Problem& problem, const Target& target) {
  try {
    const Decision decision = choose(problem, target, {.threads = 4});
    const auto legal = family_of(problem).legal_candidates(problem, target).size();
    return fmt::format("{} {} {:.9g} {}\n", to_string(problem), decision.name,
                       decision.predicted_seconds, legal);
  } catch (const Error& error) {
    return fmt::format("{} {}\n", to_string(problem), error.what());
  }
}

std::string line_of(const Family& family, const Target& target, std::string_view set) {
  std::string choices;
  for (const TypeWords& types : kTypes) {
    for (const Problem& problem : first_problems(family, set, target, types)) {
      choices += choice_of(problem, target);
    }
  }
  if (std::getenv("TESSERA_PRINT_CHOICES") != nullptr) std::fputs(choices.c_str(), stdout);
  const Op op = family.op;
  return fmt::format("{} {} {}: {} problems, {:016x}\n", to_string(op), target.name, set,
                     std::count(choices.begin(), choices.end(), '\n'), hash64(choices));
}

TEST(Choices, OfDrawnProblemsStay) {
  std::string lines;
  for (const Family* family : all_families()) {
    for (const std::string& name : targets_with(family->op)) {
      const Target target = load_target(name);
      for (const std::string_view set : family->problem_sets()) {
        lines += line_of(*family, target, set);
      }
    }
  }
  expect_golden("choices.txt", lines);
}

}  // namespace
}  // namespace tessera
