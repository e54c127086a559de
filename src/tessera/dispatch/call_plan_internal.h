// What follows from a problem and its kernel, worked out once for all of their calls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/operands.h"

namespace tessera {

// The addresses of a call's operands, in the order of the rules, and all of their bits.
struct Addresses {
  std::array<std::uintptr_t, kMaxTensors> of;
  std::uintptr_t bits;
};

// Knows the usual call: every pointer is there and aligned, and no output overlaps anything.
class PointerRules {
 public:
  PointerRules(const Family& family, const Problem& problem);
  // False for all other calls. Some of them are right too: validate_operands() decides. The
  // addresses of a usual call are written to `at`.
  bool are_usual(const Operands& operands, Addresses& at) const;
  std::size_t size() const { return rules_.size(); }
  // The operand that the rule at `index` is about.
  std::size_t operand(std::size_t index) const { return rules_[index].operand; }

 private:
  struct Rule {
    std::size_t operand;
    std::size_t bytes;        // 0: an array of pointers, which point to what cannot be compared
    std::uintptr_t low_bits;  // are zero in an aligned address
  };
  Op op_;
  const void* (*pointer_)(const Operands&, std::size_t operand);  // Family::pointer
  std::vector<Rule> rules_;                                       // outputs come first
  std::size_t outputs_ = 0;
};

// The launch of a kernel on a problem without the addresses. It serves the usual calls whose
// operands lie at multiples of kAlikeBytes, because Family::bind() treats these addresses alike.
class LaunchPlan {
 public:
  // Binds the kernel at made-up addresses, and again at others, to see where they go. Unset where
  // that shows a launch that depends on addresses in another way, or that is refused: then each
  // call binds for itself.
  static std::optional<LaunchPlan> of(const ReadyKernel& kernel, const Problem& problem,
                                      const PointerRules& rules);
  bool serves(const Addresses& at) const;
  Launch launch_at(const Addresses& at) const;

 private:
  // A word of the launch that holds an address: so many bytes behind the one of a rule's operand.
  struct Place {
    std::size_t word;
    std::size_t rule;
    std::uintptr_t behind;
  };
  explicit LaunchPlan(const Launch& launch);

  // The parts of the launch, since a Launch itself has room for much longer lists.
  std::vector<std::byte> arguments_;
  std::size_t second_;
  std::vector<Step> steps_;
  std::vector<TensorMap> tensor_maps_;
  std::vector<WorkspacePlace> workspace_places_;
  std::vector<const void*> pointers_;
  Launch::Workspace workspace_;
  std::size_t blocks_offset_;
  std::int64_t parts_;
  int max_threads_;
  std::vector<Place> places_;
};

struct Tally;

// Extras::value_check() where the kernel's operands lie in the host's memory; otherwise null.
ValueCheck value_check_of(const ReadyKernel& kernel, const Problem& problem);

struct CallPlan {
  CallPlan(const ReadyKernel& kernel, const Problem& problem)
      : pointers(*kernel.family, problem),
        launch(LaunchPlan::of(kernel, problem, pointers)),
        value_check(value_check_of(kernel, problem)) {}
  PointerRules pointers;
  std::optional<LaunchPlan> launch;
  // Not null where the values of operands must be looked at before each launch, in host memory.
  ValueCheck value_check;
  // Where its calls are counted, the last time that they were; see recorder_internal.h.
  mutable std::atomic<Tally*> tally = nullptr;
};

// The launch of a ready kernel for a call. Throws what validate_operands() throws, which it asks
// only about calls that are not usual.
Launch checked_launch(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                      const CallerMemory& workspace);

}  // namespace tessera
