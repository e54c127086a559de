// The three standard streams of a process.
#pragma once

namespace tessera {

// Opens each closed descriptor of 0, 1 and 2 on /dev/null, so that no file that is opened later
// becomes stdin, stdout or stderr. A program calls it first in main().
void open_standard_streams();

}  // namespace tessera
