// How many threads are useful on this machine, and how many are too many on any machine.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/limits.h"

namespace tessera {

// The processors in the affinity mask of this process's first thread.
struct Affinity {
  int count = 1;
  int first = 0;
};
Affinity process_affinity();

// The processors that this process may use, at least 1: the number in its affinity mask, or the
// quota of its control group, rounded up, if that is less. It is read once; later changes are not
// noticed.
int usable_processors();

// Whether this process may use the tiles of Intel AMX, if the processor has them. Linux saves tiles
// for processes that ask it to: the first call asks, for all threads of the process and its
// children by fork().
bool may_use_tiles();

// Throws Error{invalid_argument} for a number of threads below 0.
[[noreturn]] void refuse_threads(int wanted);

// The number of threads or jobs that was asked for, but at most kMaxThreads; logs a note when it is
// larger. Throws what refuse_threads() does.
int bounded_threads(int wanted);

// Logs that `wanted` is more than `most`, unless the last note had the same number. `reason` says
// why no more are used.
void note_too_many_threads(int wanted, int most, std::string_view reason);

// Whole processors allowed by a control group: "max 100000" or "150000 100000" of version 2's
// cpu.max, or version 1's quota and period; rounded up.
std::optional<int> parse_cpu_max(std::string_view text);

}  // namespace tessera
