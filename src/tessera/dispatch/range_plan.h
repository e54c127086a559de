// Plans over a range: the kernels for all values of one field, built and loaded ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/dispatch/dispatcher.h"
#include "tessera/select/ranges.h"

#pragma GCC visibility push(default)
namespace tessera {

// A part of a range and what was decided for it.
struct PlannedPart {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string kernel;
  ChoiceSource source = ChoiceSource::first_legal;  // at the first value
  double predicted_seconds = 0;                     // at the first value
};

// What a launch of a plan over a range takes besides the value and the operands. Threads and device
// are those that the plan was made for.
struct RangeLaunchOptions {
  void* stream = nullptr;     // GPU: the caller's stream; null is the default stream
  void* workspace = nullptr;  // as in runtime::LaunchOptions
  std::size_t workspace_bytes = 0;
};

// Made by Dispatcher::plan_range(), which must outlive it. Immutable but for what it remembers of
// values that were launched; thread-safe. A launch chooses, builds and loads nothing. The first
// launch at a value binds its kernel to it in some microseconds, and later ones find that without a
// lock. The plan has a pointer for each value of the range, and a launch without its addresses for
// each value that was launched.
class RangePlan {
 public:
  ~RangePlan();
  RangePlan(const RangePlan&) = delete;
  RangePlan& operator=(const RangePlan&) = delete;

  // The problem with the range's first value, and the range.
  const RangedProblem& ranged() const;
  // The table: parts in their order, without gaps.
  const std::vector<PlannedPart>& parts() const;
  // The most bytes that a launch at any value may need as a workspace, at any addresses of the
  // operands and on as many threads as there were when the plan was made; may be 0.
  std::size_t workspace_bytes() const;

  // Runs the kernel of a value. Checks the operands as Dispatcher::run() does. Throws
  // Error{invalid_argument} for a value outside of the range.
  void launch(std::int64_t value, const Operands& operands,
              const RangeLaunchOptions& options = {}) const;
  // What a launch at the value runs, as a kernel of its own.
  ReadyKernel kernel_at(std::int64_t value) const;

  struct [[gnu::visibility("hidden")]] State;
  [[gnu::visibility("hidden")]] explicit RangePlan(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tessera
#pragma GCC visibility pop
