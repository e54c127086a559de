// The file of a record: its tables, and adding to its numbers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/dispatch/record.h"
#include "tessera/measure/database_internal.h"

namespace tessera {

// Rows with the texts of their targets, ready to be written.
struct RecordPart {
  RecordRun run;
  std::vector<std::string> targets;  // RecordRow::target is an index into them
  std::vector<RecordRow> rows;       // RecordRow::run is ignored
};

// How numbers come together with those of the same row in the file.
enum class RecordSum { add, larger };

extern const measure::Schema kRecordSchema;

// Writes all parts in one transaction, or none when it throws.
void write_parts(const measure::Connection& connection, std::span<const RecordPart> parts,
                 RecordSum how);

}  // namespace tessera
