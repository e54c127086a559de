// The measurements of sweeps, in SQLite. Models learn from them.
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

// One sweep: its machine, its software and its protocol. `id` is random and differs between all
// runs.
struct SweepRun {
  std::string id;  // 32 hexadecimal digits
  std::string device;
  std::string target;
  int threads = 1;
  std::string version;   // version of the library
  int abi = 0;           // ABI number of the kernels
  std::string compiler;  // the compiler's own version text
  std::string protocol;
  std::int64_t seed = 1;
  double clock_mhz = 0;      // the highest clock that the machine states; 0: unknown
  std::int64_t started = 0;  // seconds since 1970, UTC
  friend bool operator==(const SweepRun&, const SweepRun&) = default;
};

// One kernel on one problem. run, problem and kernel are indices into the lists of SweepData.
struct SweepRow {
  int run = 0;
  int problem = 0;
  int kernel = 0;
  Outcome outcome = Outcome::ok;
  double seconds = 0;  // median of the readings; this and the next three are 0 unless ok
  double spread = 0;   // interquartile range / median
  double min_seconds = 0;
  int readings = 0;
  bool finalist = false;  // measured again, against the problem's other best kernels
  double at = 0;          // seconds since the run started
  std::string note;       // why it is not ok
  friend bool operator==(const SweepRow&, const SweepRow&) = default;
};

// The same kernel on the same problem, measured repeatedly through a run. It shows how the
// machine's clock drifts.
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

// The data in an order that does not depend on their history: runs sorted by start and id, texts
// and rows sorted, runs and texts without rows removed. Data with equal content are equal
// afterwards.
SweepData sorted(SweepData data);

// What to do with a row that the store already has with other numbers.
enum class Conflict { refuse, prefer_newest };

// Data to add, and their source for error messages.
struct SweepPart {
  SweepData data;
  std::string source;
};

struct MergeCount {
  std::int64_t added = 0;
  std::int64_t identical = 0;
  std::int64_t replaced = 0;  // rows replaced by newer ones
  std::int64_t older = 0;     // rows left out because the store has newer ones
};

enum class OpenMode { create, existing };

// Holds one row for each problem, kernel and class of machine (device, target, threads). Every call
// is one transaction, which is on the disk when the call returns. Safe for many processes at once;
// a damaged file is set aside as <file>.damaged-<n>.
class SweepStore {
 public:
  // Opens or creates the file and its folder. Throws Error{io_error} when it cannot be opened, and
  // Error{unsupported} when it was written by another version or is a database of something else.
  // OpenMode::existing only reads. It throws Error{not_found} for a file that is missing or empty,
  // and Error{io_error} for a damaged one, which stays where it is.
  explicit SweepStore(const std::filesystem::path& file, OpenMode mode = OpenMode::create);
  ~SweepStore();

  // Stores the rows of one problem, and replaces older rows of the same kernels. The rows' own
  // `problem` and `kernel` are ignored; `kernels` has one name for each row. Throws Error{io_error}
  // on a full disk.
  void record(const SweepRun& run, const std::string& problem, std::span<const std::string> kernels,
              std::span<const SweepRow> rows);
  void record_clock(const SweepRun& run, const std::string& problem, const std::string& kernel,
                    double at, double seconds);

  // The kernels that were measured for the problem on this class of machine, with their outcomes.
  std::map<std::string, Outcome> find(const std::string& device, const std::string& target,
                                      int threads, const std::string& problem) const;
  SweepData read() const;

  // Adds all rows of all parts, or none when it throws. Identical rows are kept once. When a row
  // has two different values, throws Error{invalid_argument} with the row; with
  // Conflict::prefer_newest, keeps the value that was measured last.
  MergeCount add(std::span<const SweepPart> parts, Conflict conflict);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Adds the parts to the store of that name as SweepStore::add() does. A store that does not exist
// yet is made beside that name and gets it at the end, so that a failure leaves nothing.
MergeCount add_to_store(const std::filesystem::path& file, std::span<const SweepPart> parts,
                        Conflict conflict);

}  // namespace tessera::measure
