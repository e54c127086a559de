// The names of the kernels in a cache's folder, read again when the folder has changed.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "tessera/base/fork.h"
#include "tessera/jit/cache.h"

namespace tessera::jit {

// Thread-safe. Tells cheaply that a kernel is not there, so that hundreds of kernels need not be
// emitted to ask for them.
class CachedNames {
 public:
  bool has(const Cache& cache, const std::string& name);

 private:
  Mutex mutex_;
  // The folder's time when it was read; the least one where it may have changed in the same tick.
  std::filesystem::file_time_type read_at_ = std::filesystem::file_time_type::min();
  std::set<std::string> names_;
};

}  // namespace tessera::jit
