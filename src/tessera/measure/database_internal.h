// One SQLite file: statements, transactions, a schema with a version, and what to do when the file
// is damaged. Shared by the stores of this folder.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/file_size_signal.h"
#include "tessera/base/files.h"
#include "tessera/base/fork.h"

namespace tessera::measure {

// What a kind of file is called and made of.
struct Schema {
  const char* noun;  // "tuning store"
  int version;
  const char* sql;
};

// The bytes of the file are not a sound database, or it holds what no version writes.
struct Damage {
  std::string what;
};

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

// An open database with its name, for the words of errors.
struct Connection {
  const Schema* schema = nullptr;
  fs::path file;
  std::unique_ptr<sqlite3, CloseDatabase> db;

  // Throws Damage, or Error{io_error}.
  [[noreturn]] void fail(int code, const std::string& words) const;
  void execute(const std::string& sql) const;
};

// One statement: bind in order, step, read columns; reset() to use it again. A column that holds
// something of another type, a count that is no int, or a quantity that is negative or not finite
// is Damage.
class Statement {
 public:
  Statement(const Connection& connection, const std::string& sql);
  void bind(int index, std::string_view text);
  void bind(int index, std::int64_t value);
  void bind(int index, int value) { bind(index, std::int64_t{value}); }
  void bind(int index, double value);
  bool step();
  void reset();
  std::string text(int column) const;
  std::int64_t integer(int column) const;
  int count(int column) const;
  double quantity(int column) const;

 private:
  void require_type(int column, int type) const;
  void check(int code) const;
  const Connection& connection_;
  std::unique_ptr<sqlite3_stmt, FinalizeStatement> handle_;
};

// Holds the write lock; rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(const Connection& connection);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  const Connection& connection_;
  bool open_ = true;
};

// A writer creates what is missing. A reader changes nothing, but for the half of a change that a
// process left behind when it was killed: that is taken back, as it is by whoever opens the file.
enum class Access { read, write };

// Throws what Connection::fail() throws, Error{unsupported} for another version, a database of
// something else or a schema that holds more than its own, and for readers Error{not_found} for a
// file without a database.
Connection open_database(const Schema& schema, const fs::path& file, Access access);

// Throws Error{not_found} unless there is such a file.
void require_file(const Schema& schema, const fs::path& file);

// Makes the folder of a file. Throws Error{io_error}.
void make_folder_of(const Schema& schema, const fs::path& file);

// Renames a file that is still damaged to <file>.damaged-<n>, journals included, and warns; one
// process at a time.
void set_aside(const Schema& schema, const fs::path& file, const std::string& words);

// A file that many threads use through one connection.
class Database {
 public:
  // Runs `body` on the open database; after damage once more, on a new one.
  template <typename Body>
  auto with(const Body& body) {
    const std::lock_guard lock(mutex_);
    const HeldFileSizeSignal held;
    try {
      return body(open());
    } catch (const Damage& damage) {
      connection_.db.reset();
      if (access_ == Access::read) throw damaged(damage);
      set_aside(schema_, file_, damage.what);
    }
    try {
      return body(open());
    } catch (const Damage& damage) {
      connection_.db.reset();
      throw damaged(damage);
    }
  }
  // Opens the file, too. What a reader opens must exist, and throws Error{io_error} when it is
  // damaged.
  Database(const Schema& schema, fs::path file, Access access)
      : schema_(schema), file_(std::move(file)), access_(access) {
    if (access_ == Access::read) {
      require_file(schema_, file_);
    } else {
      make_folder_of(schema_, file_);
    }
    with([](const Connection&) { return 0; });
  }
  const fs::path& file() const { return file_; }

 private:
  const Connection& open() {
    // SQLite's connections do not work in a child of fork(), where closing one would do harm, too.
    if (generation_ != fork_generation()) static_cast<void>(connection_.db.release());
    generation_ = fork_generation();
    if (!connection_.db) connection_ = open_database(schema_, file_, access_);
    return connection_;
  }
  Error damaged(const Damage& damage) const;

  const Schema& schema_;
  fs::path file_;
  Access access_;
  Mutex mutex_;
  unsigned generation_ = fork_generation();
  Connection connection_;
};

}  // namespace tessera::measure
