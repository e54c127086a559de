// The interface between the library and its Parquet plug-in.
#pragma once

#include <string>

#include "tessera/measure/sweep_columns.h"

namespace tessera::measure {

// The plug-in's symbol. Its number is raised when Column or the functions change.
inline constexpr const char* kParquetSymbol = "tessera_parquet_2";

// Both functions return an empty text, or Arrow's message about what went wrong. The library writes
// the file itself, like all files: whole or not at all.
struct ParquetPlugin {
  std::string (*write)(const ColumnTable& table, std::string& bytes);
  std::string (*read)(const std::string& file, ColumnTable& table);
};

}  // namespace tessera::measure
