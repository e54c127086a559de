#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "host/spec/expect_error.h"
#include "tessera/base/log.h"
#include "tessera/base/version.h"
#include "tessera/dispatch/recorder_internal.h"
#include "tessera/spec/problem.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

RecordRow row_of(int m) {
  RecordRow row;
  row.problem = to_string(Problem{gemm_problem(DType::fp32, GemmLayout::rcr, m, 64, 64)});
  row.machine = "a machine";
  row.threads = 2;
  row.kernel = "gemm_of_" + std::to_string(m);
  row.source = ChoiceSource::analytic;
  row.origin = KernelOrigin::compiled;
  row.why = "fastest by the estimate";
  row.predicted_seconds = 1e-6 * m;
  row.misses = 1;
  row.choose_seconds = 0.25;
  row.ready_seconds = 0.5;
  return row;
}

// The calls of each problem, over all processes.
using Calls = std::map<std::string, std::int64_t>;
Calls calls_in(const Record& record) {
  Calls calls;
  for (const RecordRow& row : record.rows) calls[row.problem] += row.calls;
  return calls;
}

struct RecordFile : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-record-");
  fs::path file = folder / "some.record";
  unsigned seed = std::random_device{}();
  std::mt19937 random{seed};
  Target target = load_target("generic");
  std::vector<std::string> warnings;

  RecordFile() {
    RecordProperty("seed", std::to_string(seed));
    set_log_sink([this](LogLevel, std::string_view line) { warnings.emplace_back(line); });
  }
  ~RecordFile() override {
    set_log_sink({});
    remove_tree(folder);
  }
  int drawn(int least, int most) { return std::uniform_int_distribution(least, most)(random); }

  // A record of this many processes, with random rows.
  Record drawn_record(int processes) {
    Record record;
    record.targets = {target};
    for (int run = 0; run < processes; ++run) {
      record.runs.push_back({std::to_string(random()), "0.0.1", drawn(1, 1 << 30)});
      for (int m = 1; m <= drawn(1, 20); ++m) {
        record.rows.push_back(row_of(m));
        record.rows.back().run = run;
        record.rows.back().calls = drawn(0, 1'000'000);
      }
    }
    return record;
  }
  // Changes a record as a stranger would.
  void execute(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(db);
  }
};
using Records = RecordFile;

TEST_F(Records, RowsComeBackAsTheyWereWritten) {
  Recorder recorder(file);
  recorder.open();
  const RecordRow written = row_of(7);
  Tally& tally = recorder.add_miss(target, written);
  for (int i = 0; i < 9; ++i) recorder.count(tally);
  recorder.flush();
  const Record record = read_record(file);
  ASSERT_EQ(record.rows.size(), 1U);
  RecordRow expected = written;
  expected.calls = 9;
  EXPECT_EQ(record.rows[0], expected);
  ASSERT_EQ(record.targets.size(), 1U);
  EXPECT_EQ(record.targets[0], target);
  ASSERT_EQ(record.runs.size(), 1U);
  EXPECT_EQ(record.runs[0].version, kVersion);
  EXPECT_EQ(record.runs[0].name.size(), 32U);
}

