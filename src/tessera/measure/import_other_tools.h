// Measurements in the files of other programs: flat rows of any tool, and the data of the CK Tile
// Dispatcher.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/facts.h"
#include "tessera/measure/sweep_columns.h"

namespace tessera::measure {

// Facts about a run of another tool that the rows of its file do not contain.
struct ForeignRun {
  std::string device;
  std::string target;  // a row's name, the last word of its kernels' names
  int threads = 1;
  std::string op;       // where neither a row nor its kernel's name says
  ProblemWords fields;  // of rows that do not have them: {"dtype", "fp16"}
  std::string kernels;  // only rows whose kernels' names match, '*' stands for anything; empty: all
};

// What a conversion did that the rows do not show.
struct ForeignNotes {
  std::int64_t failed = 0;    // rows of runs that failed, kept with that outcome
  std::int64_t mended = 0;    // kernels of the mem pipeline whose padding flags were wrong
  std::int64_t unpadded = 0;  // other kernels without padding; names do not tell them apart
  std::int64_t merged = 0;    // rows whose kernel and problem others had, faster ones
};

struct Imported {
  SweepData data;
  ForeignNotes notes;
};

// Reads measurements from text, whose form is known by its content:
//  - an array of objects in JSON, one for each measurement, or CSV with a header line. A row has
//    the problem's sizes, in the family's words; kernel or kernel_name; latency_ms, or tflops or
//    measured_tflops (of useful operations); and optionally op or op_type, dtype, layout, arch,
//    is_valid, error, and the fields of a kernel of CK Tile;
//  - the dispatcher's benchmark results, {"metadata", "results": [{"kernel_config",
//    "benchmarks"}]};
//  - its logs: lines "Shape N: M= N= K= dtype= layout=" and blocks of JSON behind them.
// Case does not matter, and other fields are ignored. Kernels of CK Tile get the names of our specs
// for the run's target; other names stay as they are. All measurements become one run. Its id
// follows from the text, so a file that is imported twice is stored once. Throws Error{parse_error}
// with the line or the entry, and what is known.
Imported from_foreign(std::string_view text, const ForeignRun& run, const std::string& source);

// Reads a file for an import: our own tables (.csv, .parquet), and what from_foreign() reads.
// Throws Error{invalid_argument} where a run's device or target is needed and empty.
Imported read_import(const std::filesystem::path& file, const ForeignRun& run);

}  // namespace tessera::measure
