// The file's life: created with its schema in one transaction, appended to by transactions that
// take the write lock at once, read at any time. A rollback journal instead of WAL, so that stores
// on read-only or shared disks can be read. SQLite reports damage when it meets it; the store then
// renames the file (one process at a time, under a lock file) and begins a new one.
#include "tessera/tune/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/text.h"
#include "tessera/jit/toolchain.h"

namespace tessera::tune {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int kBusyMilliseconds = 30'000;

// Rows of other ABI versions are kept but not believed: their kernels were generated differently.
constexpr const char* kSchema =
    "CREATE TABLE measurements("
    " id INTEGER PRIMARY KEY, device TEXT NOT NULL, target TEXT NOT NULL, problem TEXT NOT NULL,"
    " threads INTEGER NOT NULL, kernel TEXT NOT NULL, outcome TEXT NOT NULL,"
    " seconds REAL NOT NULL, spread REAL NOT NULL, note TEXT NOT NULL, protocol TEXT NOT NULL,"
    " abi INTEGER NOT NULL, recorded INTEGER NOT NULL DEFAULT (strftime('%s', 'now')));"
    "CREATE INDEX by_problem ON measurements(device, target, problem, threads);";

constexpr const char* kColumns =
    "device, target, problem, kernel, threads, outcome, seconds, spread, note, protocol";

constexpr std::array<std::pair<Outcome, std::string_view>, 6> kOutcomes = {{
    {Outcome::ok, "ok"},
    {Outcome::wrong, "wrong"},
    {Outcome::crashed, "crashed"},
    {Outcome::timeout, "timeout"},
    {Outcome::failed, "failed"},
    {Outcome::refused, "refused"},
}};

// What SQLite says when the bytes of the file are not a sound database.
struct Damage {
  std::string what;
};

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using StatementHandle = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

[[noreturn]] void fail(const fs::path& file, int code, const std::string& words) {
  const int primary = code & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) throw Damage{words};
  throw Error(ErrorCode::io_error,
              fmt::format("tuning store '{}': {}: check the file's permissions and the free space, "
                          "or name another store",
                          file.string(), words));
}

// One statement: bind in order, step, read columns.
class Statement {
 public:
  Statement(const fs::path& file, sqlite3* db, const std::string& sql) : file_(file), db_(db) {
    sqlite3_stmt* raw = nullptr;
    check(sqlite3_prepare_v2(db, sql.c_str(), -1, &raw, nullptr));
    handle_.reset(raw);
  }
  void bind(int index, const std::string& text) {
    check(sqlite3_bind_text(handle_.get(), index, text.data(), static_cast<int>(text.size()),
                            SQLITE_TRANSIENT));
  }
  void bind(int index, int value) { check(sqlite3_bind_int(handle_.get(), index, value)); }
  void bind(int index, double value) { check(sqlite3_bind_double(handle_.get(), index, value)); }
  bool step() {
    const int code = sqlite3_step(handle_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) check(code);
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* data = sqlite3_column_text(handle_.get(), column);
    return data == nullptr ? std::string() : reinterpret_cast<const char*>(data);
  }
  int integer(int column) const { return sqlite3_column_int(handle_.get(), column); }
  double real(int column) const { return sqlite3_column_double(handle_.get(), column); }

 private:
  void check(int code) const {
    if (code != SQLITE_OK) fail(file_, code, sqlite3_errmsg(db_));
  }
  const fs::path& file_;
  sqlite3* db_;
  StatementHandle handle_;
};

