// Records: what a program asks of its dispatchers, in one file that many processes write.
//
// A record is a SQLite file, so that processes may write at once and may be killed at any time. A
// process writes a problem when it is asked first, and the numbers of calls about once a second.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/select/select.h"

namespace tessera {

// Where a process got its kernel for a problem. loaded: the process had it, for another problem.
// earlier: it was ready before the record began. none: no kernel could be had.
enum class KernelOrigin : std::uint8_t { loaded, pack, cache, compiled, earlier, none };
std::string_view to_string(KernelOrigin origin);

// One process. Its rows are told from those of all others by its random name.
struct RecordRun {
  std::string name;          // 32 hexadecimal digits
  std::string version;       // of the library
  std::int64_t started = 0;  // seconds since 1970, UTC
  friend bool operator==(const RecordRun&, const RecordRun&) = default;
};

// What one process asked with equal options, and what it got.
struct RecordRow {
  int run = 0;          // an index into Record::runs
  int target = 0;       // an index into Record::targets
  std::string machine;  // model of the processor or of the GPU
  std::string problem;  // to_string(problem)
  int threads = 0;      // CPU: the most threads of a launch; 0 on GPUs: the whole device
  int device = 0;
  bool deterministic = false;
  bool batch_invariant = false;
  std::string kernel;  // empty where none was chosen
  ChoiceSource source = ChoiceSource::first_legal;
  KernelOrigin origin = KernelOrigin::earlier;
  std::string why;
  double predicted_seconds = 0;  // 0: the ranker does not predict
  std::int64_t calls = 0;        // launches, without those of measurements
  std::int64_t misses = 0;       // how often it was made ready, or failed
  double choose_seconds = 0;     // of all misses, autotuning included
  double ready_seconds = 0;      // of all misses: finding or compiling, and loading
  friend bool operator==(const RecordRow&, const RecordRow&) = default;
};

struct Record {
  std::vector<RecordRun> runs;
  std::vector<Target> targets;  // the rows for which kernels were chosen
  std::vector<RecordRow> rows;
};

// Throws Error{not_found} for a file that is missing or empty, Error{io_error} for a damaged one,
// and Error{unsupported} for one of another version or of another program.
Record read_record(const std::filesystem::path& file);

// Adds records to a file, which is made where it is missing. A row of the same process that is
// there already keeps the larger numbers, so that a file may be added twice. All is added, or
// nothing when it throws.
void add_to_record(const std::filesystem::path& file, std::span<const Record> records);

// The same without a file.
Record merged(std::span<const Record> records);

// Where the dispatchers of this process that have no record of their own write, until end_record()
// of the same file; the file that was begun last gets what they are asked. begin_record() makes the
// file and throws what that throws. end_record() writes what is counted, and throws
// Error{invalid_argument} for a file that was not begun.
void begin_record(const std::filesystem::path& file);
void end_record(const std::filesystem::path& file);

}  // namespace tessera
