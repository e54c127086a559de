// The table of numbers that the learned models see: one row per feature.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

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
#pragma GCC visibility pop