TEST_F(Records, ManyThreadsCountEveryCall) {
  Recorder recorder(file);
  recorder.open();
  constexpr std::size_t kThreads = 4, kCalls = 20'000;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<Tally*> tallies;
      for (int m = 1; m <= 3; ++m) tallies.push_back(&recorder.tally(target, row_of(m)));
      for (std::size_t i = 0; i < kCalls; ++i) recorder.count(*tallies[i % 3]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder.flush();
  std::int64_t calls = 0;
  for (const auto& [problem, count] : calls_in(read_record(file))) calls += count;
  EXPECT_EQ(calls, std::int64_t{kThreads * kCalls});
}

// Writes rows without end, and counts each three times. `begun` is a pipe that gets a byte when the
// first row is in the file.
[[noreturn]] void write_for_ever(const fs::path& file, const Target& target, int begun) {
  Recorder& recorder = Recorder::of(file);
  for (int m = 1;; ++m) {
    Tally& tally = recorder.add_miss(target, row_of(m));
    if (m == 1 && write(begun, "", 1) != 1) _exit(1);
    for (int i = 0; i < 3; ++i) recorder.count(tally);
  }
}

[[noreturn]] void write_rows(const fs::path& file, const Target& target, int rows) {
  Recorder& recorder = Recorder::of(file);
  for (int m = 1; m <= rows; ++m) {
    Tally& tally = recorder.add_miss(target, row_of(m));
    for (int i = 0; i < m; ++i) recorder.count(tally);
  }
  recorder.flush();
  _exit(0);
}

// Runs `body` in a process of its own.
template <typename Body>
pid_t in_child(const Body& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  body();
  _exit(1);
}

TEST_F(Records, TwoProcessesWriteAtOnceAndOneIsKilled) {
  constexpr int kRows = 60;
  std::array<int, 2> begun{};
  ASSERT_EQ(pipe(begun.data()), 0);
  const pid_t endless = in_child([&] { write_for_ever(file, target, begun[1]); });
  const pid_t whole = in_child([&] { write_rows(file, target, kRows); });
  int status = -1;
  ASSERT_EQ(waitpid(whole, &status, 0), whole);
  EXPECT_EQ(status, 0);
  char byte = 0;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);
  for (const int end : begun) close(end);
  std::this_thread::sleep_for(std::chrono::microseconds(drawn(0, 20'000)));
  kill(endless, SIGKILL);
  ASSERT_EQ(waitpid(endless, &status, 0), endless);
  const Record record = read_record(file);
  ASSERT_EQ(record.runs.size(), 2U);
  std::map<int, std::vector<RecordRow>> rows;
  for (const RecordRow& row : record.rows) rows[row.run].push_back(row);
  const auto is_whole = [](const std::vector<RecordRow>& of) {
    return of.size() == kRows && of.back().calls == kRows;
  };
  ASSERT_TRUE(is_whole(rows[0]) || is_whole(rows[1]));
  const int run = is_whole(rows[0]) ? 0 : 1;
  for (std::size_t i = 0; i < rows[run].size(); ++i) {
    EXPECT_EQ(rows[run][i].calls, static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(rows[run][i].misses, 1);
  }
  // The killed one has all rows but perhaps the last, each with all calls or none.
  for (const RecordRow& row : rows[1 - run]) {
    EXPECT_EQ(row.misses, 1);
    EXPECT_TRUE(row.calls == 0 || row.calls <= 3) << row.calls;
  }
  EXPECT_FALSE(fs::exists(file.string() + ".damaged-1"));
}

TEST_F(Records, WhatWaitsAtAForkIsWrittenByTheParentAlone) {
  Recorder& recorder = Recorder::of(file);
  Tally& tally = recorder.add_miss(target, row_of(5));
  recorder.count(tally);
  recorder.flush();
  const int before = drawn(1, 50), after = drawn(1, 50);
  for (int i = 0; i < before; ++i) recorder.count(tally);
  const pid_t child = in_child([&] {
    for (int i = 0; i < after; ++i) recorder.count(tally);
    recorder.flush();
    _exit(0);
  });
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  recorder.flush();
  const Record record = read_record(file);
  EXPECT_EQ(record.runs.size(), 2U);
  EXPECT_EQ(calls_in(record).begin()->second, 1 + before + after);
}

TEST_F(Records, MergedCallsAreTheSum) {
  std::vector<Record> records;
  Calls sum;
  for (int i = 0; i < 3; ++i) {
    records.push_back(drawn_record(drawn(1, 4)));
    for (const auto& [problem, calls] : calls_in(records.back())) sum[problem] += calls;
  }
  add_to_record(file, records);
  EXPECT_EQ(calls_in(read_record(file)), sum);
  EXPECT_EQ(calls_in(merged(records)), sum);
  add_to_record(file, records);  // they are there already
  EXPECT_EQ(calls_in(read_record(file)), sum);
  std::shuffle(records.begin(), records.end(), random);
  EXPECT_EQ(calls_in(merged(records)), sum);
}

TEST_F(Records, ALaterCopyOfAProcessReplacesTheEarlierOne) {
  const Record earlier = drawn_record(1);
  Record later = earlier;
  for (RecordRow& row : later.rows) row.calls += drawn(0, 9);
  EXPECT_EQ(calls_in(merged(std::vector{later, earlier})), calls_in(later));
  EXPECT_EQ(calls_in(merged(std::vector{earlier, later})), calls_in(later));
}

TEST_F(Records, StrangersFilesAreRefused) {
  const std::string name = "record '" + file.string() + "'";
  expect_error(ErrorCode::not_found, name + ": there is no such file", [&] { read_record(file); });
  write_file(file, "");
  expect_error(ErrorCode::not_found, name + ": the file holds no database",
               [&] { read_record(file); });
  write_file(file, std::string(5000, 'x'));
  expect_error(ErrorCode::io_error,
               name + " is damaged: file is not a database: remove it or name another store",
               [&] { read_record(file); });
  fs::remove(file);
  execute("CREATE TABLE mine(a)");
  expect_error(ErrorCode::unsupported,
               name + " is a database of something else: name another store",
               [&] { read_record(file); });
}

TEST_F(Records, AnotherVersionIsRefusedAndStays) {
  add_to_record(file, std::vector{drawn_record(1)});
  execute("PRAGMA user_version = 9");
  const std::string before = read_file(file);
  const std::string sentence = "record '" + file.string() +
                               "' has schema version 9, this library reads version 1: delete the "
                               "file or name another store";
  expect_error(ErrorCode::unsupported, sentence, [&] { read_record(file); });
  expect_error(ErrorCode::unsupported, sentence, [&] { Recorder(file).open(); });
  EXPECT_EQ(read_file(file), before);
}

TEST_F(Records, AFileThatIsCutShortIsSetAsideAndANewOneBegun) {
  add_to_record(file, std::vector{drawn_record(20)});
  const std::string whole = read_file(file);
  const std::string cut = whole.substr(0, whole.size() / 2 / 4096 * 4096 + 100);
  write_file(file, cut);
  EXPECT_THROW(read_record(file), Error);
  Recorder recorder(file);
  recorder.open();
  Tally& tally = recorder.add_miss(target, row_of(3));
  recorder.count(tally);
  recorder.flush();
  if (fs::exists(file.string() + ".damaged-1")) {
    EXPECT_EQ(read_file(file.string() + ".damaged-1"), cut);
    EXPECT_EQ(read_record(file).rows.size(), 1U);
    EXPECT_EQ(read_record(file).rows[0].calls, 1);
  } else {  // the pages that are missing were not needed, and a warning says what was not written
    EXPECT_FALSE(warnings.empty());
  }
}

TEST_F(Records, ValuesThatNoLibraryWritesAreDamage) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"UPDATE asked SET calls = -1", "column 'calls' holds -1, which is no count"},
      {"UPDATE asked SET deterministic = 2",
       "column 'deterministic' holds 2, which must be 0 or 1"},
      {"UPDATE asked SET source = 'guess'", "column 'source' holds 'guess', which is no source"},
      {"UPDATE asked SET origin = 'home'", "column 'origin' holds 'home', which is no origin"},
      {"UPDATE asked SET run = 77", "a row names the process 77, which is not there"},
      {"UPDATE asked SET target = 77", "a row names the target 77, which is not there"},
      {"UPDATE asked SET predicted_seconds = -1.5",
       "column 'predicted_seconds' holds -1.5, which must be finite and at least 0"},
      {"UPDATE asked SET problem = 'gemm m=1 n=1'",
       "it holds the problem 'gemm m=1 n=1' (problem: gemm needs k, as in 'gemm m=128 n=3072 k=768 "
       "dtype=bf16')"},
  };
  for (const auto& [sql, sentence] : changes) {
    fs::remove(file);
    Record one = drawn_record(1);
    one.rows.resize(1);
    add_to_record(file, std::vector{one});
    execute(sql);
    expect_error(ErrorCode::io_error,
                 "record '" + file.string() + "' is damaged: " + sentence +
                     ": remove it or name another "
                     "store",
                 [&] { read_record(file); });
  }
}

TEST_F(Records, AFileThatCannotBeWrittenKeepsTheNumbersForLater) {
  Recorder recorder(file);
  recorder.open();
  Tally& tally = recorder.add_miss(target, row_of(3));
  execute("PRAGMA user_version = 9");
  recorder.close();  // the next flush opens it anew
  for (int i = 0; i < 4; ++i) recorder.count(tally);
  recorder.flush();
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings.back().find("nothing was added to the record"), std::string::npos);
  execute("PRAGMA user_version = 1");
  recorder.flush();
  EXPECT_EQ(read_record(file).rows.at(0).calls, 4);
}

TEST_F(Records, AnEndWithoutABeginIsAnError) {
  expect_error(
      ErrorCode::invalid_argument,
      "record: '" + file.string() + "' was not begun, or has ended; 0 others are being written",
      [&] { end_record(file); });
  begin_record(file);
  EXPECT_EQ(recordings, 1);
  end_record(file);
  EXPECT_EQ(recordings, 0);
  EXPECT_THROW(end_record(file), Error);
}

}  // namespace
}  // namespace tessera
