// A limit on the size of files (ulimit -f) is an error, not the end of the process.
#pragma once

#include <csignal>

namespace tessera {

// While it lives, a write beyond the limit fails with EFBIG ("File too large") in this thread. The
// system sends SIGXFSZ with that error, which is held back and taken away again, whatever the
// program does with the signal elsewhere.
class HeldFileSizeSignal {
 public:
  HeldFileSizeSignal();
  ~HeldFileSizeSignal();
  HeldFileSizeSignal(const HeldFileSizeSignal&) = delete;
  HeldFileSizeSignal& operator=(const HeldFileSizeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_ = false;  // somebody else's, who waits for it
};

}  // namespace tessera
