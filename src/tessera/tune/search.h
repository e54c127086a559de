// Searches a target's legal kernels for a good one for one problem: first by predictions, then by
// measuring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/learn/model.h"
#include "tessera/measure/sweep.h"
#include "tessera/select/select.h"

namespace tessera::tune {

// random: kernels drawn without repetition. evolution: discrete differential evolution, see
// search(). exhaustive: all kernels.
enum class SearchStrategy : std::uint8_t { random, evolution, exhaustive };
std::string_view to_string(SearchStrategy strategy);
// Throws Error{not_found} with the nearest word.
SearchStrategy parse_search_strategy(std::string_view word);

struct SearchOptions {
  SearchStrategy strategy = SearchStrategy::evolution;
  std::size_t evaluations = 500;  // how many different kernels are predicted; exhaustive predicts
                                  // all
  double seconds = 0;             // after it no further batch is predicted; 0: no limit
  int threads = 0;                // 0: all units of the target
  std::uint64_t seed = 1;
};

struct FoundKernel {
  KernelSpec spec;
  std::string name;
  double value = 0;  // the surrogate's prediction: seconds or a score; the least is the best
};

struct SearchResult {
  std::size_t space = 0;  // how many legal kernels support the problem
  std::size_t evaluations = 0;
  double seconds = 0;
  bool out_of_time = false;
  std::vector<FoundKernel> found;  // all predicted kernels, best first; equal values by name
};

// The surrogate that predicts seconds by the family's estimate.
LearnedModel analytic_surrogate();
// The surrogate that asks a learned model.
LearnedModel model_surrogate(const std::shared_ptr<const Model>& model);

// The same seed proposes the same kernels in the same order; a time limit only ends the search
// earlier. Evolution is DE/best/1/bin (Storn and Price, J. Global Optimization 11, 1997). Its
// coordinates are the indices of each field's value in the sorted list of the values that occur. A
// proposal that is not a legal kernel, or was predicted before, is replaced by the nearest legal
// kernel that was not. Throws Error{invalid_argument} for an invalid problem or a budget without
// evaluations, and Error{unsupported} when no kernel of the target's space is legal, or when the
// surrogate has no opinion.
SearchResult search(const Problem& problem, const Target& target, const LearnedModel& surrogate,
                    const SearchOptions& options);

struct MeasuredKernel {
  FoundKernel kernel;
  measure::Outcome outcome = measure::Outcome::ok;
  double seconds = 0;  // median; 0 unless ok
  double spread = 0;   // interquartile range / median
  std::string note;    // why it is not ok
};

// Verifies the `top` best kernels that were found and measures them against each other, by a sweep
// into `store`. Kernels that were not ok come last. Throws what sweep() throws, and
// Error{unsupported} when the problem could not be prepared.
std::vector<MeasuredKernel> measure_best(const Problem& problem, const Target& target,
                                         const SearchResult& result, std::size_t top,
                                         measure::SweepStore& store,
                                         const measure::SweepOptions& options);

}  // namespace tessera::tune
