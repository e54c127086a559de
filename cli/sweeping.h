// Running a sweep for a person: a bar, a budget in words, and ^C.
#pragma once

#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace tessera::cli {

// "30m", "90s", "1.5h", or a number of seconds; 0 for an empty text. `command` leads the message.
double read_seconds(const std::string& command, const std::string& text);

// "45s", "3m05s", "2h10m".
std::string format_duration(double seconds);

// ", none of the kernels serves 3"; empty when each problem has its kernel.
std::string unserved_text(const measure::SweepReport& report);

// Shows progress. The first ^C ends the sweep in good order, the second ends the program.
measure::SweepReport run_sweep(const std::vector<Problem>& problems,
                               const std::vector<KernelSpec>& kernels, const Target& target,
                               measure::SweepStore& store, measure::SweepOptions options);

}  // namespace tessera::cli
