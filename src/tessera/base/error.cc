#include "tessera/base/error.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "tessera/base/enums.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

constexpr std::size_t kLongestSentence = 4000;

constexpr std::array<std::string_view, 18> kNames = {
    "ok",
    "invalid_argument",
    "parse_error",
    "not_found",
    "unsupported",
    "illegal_spec",
    "compile_failed",
    "load_failed",
    "launch_failed",
    "jit_disabled",
    "io_error",
    "cache_refused",
    "verification_failed",
    "crashed",
    "timeout",
    "out_of_memory",
    "internal",
    "cancelled",
};
static_assert(kNames.size() == static_cast<std::size_t>(ErrorCode::cancelled) + 1);

}  // namespace

Error::Error(ErrorCode code, const std::string& message, std::string context)
    : std::runtime_error(shortened(message, kLongestSentence)),
      code_(code),
      context_(std::move(context)) {}

std::string_view to_string(ErrorCode code) { return row_of_enum(kNames, "error code", code); }

std::string number_reason(std::string_view field, std::int64_t number, std::int64_t last) {
  if (number >= 0 && number <= last) return {};
  return fmt::format("{} must be a number from 0 to {}, got {}", field, last, number);
}

}  // namespace tessera
