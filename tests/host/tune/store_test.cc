#include "tessera/tune/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/measure/database_internal.h"

namespace tessera::tune {
namespace {

struct StoreTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-store-");
  fs::path file = folder / "tuning.sqlite";
  ~StoreTest() override { remove_tree(folder); }

  std::string message_of_opening() const {
    try {
      const Store store(file);
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

Measurement measurement(const std::string& kernel, double seconds,
                        measure::Outcome outcome = measure::Outcome::ok) {
  Measurement m;
  m.device = "cpu model";
  m.target = "avx2";
  m.problem = "gemm m=1 n=2 k=3";
  m.kernel = kernel;
  m.threads = 2;
  m.outcome = outcome;
  m.seconds = seconds;
  m.spread = 0.25;
  m.note = outcome == measure::Outcome::ok ? "" : "it's broken";
  m.protocol = "protocol";
  return m;
}

TEST_F(StoreTest, WithoutAFileItIsInMemory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  const Store store;
  Store other;
  other.record(measurement("kernel", 0.1));
  fs::current_path(before);
  EXPECT_EQ(other.all().size(), 1U);
  EXPECT_TRUE(store.all().empty());
  EXPECT_TRUE(fs::is_empty(folder));
}

std::vector<Measurement> many(int count) {
  std::vector<Measurement> rows;
  for (int i = 0; i < count; ++i) rows.push_back(measurement(fmt::format("kernel{}", i), 0.1));
  return rows;
}

std::string best_name(const Store& store, int threads = 2) {
  const auto best = store.best("cpu model", "avx2", "gemm m=1 n=2 k=3", threads);
  return best ? best->kernel : "none";
}

void run_sql(const fs::path& file, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

TEST_F(StoreTest, KeepsEveryFieldAcrossReopening) {
  const std::vector<Measurement> rows = {measurement("a", 0.1),
                                         measurement("b", 0, measure::Outcome::crashed)};
  Store(file).record(rows);
  EXPECT_EQ(Store(file).all(), rows);
  EXPECT_EQ(Store(file).find("cpu model", "avx2", "gemm m=1 n=2 k=3", 2), rows);
}

TEST_F(StoreTest, MakesItsFolder) {
  file = folder / "a" / "b" / "tuning.sqlite";
  Store(file).record(measurement("a", 0.1));
  EXPECT_EQ(Store(file).all().size(), 1U);
}

TEST_F(StoreTest, BestIsTheFastestLatestReading) {
  Store store(file);
  EXPECT_EQ(best_name(store), "none");
  store.record(measurement("slow", 0.2));
  EXPECT_EQ(best_name(store), "slow");
  store.record(measurement("fast", 0.1));
  EXPECT_EQ(best_name(store), "fast");
  store.record(measurement("fast", 0.3));  // measured again
  EXPECT_EQ(best_name(store), "slow");
  EXPECT_EQ(store.best("cpu model", "avx2", "gemm m=1 n=2 k=3", 2)->seconds, 0.2);
}

TEST_F(StoreTest, EqualTimesGoByName) {
  Store store(file);
  store.record(measurement("b", 0.1));
  store.record(measurement("a", 0.1));
  EXPECT_EQ(best_name(store), "a");
}

TEST_F(StoreTest, BestIgnoresKernelsWithoutReading) {
  Store store(file);
  store.record(measurement("not_a_finalist", 0));
  EXPECT_EQ(best_name(store), "none");
}

TEST_F(StoreTest, BestNeverReturnsAKernelThatFailedOnce) {
  for (const measure::Outcome outcome : {measure::Outcome::wrong, measure::Outcome::crashed,
                                         measure::Outcome::timeout, measure::Outcome::failed}) {
    SCOPED_TRACE(to_string(outcome));
    const fs::path own = folder / std::string(to_string(outcome));
    Store store(own);
    store.record(measurement("good", 0.2));
    store.record(measurement("bad", 0, outcome));
    store.record(measurement("bad", 0.1));
    EXPECT_EQ(best_name(store), "good");
  }
}

TEST_F(StoreTest, BestTellsContextsApart) {
  Store store(file);
  store.record(measurement("a", 0.1));
  EXPECT_EQ(best_name(store, 1), "none");
  EXPECT_FALSE(store.best("other cpu", "avx2", "gemm m=1 n=2 k=3", 2));
  EXPECT_FALSE(store.best("cpu model", "avx512", "gemm m=1 n=2 k=3", 2));
  EXPECT_FALSE(store.best("cpu model", "avx2", "gemm m=1 n=2 k=4", 2));
}

TEST_F(StoreTest, RowsOfAnotherAbiAreKeptButNotBelieved) {
  Store store(file);
  store.record(measurement("a", 0.1));
  run_sql(file, "UPDATE measurements SET abi = abi + 1");
  EXPECT_EQ(best_name(store), "none");
  EXPECT_EQ(store.all().size(), 1U);
}

TEST_F(StoreTest, RefusesAnotherSchemaVersion) {
  { const Store store(file); }
  run_sql(file, "PRAGMA user_version = 7");
  EXPECT_EQ(message_of_opening(),
            "tuning store '" + file.string() +
                "' has schema version 7, this library reads version 1: delete the file or name "
                "another store");
}

TEST_F(StoreTest, RefusesADatabaseOfSomethingElse) {
  run_sql(file, "CREATE TABLE photos(id INTEGER)");
  EXPECT_EQ(message_of_opening(), "tuning store '" + file.string() +
                                      "' is a database of something else: name another store");
  run_sql(file, "INSERT INTO photos VALUES(1)");  // still whole
}

TEST_F(StoreTest, SaysWhyItCannotBeOpened) {
  fs::create_directory(file);
  EXPECT_EQ(message_of_opening(),
            "tuning store '" + file.string() +
                "': unable to open database file: check the file's permissions and the free "
                "space, or name another store");
}

TEST_F(StoreTest, SaysWhyItsFolderCannotBeMade) {
  write_file(folder / "plain", "text");
  file = folder / "plain" / "tuning.sqlite";
  EXPECT_EQ(message_of_opening(),
            "tuning store '" + file.string() + "': its folder cannot be made: Not a directory");
}

TEST_F(StoreTest, SetsAFileOfGarbageAside) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel, std::string_view text) { warnings.emplace_back(text); });
  write_file(file, std::string(8192, 'x'));
  write_file(file.string() + "-journal", "stale journal");
  Store store(file);
  set_log_sink({});
  store.record(measurement("a", 0.1));
  EXPECT_EQ(best_name(store), "a");
  EXPECT_EQ(read_file(file.string() + ".damaged-1"), std::string(8192, 'x'));
  EXPECT_FALSE(fs::exists(file.string() + "-journal"));
  EXPECT_EQ(warnings,
            std::vector<std::string>{"tuning store '" + file.string() +
                                     "' is damaged (file is not a database): it was set "
                                     "aside as '" +
                                     file.string() + ".damaged-1' and a new one was begun"});
}

TEST_F(StoreTest, SetsATruncatedFileAsideAndCountsOn) {
  for (int n = 1; n <= 2; ++n) {
    {
      Store store(file);
      store.record(many(500));
    }
    fs::resize_file(file, fs::file_size(file) / 2);
    Store store(file);
    static_cast<void>(store.all());
    store.record(measurement("after", 0.1));
    EXPECT_EQ(best_name(store), "after");
    EXPECT_TRUE(fs::exists(file.string() + ".damaged-" + std::to_string(n)));
  }
}

TEST_F(StoreTest, SurvivesDamageWhileOpen) {
  Store store(file);
  store.record(many(200));
  {
    std::fstream raw(file, std::ios::in | std::ios::out | std::ios::binary);
    raw.write(std::string(100, 'x').data(), 100);  // the header
  }
  store.record(measurement("after", 0.1));
  EXPECT_EQ(best_name(store), "after");
  EXPECT_TRUE(fs::exists(file.string() + ".damaged-1"));
}

TEST_F(StoreTest, AWordThatIsNoOutcomeIsDamage) {
  Store(file).record(measurement("a", 0.1));
  run_sql(file, "UPDATE measurements SET outcome = 'fine'");
  Store store(file);
  try {
    static_cast<void>(store.all());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "tuning store '" + file.string() +
                                             "' is damaged: unknown outcome 'fine': remove it or "
                                             "name another store");
  }
}

TEST_F(StoreTest, ManyProcessesWriteAtOnce) {
  constexpr int kProcesses = 8;
  constexpr int kRows = 10;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        Store store(file);
        for (int i = 0; i < kRows; ++i) store.record(measurement(fmt::format("p{}", p), 0.1));
        _exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Store(file).all().size(), static_cast<std::size_t>(kProcesses * kRows));
}

