#include "tessera/jit/cached_names_internal.h"

#include <chrono>
#include <mutex>
#include <system_error>

#include "tessera/base/files.h"
#include "tessera/jit/cache_folder_internal.h"

namespace tessera::jit {

// A kernel that was built in memory is one that this process has compiled, and has loaded.
bool CachedNames::has(const Cache& cache, const std::string& name) {
  std::error_code error;
  const auto changed = fs::last_write_time(cache.folder(), error);
  if (error) return false;
  const std::lock_guard lock(mutex_);
  if (changed != read_at_) {
    names_.clear();
    for (const fs::path& folder : entry_folders(cache.folder())) {
      names_.insert(name_of_folder(folder));
    }
    const bool is_old = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
    read_at_ = is_old ? changed : fs::file_time_type::min();
  }
  return names_.contains(name);
}

}  // namespace tessera::jit
