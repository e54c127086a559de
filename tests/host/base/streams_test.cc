#include "tessera/base/streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {
namespace {

bool has_bit(unsigned bits, int place) { return (bits >> static_cast<unsigned>(place) & 1U) != 0; }

// In a child, whose streams are /dev/zero and those in `closed` are closed: 0 when all three are
// open afterwards, the closed ones on /dev/null, and a new file gets a number above theirs.
int status_without(unsigned closed) {
  const pid_t child = fork();
  if (child == 0) {
    const int zero = open("/dev/zero", O_RDWR);
    for (int stream = 0; stream < 3; ++stream) dup2(zero, stream);
    close(zero);
    for (int stream = 0; stream < 3; ++stream) {
      if (has_bit(closed, stream)) close(stream);
    }
    open_standard_streams();
    char byte = 0;
    for (int stream = 0; stream < 3; ++stream) {
      const ssize_t wanted = has_bit(closed, stream) ? 0 : 1;  // /dev/null has no bytes
      if (read(stream, &byte, 1) != wanted || write(stream, &byte, 1) != 1) _exit(1);
    }
    _exit(open("/dev/null", O_RDONLY) > 2 ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Streams, ClosedOnesAreOpenedOnNull) {
  for (unsigned closed = 0; closed < 8; ++closed) EXPECT_EQ(status_without(closed), 0) << closed;
}

}  // namespace
}  // namespace tessera
