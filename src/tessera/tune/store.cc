#include "tessera/tune/store.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/enums.h"
#include "tessera/base/text.h"
#include "tessera/families/family.h"
#include "tessera/measure/database_internal.h"

namespace tessera::tune {
namespace {

// Rows with another ABI number stay in the store but are not used, because their kernels had other
// machine code.
constexpr measure::Schema kSchema = {
    "tuning store", 1,
    "CREATE TABLE measurements("
    " id INTEGER PRIMARY KEY, device TEXT NOT NULL, target TEXT NOT NULL, problem TEXT NOT NULL,"
    " threads INTEGER NOT NULL, kernel TEXT NOT NULL, outcome TEXT NOT NULL,"
    " seconds REAL NOT NULL, spread REAL NOT NULL, note TEXT NOT NULL, protocol TEXT NOT NULL,"
    " abi INTEGER NOT NULL, recorded INTEGER NOT NULL DEFAULT (strftime('%s', 'now')));"
    "CREATE INDEX by_problem ON measurements(device, target, problem, threads);"};

constexpr const char* kColumns =
    "device, target, problem, kernel, threads, outcome, seconds, spread, note, protocol";

Measurement read_row(const measure::Statement& row) {
  Measurement m;
  m.device = row.text(0);
  m.target = row.text(1);
  m.problem = row.text(2);
  m.kernel = row.text(3);
  m.threads = row.count(4);
  try {
    m.outcome = measure::parse_outcome(row.text(5));
  } catch (const Error& error) {
    throw measure::Damage{error.what()};
  }
  m.seconds = row.quantity(6);
  m.spread = row.quantity(7);
  m.note = row.text(8);
  m.protocol = row.text(9);
  return m;
}

// The ABI number of the kernels for a problem.
int abi_of(const std::string& problem) {
  const Family* const family = find_family(problem);
  return family == nullptr ? 0 : int{family->abi};
}

void insert_row(const measure::Connection& connection, const Measurement& m) {
  measure::Statement insert(
      connection, fmt::format("INSERT INTO measurements({}, abi) VALUES(?,?,?,?,?,?,?,?,?,?,{})",
                              kColumns, abi_of(m.problem)));
  insert.bind(1, m.device);
  insert.bind(2, m.target);
  insert.bind(3, m.problem);
  insert.bind(4, m.kernel);
  insert.bind(5, m.threads);
  insert.bind(6, to_string(m.outcome));
  insert.bind(7, m.seconds);
  insert.bind(8, m.spread);
  insert.bind(9, m.note);
  insert.bind(10, m.protocol);
  insert.step();
}

}  // namespace

std::optional<TunedEntry> best_of(std::span<const Measurement> measurements,
                                  const std::function<bool(const std::string& kernel)>& allowed) {
  std::map<std::string, double> readings;
  std::set<std::string> refused;
  for (const Measurement& m : measurements) {
    if (m.outcome != measure::Outcome::ok) refused.insert(m.kernel);
    if (m.outcome == measure::Outcome::ok && m.seconds > 0) readings[m.kernel] = m.seconds;
  }
  std::optional<TunedEntry> winner;
  for (const auto& [kernel, seconds] : readings) {
    if (refused.count(kernel) != 0 || !allowed(kernel)) continue;
    if (!winner || seconds < winner->seconds) winner = TunedEntry{kernel, seconds};
  }
  return winner;
}

std::filesystem::path tuning_store_in(const std::filesystem::path& cache_folder) {
  return cache_folder / "tuning.sqlite";
}

struct Store::State {
  measure::Database database;
};

Store::Store(const fs::path& file) : state_(new State{{kSchema, file, measure::Access::write}}) {}

Store::Store() : state_(new State{{kSchema, "in memory", measure::Access::memory}}) {}

Store::~Store() = default;

void Store::record(const Measurement& measurement) { record(std::span(&measurement, 1)); }

void Store::record(std::span<const Measurement> measurements) {
  state_->database.with([&](const measure::Connection& db) {
    measure::Transaction transaction(db);
    for (const Measurement& m : measurements) insert_row(db, m);
    transaction.commit();
    return 0;
  });
}

std::optional<TunedEntry> Store::best(const std::string& device, const std::string& target,
                                      const std::string& problem, int threads) const {
  return best_of(find(device, target, problem, threads), [](const std::string&) { return true; });
}

std::vector<Measurement> Store::find(const std::string& device, const std::string& target,
                                     const std::string& problem, int threads) const {
  return state_->database.with([&](const measure::Connection& db) {
    measure::Statement query(
        db, fmt::format("SELECT {} FROM measurements WHERE device = ? AND target = ? AND "
                        "problem = ? AND threads = ? AND abi = {} ORDER BY id",
                        kColumns, abi_of(problem)));
    query.bind(1, device);
    query.bind(2, target);
    query.bind(3, problem);
    query.bind(4, threads);
    std::vector<Measurement> rows;
    while (query.step()) rows.push_back(read_row(query));
    return rows;
  });
}

std::vector<Measurement> Store::all() const {
  return state_->database.with([&](const measure::Connection& db) {
    measure::Statement query(db, fmt::format("SELECT {} FROM measurements ORDER BY id", kColumns));
    std::vector<Measurement> rows;
    while (query.step()) rows.push_back(read_row(query));
    return rows;
  });
}

}  // namespace tessera::tune
