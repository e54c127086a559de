#include "tessera/base/inline_vector.h"

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera {

void refuse_one_more_than(std::size_t most) {
  throw Error(ErrorCode::internal,
              fmt::format("a list takes at most {} items, got {}", most, most + 1));
}

}  // namespace tessera
