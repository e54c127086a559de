// What a record says, put together over its processes, and the kernels that it needs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/commands/console.h"

namespace tessera::commands {

// A problem as it was asked, with all that the choice of its kernel depends on.
struct Asked {
  Problem problem;
  std::string line;  // to_string(problem)
  int target = 0;    // an index into Record::targets
  std::string machine;
  int threads = 0;
  bool deterministic = false;
  bool batch_invariant = false;
};

// One kernel that was taken for it: the sums over all processes.
struct Taken {
  RecordRow row;                              // the last one; its numbers are sums
  std::map<KernelOrigin, std::int64_t> from;  // how often it was made ready, by where it came from
  std::int64_t processes = 0;
  double compile_seconds = 0;  // of the misses that compiled
  bool is_of_this_version = false;
};

struct AskedProblem {
  Asked asked;
  std::vector<Taken> taken;  // the one with the most calls first
  std::int64_t calls = 0;
  // Calls times the time that was predicted for each; 0 where nothing was predicted.
  double predicted_seconds = 0;
};

// The records of all files in one.
Record read_records(const std::vector<std::string>& files);

// Sorted by predicted seconds, the most first, then by calls and by line.
std::vector<AskedProblem> asked_problems(const Record& record);

// Options that choose() gets for a problem of a record, as a dispatcher with these models would
// choose where nothing was measured.
ChooseOptions choose_options(const Asked& asked);

// The kernels of one target.
struct RecordedPart {
  Target target;
  std::vector<KernelSpec> specs;  // sorted by name, each once
};

struct RecordedKernels {
  std::vector<RecordedPart> parts;
  std::vector<std::string> notes;  // problems without a kernel, with the reason
  std::size_t problems = 0;        // that were looked at, with their ranges
  std::int64_t choices = 0;        // how often a kernel was chosen
  double seconds = 0;              // that choosing took
};

struct RangeOptions {
  std::vector<std::string> ranges;   // "m=1..8192"; a problem takes the one whose field it has
  std::vector<std::string> targets;  // names; empty: all of the record
  bool every = false;                // every value is asked
  int jobs = 0;
};

// The recorded kernels, and those that choosing takes over the ranges. A kernel of another version
// of the library counts where it was named or measured; its problem is chosen for anew. Throws
// Error{not_found} where no problem has a range's field, and what read_range() throws.
RecordedKernels kernels_of_record(const Record& record, const RangeOptions& options,
                                  const Console& console);

}  // namespace tessera::commands
