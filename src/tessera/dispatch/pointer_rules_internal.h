// What a problem asks of its operands' pointers, worked out once for all of its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/operands.h"

namespace tessera {

// Knows the usual call: every pointer is there and aligned, and no output overlaps anything.
class PointerRules {
 public:
  PointerRules(const Family& family, const Problem& problem);
  // False for all other calls. Some of them are right too: validate_operands() decides.
  bool are_usual(const Operands& operands) const;

 private:
  struct Rule {
    std::size_t operand;
    std::size_t bytes;        // 0: an array of pointers, which point to what cannot be compared
    std::uintptr_t low_bits;  // are zero in an aligned address
  };
  const Family& family_;
  std::vector<Rule> rules_;  // outputs come first
  std::size_t outputs_ = 0;
};

// What validate_operands() does, in the usual call with few compares.
void check_operands(const ReadyKernel& kernel, const Problem& problem, const Operands& operands,
                    const CallerMemory& workspace);

}  // namespace tessera
