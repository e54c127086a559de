// Rows of other programs' files between their text and our data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/facts.h"
#include "tessera/measure/import_other_tools.h"

namespace tessera::measure {

// One measurement: its fields in lower case, numbers as they were written. The kernel's name and
// the error are here once more as they were written, and `where` begins messages about the row:
// "'f': row 3".
struct ForeignRow {
  ProblemWords fields;
  std::string kernel;
  std::string error;
  std::string where;
};

std::string in_lower_case(std::string text);

[[noreturn]] void refuse_foreign(const ForeignRow& row, std::string_view words);

// The rows of a text, whatever its form. See from_foreign().
std::vector<ForeignRow> foreign_rows(std::string_view text, const std::string& source);
// The rows of a table that is not ours.
std::vector<ForeignRow> foreign_rows(const ColumnTable& table, const std::string& source);
// Whether a table has the columns of another program's measurements.
bool is_foreign(const ColumnTable& table);
// Whether a text is a table: no JSON and no log.
bool is_table(std::string_view text);

}  // namespace tessera::measure
