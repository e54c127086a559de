// What the stages want to know of a problem without computing with it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// One way to sort problems into classes, and the class of a problem: "layout" and "rcr".
struct Label {
  std::string by, value;
  friend bool operator==(const Label&, const Label&) = default;
};

// A size that charts have an axis for.
struct Axis {
  std::string_view name;  // "M"
  std::int64_t size = 0;
  friend bool operator==(const Axis&, const Axis&) = default;
};

struct Facts {
  DType dtype = DType::fp32;   // of the operand that the machine's roof is named after
  std::vector<Label> types;    // what a kernel is compiled for: element types, layouts, directions
  std::vector<Label> sizes;    // classes of sizes
  std::array<Axis, 2> axes;    // rows and columns of a chart of efficiency
  std::uint64_t shape_hash{};  // of sizes alone: it decides the side of the split
  bool bandwidth_bound{};      // so narrow that its bytes count, not its operations
};

// Problems are on one of two sides: models learn from one and are scored on the other.
enum class ProblemSide : std::uint8_t { learned, unseen };
constexpr ProblemSide side_of(std::uint64_t shape_hash) {
  constexpr std::uint64_t kUnseenPart = 3;  // one shape of so many is unseen
  return shape_hash % kUnseenPart == 0 ? ProblemSide::unseen : ProblemSide::learned;
}
// Whether learning must not see the problem, which may be one of no list.
bool is_unseen(const Problem& problem);

// Types as one types them after --dtype and --layout. Empty: those that a problem has, or else the
// operation's usual ones.
struct TypeWords {
  std::string dtype, layout;
};

// A row of another program's file: keys in small letters, and the text of their values.
using ProblemWords = std::map<std::string, std::string>;

// What models are filed under besides the operation and the target: see Family::model_key.
std::string model_key(const Problem& problem);
std::string model_key(const KernelSpec& spec);

// The operations per second that so many of the target's units do at most by the instruction.
double peak_of(const Instruction& instruction, const Target& target, int units);

}  // namespace tessera
