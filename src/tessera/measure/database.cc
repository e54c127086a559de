// The file's life: one transaction creates it with its schema, later transactions take the write
// lock at once and append, and it can be read at any time. It has a rollback journal instead of
// WAL, so that stores on read-only or shared disks can be read. When SQLite reports damage, the
// store renames the file and begins a new one. One process at a time renames, while no process
// opens the file. Opening and renaming exclude each other because SQLite finds journals by name:
// with a file that was just renamed, it would apply and delete the journal of the new file.
#include "tessera/measure/database_internal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/log.h"

namespace tessera::measure {
namespace {

constexpr int kBusyMilliseconds = 30'000;

// The settings that SQLite's authors advise for untrusted files: a file's schema may not run
// functions, and limits on sizes fit what stores hold.
struct Setting {
  int what, value;
};
constexpr std::array kSettings = {
    Setting{SQLITE_DBCONFIG_DEFENSIVE, 1}, Setting{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
    Setting{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, Setting{SQLITE_DBCONFIG_ENABLE_VIEW, 0},
    Setting{SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0}};
constexpr std::array kLimits = {
    Setting{SQLITE_LIMIT_LENGTH, 16 << 20},  // bytes of a text or a row
    Setting{SQLITE_LIMIT_SQL_LENGTH, 100'000}, Setting{SQLITE_LIMIT_COLUMN, 100},
    Setting{SQLITE_LIMIT_EXPR_DEPTH, 20},      Setting{SQLITE_LIMIT_COMPOUND_SELECT, 3},
    Setting{SQLITE_LIMIT_VDBE_OP, 25'000},     Setting{SQLITE_LIMIT_FUNCTION_ARG, 8},
    Setting{SQLITE_LIMIT_ATTACHED, 0},         Setting{SQLITE_LIMIT_VARIABLE_NUMBER, 32},
    Setting{SQLITE_LIMIT_TRIGGER_DEPTH, 1}};
constexpr const char* kPragmas = "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0";
constexpr std::chrono::seconds kFolderPatience(5);  // how long to wait for the folder's lock

// A lock between processes on the folder of a file, held while the object lives. There is no lock
// when folders cannot be locked (a network disk) or another program keeps the lock.
class FolderLock {
 public:
  FolderLock(const fs::path& file, int operation)
      : fd_(open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto deadline = std::chrono::steady_clock::now() + kFolderPatience;
    while (fd_ >= 0 && flock(fd_, operation | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() >= deadline) break;
      if (errno != EWOULDBLOCK && errno != EINTR) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  static fs::path folder_of(const fs::path& file) {
    return file.has_parent_path() ? file.parent_path() : fs::path(".");
  }

  int fd_;
};

std::int64_t user_version(const Connection& connection) {
  Statement query(connection, "PRAGMA user_version");
  return query.step() ? query.integer(0) : 0;
}

bool has_tables(const Connection& connection) {
  Statement query(connection, "SELECT 1 FROM sqlite_master LIMIT 1");
  return query.step();
}

void require_known_version(const Connection& connection) {
  const std::int64_t version = user_version(connection);
  const Schema& schema = *connection.schema;
  if (version == schema.version) return;
  if (version == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} '{}' is a database of something else: name another store",
                            schema.noun, connection.file.string()));
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("{} '{}' has schema version {}, this library reads version {}: "
                          "delete the file or name another store",
                          schema.noun, connection.file.string(), version, schema.version));
}

void create_schema(const Connection& connection) {
  Transaction transaction(connection);
  if (!has_tables(connection) && user_version(connection) == 0) {
    connection.execute(connection.schema->sql);
    connection.execute(fmt::format("PRAGMA user_version = {}", connection.schema->version));
  }
  transaction.commit();
}

// SQLite reports a locked file also when the disk supports no locks.
std::string_view advice(int primary) {
  const bool is_about_locks =
      primary == SQLITE_BUSY || primary == SQLITE_LOCKED || primary == SQLITE_PROTOCOL;
  return is_about_locks ? "wait for the process that holds it, move it off a network disk without "
                          "locks"
                        : "check the file's permissions and the free space";
}

// "machines", "runs", ...: the word after each CREATE TABLE.
std::vector<std::string> tables_of(const Schema& schema) {
  constexpr std::string_view kCreate = "CREATE TABLE ";
  const std::string_view sql = schema.sql;
  std::vector<std::string> names;
  for (std::size_t at = sql.find(kCreate); at != sql.npos; at = sql.find(kCreate, at)) {
    at += kCreate.size();
    names.emplace_back(sql.substr(at, sql.find('(', at) - at));
  }
  return names;
}

void require_tables(const Connection& connection) {
  Statement query(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?");
  for (const std::string& table : tables_of(*connection.schema)) {
    query.bind(1, table);
    if (!query.step()) throw Damage{fmt::format("it has no table '{}'", table)};
    query.reset();
  }
}

bool is_of(const Schema& schema, std::string_view sql) {
  const std::string_view own = schema.sql;
  const std::size_t at = own.find(sql);
  return at != own.npos && own.substr(at + sql.size()).starts_with(';') &&
         (at == 0 || own[at - 1] == ';');
}

// What ANALYZE makes.
bool is_of_sqlite(std::string_view sql) {
  return sql == "CREATE TABLE sqlite_stat1(tbl,idx,stat)" ||
         sql == "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)";
}

// SQLite evaluates the expressions in a schema (checks, generated columns, indexes). So the whole
// schema must be exactly what this library writes; objects that SQLite makes for itself are
// allowed.
void require_own_schema(const Connection& connection) {
  Statement query(connection, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL");
  while (query.step()) {
    const std::string sql = query.text(2);
    if (is_of(*connection.schema, sql) || is_of_sqlite(sql)) continue;
    throw Error(ErrorCode::unsupported,
                fmt::format("{} '{}' holds the {} '{}', which is not as this library makes it: "
                            "nothing of the file was read; name another store",
                            connection.schema->noun, connection.file.string(), query.text(0),
                            query.text(1)));
  }
}

// A damaged tree of pages may contain a page many times, and so have more rows than the file has
// bytes.
void require_sound_pages(const Connection& connection) {
  Statement query(connection, "PRAGMA quick_check(1)");
  if (!query.step()) return;
  const std::string words = query.text(0);
  if (words == "ok") return;
  const std::string last = words.substr(words.rfind('\n') + 1);
  // "Page 11: btreeInitPage() returns error code 11".
  const bool names_a_function = last.find("()") != std::string::npos;
  throw Damage{names_a_function ? last.substr(0, last.rfind(':')) + " cannot be read" : last};
}

// Where a change of several databases was left half done, the journal ends with the name of a file,
// the name's bytes, their sum, and the magic bytes with which it begins.
bool names_another_file(const fs::path& journal) {
  constexpr std::string_view kMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  std::array<char, 16> end{};
  std::ifstream in(journal, std::ios::binary);
  in.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  if (!in.read(end.data(), end.size())) return false;
  return std::string_view(end.data() + 8, 8) == kMagic &&
         std::string_view(end.data(), 4) != std::string_view("\0\0\0\0", 4);
}

// The files beside a store may have come with it. SQLite would write to what a link names, and
// would remove a file that a journal names. No store of this library has either.
void require_own_journals(const Schema& schema, const fs::path& file) {
  std::error_code ignored;
  const std::string real = fs::weakly_canonical(file, ignored).string();
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    const fs::path beside = real + suffix;
    const fs::file_status status = fs::symlink_status(beside, ignored);
    if (!fs::exists(status)) continue;
    if (fs::is_regular_file(status) && !names_another_file(beside)) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{} '{}': the file '{}' beside it {}, as none of this library does: "
                    "nothing of the store was read; remove that file",
                    schema.noun, file.string(), beside.filename().string(),
                    fs::is_regular_file(status) ? "names another file" : "is not a regular file"));
  }
}

// SQLite takes some names for something else than files: ":memory:", "file:name?mode=rwc". None of
// them begins as this one does.
std::string plain_name(const Schema& schema, const fs::path& file) {
  if (file.native().find('\0') != std::string::npos) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a name of a {} must hold no NUL, got one after '{}'", schema.noun,
                            file.c_str()));
  }
  return file.is_absolute() ? file.string() : "./" + file.string();
}

Connection connect(const Schema& schema, const fs::path& file, int flags) {
  sqlite3* raw = nullptr;
  const std::string name = plain_name(schema, file);
  require_own_journals(schema, file);
  const int code = sqlite3_open_v2(name.c_str(), &raw, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  Connection connection{&schema, file, {}};
  connection.db.reset(raw);
  if (code != SQLITE_OK) connection.fail(code, raw != nullptr ? sqlite3_errmsg(raw) : "no memory");
  sqlite3_busy_timeout(raw, kBusyMilliseconds);
  for (const Setting& s : kSettings) sqlite3_db_config(raw, s.what, s.value, nullptr);
  for (const Setting& limit : kLimits) sqlite3_limit(raw, limit.what, limit.value);
  sqlite3_exec(raw, kPragmas, nullptr, nullptr, nullptr);
  return connection;
}

// In WAL mode SQLite makes files beside a store for readers, too.
void require_rollback_mode(const Schema& schema, const fs::path& file) {
  std::array<char, 20> begin{};  // the last two bytes are 2 in WAL mode
  std::ifstream in(file, std::ios::binary);
  if (!in.read(begin.data(), begin.size()) || begin[18] != 2 || begin[19] != 2) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{} '{}' is in SQLite's WAL mode, in which readers write: change it by "
                          "sqlite3 '{}' 'PRAGMA journal_mode = DELETE'",
                          schema.noun, file.string(), file.string()));
}

