// The explicit list of backends.
#include <fmt/format.h>

#include <array>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/runtime/availability.h"
#include "tessera/runtime/backends_internal.h"

namespace tessera::runtime {
namespace {

struct BackendRow {
  std::string_view name;
  const Backend& (*get)();
};

constexpr std::array kBackends = {
    BackendRow{"cpu", cpu_backend},
    BackendRow{"cuda", cuda_backend},
    BackendRow{"hip", hip_backend},
};

}  // namespace

const Backend* find_backend(const Target& target) {
  for (const BackendRow& row : kBackends) {
    if (row.name == target.backend) return &row.get();
  }
  return nullptr;
}

const Backend& backend_for(const Target& target) {
  std::vector<std::string> names;
  for (const BackendRow& row : kBackends) {
    names.emplace_back(row.name);
    if (row.name == target.backend) return row.get();
  }
  throw Error(
      ErrorCode::unsupported,
      fmt::format("target '{}' names the unknown backend '{}'{}; the backends are {}", target.name,
                  target.backend, did_you_mean(target.backend, names), join(names, ", ")));
}

std::string why_not_here(const Target& target) {
  try {
    return backend_for(target).unavailable_reason(target);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tessera::runtime
