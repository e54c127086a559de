// The backends that backends.cc lists.
#pragma once

#include "tessera/runtime/runtime.h"

namespace tessera::runtime {

const Backend& cpu_backend();
const Backend& cuda_backend();
const Backend& hip_backend();

}  // namespace tessera::runtime
