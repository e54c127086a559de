// Starting child processes and waiting for them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Everything that a child needs, prepared before it is started.
struct SpawnPlan {
  const char* file = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;  // null: inherited
  int input = -1;  // these three become its standard streams; their numbers are above 2
  int output = -1;
  int error = -1;
};

struct Child {
  pid_t id = -1;
  int error = 0;                                // why it did not start, as errno; 0: it did
  std::atomic<std::uint64_t>* place = nullptr;  // place in the table of the children that
                                                // end_children() ends
};

// Starts a child that leads a process group of its own, with no signal blocked or ignored. It dies
// with the thread that calls this. The caller must reap() the child if it has an id, even when
// `error` is set.
Child spawn(const SpawnPlan& plan);

// Whether the child has ended. It keeps its id until it is reaped.
bool has_ended(const Child& child);

// Waits for the child's end and returns its status.
int reap(Child& child);

// Closes `fd` and returns a copy above the standard streams, as SpawnPlan needs it. In a process
// without standard streams, a new descriptor may have one of their numbers.
int above_streams(int fd);

// Has exec close each descriptor beyond the standard streams that /proc lists: for kernels before
// 5.11, which cannot do it in one call.
void close_listed_on_exec();

// Null-terminated, for exec.
std::vector<char*> pointers_to(std::vector<std::string>& strings);

}  // namespace tessera
