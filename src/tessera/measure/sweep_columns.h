// Measurements as one flat table, which is how other programs want them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/measure/sweep_store.h"

namespace tessera::measure {

enum class ColumnType { text, real, integer };

// Only the vectors of its type are used. A text is a place in `words`.
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

// A row of the table for each SweepRow (kind "row") and each ClockReading (kind "clock").
ColumnTable to_columns(const SweepData& data);

// The inverse. Columns may come in any order, and others are ignored; whole numbers may stand for
// reals. Throws Error{parse_error} that names source, row and column for what is missing or cannot
// be: an unknown outcome, a problem that cannot be read, a time that is negative or not finite, two
// descriptions of one run.
SweepData from_columns(const ColumnTable& table, const std::string& source);

}  // namespace tessera::measure
