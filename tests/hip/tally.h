// Counts of the problems that a run of tests has emulated, for tools/random_problems.py.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "tessera/spec/dtype.h"
#include "tessera/spec/fmha_words.h"
#include "tessera/spec/problem.h"

namespace tessera {

// TESSERA_TEST_TIMES: so many times as many problems as in a usual run, of every kernel.
inline int test_times() {
  const char* text = std::getenv("TESSERA_TEST_TIMES");
  return text == nullptr ? 1 : std::clamp(std::atoi(text), 1, 1000);
}
// A usual run tests one target; runs of the others, and of more problems, take their time.
inline bool is_usual_run(const std::string& target) {
  return target == "gfx942" && std::getenv("TESSERA_TEST_TIMES") == nullptr;
}

// "conv backward_data fp16".
inline std::string kind_of_problem(const Problem& problem) {
  struct Words {
    std::string operator()(const GemmProblem& p) const {
      return fmt::format("gemm - {}", to_string(p.a));
    }
    std::string operator()(const NormProblem& p) const {
      return fmt::format("norm {} {}", to_string(p.kind), to_string(p.in));
    }
    std::string operator()(const ConvProblem& p) const {
      const DType type = p.direction == ConvDirection::backward_data ? p.out : p.in;
      return fmt::format("conv {} {}", to_string(p.direction), to_string(type));
    }
    std::string operator()(const FmhaProblem& p) const {
      return fmt::format("fmha {} {}", to_string(p.kind), to_string(p.in));
    }
    std::string operator()(const RouteProblem& p) const {
      return fmt::format("route {} {}", to_string(p.scoring), to_string(p.in));
    }
  };
  return std::visit(Words{}, problem);
}

// Counts go to the end of the file that TESSERA_TEST_TALLY names, a line a kind of problems.
class Tally {
 public:
  void add(const Problem& problem) { ++counts_[kind_of_problem(problem)]; }
  void write(const std::string& target, const std::string& test, std::uint64_t seed,
             bool failed) const {
    const char* file = std::getenv("TESSERA_TEST_TALLY");
    if (file == nullptr) return;
    std::string lines;
    for (const auto& [kind, count] : counts_) {
      lines += fmt::format("{} {} {}\n", kind, target, count);
    }
    if (failed) lines += fmt::format("failed {} seed {}\n", test, seed);
    std::FILE* const out = std::fopen(file, "a");
    if (out == nullptr) return;
    std::fwrite(lines.data(), 1, lines.size(), out);
    std::fclose(out);
  }

 private:
  std::map<std::string, int> counts_;
};

}  // namespace tessera
