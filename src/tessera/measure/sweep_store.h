// What sweeps measured, in SQLite: the data that models learn from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/measure/outcome.h"

namespace tessera::measure {

// One sweep: where, with what and how. `id` is drawn at random and tells runs apart everywhere.
struct SweepRun {
  std::string id;  // 32 hexadecimal digits
  std::string device;
  std::string target;
  int threads = 1;
  std::string version;   // of the library
  int abi = 0;           // of its kernels
  std::string compiler;  // its own words
  std::string protocol;
  std::int64_t seed = 1;
  double clock_mhz = 0;      // the highest that the machine states; 0: it states none
  std::int64_t started = 0;  // seconds since 1970, UTC
  friend bool operator==(const SweepRun&, const SweepRun&) = default;
};

// One kernel on one problem. run, problem and kernel are places in the lists of SweepData.
struct SweepRow {
  int run = 0;
  int problem = 0;
  int kernel = 0;
  Outcome outcome = Outcome::ok;
  double seconds = 0;  // median of the readings; 0 unless ok, and so are the next three
  double spread = 0;   // interquartile range / median
  double min_seconds = 0;
  int readings = 0;
  bool finalist = false;  // measured again, against the problem's other best kernels
  double at = 0;          // seconds since the run started
  std::string note;       // why it is not ok
  friend bool operator==(const SweepRow&, const SweepRow&) = default;
};

// The same kernel on the same problem, measured again and again through a run: how the machine's
// clock drifts.
struct ClockReading {
  int run = 0;
  int problem = 0;
  int kernel = 0;
  double at = 0;  // seconds since the run started
  double seconds = 0;
  friend bool operator==(const ClockReading&, const ClockReading&) = default;
};

struct SweepData {
  std::vector<SweepRun> runs;
  std::vector<std::string> problems;  // to_string(problem)
  std::vector<std::string> kernels;
  std::vector<SweepRow> rows;
  std::vector<ClockReading> clock;
  friend bool operator==(const SweepData&, const SweepData&) = default;
};

// Everything in an order that does not depend on how it came together: runs by start and id, texts
// and rows sorted, runs and texts without rows left out. Equal contents are equal after it.
SweepData sorted(SweepData data);

// What happens to a row that is there already with other numbers.
enum class Conflict { refuse, prefer_newest };

// Data to add, and where it came from, for the words of errors.
struct SweepPart {
  SweepData data;
  std::string source;
};

struct MergeCount {
  std::int64_t added = 0;
  std::int64_t identical = 0;
  std::int64_t replaced = 0;  // by a newer one
  std::int64_t older = 0;     // left out, because a newer one was there
};

enum class OpenMode { create, existing };

// One row for each problem, kernel and class of machine (device, target, threads). Every call is
// one transaction, on the disk when it returns. Safe for many processes at once; a damaged file is
// set aside as <file>.damaged-<n>.
class SweepStore {
 public:
  // Opens or creates the file and its folder. Throws Error{io_error} when it cannot be opened, and
  // Error{unsupported} when it was written by another version or is a database of something else.
  // OpenMode::existing only reads: it throws Error{not_found} for a file that is not there or
  // empty, and leaves a damaged one where it is, with an Error{io_error}.
  explicit SweepStore(const std::filesystem::path& file, OpenMode mode = OpenMode::create);
  ~SweepStore();

  // Rows of one problem, in place of what was there of the same kernels. problem and kernel of the
  // rows are ignored: `kernels` has one name for each row. Throws Error{io_error} on a full disk.
  void record(const SweepRun& run, const std::string& problem, std::span<const std::string> kernels,
              std::span<const SweepRow> rows);
  void record_clock(const SweepRun& run, const std::string& problem, const std::string& kernel,
                    double at, double seconds);

  // The kernels measured for the problem on this class of machine, and what became of them.
  std::map<std::string, Outcome> find(const std::string& device, const std::string& target,
                                      int threads, const std::string& problem) const;
  SweepData read() const;

  // Adds all rows of all parts or, when it throws, none. Identical rows are kept once. Throws
  // Error{invalid_argument} that names a row with two values, unless the newest is preferred: the
  // one measured last.
  MergeCount add(std::span<const SweepPart> parts, Conflict conflict);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::measure
