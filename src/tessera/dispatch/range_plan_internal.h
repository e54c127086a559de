// What a plan over a range asks of the dispatcher that makes it.
#pragma once

#include <functional>
#include <memory>

#include "tessera/dispatch/range_plan.h"

namespace tessera {

// The references and functions belong to the dispatcher. The functions are thread-safe.
struct RangeSource {
  const DispatcherOptions& options;
  const Target& target;
  Registry& registry;
  runtime::LaunchOptions launch;  // threads and device, as the caller gave them
  int threads;                    // how many launches have on the calling thread, see MemoKey
  // The choice for a problem, among the kernels that are ready where there is no compiler.
  std::function<Decision(const Problem&)> decide;
  // Whether something was measured for exactly this problem.
  std::function<bool(const Problem&)> is_measured;
  // ReadyKernel::worth_threads.
  std::function<int(const Decision&, const Problem&)> worth_threads;
  // Whether launches are compared with the reference; and a launch that is, or is written down.
  bool samples;
  std::function<void(const ReadyKernel&, const Problem&, const Operands&,
                     const runtime::LaunchOptions&)>
      launch_observed;
};

// Chooses, builds and loads the kernels of all values. Throws what kernel_for() throws for any of
// them, and Error{unsupported} for a packed operand that no one packing serves.
std::shared_ptr<const RangePlan> make_range_plan(RangeSource source, const Problem& problem,
                                                 const FieldRange& range);

}  // namespace tessera
