#include "tessera/families/features.h"

#include <array>
#include <cstddef>
#include <string>

#include "tessera/base/enums.h"
#include "tessera/base/hash.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kGroupNames = {"problem", "kernel", "interaction",
                                                         "hardware"};
static_assert(kGroupNames.size() == static_cast<std::size_t>(FeatureGroup::hardware) + 1);

}  // namespace

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