void execute(const fs::path& file, sqlite3* db, const char* sql) {
  const int code = sqlite3_exec(db, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(file, code, sqlite3_errmsg(db));
}

// Holds the write lock; rolls back unless committed.
class Transaction {
 public:
  Transaction(const fs::path& file, sqlite3* db) : file_(file), db_(db) {
    execute(file_, db_, "BEGIN IMMEDIATE");
  }
  ~Transaction() {
    if (db_ != nullptr) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() {
    execute(file_, db_, "COMMIT");
    db_ = nullptr;
  }

 private:
  const fs::path& file_;
  sqlite3* db_;
};

// An exclusive lock between processes, for as long as it lives.
class FileLock {
 public:
  explicit FileLock(const fs::path& file)
      : fd_(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

int user_version(const fs::path& file, sqlite3* db) {
  Statement query(file, db, "PRAGMA user_version");
  return query.step() ? query.integer(0) : 0;
}

bool has_tables(const fs::path& file, sqlite3* db) {
  Statement query(file, db, "SELECT 1 FROM sqlite_master LIMIT 1");
  return query.step();
}

void require_known_version(const fs::path& file, sqlite3* db) {
  const int version = user_version(file, db);
  if (version == kSchemaVersion) return;
  if (version == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("tuning store '{}' is a database of something else: name another store",
                            file.string()));
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("tuning store '{}' has schema version {}, this library reads version {}: "
                          "delete the file or name another store",
                          file.string(), version, kSchemaVersion));
}

void create_schema(const fs::path& file, sqlite3* db) {
  Transaction transaction(file, db);
  if (!has_tables(file, db) && user_version(file, db) == 0) {
    execute(file, db, kSchema);
    execute(file, db, fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  }
  transaction.commit();
}

Database open_database(const fs::path& file) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(file.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) fail(file, code, db ? sqlite3_errmsg(db.get()) : "out of memory");
  sqlite3_busy_timeout(db.get(), kBusyMilliseconds);
  if (user_version(file, db.get()) == 0 && !has_tables(file, db.get())) {
    create_schema(file, db.get());
  }
  require_known_version(file, db.get());
  return db;
}

// Whether the file that has the name now is damaged; another process may have replaced it.
bool is_damaged(const fs::path& file) {
  try {
    const Database db = open_database(file);
    Statement query(file, db.get(), "PRAGMA integrity_check(1)");
    return !query.step() || query.text(0) != "ok";
  } catch (const Damage&) {
    return true;
  }
}

// The journals go with the file: beside a new one they would be played into it.
void set_aside(const fs::path& file, const std::string& words) {
  const FileLock lock(file.string() + ".lock");
  if (!is_damaged(file)) return;
  int n = 1;
  while (fs::exists(fmt::format("{}.damaged-{}", file.string(), n))) ++n;
  const std::string aside = fmt::format("{}.damaged-{}", file.string(), n);
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    std::error_code missing;
    fs::rename(file.string() + suffix, aside + suffix, missing);
  }
  std::error_code refused;
  fs::rename(file, aside, refused);
  if (refused) {
    throw Error(
        ErrorCode::io_error,
        fmt::format("tuning store '{}' is damaged ({}) and cannot be renamed: {}: remove it "
                    "or name another store",
                    file.string(), words, refused.message()));
  }
  warn_once(
      fmt::format("tuning store '{}' is damaged ({}): it was set aside as '{}' and a new one "
                  "was begun",
                  file.string(), words, aside));
}

Measurement read_row(const Statement& row) {
  Measurement m;
  m.device = row.text(0);
  m.target = row.text(1);
  m.problem = row.text(2);
  m.kernel = row.text(3);
  m.threads = row.integer(4);
  try {
    m.outcome = parse_outcome(row.text(5));
  } catch (const Error& error) {
    throw Damage{error.what()};
  }
  m.seconds = row.real(6);
  m.spread = row.real(7);
  m.note = row.text(8);
  m.protocol = row.text(9);
  return m;
}

void insert_row(const fs::path& file, sqlite3* db, const Measurement& m) {
  Statement insert(file, db,
                   fmt::format("INSERT INTO measurements({}, abi) VALUES(?,?,?,?,?,?,?,?,?,?,{})",
                               kColumns, jit::kAbiVersion));
  insert.bind(1, m.device);
  insert.bind(2, m.target);
  insert.bind(3, m.problem);
  insert.bind(4, m.kernel);
  insert.bind(5, m.threads);
  insert.bind(6, std::string(to_string(m.outcome)));
  insert.bind(7, m.seconds);
  insert.bind(8, m.spread);
  insert.bind(9, m.note);
  insert.bind(10, m.protocol);
  insert.step();
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  for (const auto& [value, word] : kOutcomes) {
    if (value == outcome) return word;
  }
  return "failed";
}

Outcome parse_outcome(std::string_view text) {
  std::vector<std::string> words;
  for (const auto& [value, word] : kOutcomes) {
    if (word == text) return value;
    words.emplace_back(word);
  }
  throw Error(ErrorCode::parse_error,
              fmt::format("unknown outcome '{}'{}", text, did_you_mean(text, words)));
}

std::optional<TunedEntry> best_of(std::span<const Measurement> measurements,
                                  const std::function<bool(const std::string& kernel)>& allowed) {
  std::map<std::string, double> readings;
  std::set<std::string> refused;
  for (const Measurement& m : measurements) {
    if (m.outcome != Outcome::ok) refused.insert(m.kernel);
    if (m.outcome == Outcome::ok && m.seconds > 0) readings[m.kernel] = m.seconds;
  }
  std::optional<TunedEntry> winner;
  for (const auto& [kernel, seconds] : readings) {
    if (refused.count(kernel) != 0 || !allowed(kernel)) continue;
    if (!winner || seconds < winner->seconds) winner = TunedEntry{kernel, seconds};
  }
  return winner;
}

struct Store::State {
  fs::path file;
  std::mutex mutex;
  Database db;

  // Runs `body` on the open database; after damage once more, on a new one.
  template <typename Body>
  auto guarded(const Body& body) {
    const std::lock_guard lock(mutex);
    try {
      if (!db) db = open_database(file);
      return body(db.get());
    } catch (const Damage& damage) {
      db.reset();
      set_aside(file, damage.what);
    }
    try {
      db = open_database(file);
      return body(db.get());
    } catch (const Damage& damage) {
      db.reset();
      throw Error(ErrorCode::io_error,
                  fmt::format("tuning store '{}' is damaged: {}: remove it or name another store",
                              file.string(), damage.what));
    }
  }
};

Store::Store(const fs::path& file) : state_(std::make_unique<State>()) {
  state_->file = file;
  std::error_code refused;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), refused);
  if (refused) {
    throw Error(ErrorCode::io_error, fmt::format("tuning store '{}': its folder cannot be made: {}",
                                                 file.string(), refused.message()));
  }
  state_->guarded([](sqlite3*) { return 0; });
}

Store::~Store() = default;

void Store::record(const Measurement& measurement) { record(std::span(&measurement, 1)); }

void Store::record(std::span<const Measurement> measurements) {
  state_->guarded([&](sqlite3* db) {
    Transaction transaction(state_->file, db);
    for (const Measurement& m : measurements) insert_row(state_->file, db, m);
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
  return state_->guarded([&](sqlite3* db) {
    Statement query(state_->file, db,
                    fmt::format("SELECT {} FROM measurements WHERE device = ? AND target = ? AND "
                                "problem = ? AND threads = ? AND abi = {} ORDER BY id",
                                kColumns, jit::kAbiVersion));
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
  return state_->guarded([&](sqlite3* db) {
    Statement query(state_->file, db,
                    fmt::format("SELECT {} FROM measurements ORDER BY id", kColumns));
    std::vector<Measurement> rows;
    while (query.step()) rows.push_back(read_row(query));
    return rows;
  });
}

}  // namespace tessera::tune
