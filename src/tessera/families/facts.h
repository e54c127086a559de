// What the stages need to know of a problem besides its result: labels, sizes, types, the side of
// the split, and the features that learned models see.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// One way to sort problems into classes (`by`, such as "layout") and the class of a problem
// (`value`, such as "rcr").
struct Label {
  std::string by, value;
  friend bool operator==(const Label&, const Label&) = default;
};

// A size of the problem that is an axis of a chart.
struct Axis {
  std::string_view name;  // "M"
  std::int64_t size = 0;
  friend bool operator==(const Axis&, const Axis&) = default;
};

struct Facts {
  DType dtype = DType::fp32;   // the operand type that selects the machine's peak rate
  std::vector<Label> types;    // element types, layouts, directions: what a kernel is compiled for
  std::vector<Label> sizes;    // classes of sizes
  std::array<Axis, 2> axes;    // the two axes of the efficiency chart: rows, columns
  std::uint64_t shape_hash{};  // hash of the sizes alone; it decides the side of the split
  bool bandwidth_bound{};      // so narrow that bytes limit its time, not operations
};

// Problems are on one of two sides: models learn from one and are scored on the other.
enum class ProblemSide : std::uint8_t { learned, unseen };
constexpr ProblemSide side_of(std::uint64_t shape_hash) {
  constexpr std::uint64_t kUnseenPart = 3;  // one shape of kUnseenPart is unseen
  return shape_hash % kUnseenPart == 0 ? ProblemSide::unseen : ProblemSide::learned;
}
// Whether learning must not see the problem. The problem need not be in any list.
bool is_unseen(const Problem& problem);

// Types as one types them after --dtype and --layout. An empty word means the type of the problem
// at hand, or the operation's default where there is no problem.
struct TypeWords {
  std::string dtype, layout;
};

// Up to which length a kernel is tuned, and the length of a problem, both counted alike.
struct TunedLength {
  std::int64_t tuned = 0;
  std::int64_t asked = 0;
};

// A row of another program's file: keys in small letters, and the text of their values.
using ProblemWords = std::map<std::string, std::string>;

// What models are filed under besides the operation and the target: see Family::model_key.
std::string model_key(const Problem& problem);
std::string model_key(const KernelSpec& spec);

// The most operations per second that `units` of the target's units do with the instruction.
double peak_of(const Instruction& instruction, const Target& target, int units);

// ---- the table of numbers that models see: one row per feature ----

// What a feature depends on: the problem, the kernel, both, or the machine.
enum class FeatureGroup : std::uint8_t { problem, kernel, interaction, hardware };
std::string_view to_string(FeatureGroup group);

struct Feature {
  std::string_view name;     // unique in its family
  std::string_view unit;     // "1", "bytes", "seconds", ...
  std::string_view formula;  // as a person would write it
  FeatureGroup group;
};

// The candidates for which a feature is computed: none, the first (enough when all share the
// value), or all.
enum class FeatureUse : std::uint8_t { none, first, all };

// Identifies a list of features. The hash changes with any name, unit, formula or group and with
// their order; it is the same on every machine. Model files carry it.
std::uint64_t feature_hash(std::span<const Feature> features);

}  // namespace tessera
