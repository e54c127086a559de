// Running a sweep for a person: a progress bar, a budget as text, and ^C.
#pragma once

#include <string>
#include <vector>

#include "tessera/tools.hpp"

namespace tessera::cli {

// "30m", "90s", "1.5h", or a number of seconds; 0 for an empty text. `command` begins the error's
// text.
double read_seconds(const std::string& command, const std::string& text);

// "45s", "3m05s", "2h10m".
std::string format_duration(double seconds);

// ", none of the kernels serves 3"; empty when a kernel supports each problem.
std::string unserved_text(const measure::SweepReport& report);

// Runs the sweep and shows progress. The first ^C ends the sweep and keeps all complete problems.
// The second one ends the program.
measure::SweepReport run_sweep(const std::vector<Problem>& problems,
                               const std::vector<KernelSpec>& kernels, const Target& target,
                               measure::SweepStore& store, measure::SweepOptions options);

}  // namespace tessera::cli
