// The program's handling of signals.
#pragma once

namespace tessera::cli {

// Must be called first. Afterwards, a signal that ends the program also ends its children and their
// children, and exceeding a limit on file sizes is an error instead of a signal.
void prepare_for_signals();

// The signal handler: ends all children, and then the program by the signal itself.
void end_by_signal(int signal);

// Takes SIGINT and SIGTERM from now on: the first one makes is_interrupted() true, the second one
// ends the program.
void take_interrupts();
bool is_interrupted();

}  // namespace tessera::cli
