#include "tessera/runtime/hip_info.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "tessera/runtime/gpu_driver_internal.h"
#include "tessera/runtime/hip_driver_internal.h"

namespace tessera::runtime {
namespace {

// gfx90a is 9.0.10 and gfx1100 is 11.0.0: the last two digits are hexadecimal, and stand alone.
std::optional<int> number_of_gfx(std::string_view name) {
  constexpr std::string_view kPrefix = "gfx";
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + 3) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int major = 0, rest = 0;
  const char* const middle = name.data() + name.size() - 2;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), middle, major);
  const auto second = std::from_chars(middle, end, rest, 16);
  if (first.ptr != middle || second.ptr != end) return std::nullopt;
  return major * 1000 + rest / 16 * 16 + rest % 16;
}

}  // namespace

HipInfo hip_info() {
  const gpu::Vendor& vendor = gpu::hip_vendor();
  const gpu::DriverLibrary& library = vendor.library();
  HipInfo info{
      .library = library.file, .version = {}, .unavailable = library.reason, .devices = {}};
  if (library.functions.driver_version != nullptr) {
    int version = 0;
    library.functions.driver_version(&version);
    info.version = hip::version_text(version);
  }
  if (!library.reason.empty()) return info;
  try {
    for (const gpu::DeviceFacts& facts : gpu::list_devices(vendor)) {
      info.devices.push_back({facts.name, facts.architecture, facts.units,
                              static_cast<std::int64_t>(facts.memory_bytes)});
    }
  } catch (const Error& error) {
    info.unavailable = error.what();
  }
  return info;
}

std::string row_for(std::string_view architecture, std::span<const std::string> rows) {
  const std::string wanted(architecture.substr(0, architecture.find(':')));
  const std::optional<int> number = number_of_gfx(wanted);
  std::string nearest;
  int least = 0;
  for (const std::string& row : rows) {
    if (row == wanted) return row;
    const std::optional<int> other = number_of_gfx(row);
    if (!number || !other) continue;
    const int distance = std::abs(*number - *other);
    if (!nearest.empty() && distance >= least) continue;
    nearest = row;
    least = distance;
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("there is no target for a GPU of architecture '{}'{}{}", wanted,
                          nearest.empty() ? "" : "; its nearest relative is ", nearest));
}

}  // namespace tessera::runtime
