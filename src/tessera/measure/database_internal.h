// One SQLite file: statements, transactions, a schema with a version, and the handling of damaged
// files. All stores share it.
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

// A kind of file: its name in messages, and its tables.
struct Schema {
  const char* noun;  // "tuning store"
  int version;
  const char* sql;
};

// Thrown when the file is not a sound database, or holds something that no version writes.
struct Damage {
  std::string what;
};

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

// An open database, with its name for error messages.
struct Connection {
  const Schema* schema = nullptr;
  fs::path file;
  std::unique_ptr<sqlite3, CloseDatabase> db;

  // Throws Damage, or Error{io_error}.
  [[noreturn]] void fail(int code, const std::string& words) const;
  void execute(const std::string& sql) const;
};

// One statement: bind values in order, step, read columns; reset() to use it again. Throws Damage
// for a column of another type, a count that is not an int, and a quantity that is negative or not
// finite.
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

// Holds the write lock. The destructor rolls back unless commit() was called.
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

// A writer creates the file and its tables when they are missing. A reader changes nothing, with
// one exception: if a process was killed during a change, the next one that opens the file undoes
// the change. A database in memory has no file, and lasts as long as its connection.
enum class Access { read, write, memory };

// Throws what Connection::fail() throws. Throws Error{unsupported} for another version, for a
// database of another program, and for a schema with additional objects. For readers, throws
// Error{not_found} for a file without a database.
Connection open_database(const Schema& schema, const fs::path& file, Access access);

// Throws Error{not_found} unless there is such a file.
void require_file(const Schema& schema, const fs::path& file);

// Makes the folder of a file. Throws Error{io_error}.
void make_folder_of(const Schema& schema, const fs::path& file);

// If the file is still damaged, renames it and its journals to <file>.damaged-<n> and logs a
// warning. One process at a time does so.
void set_aside(const Schema& schema, const fs::path& file, const std::string& words);

// A file that many threads use through one connection.
class Database {
 public:
  // Runs `body` on the open database. After damage, runs it once more on a new database.
  template <typename Body>
  auto with(const Body& body) {
    const std::lock_guard lock(mutex_);
    const HeldFileSizeSignal held;
    try {
      return body(open());
    } catch (const Damage& damage) {
      connection_.db.reset();
      if (access_ != Access::write) throw damaged(damage);
      set_aside(schema_, file_, damage.what);
    }
    try {
      return body(open());
    } catch (const Damage& damage) {
      connection_.db.reset();
      throw damaged(damage);
    }
  }
  // Opens the file. For a reader the file must exist, and a damaged file throws Error{io_error}.
  Database(const Schema& schema, fs::path file, Access access)
      : schema_(schema), file_(std::move(file)), access_(access) {
    if (access_ == Access::read) {
      require_file(schema_, file_);
    } else if (access_ == Access::write) {
      make_folder_of(schema_, file_);
    }
    with([](const Connection&) { return 0; });
  }
  const fs::path& file() const { return file_; }

 private:
  const Connection& open() {
    // SQLite's connections do not work in a child of fork(), and closing one there would do harm.
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
