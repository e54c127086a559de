// Writing a record while problems are run. A dispatcher looks at `recordings` first, and at nothing
// else of this file unless that says that there are some.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/fork.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/dispatch/record_store_internal.h"

namespace tessera {

class Recorder;

// The numbers of one row. It lives as long as the process, so that calls reach it without a lock.
struct Tally {
  Recorder* owner;
  RecordRow row;                        // its numbers are not used
  std::atomic<std::int64_t> calls = 0;  // all that were counted
  std::int64_t written = 0;             // of these; the next two are still to be written
  std::int64_t misses = 0;
  double choose_seconds = 0, ready_seconds = 0;
  bool is_new = true;  // not in the file yet
};

// One file. There is one recorder for each file, as long as the process lives. Thread-safe.
class Recorder {
 public:
  // Opens or makes the file. Throws what that throws.
  static Recorder& of(const std::filesystem::path& file);
  explicit Recorder(std::filesystem::path file);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::filesystem::path& file() const { return file_; }
  // The tally of a row, which is told from others by what the file tells rows by.
  Tally& tally(const Target& target, const RecordRow& row);
  // Adds the row's numbers. A new row is written at once, with all that waits.
  Tally& add_miss(const Target& target, const RecordRow& row);
  // About once a second the call that comes then writes all that waits. A killed process loses the
  // calls after the last one that did.
  void count(Tally& tally);
  // Writes all that waits. Where the file cannot be written it logs a warning and keeps the numbers
  // for the next time.
  void flush() noexcept;
  // Makes the file where it is missing, and throws where it cannot be read or written.
  void open();
  // Closes the file, which the next flush opens again.
  void close();

 private:
  void flush_if_due();
  void follow_fork();
  void begin_run();
  RecordPart waiting();  // with the numbers that are not written yet
  void written(const RecordPart& part);
  void write(const RecordPart& part);

  std::filesystem::path file_;
  std::atomic<unsigned> generation_;
  std::atomic<std::int64_t> next_flush_ = 0;     // in seconds of the clock that has coarse steps
  WorkMutex work_;                               // held while the file is written
  std::unique_ptr<measure::Database> database_;  // guarded by work_
  std::vector<Tally*> writing_;                  // guarded by work_: those of the part
  Mutex mutex_;                                  // guards what follows, and what waits in tallies
  RecordRun run_;
  std::vector<std::string> targets_;
  std::map<std::string, Tally> tallies_;
};

// What happens while one problem's kernel is made ready. The row of its end has all but what the
// dispatcher knows, which gives it as a beginning.
class MissReport {
 public:
  void chosen(const Decision& decision, const Registry& registry);
  RecordRow ready(RecordRow row, const Registry& registry) const;
  RecordRow failed(RecordRow row, const Error& error) const;

 private:
  using Clock = std::chrono::steady_clock;
  RecordRow timed(RecordRow row) const;
  Clock::time_point start_ = Clock::now();
  Clock::time_point chosen_ = start_;
  bool was_loaded_ = false;
  std::optional<Decision> decision_;
};
// The row of a kernel that was ready before the record began. `now` is what is chosen now.
RecordRow row_earlier(RecordRow row, const ReadyKernel& kernel, const Decision& now);

// How many dispatchers and begin_record()s want a record.
extern std::atomic<int> recordings;

// What a dispatcher writes to: its option's file, or else the one begun last, or else
// TESSERA_RECORD's.
class Recording {
 public:
  // Throws where the option's file cannot be had. The environment's is then a warning.
  explicit Recording(const std::string& option);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  // Null where nothing is recorded.
  Recorder* active() const;

 private:
  Recorder* own_ = nullptr;
  Recorder* environments_ = nullptr;
};

}  // namespace tessera
