#include "tessera/base/streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace tessera {

void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    // The lowest free number is the stream's own, for those below it are open by now.
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

}  // namespace tessera
