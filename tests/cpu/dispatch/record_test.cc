// Records of what dispatchers are asked.
#include "tessera/dispatch/record.h"

#include <map>

#include "cpu/dispatch/dispatcher_fixture.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/dispatch/recorder_internal.h"
#include "tessera/measure/operands.h"

namespace tessera {
namespace {

struct RecordTest : DispatcherTest {
  fs::path file = folder / "model.record";

  DispatcherOptions recorded() const {
    DispatcherOptions o = options();
    o.record = file.string();
    return o;
  }
  void run(Dispatcher& dispatcher, const Problem& problem, int times,
           const RunOptions& how = {}) const {
    const measure::OwnedOperands owned = measure::random_operands(problem, seed);
    for (int i = 0; i < times; ++i) dispatcher.run(problem, owned.operands, how);
  }
  std::map<std::string, RecordRow> rows() const {
    std::map<std::string, RecordRow> rows;
    for (const RecordRow& row : read_record(file).rows) rows[row.problem] = row;
    return rows;
  }
};

TEST_F(RecordTest, EveryCallIsCountedOnce) {
  const int first = 1 + static_cast<int>(seed % 7), second = 1 + static_cast<int>(seed % 5);
  std::string kernel;
  {
    Dispatcher dispatcher(recorded());
    run(dispatcher, small(33), first);
    run(dispatcher, small(34), second);
    dispatcher.workspace_bytes(small(33));  // asks without a call
    kernel = dispatcher.kernel_for(small(33)).name;
  }
  const auto found = rows();
  ASSERT_EQ(found.size(), 2U);
  const RecordRow& row = found.at(to_string(Problem{small(33)}));
  EXPECT_EQ(row.calls, first);
  EXPECT_EQ(found.at(to_string(Problem{small(34)})).calls, second);
  EXPECT_EQ(row.kernel, kernel);
  EXPECT_EQ(row.misses, 1);
  EXPECT_EQ(row.origin, KernelOrigin::compiled);
  EXPECT_GT(row.ready_seconds, 0.01);
  EXPECT_GT(row.choose_seconds, 0);
  EXPECT_GT(row.predicted_seconds, 0);
  EXPECT_FALSE(row.why.empty());
  EXPECT_EQ(row.threads, 2);
  EXPECT_EQ(recordings, 0);
}

TEST_F(RecordTest, SaysWhereKernelsCameFrom) {
  const std::string kernel = Dispatcher(options()).explain(small()).name;
  { Dispatcher(recorded()).kernel_for(small(33), forced(kernel)); }
  EXPECT_EQ(rows().begin()->second.origin, KernelOrigin::compiled);
  EXPECT_EQ(rows().begin()->second.source, ChoiceSource::pinned);
  Dispatcher dispatcher(recorded());
  dispatcher.kernel_for(small(35), forced(kernel));
  dispatcher.kernel_for(small(36), forced(kernel));
  EXPECT_EQ(rows().at(to_string(Problem{small(35)})).origin, KernelOrigin::cache);
  EXPECT_EQ(rows().at(to_string(Problem{small(36)})).origin, KernelOrigin::loaded);
}

TEST_F(RecordTest, AKernelFromBeforeIsWrittenAtItsNextCall) {
  Dispatcher dispatcher(options());
  run(dispatcher, small(), 2);
  begin_record(file);
  run(dispatcher, small(), 3);
  end_record(file);
  run(dispatcher, small(), 2);
  ASSERT_EQ(rows().size(), 1U);
  const RecordRow row = rows().begin()->second;
  EXPECT_EQ(row.calls, 3);
  EXPECT_EQ(row.misses, 0);
  EXPECT_EQ(row.origin, KernelOrigin::earlier);
  EXPECT_FALSE(row.why.empty());
  const fs::path other = folder / "other.record";
  begin_record(other);
  run(dispatcher, small(), 4);
  end_record(other);
  EXPECT_EQ(rows().begin()->second.calls, 3);
  EXPECT_EQ(read_record(other).rows.at(0).calls, 4);
}

TEST_F(RecordTest, AProblemWithoutAKernelIsWrittenToo) {
  DispatcherOptions o = recorded();
  o.build.allow_compile = false;
  o.build.use_shipped_packs = false;
  Dispatcher dispatcher(o);
  EXPECT_THROW(dispatcher.kernel_for(small()), Error);
  ASSERT_EQ(rows().size(), 1U);
  const RecordRow row = rows().begin()->second;
  EXPECT_EQ(row.origin, KernelOrigin::none);
  EXPECT_FALSE(row.kernel.empty());
  EXPECT_NE(row.why.find("is neither in a pack nor in the cache"), std::string::npos) << row.why;
}

TEST_F(RecordTest, TheEnvironmentsFileThatCannotBeWrittenIsAWarning) {
  fs::create_directory(folder / "a_folder");
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) warnings.emplace_back(line);
  });
  setenv("TESSERA_RECORD", (folder / "a_folder").c_str(), 1);
  {
    Dispatcher dispatcher(options());
    EXPECT_EQ(recordings, 0);
  }
  setenv("TESSERA_RECORD", file.c_str(), 1);
  {
    Dispatcher dispatcher(options());
    run(dispatcher, small(), 2);
  }
  unsetenv("TESSERA_RECORD");
  set_log_sink({});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("TESSERA_RECORD: nothing is recorded: "), std::string::npos);
  EXPECT_EQ(rows().begin()->second.calls, 2);
  DispatcherOptions o = options();
  o.record = (folder / "a_folder").string();
  EXPECT_THROW(Dispatcher{o}, Error);
}

}  // namespace
}  // namespace tessera
