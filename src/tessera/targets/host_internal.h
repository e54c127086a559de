// Pure functions that parse the text of files in /proc and /sys.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/targets/targets.h"

namespace tessera {

#if defined(__x86_64__)
inline constexpr bool kIsX86 = true;
#else
inline constexpr bool kIsX86 = false;
#endif

// The first processor of /proc/cpuinfo: model, vendor, family, features, nominal clock. When a
// program that is not for x86 finds x86's "flags" there, it is emulated, and the flags do not
// apply.
HostInfo parse_cpuinfo(std::string_view text, bool is_x86 = kIsX86);

// "1024K", "32M", "32768" in bytes; 0 for any other text.
std::int64_t parse_cache_size(std::string_view text);

}  // namespace tessera