// Only a process that may write can undo the change of a killed process.
Connection connect_reader(const Schema& schema, const fs::path& file) {
  require_rollback_mode(schema, file);
  Connection connection = connect(schema, file, SQLITE_OPEN_READONLY);
  sqlite3_exec(connection.db.get(), "PRAGMA user_version", nullptr, nullptr, nullptr);
  const bool is_left = sqlite3_extended_errcode(connection.db.get()) == SQLITE_READONLY_ROLLBACK;
  return is_left ? connect(schema, file, SQLITE_OPEN_READWRITE) : std::move(connection);
}

Connection open_unlocked(const Schema& schema, const fs::path& file, Access access) {
  const bool reads = access == Access::read;
  const int kind = access == Access::memory ? SQLITE_OPEN_MEMORY : 0;
  Connection connection =
      reads ? connect_reader(schema, file)
            : connect(schema, file, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | kind);
  if (user_version(connection) == 0 && !has_tables(connection)) {
    if (reads) {
      throw Error(ErrorCode::not_found,
                  fmt::format("{} '{}': the file holds no database", schema.noun, file.string()));
    }
    create_schema(connection);
  }
  require_known_version(connection);
  require_tables(connection);
  require_own_schema(connection);
  if (reads) require_sound_pages(connection);
  return connection;
}

