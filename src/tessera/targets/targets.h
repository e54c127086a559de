// The target rows shipped with the library, rows of the user's own, and this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/spec/target.h"

#pragma GCC visibility push(default)
namespace tessera {

// Names of the shipped rows: avx512, avx2, generic, sm90a, gfx90a, gfx942, gfx950.
std::vector<std::string> target_names();

// A shipped row by name, or the row in a file when `name_or_file` ends in ".json". Throws
// Error{not_found} with the nearest name, Error{parse_error} with the field's path.
Target load_target(std::string_view name_or_file);

// Facts about a machine's processor.
struct HostInfo {
  std::string cpu_model;
  std::string cpu_vendor;  // "GenuineIntel", "AuthenticAMD"; empty when unknown
  int cpu_family = 0;
  std::vector<std::string> features;  // in the spelling of Target::features
  int cores = 1;                      // cores that this process may use
  std::int64_t l1_bytes = 0;
  int l1_ways = 0;  // 0: unknown; the same holds for bytes
  std::int64_t l2_bytes = 0;
  std::int64_t l3_bytes = 0;
  double clock_ghz = 0;  // the highest clock that the machine states; 0: unknown
};
const HostInfo& host_info();

// The best CPU row that this machine can run, with its cores, caches and feature flags filled in
// from the machine.
Target host_target();
// The same for a machine described by `host`; pure.
Target host_target(const HostInfo& host);

// The row to run kernels by on this machine: host_target() if it has that name, because a machine
// need not have the optional features of the shipped row; otherwise as load_target().
Target load_target_here(std::string_view name_or_file);

// Empty when the machine has all the target's features; else a sentence naming the missing ones.
std::string host_lacks(const Target& target, const HostInfo& host);

}  // namespace tessera
#pragma GCC visibility pop
