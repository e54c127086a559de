#include "tessera/base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

struct LogTest : testing::Test {
  int logged = 0;
  LogTest() {
    set_log_sink([this](LogLevel, std::string_view) { ++logged; });
  }
  ~LogTest() override { set_log_sink({}); }
};

TEST_F(LogTest, WarnsOnceOfTheSame) {
  warn_once("this");
  warn_once("this");
  EXPECT_EQ(logged, 1);
  warn_once("that");
  EXPECT_EQ(logged, 2);
}

// A process that finds something new to warn of for ever must not remember it for ever.
TEST_F(LogTest, WarningsOfLongAgoAreForgotten) {
  warn_once("long ago");
  for (int i = 0; i < 2 * 4096; ++i) warn_once("a warning, number " + std::to_string(i));
  EXPECT_EQ(logged, 1 + 2 * 4096);
  warn_once("long ago");
  EXPECT_EQ(logged, 2 + 2 * 4096);
}

}  // namespace
}  // namespace tessera
