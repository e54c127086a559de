// A limit on the size of files (ulimit -f) is an error, not the end of the process.
#pragma once

#include <csignal>

namespace tessera {

// While the object lives, a write beyond the limit fails with EFBIG ("File too large") in this
// thread. The system also sends SIGXFSZ. The object blocks that signal and removes it again,
// whatever the program's own handling of the signal is.
class HeldFileSizeSignal {
 public:
  HeldFileSizeSignal();
  ~HeldFileSizeSignal();
  HeldFileSizeSignal(const HeldFileSizeSignal&) = delete;
  HeldFileSizeSignal& operator=(const HeldFileSizeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;  // a signal from before, which somebody else waits for
};

}  // namespace tessera
