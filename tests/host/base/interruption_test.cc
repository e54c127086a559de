#include "tessera/base/interruption.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/seconds.h"
#include "tessera/base/subprocess.h"

namespace tessera {
namespace {

// Ends work at the question of this number, counted from 1. Each object asks this thread only.
struct StopAt {
  explicit StopAt(int question) : left(question) {
    set_interruption(
        {.stop = [](void* user) { return int{--*static_cast<int*>(user) <= 0}; }, .user = &left});
  }
  ~StopAt() { set_interruption({}); }
  StopAt(const StopAt&) = delete;
  StopAt& operator=(const StopAt&) = delete;
  int left;
};

std::string sentence_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

TEST(Interruption, EndsTheWorkOfItsThread) {
  const StopAt now(1);
  std::thread([] { EXPECT_EQ(sentence_of(check_interruption), "no error"); }).join();
  EXPECT_EQ(sentence_of(check_interruption), "cancelled: the call-back ended it");
}

TEST(Interruption, IsAskedAboutTwentyTimesASecond) {
  const StopAt later(1'000'000);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(120)) {
    check_interruption();
  }
  EXPECT_GE(later.left, 1'000'000 - 1000);
  EXPECT_LT(later.left, 1'000'000);
}

TEST(Interruption, EndsAChild) {
  const StopAt second(2);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(sentence_of([] {
              run_subprocess({"sleep", "60"}, {.is_interruptible = true});
            }),
            "cancelled: the call-back ended it");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Seconds, AreANumberOfAtMostADay) {
  for (const double good : {0.0, 1e-9, 120.0, 86400.0}) check_seconds("x", good);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sentence_of([&] { check_seconds("x", infinity); }),
            "invalid_argument: x must be from 0 to 86400 seconds, a day, got inf");
  EXPECT_EQ(sentence_of([] { check_seconds("x", 86401); }),
            "invalid_argument: x must be from 0 to 86400 seconds, a day, got 86401");
  EXPECT_EQ(sentence_of([] { check_seconds("x", -1); }),
            "invalid_argument: x must be from 0 to 86400 seconds, a day, got -1");
  EXPECT_EQ(sentence_of([] { check_seconds("x", std::numeric_limits<double>::quiet_NaN()); }),
            "invalid_argument: x must be from 0 to 86400 seconds, a day, got nan");
}

}  // namespace
}  // namespace tessera