// Whether the file that has this name now is damaged. Another process may have replaced it
// meanwhile.
bool is_damaged(const Schema& schema, const fs::path& file) {
  try {
    const Connection connection = open_unlocked(schema, file, Access::write);
    Statement query(connection, "PRAGMA integrity_check(1)");
    return !query.step() || query.text(0) != "ok";
  } catch (const Damage&) {
    return true;
  }
}

}  // namespace

void Connection::fail(int code, const std::string& words) const {
  const int primary = code & 0xff;
  // SQLite refuses our own statements only when the file lacks a table or column.
  const bool lacks = primary == SQLITE_ERROR;
  const bool is_bad = primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
  if (is_bad || lacks || primary == SQLITE_TOOBIG) throw Damage{words};
  throw Error(ErrorCode::io_error,
              fmt::format("{} '{}': {}: {}, or name another store", schema->noun, file.string(),
                          words, advice(primary)));
}

void Connection::execute(const std::string& sql) const {
  const int code = sqlite3_exec(db.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, sqlite3_errmsg(db.get()));
}

Statement::Statement(const Connection& connection, const std::string& sql)
    : connection_(connection) {
  sqlite3_stmt* raw = nullptr;
  check(sqlite3_prepare_v2(connection.db.get(), sql.c_str(), -1, &raw, nullptr));
  handle_.reset(raw);
}

void Statement::bind(int index, std::string_view text) {
  check(sqlite3_bind_text(handle_.get(), index, text.data(), static_cast<int>(text.size()),
                          SQLITE_TRANSIENT));
}
void Statement::bind(int index, std::int64_t value) {
  check(sqlite3_bind_int64(handle_.get(), index, value));
}
void Statement::bind(int index, double value) {
  check(sqlite3_bind_double(handle_.get(), index, value));
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) check(code);
  return code == SQLITE_ROW;
}

