// Measurements to and from CSV and Parquet files.
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

// The plug-in that reads and writes Parquet, which needs Apache Arrow: it is searched beside the
// library and in its libexec folder. Both functions throw Error{unsupported}, which says how to
// install it, and Error{io_error} or Error{parse_error} with Arrow's message.
void write_parquet(const ColumnTable& table, const std::filesystem::path& file);
ColumnTable read_parquet(const std::filesystem::path& file);

// Reads a file by its name: .csv, .parquet, otherwise a store.
SweepData read_sweep_data(const std::filesystem::path& file);

}  // namespace tessera::measure
