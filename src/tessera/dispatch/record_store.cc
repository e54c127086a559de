#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/dispatch/record_store_internal.h"
#include "tessera/spec/problem.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 6> kOrigins = {"loaded",   "pack",    "cache",
                                                      "compiled", "earlier", "none"};
constexpr std::array kSources = {ChoiceSource::pinned, ChoiceSource::tuned, ChoiceSource::learned,
                                 ChoiceSource::analytic, ChoiceSource::first_legal};

// The columns by which rows are told apart, and those whose numbers come together.
constexpr const char* kKeyColumns =
    "run, target, machine, problem, threads, device, deterministic, batch_invariant, kernel, "
    "source, origin";
constexpr std::array kSummed = {"calls", "misses", "choose_seconds", "ready_seconds"};

// A killed process leaves what it wrote to the system, so that no write waits for the disk. The
// processes of one machine start together, and each writes for a few milliseconds.
constexpr const char* kRecordPragmas = "PRAGMA synchronous = OFF; PRAGMA busy_timeout = 5000";

std::string insert_sql(RecordSum how) {
  std::string sums;
  for (const char* column : kSummed) {
    sums += fmt::format("{}{} = {}", sums.empty() ? "" : ", ", column,
                        how == RecordSum::add ? fmt::format("{0} + excluded.{0}", column)
                                              : fmt::format("max({0}, excluded.{0})", column));
  }
  return fmt::format(
      "INSERT INTO asked({}, why, predicted_seconds, calls, misses, choose_seconds, ready_seconds) "
      "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT({}) DO UPDATE SET {}",
      kKeyColumns, kKeyColumns, sums);
}

std::int64_t run_id(const measure::Connection& db, const RecordRun& run) {
  measure::Statement insert(db, "INSERT OR IGNORE INTO runs(name, version, started) VALUES(?,?,?)");
  insert.bind(1, run.name);
  insert.bind(2, run.version);
  insert.bind(3, run.started);
  insert.step();
  measure::Statement query(db, "SELECT id FROM runs WHERE name = ?");
  query.bind(1, run.name);
  return query.step() ? query.integer(0) : 0;
}

std::int64_t target_id(const measure::Connection& db, const std::string& row) {
  measure::Statement insert(db, "INSERT OR IGNORE INTO targets(row) VALUES(?)");
  insert.bind(1, row);
  insert.step();
  measure::Statement query(db, "SELECT id FROM targets WHERE row = ?");
  query.bind(1, row);
  return query.step() ? query.integer(0) : 0;
}

void write_row(measure::Statement& insert, const RecordRow& row, std::int64_t run,
               std::int64_t target) {
  insert.reset();
  insert.bind(1, run);
  insert.bind(2, target);
  insert.bind(3, row.machine);
  insert.bind(4, row.problem);
  insert.bind(5, row.threads);
  insert.bind(6, row.device);
  insert.bind(7, row.deterministic ? 1 : 0);
  insert.bind(8, row.batch_invariant ? 1 : 0);
  insert.bind(9, row.kernel);
  insert.bind(10, to_string(row.source));
  insert.bind(11, to_string(row.origin));
  insert.bind(12, row.why);
  insert.bind(13, row.predicted_seconds);
  insert.bind(14, row.calls);
  insert.bind(15, row.misses);
  insert.bind(16, row.choose_seconds);
  insert.bind(17, row.ready_seconds);
  insert.step();
}

// ---- reading ----

ChoiceSource source_in(const std::string& word) {
  for (const ChoiceSource source : kSources) {
    if (to_string(source) == word) return source;
  }
  throw measure::Damage{fmt::format("column 'source' holds '{}', which is no source", word)};
}

KernelOrigin origin_in(const std::string& word) {
  const auto* const found = std::find(kOrigins.begin(), kOrigins.end(), word);
  if (found != kOrigins.end()) return static_cast<KernelOrigin>(found - kOrigins.begin());
  throw measure::Damage{fmt::format("column 'origin' holds '{}', which is no origin", word)};
}

bool flag_in(const measure::Statement& query, int column, const char* name) {
  const std::int64_t value = query.integer(column);
  if (value == 0 || value == 1) return value == 1;
  throw measure::Damage{fmt::format("column '{}' holds {}, which must be 0 or 1", name, value)};
}

std::int64_t whole_in(const measure::Statement& query, int column, const char* name) {
  const std::int64_t value = query.integer(column);
  if (value >= 0) return value;
  throw measure::Damage{fmt::format("column '{}' holds {}, which is no count", name, value)};
}

// Indices by the numbers that rows of the file have.
using Places = std::map<std::int64_t, int>;

int place_of(const Places& places, std::int64_t id, const char* what) {
  const auto found = places.find(id);
  if (found != places.end()) return found->second;
  throw measure::Damage{fmt::format("a row names the {} {}, which is not there", what, id)};
}

// A problem is data of whoever wrote the file. It is read as it would be from a shape file.
std::string problem_in(const std::string& line) try {
  return to_string(parse_problem(line));
} catch (const Error& error) {
  throw measure::Damage{fmt::format("it holds the problem '{}' ({})", line, error.what())};
}

Target target_in(const std::string& row) try {
  return target_from_json(row);
} catch (const Error& error) {
  throw measure::Damage{error.what()};
}

