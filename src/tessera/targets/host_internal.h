// What the files of /proc and /sys say, as pure functions of their text.
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

// The first processor of /proc/cpuinfo: model, vendor, family, features, nominal clock. A program
// that is not for x86 and finds x86's "flags" there is emulated, and has none of them.
HostInfo parse_cpuinfo(std::string_view text, bool is_x86 = kIsX86);

// "1024K", "32M", "32768" in bytes; 0 when it is none of these.
std::int64_t parse_cache_size(std::string_view text);

}  // namespace tessera
