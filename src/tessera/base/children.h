// The end of all children at once.
#pragma once

namespace tessera {

// Kills every child process that the library runs (compilers, workers) with all that those have
// started, and lets no new one start. For the signal handlers of a program that is about to end: it
// does only what a handler may. The library installs no handlers itself. Without this call the
// children die with the program, but what they have started does not (a compiler's own passes, the
// compiler behind a wrapper).
void end_children() noexcept;

}  // namespace tessera
