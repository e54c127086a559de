// The three standard streams of a process.
#pragma once

namespace tessera {

// Opens those of the descriptors 0, 1 and 2 that are closed on /dev/null, so that no file that is
// opened later is taken for stdout or stderr. For the first line of a program's main().
void open_standard_streams();

}  // namespace tessera