Places read_runs(const measure::Connection& db, Record& record) {
  Places places;
  measure::Statement query(db, "SELECT id, name, version, started FROM runs ORDER BY id");
  while (query.step()) {
    places[query.integer(0)] = static_cast<int>(record.runs.size());
    record.runs.push_back({query.text(1), query.text(2), whole_in(query, 3, "started")});
  }
  return places;
}

Places read_targets(const measure::Connection& db, Record& record) {
  Places places;
  measure::Statement query(db, "SELECT id, row FROM targets ORDER BY id");
  while (query.step()) {
    places[query.integer(0)] = static_cast<int>(record.targets.size());
    record.targets.push_back(target_in(query.text(1)));
  }
  return places;
}

RecordRow read_row(const measure::Statement& query, const Places& runs, const Places& targets) {
  RecordRow row;
  row.run = place_of(runs, query.integer(0), "process");
  row.target = place_of(targets, query.integer(1), "target");
  row.machine = query.text(2);
  row.problem = problem_in(query.text(3));
  row.threads = query.count(4);
  row.device = query.count(5);
  row.deterministic = flag_in(query, 6, "deterministic");
  row.batch_invariant = flag_in(query, 7, "batch_invariant");
  row.kernel = query.text(8);
  row.source = source_in(query.text(9));
  row.origin = origin_in(query.text(10));
  row.why = query.text(11);
  row.predicted_seconds = query.quantity(12);
  row.calls = whole_in(query, 13, "calls");
  row.misses = whole_in(query, 14, "misses");
  row.choose_seconds = query.quantity(15);
  row.ready_seconds = query.quantity(16);
  return row;
}

Record read_rows(const measure::Connection& db) {
  Record record;
  const Places runs = read_runs(db, record);
  const Places targets = read_targets(db, record);
  measure::Statement query(
      db, fmt::format("SELECT {}, why, predicted_seconds, calls, misses, choose_seconds, "
                      "ready_seconds FROM asked ORDER BY rowid",
                      kKeyColumns));
  while (query.step()) record.rows.push_back(read_row(query, runs, targets));
  return record;
}

// One part for each process of a record.
std::vector<RecordPart> parts_of(const Record& record) {
  std::vector<std::string> targets;
  for (const Target& target : record.targets) targets.push_back(to_json(target));
  std::vector<RecordPart> parts;
  for (const RecordRun& run : record.runs) parts.push_back({run, targets, {}});
  for (const RecordRow& row : record.rows) {
    parts.at(static_cast<std::size_t>(row.run)).rows.push_back(row);
  }
  return parts;
}

std::vector<RecordPart> parts_of(std::span<const Record> records) {
  std::vector<RecordPart> parts;
  for (const Record& record : records) {
    for (RecordPart& part : parts_of(record)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::string_view to_string(KernelOrigin origin) {
  return kOrigins.at(static_cast<std::size_t>(origin));
}

const measure::Schema kRecordSchema = {
    "record", 1,
    "CREATE TABLE runs("
    " id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, version TEXT NOT NULL,"
    " started INTEGER NOT NULL);"
    "CREATE TABLE targets(id INTEGER PRIMARY KEY, row TEXT NOT NULL UNIQUE);"
    "CREATE TABLE asked("
    " run INTEGER NOT NULL, target INTEGER NOT NULL, machine TEXT NOT NULL, problem TEXT NOT NULL,"
    " threads INTEGER NOT NULL, device INTEGER NOT NULL, deterministic INTEGER NOT NULL,"
    " batch_invariant INTEGER NOT NULL, kernel TEXT NOT NULL, source TEXT NOT NULL,"
    " origin TEXT NOT NULL, why TEXT NOT NULL, predicted_seconds REAL NOT NULL,"
    " calls INTEGER NOT NULL, misses INTEGER NOT NULL, choose_seconds REAL NOT NULL,"
    " ready_seconds REAL NOT NULL,"
    " UNIQUE(run, target, machine, problem, threads, device, deterministic, batch_invariant,"
    " kernel, source, origin));"};

void write_parts(const measure::Connection& connection, std::span<const RecordPart> parts,
                 RecordSum how) {
  connection.execute(kRecordPragmas);
  measure::Transaction transaction(connection);
  measure::Statement insert(connection, insert_sql(how));
  for (const RecordPart& part : parts) {
    const std::int64_t run = run_id(connection, part.run);
    std::vector<std::optional<std::int64_t>> ids(part.targets.size());
    for (const RecordRow& row : part.rows) {
      const auto target = static_cast<std::size_t>(row.target);
      if (!ids.at(target)) ids[target] = target_id(connection, part.targets[target]);
      write_row(insert, row, run, *ids[target]);
    }
  }
  transaction.commit();
}

Record read_record(const std::filesystem::path& file) {
  measure::Database database(kRecordSchema, file, measure::Access::read);
  return database.with(read_rows);
}

void add_to_record(const std::filesystem::path& file, std::span<const Record> records) {
  const std::vector<RecordPart> parts = parts_of(records);
  measure::Database database(kRecordSchema, file, measure::Access::write);
  database.with([&](const measure::Connection& db) {
    write_parts(db, parts, RecordSum::larger);
    return 0;
  });
}

Record merged(std::span<const Record> records) {
  measure::Database database(kRecordSchema, "in memory", measure::Access::memory);
  return database.with([&](const measure::Connection& db) {
    write_parts(db, parts_of(records), RecordSum::larger);
    return read_rows(db);
  });
}

}  // namespace tessera
