#include "tessera/base/subprocess.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "tessera/base/files.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SubprocessResult run_shell(const std::string& script, const SubprocessOptions& options = {}) {
  return run_subprocess({"sh", "-c", script}, options);
}

// An orphan that has ended stays in the list as a zombie until somebody asks for its exit code.
bool is_running(int id) {
  const std::string status = try_read_file("/proc/" + std::to_string(id) + "/stat").value_or("");
  return !status.empty() && status.find(") Z ") == std::string::npos;
}

bool ends_soon(int id) {
  for (int i = 0; i < 200 && is_running(id); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return !is_running(id);
}

TEST(Subprocess, ReportsOutputAndExitCode) {
  const SubprocessResult result = run_shell("echo out; echo err >&2; exit 3");
  EXPECT_TRUE(result.started);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.output, "out\nerr\n");
  EXPECT_TRUE(run_shell("true").ok());
}

TEST(Subprocess, DropsStderrOnRequest) {
  EXPECT_EQ(run_shell("echo out; echo err >&2", {.merge_stderr = false}).output, "out\n");
}

TEST(Subprocess, PassesArgumentsUnchanged) {
  const std::string strange = "a b'c\"d$HOME;`x`\n*";
  EXPECT_EQ(run_subprocess({"printf", "%s|", strange, "", "-n"}).output, strange + "||-n|");
}

TEST(Subprocess, CollectsMoreThanAPipeHolds) {
  const SubprocessResult result = run_shell("head -c 3000000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.output, std::string(3000000, 'x'));
}

TEST(Subprocess, ReportsSignals) {
  const SubprocessResult result = run_shell("kill -SEGV $$");
  EXPECT_EQ(result.signal, SIGSEGV);
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_FALSE(result.timed_out);
}

TEST(Subprocess, ReportsWhatCannotStart) {
  for (const std::vector<std::string>& argv : std::vector<std::vector<std::string>>{
           {}, {""}, {"tessera-no-such-program"}, {"/nowhere/program"}, {"/tmp"}}) {
    const SubprocessResult result = run_subprocess(argv);
    EXPECT_FALSE(result.started);
    EXPECT_EQ(result.exit_code, -1);
  }
  EXPECT_FALSE(run_shell("true", {.working_folder = "/nowhere"}).started);
}

TEST(Subprocess, RunsInAFolder) {
  EXPECT_EQ(run_subprocess({"pwd"}, {.working_folder = "/usr"}).output, "/usr\n");
}

TEST(Subprocess, ReadsNothing) { EXPECT_EQ(run_subprocess({"cat"}).output, ""); }

TEST(Subprocess, AddsReplacesAndRemovesVariables) {
  ::setenv("TESSERA_ONE", "1", 1);
  ::setenv("TESSERA_TWO", "2", 1);
  ::setenv("TESSERA_THREE", "3", 1);
  const SubprocessResult result =
      run_shell("echo $TESSERA_ONE,${TESSERA_TWO-unset},$TESSERA_THREE,$TESSERA_FOUR",
                {.extra_environment = {"TESSERA_ONE=one", "TESSERA_TWO", "TESSERA_FOUR=4"}});
  EXPECT_EQ(result.output, "one,unset,3,4\n");
  for (const char* name : {"TESSERA_ONE", "TESSERA_TWO", "TESSERA_THREE"}) ::unsetenv(name);
}

TEST(Subprocess, KillsTheWholeGroupAtTheTimeout) {
  const Clock::time_point start = Clock::now();
  const SubprocessResult result = run_shell("sleep 60 & echo $!; wait", {.timeout_seconds = 0.3});
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_TRUE(ends_soon(std::stoi(result.output))) << "the grandchild still runs";
}

TEST(Subprocess, DoesNotWaitForAGrandchildThatKeepsThePipe) {
  const Clock::time_point start = Clock::now();
  const SubprocessResult result = run_shell("sleep 60 & echo $!");
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_TRUE(result.ok());
  ::kill(std::stoi(result.output), SIGKILL);
}

// A process that runs a child, and is killed, takes the child with it.
TEST(Subprocess, DiesWithItsParent) {
  const fs::path folder = make_unique_folder("/tmp", "tessera-subprocess-");
  const fs::path file = folder / "id";
  const pid_t parent = ::fork();
  if (parent == 0) {
    run_shell("echo $$ > " + file.string() + ".new; mv " + file.string() + ".new " + file.string() +
              "; exec sleep 60");
    ::_exit(0);
  }
  std::string id;
  for (int i = 0; i < 1000 && id.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    id = try_read_file(file).value_or("");
  }
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  remove_tree(folder);
  ASSERT_FALSE(id.empty());
  EXPECT_TRUE(ends_soon(std::stoi(id))) << "the child still runs";
}

TEST(Subprocess, RunsFromManyThreads) {
  std::vector<std::string> outputs(16);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      threads.emplace_back([&outputs, i] {
        for (int n = 0; n < 5; ++n) outputs[i] += run_shell("echo " + std::to_string(i)).output;
      });
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::string expected;
    for (int n = 0; n < 5; ++n) expected += std::to_string(i) + "\n";
    EXPECT_EQ(outputs[i], expected);
  }
}

TEST(FindExecutable, LooksOnPathForBareNames) {
  const fs::path folder = make_unique_folder("/tmp", "tessera-find-");
  write_file(folder / "tool", "#!/bin/sh\n");
  write_file(folder / "data", "no program");
  fs::permissions(folder / "tool", fs::perms::owner_all);
  fs::permissions(folder / "data", fs::perms::owner_read);
  fs::create_directory(folder / "folder");
  const std::string path = environment("PATH");
  ::setenv("PATH", ("/nowhere:" + folder.string()).c_str(), 1);
  EXPECT_EQ(find_executable("tool"), folder / "tool");
  EXPECT_EQ(find_executable("data"), "");
  EXPECT_EQ(find_executable("folder"), "");
  EXPECT_EQ(find_executable("missing"), "");
  EXPECT_EQ(find_executable(""), "");
  EXPECT_EQ(find_executable((folder / "tool").string()), folder / "tool");
  EXPECT_EQ(find_executable("./tool"), "");
  ::setenv("PATH", path.c_str(), 1);
  remove_tree(folder);
}

}  // namespace
}  // namespace tessera
