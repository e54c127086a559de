// A library for LD_PRELOAD that makes a disk fail as network disks do. Calls on files below
// FAULTY_ROOT fail with the error numbers that FAULTY names: FAULTY="flock=37,fsync=5,rename=39".
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_below_root(const char* path) {
  const char* root = std::getenv("FAULTY_ROOT");
  return root != nullptr && path != nullptr && std::strncmp(path, root, std::strlen(root)) == 0;
}

bool is_below_root(int fd) {
  char link[64];
  char path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  return is_below_root(path);
}

// The error of a call, 0 where it has none.
int error_of(const char* call) {
  const char* rules = std::getenv("FAULTY");
  const std::size_t length = std::strlen(call);
  for (const char* rule = rules; rule != nullptr; rule = std::strchr(rule, ',')) {
    if (*rule == ',') ++rule;
    if (std::strncmp(rule, call, length) == 0 && rule[length] == '=') {
      return std::atoi(rule + length + 1);
    }
  }
  return 0;
}

template <class File>
bool fails(const char* call, File file) {
  const int error = error_of(call);
  if (error == 0 || !is_below_root(file)) return false;
  errno = error;
  return true;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int flock(int fd, int operation) noexcept {
  if (fails("flock", fd)) return -1;
  return real<int (*)(int, int)>("flock")(fd, operation);
}

int fsync(int fd) {
  if (fails("fsync", fd)) return -1;
  return real<int (*)(int)>("fsync")(fd);
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename", to)) return -1;
  return real<int (*)(const char*, const char*)>("rename")(from, to);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  const int error = error_of("memfd");
  if (error != 0) return errno = error, -1;
  return real<int (*)(const char*, unsigned)>("memfd_create")(name, flags);
}

}  // extern "C"
