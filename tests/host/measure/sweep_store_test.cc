#include "tessera/measure/sweep_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "broken_text.h"
#include "host/measure/sweep_data.h"
#include "resource_limit.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/measure/sweep.h"

namespace tessera::measure {
namespace {

using testing_support::message_of;
using testing_support::random_data;
using testing_support::sweep_run;

struct SweepStoreTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-sweep-");
  fs::path file = folder / "sweep.sqlite";
  std::uint64_t seed = std::random_device{}();
  SweepStoreTest() { RecordProperty("seed", static_cast<int>(seed)); }
  ~SweepStoreTest() override {
    if (HasFailure()) fmt::print("seed {}\n", seed);
    remove_tree(folder);
  }

  static MergeCount add(SweepStore& store, const SweepData& data,
                        Conflict conflict = Conflict::refuse) {
    const SweepPart part{data, "part"};
    return store.add(std::span(&part, 1), conflict);
  }
  static void run_sql(const fs::path& file, const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  // What a reader says of a store that `sql` has changed; it changes nothing itself.
  std::string message_after(const std::string& sql) const {
    fs::remove(file);
    {
      SweepStore store(file);
      add(store, random_data(sweep_run("a"), 2, 3, seed));
    }
    run_sql(file, sql.c_str());
    const std::string before = read_file(file);
    const std::string message = message_of([&] { SweepStore(file, OpenMode::existing).read(); });
    EXPECT_EQ(read_file(file), before);
    return message;
  }
  std::string damaged(const std::string& what) const {
    return "sweep store '" + file.string() + "' is damaged: " + what +
           ": remove it or name another store";
  }
  std::string foreign(const std::string& what) const {
    return "sweep store '" + file.string() + "' holds the " + what +
           ", which is not as this library makes it: nothing of the file was read; name another "
           "store";
  }
  // Row by row, as a sweep would.
  static void record(SweepStore& store, const SweepData& data, int problem) {
    std::vector<std::string> kernels;
    std::vector<SweepRow> rows;
    for (const SweepRow& row : data.rows) {
      if (row.problem != problem) continue;
      kernels.push_back(data.kernels[static_cast<std::size_t>(row.kernel)]);
      rows.push_back(row);
    }
    store.record(data.runs.front(), data.problems[static_cast<std::size_t>(problem)], kernels,
                 rows);
  }
};

TEST_F(SweepStoreTest, KeepsEveryFieldAcrossReopening) {
  const SweepData data = random_data(sweep_run("a"), 3, 7, seed);
  {
    SweepStore store(file);
    for (int problem = 0; problem < 3; ++problem) record(store, data, problem);
    for (const ClockReading& r : data.clock) {
      store.record_clock(data.runs[0], data.problems[0], data.kernels[0], r.at, r.seconds);
    }
  }
  EXPECT_EQ(sorted(SweepStore(file).read()), data);
}

TEST_F(SweepStoreTest, FindsWhatIsMeasuredOnThisClassOfMachineOnly) {
  const SweepData data = random_data(sweep_run("a"), 2, 5, seed);
  SweepStore store(file);
  record(store, data, 1);
  const auto found = store.find(data.runs[0].device, "avx2", 2, data.problems[1]);
  EXPECT_EQ(found.size(), 5U);
  for (const SweepRow& row : data.rows) {
    if (row.problem != 1) continue;
    EXPECT_EQ(found.at(data.kernels[static_cast<std::size_t>(row.kernel)]), row.outcome);
  }
  EXPECT_TRUE(store.find(data.runs[0].device, "avx2", 2, data.problems[0]).empty());
  EXPECT_TRUE(store.find(data.runs[0].device, "avx2", 1, data.problems[1]).empty());
  EXPECT_TRUE(store.find(data.runs[0].device, "avx512", 2, data.problems[1]).empty());
  EXPECT_TRUE(store.find("other", "avx2", 2, data.problems[1]).empty());
}

TEST_F(SweepStoreTest, MeasuringAgainReplacesTheRow) {
  SweepStore store(file);
  const SweepData before = random_data(sweep_run("a"), 2, 4, seed);
  const SweepData after = random_data(sweep_run("b", 2000), 2, 4, seed + 1);
  record(store, before, 0);
  record(store, after, 0);
  EXPECT_EQ(store.read().rows.size(), 4U);
  EXPECT_EQ(store.find(after.runs[0].device, "avx2", 2, after.problems[0]).size(), 4U);
}

TEST_F(SweepStoreTest, MergingShardsGivesTheWholeInAnyOrder) {
  const SweepData a = random_data(sweep_run("a"), 4, 6, seed, 1);
  const SweepData b = random_data(sweep_run("b", 2000), 5, 6, seed + 1, 5);
  SweepStore forward(folder / "forward");
  EXPECT_EQ(add(forward, a).added, 24);
  EXPECT_EQ(add(forward, b).added, 30);
  SweepStore backward(folder / "backward");
  add(backward, b);
  add(backward, a);
  EXPECT_EQ(forward.read().rows.size(), 54U);
  EXPECT_EQ(sorted(forward.read()), sorted(backward.read()));
  const MergeCount again = add(forward, a);
  EXPECT_EQ(again.identical, 24);
  EXPECT_EQ(again.added, 0);
  EXPECT_EQ(sorted(forward.read()), sorted(backward.read()));
}

TEST_F(SweepStoreTest, AConflictNamesBothAndAddsNothing) {
  SweepData a = random_data(sweep_run("a"), 1, 1, seed);
  a.rows[0] = {.outcome = Outcome::ok, .seconds = 0.25, .min_seconds = 0.25, .readings = 1};
  SweepData b = a;
  b.runs[0].id = "b";
  b.runs[0].started = 2000;
  b.rows[0].seconds = 0.5;
  SweepStore store(file);
  add(store, a);
  const SweepPart parts[] = {{random_data(sweep_run("c"), 3, 3, seed, 50), "new"}, {b, "part"}};
  EXPECT_EQ(message_of([&] { store.add(parts, Conflict::refuse); }),
            "'" + file.string() +
                "' and 'part' measured kernel0 on 'gemm m=1 n=2 k=3' (cpu \"model\", 7, 2 threads) "
                "differently: ok 0.25 s and ok 0.5 s: say which to believe with --prefer newest");
  EXPECT_EQ(sorted(store.read()), sorted(a));
}

TEST_F(SweepStoreTest, PreferNewestGivesTheSameInAnyOrder) {
  const SweepData old = random_data(sweep_run("a"), 3, 5, seed);
  const SweepData young = random_data(sweep_run("b", 5000), 3, 5, seed + 1);
  SweepStore forward(folder / "forward");
  add(forward, old, Conflict::prefer_newest);
  EXPECT_EQ(add(forward, young, Conflict::prefer_newest).replaced, 15);
  SweepStore backward(folder / "backward");
  add(backward, young, Conflict::prefer_newest);
  EXPECT_EQ(add(backward, old, Conflict::prefer_newest).older, 15);
  EXPECT_EQ(sorted(forward.read()), sorted(backward.read()));
  EXPECT_EQ(forward.read().rows.size(), 15U);
}

TEST_F(SweepStoreTest, ARunThatIsDescribedDifferentlyIsRefused) {
  SweepStore store(file);
  SweepData data = random_data(sweep_run("a"), 1, 1, seed);
  add(store, data);
  data.runs[0].device = "another";
  EXPECT_EQ(message_of([&] { add(store, data); }),
            "sweep store '" + file.string() +
                "' and 'part' describe run a differently (device 'cpu \"model\", 7' and "
                "'another'): one of them was edited; leave it out");
}

TEST_F(SweepStoreTest, RefusesAnotherVersionAndOtherDatabases) {
  { const SweepStore store(file); }
  run_sql(file, "PRAGMA user_version = 7");
  EXPECT_EQ(message_of([&] { const SweepStore store(file); }),
            "sweep store '" + file.string() +
                "' has schema version 7, this library reads version 2001: delete the file or name "
                "another store");
  run_sql(folder / "photos", "CREATE TABLE photos(id INTEGER)");
  EXPECT_EQ(message_of([&] { const SweepStore store(folder / "photos"); }),
            "sweep store '" + (folder / "photos").string() +
                "' is a database of something else: name another store");
}

// Half of a change is in the file, and what it needs to be taken back is beside it.
TEST_F(SweepStoreTest, ReadersTakeBackWhatAKilledProcessLeft) {
  const SweepData data = sorted(random_data(sweep_run("a"), 6, 11, seed));
  {
    SweepStore store(file);
    add(store, data);
  }
  const pid_t child = fork();
  if (child == 0) {
    sqlite3* db = nullptr;
    const bool ok =
        sqlite3_open(file.c_str(), &db) == SQLITE_OK &&
        sqlite3_exec(db,
                     "PRAGMA cache_size = 2; BEGIN; UPDATE rows SET note = hex(randomblob(4000));",
                     nullptr, nullptr, nullptr) == SQLITE_OK;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(fs::exists(file.string() + "-journal"));
  EXPECT_EQ(sorted(SweepStore(file, OpenMode::existing).read()), data);
  EXPECT_FALSE(fs::exists(file.string() + "-journal"));
}

// Such a journal is made where a change of several databases is left half done. SQLite would apply
// it and remove the file that it names.
TEST_F(SweepStoreTest, AJournalThatNamesAnotherFileIsRefused) {
  { add(*std::make_unique<SweepStore>(file), random_data(sweep_run("a"), 2, 3, seed)); }
  const auto number = [](std::size_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
    return bytes;
  };
  const std::string magic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const std::string victim = (folder / "precious").string();
  write_file(victim, "work of years");
  std::size_t sum = 0;
  for (const char c : victim) sum += static_cast<std::size_t>(c);
  std::string journal = magic + number(0) + number(1) + number(fs::file_size(file) / 4096) +
                        number(512) + number(4096);
  journal.resize(512);
  journal += number((1 << 30) / 4096 + 1) + victim + number(victim.size()) + number(sum) + magic;
  const fs::path beside = file.string() + "-journal";
  const auto sentence = [&](const std::string& what) {
    return "sweep store '" + file.string() + "': the file 'sweep.sqlite-journal' beside it " +
           what + ", as none of this library does: nothing of the store was read; remove that file";
  };
  fs::create_symlink(file, folder / "link.sqlite");
  for (const OpenMode mode : {OpenMode::existing, OpenMode::create}) {
    write_file(beside, journal);
    EXPECT_EQ(message_of([&] { SweepStore(file, mode).read(); }), sentence("names another file"));
    EXPECT_NE(message_of([&] { SweepStore(folder / "link.sqlite", mode).read(); }), "no error");
    EXPECT_EQ(read_file(victim), "work of years");
    EXPECT_EQ(read_file(beside), journal);
    fs::remove(beside);
    fs::create_symlink(folder / "elsewhere", beside);
    EXPECT_EQ(message_of([&] { SweepStore(file, mode).read(); }),
              sentence("is not a regular file"));
    EXPECT_FALSE(fs::exists(folder / "elsewhere"));
    fs::remove(beside);
  }
  EXPECT_EQ(message_of([&] { SweepStore(file, OpenMode::existing).read(); }), "no error");
}

TEST_F(SweepStoreTest, ReadersMakeNoFilesOfWalMode) {
  EXPECT_EQ(message_after("PRAGMA journal_mode = WAL"),
            "sweep store '" + file.string() +
                "' is in SQLite's WAL mode, in which readers write: " + "change it by sqlite3 '" +
                file.string() + "' 'PRAGMA journal_mode = DELETE'");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(SweepStoreTest, LacksATableOrAColumn) {
  EXPECT_EQ(message_after("ALTER TABLE rows RENAME COLUMN note TO remark"),
            foreign("table 'rows'"));
  EXPECT_EQ(message_after("DROP TABLE clock"), damaged("it has no table 'clock'"));
  const SweepStore store(file);  // a sweep sets it aside and begins a new one
  EXPECT_TRUE(fs::exists(file.string() + ".damaged-1"));
  EXPECT_TRUE(store.read().rows.empty());
}

TEST_F(SweepStoreTest, RefusesASchemaThatRunsSomething) {
  EXPECT_EQ(message_after("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM runs; END"),
            foreign("trigger 't'"));
  EXPECT_EQ(message_after("CREATE INDEX i ON rows(hex(zeroblob(1000 * readings)))"),
            foreign("index 'i'"));
  EXPECT_EQ(message_after("CREATE VIEW v AS SELECT 1"), foreign("view 'v'"));
  EXPECT_EQ(message_after("ALTER TABLE rows ADD COLUMN g AS (hex(note))"), foreign("table 'rows'"));
  EXPECT_EQ(message_after("DROP TABLE kernels; CREATE TABLE kernels(id INTEGER PRIMARY KEY,"
                          " text TEXT NOT NULL UNIQUE, CHECK(hex(text) <> 'a'))"),
            foreign("table 'kernels'"));
  EXPECT_EQ(
      message_after("PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES ('table',"
                    " 'sqlite_x', 'sqlite_x', 2, 'CREATE TABLE sqlite_x(a CHECK(hex(a) > 1))')"),
      foreign("table 'sqlite_x'"));
  EXPECT_EQ(message_after("ANALYZE"), "no error");
}

// Neither would a sweep run the trigger.
TEST_F(SweepStoreTest, AWriterRunsNoTrigger) {
  EXPECT_EQ(message_after("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM rows; END"),
            foreign("trigger 't'"));
  EXPECT_EQ(message_of([&] { const SweepStore store(file); }), foreign("trigger 't'"));
  EXPECT_FALSE(fs::exists(file.string() + ".damaged-1"));
}

// A view that never ends, under the name of a table.
TEST_F(SweepStoreTest, AViewIsNoTable) {
  EXPECT_EQ(message_after("DROP TABLE kernels; CREATE VIEW kernels(id, text) AS WITH RECURSIVE"
                          " n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'a' FROM n"),
            damaged("it has no table 'kernels'"));
}

TEST_F(SweepStoreTest, LooksAtEveryValue) {
  const auto update = [&](const char* what) {
    return message_after(std::string("PRAGMA ignore_check_constraints = ON; UPDATE ") + what);
  };
  EXPECT_EQ(update("rows SET seconds = -1"),
            damaged("column 'seconds' holds -1, which must be finite and at least 0"));
  EXPECT_EQ(update("rows SET at = 9e999"),
            damaged("column 'at' holds inf, which must be finite and at least 0"));
  EXPECT_EQ(update("rows SET spread = 'wide'"),
            damaged("column 'spread' holds a text where a number belongs"));
  EXPECT_EQ(update("rows SET readings = 4294967297"),
            damaged("column 'readings' holds 4294967297, which is no count"));
  EXPECT_EQ(update("machines SET threads = -1"),
            damaged("column 'threads' holds -1, which is no count"));
  EXPECT_EQ(update("rows SET note = x'00ff'"),
            damaged("column 'note' holds bytes where a text belongs"));
  EXPECT_EQ(update("problems SET text = hex(zeroblob(9 << 20)) || id"),
            damaged("string or blob too big"));
}

// Its pages say that they hold 100 times 100 times ... the same rows: a reader would not end.
TEST_F(SweepStoreTest, ATreeThatHoldsAPageTwiceIsDamage) {
  {
    SweepStore store(file);
    add(store, random_data(sweep_run("a"), 2000, 1, seed));
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
  int root = 0;
  sqlite3_exec(
      db, "SELECT rootpage FROM sqlite_master WHERE name = 'problems'",
      [](void* number, int, char** values, char**) {
        *static_cast<int*>(number) = std::atoi(values[0]);
        return 0;
      },
      &root, nullptr);
  sqlite3_close(db);
  std::string bytes = read_file(file);
  const std::size_t page = static_cast<std::size_t>(root - 1) * 4096;
  ASSERT_EQ(bytes[page], 5);  // an inner page: its cells, from byte 12 on, begin with a child
  const auto cell = [&](std::size_t i) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[page + at]); };
    return page + byte(12 + 2 * i) * 256U + byte(13 + 2 * i);
  };
  bytes.replace(cell(1), 4, bytes.substr(cell(0), 4));
  write_file(file, bytes);
  const std::string message = message_of([&] { SweepStore(file, OpenMode::existing).read(); });
  const std::string start = "sweep store '" + file.string() + "' is damaged: ";
  EXPECT_EQ(message.substr(0, start.size()), start);
}

TEST_F(SweepStoreTest, ReadersLeaveMissingAndDamagedFilesAlone) {
  EXPECT_EQ(message_of([&] { const SweepStore store(file, OpenMode::existing); }),
            "sweep store '" + file.string() + "': there is no such file");
  EXPECT_EQ(message_of([&] { SweepStore(folder, OpenMode::existing); }),
            "sweep store '" + folder.string() + "': it is not a regular file");
  EXPECT_FALSE(fs::exists(file));
  write_file(file, "");
  EXPECT_EQ(message_of([&] { const SweepStore store(file, OpenMode::existing); }),
            "sweep store '" + file.string() + "': the file holds no database");
  EXPECT_EQ(read_file(file), "");
  write_file(file, std::string(8192, 'x'));
  EXPECT_EQ(message_of([&] { const SweepStore store(file, OpenMode::existing); }),
            "sweep store '" + file.string() +
                "' is damaged: file is not a database: remove it or name another store");
  EXPECT_EQ(read_file(file), std::string(8192, 'x'));
  const SweepStore store(file);  // a sweep sets it aside and begins a new one
  EXPECT_TRUE(fs::exists(file.string() + ".damaged-1"));
}

// The disk is full in the middle of a sweep: a sentence, and what was committed stays.
TEST_F(SweepStoreTest, AFullDiskLosesNothingThatWasStored) {
  const SweepData data = random_data(sweep_run("a"), 40, 50, seed);
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t child = fork();
  if (child == 0) {
    int stored = 0;
    std::string words = "no error";
    try {
      SweepStore store(file);
      const rlimit limit{100'000, 100'000};
      setrlimit(RLIMIT_FSIZE, &limit);
      for (; stored < 40; ++stored) record(store, data, stored);
    } catch (const Error& error) {
      words = error.what();
    }
    const std::string line = fmt::format("{} {}", stored, words);
    _exit(::write(channel[1], line.data(), line.size()) > 0 ? 0 : 1);
  }
  close(channel[1]);
  char buffer[1000] = {};
  ASSERT_GT(::read(channel[0], buffer, sizeof buffer - 1), 0);
  close(channel[0]);
  waitpid(child, nullptr, 0);
  const std::string line = buffer;
  const int stored = std::stoi(line);
  EXPECT_GT(stored, 0);
  EXPECT_LT(stored, 40);
  EXPECT_NE(line.find("check the file's permissions and the free space"), std::string::npos)
      << line;
  SweepStore store(file);
  EXPECT_EQ(store.read().rows.size(), static_cast<std::size_t>(stored) * 50);
  for (int problem = stored; problem < 40; ++problem) record(store, data, problem);
  EXPECT_EQ(store.read().rows.size(), 2000U);
}

// A merge that fails leaves nothing behind, and a store that was there before as it was.
TEST_F(SweepStoreTest, AFailedMergeLeavesNoStore) {
  const SweepPart parts[] = {{random_data(sweep_run("a"), 40, 50, seed), "a"},
                             {random_data(sweep_run("b", 2000), 40, 50, seed + 1, 41), "b"}};
  const std::span<const SweepPart> first(parts, 1);
  {
    const ResourceLimit full(RLIMIT_FSIZE, 100'000);
    const std::string words = message_of([&] { add_to_store(file, first, Conflict::refuse); });
    EXPECT_NE(words.find("'" + file.string() + "': "), std::string::npos) << words;
    EXPECT_NE(words.find("free space"), std::string::npos) << words;
  }
  EXPECT_TRUE(fs::is_empty(folder));
  EXPECT_EQ(add_to_store(file, first, Conflict::refuse).added, 2000);
  EXPECT_EQ(add_to_store(file, first, Conflict::refuse).identical, 2000);
  const SweepData before = SweepStore(file).read();
  {
    const ResourceLimit full(RLIMIT_FSIZE, fs::file_size(file));
    EXPECT_THROW(add_to_store(file, std::span(parts + 1, 1), Conflict::prefer_newest), Error);
  }
  EXPECT_EQ(SweepStore(file).read(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
}

// SQLite would keep nothing, or make a file of another name.
TEST_F(SweepStoreTest, NamesAreThoseOfFiles) {
  const SweepData data = random_data(sweep_run("a"), 2, 3, seed);
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  for (const char* name :
       {":memory:", "file:new.sqlite?mode=rwc", "file::memory:", "-x", "a?b#c%20"}) {
    SweepStore store(name);
    add(store, data);
    EXPECT_TRUE(fs::is_regular_file(folder / name)) << name;
    EXPECT_EQ(SweepStore(name, OpenMode::existing).read().rows.size(), 6U) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 5);
  using namespace std::string_literals;
  EXPECT_EQ(message_of([] { const SweepStore store("a\0b"s); }),
            "a name of a sweep store must hold no NUL, got one after 'a'");
  EXPECT_THROW(SweepStore(""), Error);
  fs::current_path(before);
}

// kill -9 between or inside transactions: every problem is there whole or not at all.
TEST_F(SweepStoreTest, KilledWritersLeaveWholeProblems) {
  const SweepData data = random_data(sweep_run("a"), 60, 20, seed);
  { const SweepStore store(file); }
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 5; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      SweepStore store(file);
      for (int round = 0;; ++round) record(store, data, round % 60);
    }
    usleep(static_cast<useconds_t>(2000 + random() % 40000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const SweepData found = SweepStore(file, OpenMode::existing).read();
    EXPECT_EQ(found.rows.size() % 20, 0U);
    EXPECT_EQ(found.rows.size(), 20 * found.problems.size());
  }
}

TEST(Sweep, ShardsArePartsOfTheWhole) {
  for (const int shards : {1, 2, 3, 7}) {
    std::vector<int> sizes(static_cast<std::size_t>(shards), 0);
    for (int m = 1; m <= 700; ++m) {
      const std::string problem = fmt::format("gemm m={} n=2 k=3", m);
      int owners = 0;
      for (int shard = 1; shard <= shards; ++shard) {
        if (!in_shard(problem, shard, shards)) continue;
        ++owners;
        ++sizes[static_cast<std::size_t>(shard - 1)];
      }
      ASSERT_EQ(owners, 1) << problem;
    }
    for (const int size : sizes) EXPECT_GT(size, 700 / shards / 2);
  }
}

}  // namespace
}  // namespace tessera::measure
