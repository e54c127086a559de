// Tests run more threads than small machines have processors: a caller has to allow that.
#pragma once

#include "tessera/runtime/runtime.h"

namespace tessera {

// The calling thread's OpenMP limit while this lives.
class OpenMpLimit {
 public:
  explicit OpenMpLimit(int threads) { runtime::set_default_threads(threads); }
  ~OpenMpLimit() { runtime::set_default_threads(before_); }
  OpenMpLimit(const OpenMpLimit&) = delete;
  OpenMpLimit& operator=(const OpenMpLimit&) = delete;

 private:
  int before_ = runtime::thread_limit({});
};

}  // namespace tessera
