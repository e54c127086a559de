// What the library and its Parquet plug-in have agreed on.
#pragma once

#include <string>

#include "tessera/measure/sweep_columns.h"

namespace tessera::measure {

// Raised when Column or the functions change; the plug-in's symbol carries it.
inline constexpr const char* kParquetSymbol = "tessera_parquet_2";

// Both return an empty text, or Arrow's words about what went wrong. The library writes the file
// itself, as it writes all files: whole or not at all.
struct ParquetPlugin {
  std::string (*write)(const ColumnTable& table, std::string& bytes);
  std::string (*read)(const std::string& file, ColumnTable& table);
};

}  // namespace tessera::measure
