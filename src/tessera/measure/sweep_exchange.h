// Measurements to and from other programs' files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tessera/measure/sweep_columns.h"

namespace tessera::measure {

// CSV by RFC 4180 with a header line. Numbers have the fewest digits that read back to the same
// bits.
std::string to_csv(const ColumnTable& table);
// Lines may end in CR LF. Throws Error{parse_error} with the line's number.
ColumnTable from_csv(std::string_view text, const std::string& source);

// Facts about a run of another tool that the rows of its file do not contain.
struct ForeignRun {
  std::string device;
  std::string target;
  int threads = 1;
  std::string op;     // empty: every row has its own
  std::string dtype;  // empty: the operation's default
  std::string layout;
};

// Reads an array of objects, one for each measurement. An object has the problem's sizes, in the
// family's words; kernel or kernel_name; latency_ms, or tflops (of useful operations); and
// optionally op, dtype and layout. Case does not matter, and other fields are ignored. All
// measurements become one run. The run's id follows from the text, so a file that is imported twice
// is stored once. Throws Error{parse_error} with line and column, or with the object's index and
// the field.
SweepData from_foreign_json(std::string_view text, const ForeignRun& run,
                            const std::string& source);

// The plug-in that reads and writes Parquet, which needs Apache Arrow: it is searched beside the
// library and in its libexec folder. Both functions throw Error{unsupported}, which says how to
// install it, and Error{io_error} or Error{parse_error} with Arrow's message.
void write_parquet(const ColumnTable& table, const std::filesystem::path& file);
ColumnTable read_parquet(const std::filesystem::path& file);

// Reads a file by its name: .csv, .parquet, otherwise a store.
SweepData read_sweep_data(const std::filesystem::path& file);

}  // namespace tessera::measure
