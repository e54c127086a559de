#include "tessera/base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "host/base/running.h"
#include "resource_limit.h"
#include "tessera/base/children.h"
#include "tessera/base/files.h"
#include "tessera/base/spawn.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SubprocessResult run_shell(const std::string& script, const SubprocessOptions& options = {}) {
  return run_subprocess({"sh", "-c", script}, options);
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

// Not even one that the program opened without O_CLOEXEC.
TEST(Subprocess, GetsNoDescriptorOfTheProgram) {
  const int here = ::fcntl(STDOUT_FILENO, F_DUPFD, 40);
  ASSERT_GE(here, 40);
  const std::string place = "/proc/$$/fd/" + std::to_string(here);
  EXPECT_EQ(run_shell("test -e " + place + " && echo open || echo closed").output, "closed\n");
  EXPECT_EQ(::fcntl(here, F_GETFD), 0);
  ::close(here);
}

// In a process of its own, whose descriptors are all changed.
TEST(Subprocess, ListedDescriptorsCloseOnExec) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int low = ::fcntl(STDOUT_FILENO, F_DUPFD, 40),
              high = ::fcntl(STDOUT_FILENO, F_DUPFD, 500);
    bool ok = low >= 40 && high >= 500;
    for (int i = 0; i < 200; ++i) ::fcntl(STDOUT_FILENO, F_DUPFD, 40);  // more than one reading
    close_listed_on_exec();
    for (const int fd : {low, low + 199, high}) ok = ok && ::fcntl(fd, F_GETFD) == FD_CLOEXEC;
    ::_exit(ok && ::fcntl(STDOUT_FILENO, F_GETFD) == 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
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

// The time limit is looked at between two reads, and memory does not grow with what is written.
TEST(Subprocess, StopsAChildThatWritesWithoutEnd) {
  const Clock::time_point start = Clock::now();
  const SubprocessResult result = run_subprocess({"yes"}, {.timeout_seconds = 0.3});
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_TRUE(result.timed_out);
  EXPECT_GE(result.output.size(), 2U);
  EXPECT_LE(result.output.size(), kMostOutputBytes);
}

TEST(Subprocess, KeepsABoundedPartOfWhatAChildWrites) {
  const SubprocessResult result = run_shell("yes | head -c 16777217; echo the end");
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output.size(), kMostOutputBytes);
  EXPECT_EQ(result.output.substr(kMostOutputBytes - 4), "y\ny\n");
}

TEST(Subprocess, DoesNotWaitForAGrandchildThatKeepsThePipe) {
  const Clock::time_point start = Clock::now();
  const SubprocessResult result = run_shell("sleep 60 & echo $!");
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_TRUE(result.ok());
  ::kill(std::stoi(result.output), SIGKILL);
}

TEST(Subprocess, IgnoresNoSignal) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const SubprocessResult result = run_subprocess({"grep", "^SigIgn:", "/proc/self/status"});
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(result.output, "SigIgn:\t0000000000000000\n");
}

// A child is in its parent's group for a moment, and shares its memory: a signal that the group
// gets then is the parent's alone.
TEST(Subprocess, RunsNoHandlerOfItsParents) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    static const pid_t kSelf = ::getpid();
    static std::atomic<bool> ran_in_child = false;
    ::setpgid(0, 0);
    std::signal(SIGUSR1, [](int) {
      if (::getpid() != kSelf) ran_in_child = true;
    });
    std::atomic<bool> stop = false;
    std::thread sender([&] {
      while (!stop) ::kill(0, SIGUSR1);
    });
    bool all_ran = true;
    for (int i = 0; i < 200 && all_ran && !ran_in_child; ++i) all_ran = run_shell("true").ok();
    stop = true;
    sender.join();
    ::_exit(ran_in_child ? 1 : all_ran ? 0 : 2);
  }
  int status = -1;
  ::waitpid(parent, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Subprocess, SaysWhyOneCannotStart) {
  const SubprocessResult result = run_subprocess({"true", std::string(std::size_t{1} << 24, 'x')});
  EXPECT_FALSE(result.started);
  EXPECT_EQ(result.output, "Argument list too long");
}

// However few descriptors are left, a child never gets the program's own streams.
TEST(Subprocess, WithoutDescriptorsDoesNotStart) {
  if (kSanitizerNeedsDescriptors) GTEST_SKIP() << "the sanitizer needs descriptors itself";
  const int first_free = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(first_free);
  int started = 0;
  for (int spare = 0; spare < 8; ++spare) {
    const SubprocessResult result = [&] {
      const ResourceLimit few(RLIMIT_NOFILE, static_cast<rlim_t>(first_free + spare));
      return run_subprocess({"/bin/echo", "a word"});
    }();
    EXPECT_EQ(result.output, result.started ? "a word\n" : "Too many open files") << spare;
    started += result.started ? 1 : 0;
  }
  EXPECT_GT(started, 0);
  EXPECT_LT(started, 8);
}

// A process that is told to end while it runs a compiler behind a wrapper.
TEST(Subprocess, GrandchildrenEndWhenAllChildrenAreEnded) {
  const fs::path folder = make_unique_folder("/tmp", "tessera-subprocess-");
  const auto in_folder = [&](const std::string& name) { return (folder / name).string(); };
  const std::string script = "sleep 60 & echo $! > " + in_folder("new") + "; mv " +
                             in_folder("new") + " " + in_folder("id") + "; wait";
  const pid_t parent = ::fork();
  if (parent == 0) {
    std::signal(SIGTERM, [](int) { end_children(); });
    const SubprocessResult killed = run_shell(script);
    const SubprocessResult refused = run_shell("true");
    ::_exit(killed.signal == SIGKILL && !refused.started && refused.output == "Operation canceled"
                ? 0
                : 1);
  }
  const int grandchild = id_in(folder / "id");
  ::kill(parent, SIGTERM);
  int status = -1;
  ::waitpid(parent, &status, 0);
  remove_tree(folder);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(ends_soon(grandchild)) << "the grandchild still runs";
}

// A fork has a copy of the table of children, and leaves its parent's alone.
TEST(Subprocess, AForkDoesNotEndItsParentsChildren) {
  const fs::path folder = make_unique_folder("/tmp", "tessera-subprocess-");
  SubprocessResult result;
  std::jthread runs([&] {
    result = run_shell("echo $$ > " + (folder / "id").string() + "; sleep 0.3; echo done");
  });
  EXPECT_GT(id_in(folder / "id"), 0);
  const pid_t fork = ::fork();
  if (fork == 0) {
    end_children();
    ::_exit(0);
  }
  ::waitpid(fork, nullptr, 0);
  runs.join();
  remove_tree(folder);
  EXPECT_EQ(result.output, "done\n");
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
  const int child = id_in(file);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  remove_tree(folder);
  EXPECT_TRUE(ends_soon(child)) << "the child still runs";
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
