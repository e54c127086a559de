// Exceptions of other libraries as sentences.
#pragma once

#include <exception>

#include "tessera/base/error.h"

namespace tessera {

// The exception as one of ours. The file system's, nlohmann's JSON and the allocator's words are
// theirs, with codes in brackets and names of functions; here they become whole sentences.
Error error_of(const std::exception& error);

}  // namespace tessera
