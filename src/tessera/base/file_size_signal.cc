#include "tessera/base/file_size_signal.h"

#include <cerrno>
#include <ctime>

namespace tessera {
namespace {

sigset_t only_file_size() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

HeldFileSizeSignal::HeldFileSizeSignal() {
  const sigset_t held = only_file_size();
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

// The caller still reads errno of what it wrote.
HeldFileSizeSignal::~HeldFileSizeSignal() {
  const int error = errno;
  const sigset_t held = only_file_size();
  const timespec no_time{};
  while (!was_pending_ && sigtimedwait(&held, nullptr, &no_time) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace tessera
