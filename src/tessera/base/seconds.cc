#include "tessera/base/seconds.h"

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera {

void check_seconds(std::string_view field, double value) {
  if (value >= 0 && value <= kMostCallSeconds) return;  // NaN is not
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} must be from 0 to {} seconds, a day, got {}", field, kMostCallSeconds,
                          value));
}

}  // namespace tessera
