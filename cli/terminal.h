// The console of the command line: its two streams, and progress on stderr.
#pragma once

#include <string>
#include <string_view>

#include "tessera/commands/console.h"

namespace tessera::cli {

// Write text to stdout and to stderr. A failed write is no error here, so that reporting an error
// cannot fail; stdout_failure() tells at the end. Control characters except tabs and line ends are
// written as \xNN.
void put_out(std::string_view text);
void put_err(std::string_view text);

// Flushes stdout. Returns a sentence when part of the output was lost, otherwise an empty text.
std::string stdout_failure();

// Progress is a bar when stderr is a terminal. Otherwise it is one line for each step, or, with
// TESSERA_PROGRESS_SECONDS, one line in so many seconds. The first ^C in a stage that can be
// stopped ends that stage; anywhere else it ends the program.
commands::Console terminal(bool json);

}  // namespace tessera::cli
