// The page of `tessera record report`: where the time of a model goes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/commands/recorded.h"

namespace tessera::commands {

// What `tessera bench --json` measured of a problem.
struct BenchedProblem {
  double seconds = 0;
  std::string kernel;
  std::string peer;         // the fastest; empty: none
  double peer_seconds = 0;  // 0: none
};
struct Benched {
  std::string machine;
  std::map<std::string, BenchedProblem> problems;  // by line
};

// Reads what `tessera bench OP --shapes FILE --json` printed for each operation. Throws
// Error{parse_error} for another file.
Benched read_benches(const std::vector<std::string>& files);

// One line of the page: a problem with the time that all of its calls take.
struct TimedProblem {
  const AskedProblem* problem = nullptr;
  double seconds = 0;  // of a call: measured, or else predicted
  bool is_measured = false;
  double peer_seconds = 0;  // of a call; 0: unknown
  std::string peer;
  double total() const { return seconds * static_cast<double>(problem->calls); }
};
// The most time first.
std::vector<TimedProblem> timed_problems(const std::vector<AskedProblem>& problems,
                                         const Benched& benched);

// One HTML page that needs no other file. All text of the record and of the bench is escaped.
std::string record_page(const std::string& title, const Record& record,
                        const std::vector<TimedProblem>& problems, const Benched& benched);

}  // namespace tessera::commands
