#include "tessera/runtime/openmp_fork_internal.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/base/files.h"

// The loader's function, which gives a module's thread_local variables in this thread.
// dl_iterate_phdr() does not know the variables of a library that was loaded later and keeps them
// at a fixed place.
extern "C" void* __tls_get_addr(void* index);

namespace tessera::runtime {

constinit OpenMpForks g_openmp;

namespace {

// A library's thread_local variables, as its file has them.
struct ThreadStorage {
  const void* code = nullptr;  // an address in the library
  std::size_t module = 0;      // the loader's number of it; 0: it has none such
  const char* first = nullptr;
  std::size_t filled = 0;  // bytes at `first`; zeros follow
  std::size_t bytes = 0;
};

bool holds(const dl_phdr_info& library, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library.dlpi_phdr[i];
    const std::uintptr_t begin = library.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && at >= begin && at - begin < segment.p_memsz) return true;
  }
  return false;
}

int look_at_library(dl_phdr_info* library, std::size_t, void* answer) {
  auto& storage = *static_cast<ThreadStorage*>(answer);
  if (!holds(*library, storage.code)) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) continue;
    storage.module = library->dlpi_tls_modid;
    storage.first = reinterpret_cast<const char*>(library->dlpi_addr + segment.p_vaddr);
    storage.filled = segment.p_filesz;
    storage.bytes = segment.p_memsz;
  }
  return 1;
}

// OpenMP's library keeps a thread's team in a thread_local variable, which is zero at first. A
// number of threads that was set for this thread is there too, and counts as a team.
bool has_openmp_state() {
  ThreadStorage storage{.code = dlsym(RTLD_DEFAULT, "omp_get_max_threads")};
  if (storage.code != nullptr) dl_iterate_phdr(look_at_library, &storage);
  if (storage.module == 0) return false;
  std::size_t index[2] = {storage.module, 0};
  const auto* const now = static_cast<const char*>(__tls_get_addr(index));
  return !std::equal(storage.first, storage.first + storage.filled, now) ||
         std::any_of(now + storage.filled, now + storage.bytes, [](char c) { return c != 0; });
}

// Also when nobody can say.
bool has_other_threads() {
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return true;
  int threads = 0;
  while (const dirent* const task = ::readdir(tasks)) threads += task->d_name[0] != '.' ? 1 : 0;
  ::closedir(tasks);
  return threads > 1;
}

// Linux says so in the word of flags, the ninth of the line; the second may hold blanks.
bool is_fork_without_exec() {
  constexpr unsigned long kForkedNoExec = 0x40;
  const std::string line = try_read_file("/proc/self/stat").value_or("");
  std::size_t at = line.rfind(')');
  for (int word = 2; word < 9 && at != line.npos; ++word) at = line.find(' ', at + 1);
  return at != line.npos && (std::strtoul(line.c_str() + at, nullptr, 10) & kForkedNoExec) != 0;
}

thread_local bool t_has_team = false;  // a child's one thread inherits it

void before_openmp_fork() { t_has_team = has_other_threads() && has_openmp_state(); }

void after_openmp_fork_in_child() {
  if (t_has_team || g_openmp.ran_team.load()) g_openmp.is_alone.store(true);
}

// The library may be loaded in a child whose parent ran teams. Nothing but OpenMP's state is then
// left of them.
bool is_orphan() { return is_fork_without_exec() && !has_other_threads() && has_openmp_state(); }

// When the library is loaded, because a handler that is registered later would miss forks.
[[gnu::constructor]] void watch_forks() {
  g_openmp.is_alone.store(is_orphan());
  pthread_atfork(before_openmp_fork, nullptr, after_openmp_fork_in_child);
}

}  // namespace
}  // namespace tessera::runtime
