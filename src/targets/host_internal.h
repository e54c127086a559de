// What the files of /proc and /sys say, as pure functions of their text.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/targets/targets.h"

namespace tessera {

// The first processor of /proc/cpuinfo: model, vendor, family, features, nominal clock.
HostInfo parse_cpuinfo(std::string_view text);

// "1024K", "32M", "32768" in bytes; 0 when it is none of these.
std::int64_t parse_cache_size(std::string_view text);

}  // namespace tessera
