#include "tessera/families/facts.h"

#include <cstddef>

#include "tessera/base/enums.h"
#include "tessera/base/hash.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kGroupNames = {"problem", "kernel", "interaction",
                                                         "hardware"};
static_assert(kGroupNames.size() == static_cast<std::size_t>(FeatureGroup::hardware) + 1);

}  // namespace

bool is_unseen(const Problem& problem) {
  return side_of(family_of(problem).facts(problem).shape_hash) == ProblemSide::unseen;
}

std::string model_key(const Problem& problem) {
  return family_of(problem).model_key(signature_of(problem));
}

std::string model_key(const KernelSpec& spec) { return family_of(spec).model_key(spec.signature); }

double peak_of(const Instruction& instruction, const Target& target, int units) {
  const Shape3& s = instruction.shape;
  const double macs = instruction.per_cycle * s.m * s.n * s.k;
  return 2 * macs * units * target.clock_ghz * 1e9;
}

std::string_view to_string(FeatureGroup group) {
  return row_of_enum(kGroupNames, "feature group", group);
}

// Every word ends with a zero byte, so that moving a letter from one word to the next changes the
// hash.
std::uint64_t feature_hash(std::span<const Feature> features) {
  std::string text;
  for (const Feature& feature : features) {
    for (const std::string_view word :
         {feature.name, feature.unit, feature.formula, to_string(feature.group)}) {
      text.append(word).push_back('\0');
    }
  }
  return hash64(text);
}

}  // namespace tessera
