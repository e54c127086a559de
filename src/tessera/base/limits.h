// How many threads are too many anywhere.
#pragma once

#pragma GCC visibility push(default)
namespace tessera {

// The most threads for any number that a caller gives. OpenMP's run-time library keeps descriptions
// of threads on the caller's stack, and ends the process when a thread cannot be started.
inline constexpr int kMaxThreads = 1024;

}  // namespace tessera
#pragma GCC visibility pop
