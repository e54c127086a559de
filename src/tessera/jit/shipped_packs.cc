#include "tessera/jit/shipped_packs.h"

#include <algorithm>
#include <mutex>
#include <system_error>

#include "tessera/base/files.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/jit/worker_program.h"

namespace tessera::jit {
namespace {

struct AddedPacks {
  Mutex mutex;
  std::vector<fs::path> folders;
};
AddedPacks& added() {
  static Forever<AddedPacks> all;
  return *all;
}

std::vector<fs::path> folders_of_packs() {
  std::vector<fs::path> folders;
  if (const fs::path library = library_folder(); !library.empty()) {
    folders = {library / "tessera", library};
  }
  const std::lock_guard lock(added().mutex);
  folders.insert(folders.end(), added().folders.begin(), added().folders.end());
  return folders;
}

}  // namespace

void add_packs(const fs::path& folder) {
  const std::lock_guard lock(added().mutex);
  std::vector<fs::path>& all = added().folders;
  if (std::find(all.begin(), all.end(), folder) == all.end()) all.push_back(folder);
}

std::vector<fs::path> shipped_packs() {
  std::vector<fs::path> packs;
  for (const fs::path& folder : folders_of_packs()) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".pack") found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    packs.insert(packs.end(), found.begin(), found.end());
  }
  return packs;
}

}  // namespace tessera::jit
