// Measurements as one flat table, the form that other programs read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/measure/sweep_store.h"

namespace tessera::measure {

enum class ColumnType { text, real, integer };

// One column. Only the vector of its type is used. A text is an index into `words`.
struct Column {
  std::string name;
  ColumnType type = ColumnType::text;
  std::vector<std::string> words;
  std::vector<std::int32_t> codes;
  std::vector<double> reals;
  std::vector<std::int64_t> integers;
};

struct ColumnTable {
  std::vector<Column> columns;
  std::int64_t rows = 0;
};

// Name, type, unit and meaning of every column, in order.
struct ColumnRow {
  std::string_view name;
  ColumnType type;
  std::string_view meaning;
};
std::vector<ColumnRow> sweep_columns();

// Makes one row of the table for each SweepRow (kind "row") and each ClockReading (kind "clock").
ColumnTable to_columns(const SweepData& data);

// The inverse. Columns may have any order, unknown columns are ignored, and whole numbers may stand
// for reals. Throws Error{parse_error} with source, row and column when a value is missing or
// impossible: an unknown outcome, a problem that cannot be read, a time that is negative or not
// finite, two descriptions of one run.
SweepData from_columns(const ColumnTable& table, const std::string& source);

}  // namespace tessera::measure
