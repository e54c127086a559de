#include "tessera/base/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

// Warnings that no earlier run of a test in this process has logged.
struct LogTest : testing::Test {
  int logged = 0;
  LogTest() {
    ++run;
    set_log_sink([this](LogLevel, std::string_view) { ++logged; });
  }
  ~LogTest() override { set_log_sink({}); }
  static std::string fresh(const std::string& words) { return words + " " + std::to_string(run); }

  static inline int run = 0;
};

TEST_F(LogTest, WarnsOnceOfTheSame) {
  warn_once(fresh("this"));
  warn_once(fresh("this"));
  EXPECT_EQ(logged, 1);
  warn_once(fresh("that"));
  EXPECT_EQ(logged, 2);
}

// A process that finds something new to warn of for ever must not remember it for ever.
TEST_F(LogTest, WarningsOfLongAgoAreForgotten) {
  warn_once(fresh("long ago"));
  for (int i = 0; i < 2 * 4096; ++i) warn_once(fresh("warning " + std::to_string(i)));
  EXPECT_EQ(logged, 1 + 2 * 4096);
  warn_once(fresh("long ago"));
  EXPECT_EQ(logged, 2 + 2 * 4096);
}

// It hung: the sink was called with the lock held that logging takes.
TEST_F(LogTest, ASinkMayLogAndReplaceItself) {
  std::vector<std::string> lines;
  set_log_sink([&lines](LogLevel, std::string_view line) {
    lines.emplace_back(line);
    if (line == "outer") warn_once("inner, from a sink");
    if (line == "last") set_log_sink({});
  });
  log(LogLevel::info, "outer");
  log(LogLevel::info, "last");
  log(LogLevel::info, "after the last");
  EXPECT_EQ(lines, (std::vector<std::string>{"outer", "inner, from a sink", "last"}));
}

TEST_F(LogTest, WhatASinkThrowsReachesWhoLoggedAndTheNextLineIsLogged) {
  set_log_sink([this](LogLevel, std::string_view) {
    if (logged++ == 0) throw std::runtime_error("the sink's own");
  });
  EXPECT_THROW(log(LogLevel::info, "one"), std::runtime_error);
  std::thread([] { log(LogLevel::info, "another thread's"); }).join();
  EXPECT_EQ(logged, 2);
}

// A child that is forked while another thread is in the sink finds it free, and the fork does not
// wait for that thread.
TEST_F(LogTest, AForkedChildLogsThoughAParentsThreadIsInTheSink) {
  std::promise<void> entered, leave;
  set_log_sink([&](LogLevel, std::string_view line) {
    if (line != "stays") return;
    entered.set_value();
    leave.get_future().wait();
  });
  std::thread other([] { log(LogLevel::info, "stays"); });
  entered.get_future().wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    log(LogLevel::info, "of the child");
    ::_exit(7);
  }
  leave.set_value();
  other.join();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace tessera
