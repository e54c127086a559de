// What signals do to the program.
#pragma once

namespace tessera::cli {

// Called first: from then on a signal that ends the program ends what its children have started as
// well, and a limit on the size of files is an error and no signal.
void prepare_for_signals();

// The handler: ends all children, then the program by the signal itself.
void end_by_signal(int signal);

}  // namespace tessera::cli
