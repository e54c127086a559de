// What a plan over a range holds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/dispatch/call_plan_internal.h"
#include "tessera/dispatch/range_plan_internal.h"

namespace tessera {

// A kernel of the table.
struct RangeKernel {
  Decision decision;  // of the first value at which it was chosen
  std::shared_ptr<const runtime::LoadedKernel> loaded;
};

// What a value's first launch leaves for the others.
struct BoundValue {
  CallPlan plan;
  const runtime::LoadedKernel& loaded;  // its RangeKernel's
};

struct RangePlan::State {
  State(RangeSource from, RangedProblem of);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const RangeKernel& kernel_of(std::int64_t value) const;
  int worth_threads(const RangeKernel& kernel, std::int64_t value, const Problem& computed) const;
  // Without its call plan.
  ReadyKernel ready_at(std::int64_t value) const;
  // The value must be in the range.
  const BoundValue& bound_at(std::int64_t value) const {
    const auto index = static_cast<std::size_t>(value - ranged.range.first);
    const BoundValue* const known = bound[index].load(std::memory_order_acquire);
    return known != nullptr ? *known : bind(value);
  }
  const BoundValue& bind(std::int64_t value) const;
  void launch_observed(std::int64_t value, const BoundValue& of, const Operands& operands,
                       const runtime::LaunchOptions& options) const;
  Launch unusual_launch(std::int64_t value, const BoundValue& of, const Operands& operands,
                        const CallerMemory& workspace) const;

  RangeSource source;
  RangedProblem ranged;
  const Family& family;
  std::vector<PlannedPart> parts;
  std::vector<std::shared_ptr<const RangeKernel>> kernels;  // one for each part
  std::vector<std::int64_t> tuned;  // values whose kernel was measured there, ascending
  std::size_t workspace_bytes = 0;
  mutable std::vector<std::atomic<const BoundValue*>> bound;  // one for each value, owned
};

}  // namespace tessera