// What SQLite says when a network disk refuses a lock, too.
TEST_F(StoreTest, SaysWhatToDoAboutLocks) {
  const measure::Schema schema{"tuning store", 1, ""};
  const measure::Connection connection{&schema, "measured.sqlite", {}};
  try {
    connection.fail(SQLITE_BUSY, "database is locked");
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "tuning store 'measured.sqlite': database is locked: wait for the process that holds "
        "it, move it off a network disk without locks, or name another store");
  }
}

// By hand (flock FOLDER ...), or a stopped process: everybody else goes on without it.
TEST_F(StoreTest, OpensThoughAnotherKeepsTheLockOfItsFolder) {
  const int held = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_EQ(message_of_opening(), "no error");
  ::close(held);
}

TEST_F(StoreTest, ManyThreadsShareOne) {
  Store store(file);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 10; ++i) {
        store.record(measurement(fmt::format("t{}", t), 0.1));
        static_cast<void>(best_name(store));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.all().size(), 40U);
}

TEST_F(StoreTest, SeveralProcessesMeetADamagedFile) {
  write_file(file, std::string(8192, 'x'));
  std::vector<pid_t> children;
  for (int p = 0; p < 6; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        Store(file).record(measurement(fmt::format("p{}", p), 0.1));
        _exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Store(file).all().size(), 6U);
  EXPECT_FALSE(fs::exists(file.string() + ".damaged-2"));
}

TEST(Outcome, RoundTripsAndNamesTheNearest) {
  for (const measure::Outcome outcome :
       {measure::Outcome::ok, measure::Outcome::wrong, measure::Outcome::crashed,
        measure::Outcome::timeout, measure::Outcome::failed, measure::Outcome::refused}) {
    EXPECT_EQ(measure::parse_outcome(to_string(outcome)), outcome);
  }
  try {
    measure::parse_outcome("crashes");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown outcome 'crashes', did you mean 'crashed'?");
  }
}

}  // namespace
}  // namespace tessera::tune