void Statement::reset() { sqlite3_reset(handle_.get()); }

void Statement::require_type(int column, int type) const {
  static constexpr std::array<const char*, 6> kTypes = {"?",      "an integer", "a number",
                                                        "a text", "bytes",      "nothing"};
  const int found = sqlite3_column_type(handle_.get(), column);
  if (found == type) return;
  throw Damage{fmt::format(
      "column '{}' holds {} where {} belongs", sqlite3_column_name(handle_.get(), column),
      kTypes.at(static_cast<std::size_t>(found)), kTypes.at(static_cast<std::size_t>(type)))};
}

std::string Statement::text(int column) const {
  require_type(column, SQLITE_TEXT);
  const auto* data = sqlite3_column_text(handle_.get(), column);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column));
  if (data == nullptr) throw std::bad_alloc();
  return {reinterpret_cast<const char*>(data), size};
}

std::int64_t Statement::integer(int column) const {
  require_type(column, SQLITE_INTEGER);
  return sqlite3_column_int64(handle_.get(), column);
}

int Statement::count(int column) const {
  const std::int64_t value = integer(column);
  if (value >= 0 && value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
  throw Damage{fmt::format("column '{}' holds {}, which is no count",
                           sqlite3_column_name(handle_.get(), column), value)};
}

double Statement::quantity(int column) const {
  require_type(column, SQLITE_FLOAT);
  const double value = sqlite3_column_double(handle_.get(), column);
  if (std::isfinite(value) && value >= 0) return value;
  throw Damage{fmt::format("column '{}' holds {}, which must be finite and at least 0",
                           sqlite3_column_name(handle_.get(), column), value)};
}

void Statement::check(int code) const {
  if (code != SQLITE_OK) connection_.fail(code, sqlite3_errmsg(connection_.db.get()));
}

Transaction::Transaction(const Connection& connection) : connection_(connection) {
  connection_.execute("BEGIN IMMEDIATE");
}
Transaction::~Transaction() {
  if (open_) sqlite3_exec(connection_.db.get(), "ROLLBACK", nullptr, nullptr, nullptr);
}
void Transaction::commit() {
  connection_.execute("COMMIT");
  open_ = false;
}

Connection open_database(const Schema& schema, const fs::path& file, Access access) {
  if (access == Access::memory) return open_unlocked(schema, file, access);
  const FolderLock lock(file, LOCK_SH);
  return open_unlocked(schema, file, access);
}

void require_file(const Schema& schema, const fs::path& file) {
  std::error_code refused;
  const fs::file_status there = fs::status(file, refused);
  if (fs::is_regular_file(there)) return;
  const std::string why = there.type() == fs::file_type::not_found ? "there is no such file"
                          : refused                                ? refused.message()
                                                                   : "it is not a regular file";
  throw Error(ErrorCode::not_found, fmt::format("{} '{}': {}", schema.noun, file.string(), why));
}

void make_folder_of(const Schema& schema, const fs::path& file) {
  std::error_code refused;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), refused);
  if (!refused) return;
  throw Error(ErrorCode::io_error, fmt::format("{} '{}': its folder cannot be made: {}",
                                               schema.noun, file.string(), refused.message()));
}

// The journals are renamed with the file. Otherwise SQLite would apply them to the new file.
void set_aside(const Schema& schema, const fs::path& file, const std::string& words) {
  const FolderLock lock(file, LOCK_EX);
  if (!is_damaged(schema, file)) return;
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
    throw Error(ErrorCode::io_error,
                fmt::format("{} '{}' is damaged ({}) and cannot be renamed: {}: remove it "
                            "or name another store",
                            schema.noun, file.string(), words, refused.message()));
  }
  warn_once(fmt::format("{} '{}' is damaged ({}): it was set aside as '{}' and a new one was begun",
                        schema.noun, file.string(), words, aside));
}

Error Database::damaged(const Damage& damage) const {
  return Error(ErrorCode::io_error,
               fmt::format("{} '{}' is damaged: {}: remove it or name another store", schema_.noun,
                           file_.string(), damage.what));
}

}  // namespace tessera::measure
