#include "tessera/measure/child.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/measure/sweep_worker.h"
#include "tessera/targets/targets.h"

namespace tessera::measure {
namespace {

struct ChildTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-child-");
  WorkerRequest request;

  ChildTest() {
    request.problem = "gemm m=3 n=5 k=7";
    request.target = load_target("generic");
    request.kernels = {{"one", "/tmp/one.so"}, {"two", "/tmp/two.so"}};
    request.timeout_seconds = 5;
  }
  ~ChildTest() override { remove_tree(folder); }

  // A worker that runs the shell commands.
  fs::path worker(const std::string& commands) const {
    const fs::path file = folder / "worker";
    write_file(file, "#!/bin/sh\n" + commands + "\n");
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }
};

constexpr const char* kReply =
    R"({"readings":[{"outcome":"ok","seconds":0.5,"spread":0.125,"note":""},)"
    R"({"outcome":"wrong","seconds":0,"spread":0,"note":"off by 3"}]})";

TEST_F(ChildTest, RequestRoundTrips) {
  request.threads = 3;
  request.seed = 18446744073709551615ULL;
  request.measure = true;
  request.budget_seconds = 0.75;
  const WorkerRequest back = worker_request_from_json(to_json(request));
  EXPECT_EQ(back.problem, request.problem);
  EXPECT_EQ(back.target, request.target);
  ASSERT_EQ(back.kernels.size(), 2U);
  EXPECT_EQ(back.kernels[1].name, "two");
  EXPECT_EQ(back.kernels[1].binary, "/tmp/two.so");
  EXPECT_EQ(back.threads, 3);
  EXPECT_EQ(back.seed, request.seed);
  EXPECT_TRUE(back.measure);
  EXPECT_EQ(back.budget_seconds, 0.75);
  EXPECT_EQ(back.timeout_seconds, 5);
}

// The folder of a cache may have any name.
TEST_F(ChildTest, PathsOfRequestsNeedNotBeUtf8) {
  const std::string path = "/tmp/caf\xe9/\xff\n.so";
  request.kernels[1].binary = path;
  EXPECT_EQ(worker_request_from_json(to_json(request)).kernels[1].binary, path);
  SweepSetup setup;
  setup.target = request.target;
  setup.kernels = request.kernels;
  EXPECT_EQ(sweep_setup_from_json(to_json(setup)).kernels[1].binary, path);
}

TEST_F(ChildTest, RefusesARequestThatIsNone) {
  for (const char* text : {"", "{", "[]", "{\"problem\": 3}"}) {
    EXPECT_THROW(static_cast<void>(worker_request_from_json(text)), Error) << text;
  }
}

TEST_F(ChildTest, PassesTheRequestAndReadsTheReply) {
  const WorkerReply reply = ask_worker(
      worker("printf '%s' \"$1\" > " + (folder / "seen").string() + "; echo '" + kReply + "'"),
      request);
  EXPECT_FALSE(reply.lost);
  const std::vector<WorkerReading> expected = {{Outcome::ok, 0.5, 0.125, ""},
                                               {Outcome::wrong, 0, 0, "off by 3"}};
  EXPECT_EQ(reply.readings, expected);
  EXPECT_EQ(read_file(folder / "seen"), to_json(request));
}

TEST_F(ChildTest, IgnoresWhatAKernelPrints) {
  const WorkerReply reply = ask_worker(
      worker(std::string("echo '{debug'; echo noise >&2; echo '") + kReply + "'; echo trailing"),
      request);
  EXPECT_FALSE(reply.lost);
}

struct Loss {
  const char* condition;
  const char* commands;
  Outcome outcome;
  const char* note;
};

TEST_F(ChildTest, SaysHowAWorkerWasLost) {
  request.timeout_seconds = 0.5;
  const Loss losses[] = {
      {"segfault", "kill -SEGV $$", Outcome::crashed, "it died on signal 11 (Segmentation fault)"},
      {"illegal instruction", "kill -ILL $$", Outcome::crashed,
       "it died on signal 4 (Illegal instruction)"},
      {"hang", "sleep 60", Outcome::timeout, "it ran past its limit of 0.5 s"},
      {"own alarm", "kill -ALRM $$", Outcome::timeout, "it ran past its limit of 0.5 s"},
      {"silence", "exit 3", Outcome::failed, "the worker ended with status 3 and no answer"},
      {"garbage", "echo '{{{'", Outcome::failed, "the worker ended with status 0 and no answer"},
      {"error", "echo '{\"error\":\"no such file\"}'; exit 1", Outcome::failed, "no such file"},
      {"too few", "echo '{\"readings\":[]}'", Outcome::failed,
       "the worker answered for 0 kernels, asked about 2"},
      {"crash after the answer", "echo '{\"readings\":[]}'; kill -ABRT $$", Outcome::crashed,
       "it died on signal 6 (Aborted)"},
  };
  for (const Loss& loss : losses) {
    SCOPED_TRACE(loss.condition);
    const WorkerReply reply = ask_worker(worker(loss.commands), request);
    const WorkerReading expected = {loss.outcome, 0, 0, loss.note};
    EXPECT_TRUE(reply.lost);
    EXPECT_EQ(reply.readings, (std::vector<WorkerReading>{expected, expected}))
        << reply.readings.at(0).note;
  }
}

TEST_F(ChildTest, SaysThatItCannotBeStarted) {
  const fs::path missing = folder / "missing";
  const WorkerReply reply = ask_worker(missing, request);
  EXPECT_TRUE(reply.lost);
  EXPECT_EQ(reply.readings.at(0).note, "'" + missing.string() + "' cannot be started");
}

TEST_F(ChildTest, FindsTheNamedWorkerOrSaysWhereItLooked) {
  const fs::path file = worker("exit 0");
  EXPECT_EQ(find_worker(file.string()), file);
  fs::permissions(file, fs::perms::owner_read);
  try {
    static_cast<void>(find_worker(file.string()));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_EQ(std::string(error.what()),
              "autotune: the worker program is not an executable file at '" + file.string() +
                  "': install it there, or name it in tune::AutotuneOptions::worker");
  }
}

}  // namespace
}  // namespace tessera::measure
