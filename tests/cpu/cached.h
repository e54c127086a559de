// What a cache holds, counted.
#pragma once

#include <algorithm>

#include "tessera/jit/cache.h"

namespace tessera {

// Kernels, without the objects that they share.
inline std::ptrdiff_t kernels_in(const jit::Cache& cache) {
  const auto entries = cache.list();
  return std::count_if(entries.begin(), entries.end(),
                       [](const jit::EntryInfo& entry) { return !entry.is_object; });
}

}  // namespace tessera
