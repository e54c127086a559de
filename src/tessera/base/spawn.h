// How children start and are waited for.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Everything a child needs, made before it exists.
struct SpawnPlan {
  const char* file = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;  // null: inherited
  int input = -1;                // these three become its standard streams; all above them
  int output = -1;
  int error = -1;
};

struct Child {
  pid_t id = -1;
  int error = 0;                                // why it did not start, as errno; 0: it did
  std::atomic<std::uint64_t>* place = nullptr;  // in the table of those that end_children() ends
};

// Starts a child that leads a process group of its own, with no signal blocked or ignored. It dies
// with the thread that calls this. Whatever its error says: reap() it if it has an id.
Child spawn(const SpawnPlan& plan);

// Whether it is gone; it keeps its id until it is reaped.
bool has_ended(const Child& child);

// Waits for its end and returns its status.
int reap(Child& child);

// Closes `fd` and returns a copy that is above the standard streams, as a plan wants it: where this
// process runs without them, a new descriptor may have one of their numbers.
int above_streams(int fd);

// Null-terminated, for exec.
std::vector<char*> pointers_to(std::vector<std::string>& strings);

}  // namespace tessera
