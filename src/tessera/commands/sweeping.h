// Running a sweep for a person: progress, a budget as text, and a way to end it.
#pragma once

#include <string>
#include <vector>

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace tessera::commands {

// "30m", "90s", "1.5h", or a number of seconds; 0 for an empty text. `command` begins the error's
// text.
double read_seconds(const std::string& command, const std::string& text);

// "45s", "3m05s", "2h10m".
std::string format_duration(double seconds);

// ", none of the kernels serves 3"; empty when a kernel supports each problem.
std::string unserved_text(const measure::SweepReport& report);

// Runs the sweep and shows progress. When the command shall end, all complete problems are kept and
// the report says so.
measure::SweepReport run_sweep(const Console& console, const std::vector<Problem>& problems,
                               const std::vector<KernelSpec>& kernels, const Target& target,
                               measure::SweepStore& store, measure::SweepOptions options);

}  // namespace tessera::commands
