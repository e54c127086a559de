// Measurements to and from other programs' files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/measure/sweep_columns.h"

namespace tessera::measure {

// RFC 4180 with a header line; numbers in the fewest digits that read back to the same bits.
std::string to_csv(const ColumnTable& table);
// Takes lines that end in CR LF, too. Throws Error{parse_error} with the line.
ColumnTable from_csv(std::string_view text, const std::string& source);

// What the rows of another tool's file do not say themselves.
struct ForeignRun {
  std::string device;
  std::string target;
  int threads = 1;
  std::string op;     // empty: every row says its own
  std::string dtype;  // empty: the operation's usual one
  std::string layout;
};

// An array of objects, one for each measurement: the problem's sizes, in the family's words; kernel
// or kernel_name; latency_ms, or tflops (of useful operations); and, if they like, op, dtype and
// layout. Capital letters do not matter and other fields are ignored. All of them become one run,
// whose id follows from the text, so that the same file imported twice is one. Throws
// Error{parse_error} with line and column, or with the object's place and field.
SweepData from_foreign_json(std::string_view text, const ForeignRun& run,
                            const std::string& source);

// The plug-in that reads and writes Parquet, which needs Apache Arrow: beside the library or in its
// libexec folder. Throw Error{unsupported} that says how to get it, and Error{io_error} or
// Error{parse_error} with Arrow's words.
void write_parquet(const ColumnTable& table, const std::filesystem::path& file);
ColumnTable read_parquet(const std::filesystem::path& file);

// By the file's name: .csv, .parquet, else a store.
SweepData read_sweep_data(const std::filesystem::path& file);

}  // namespace tessera::measure
