// Ending all child processes at once.
#pragma once

#pragma GCC visibility push(default)
namespace tessera {

// Kills every child process that the library runs (compilers, workers), with all processes that
// these have started, and prevents new ones. It is for the signal handlers of a program that is
// about to end, and is async-signal-safe. The library itself installs no handlers. Without this
// call the children die with the program, but processes that they have started do not (a compiler's
// own passes, the compiler behind a wrapper).
void end_children() noexcept;

}  // namespace tessera
#pragma GCC visibility pop
