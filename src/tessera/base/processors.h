// How many threads make sense here, and how many are too many anywhere.
#pragma once

#include <optional>
#include <string_view>

namespace tessera {

// No number that a caller gives becomes more threads than these: OpenMP's run-time library keeps
// their descriptions on the caller's stack, and ends the process where a thread cannot be started.
inline constexpr int kMaxThreads = 1024;

// The processors in the affinity mask of this process's first thread.
struct Affinity {
  int count = 1;
  int first = 0;
};
Affinity process_affinity();

// The processors that this process may use, at least 1: those of its affinity, or the quota of its
// control group, rounded up, where that is less. Read once: later changes are not seen.
int usable_processors();

// A number of threads or jobs that was asked for, at most kMaxThreads; a larger one is noted.
int bounded_threads(int wanted);

// Logs, unless `wanted` was the last number noted, that it is more than `most`. `reason` says why
// no more are used.
void note_too_many_threads(int wanted, int most, std::string_view reason);

// Whole processors allowed by a control group: "max 100000" or "150000 100000" of version 2's
// cpu.max, or version 1's quota and period; rounded up.
std::optional<int> parse_cpu_max(std::string_view text);

}  // namespace tessera
