#include "tessera/measure/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/runtime/runtime.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

constexpr std::array<std::string_view, 6> kOutcomes = {"ok",      "wrong",  "crashed",
                                                       "timeout", "failed", "refused"};
static_assert(kOutcomes.size() == static_cast<std::size_t>(measure::Outcome::refused) + 1);

}  // namespace

std::string_view to_string(Outcome outcome) { return row_of_enum(kOutcomes, "outcome", outcome); }

Outcome parse_outcome(std::string_view text) {
  const auto* const found = std::find(kOutcomes.begin(), kOutcomes.end(), text);
  if (found != kOutcomes.end()) return static_cast<Outcome>(found - kOutcomes.begin());
  const std::vector<std::string> words(kOutcomes.begin(), kOutcomes.end());
  throw Error(ErrorCode::parse_error,
              fmt::format("unknown outcome '{}'{}", text, did_you_mean(text, words)));
}

bool is_refusal(Outcome outcome) {
  return outcome == Outcome::wrong || outcome == Outcome::crashed || outcome == Outcome::timeout;
}

std::string device_name(const Target& target, int device) {
  if (!is_gpu(target)) return host_info().cpu_model;
  const runtime::Backend* const backend = runtime::find_backend(target);
  if (backend == nullptr) return target.name;
  runtime::LaunchOptions options;
  options.device = device;
  const std::string model = backend->device_name(options);
  return model.empty() ? target.name : model;
}

void check_device(const Target& target, int device, const std::string& meant) {
  if (!is_gpu(target)) return;
  const std::string found = device_name(target, device);
  if (found == meant) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("device {} is a '{}' in the worker process and a '{}' in its parent; set "
                          "the variables that select devices before the program starts",
                          device, found, meant));
}

int filed_threads(const Target& target, int threads) {
  return counts_threads(target) ? threads : 1;
}

}  // namespace tessera::measure
