#include "tessera/base/error.h"

#include <array>

namespace tessera {
namespace {

constexpr std::array<std::string_view, 17> kNames = {
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
};
static_assert(kNames.size() == static_cast<std::size_t>(ErrorCode::internal) + 1);

}  // namespace

std::string_view to_string(ErrorCode code) { return kNames.at(static_cast<std::size_t>(code)); }

}  // namespace tessera
