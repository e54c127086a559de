#include "tessera/base/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <system_error>

#include "host/base/no_threads.h"

namespace tessera {
namespace {

// How often each number below `count` was in a part.
std::vector<int> visits(int threads, std::size_t count) {
  std::vector<std::atomic<int>> seen(count);
  share_work(threads, count, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) ++seen[i];
  });
  return {seen.begin(), seen.end()};
}

TEST(NoThreadsHere, AreToBeHad) {
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
}

TEST(ShareWork, VisitsEverythingOnce) {
  for (const int threads : {-1, 0, 1, 2, 7}) {
    for (const std::size_t count : {0, 1, 2, 6, 7, 8, 1000}) {
      EXPECT_EQ(visits(threads, count), std::vector<int>(count, 1)) << threads << " " << count;
    }
  }
}

TEST(ShareWork, VisitsEverythingWithoutThreads) {
  const NoThreads none;
  EXPECT_EQ(visits(4, 1000), std::vector<int>(1000, 1));
}

TEST(ShareWork, ThrowsWhatAPartThrew) {
  for (std::size_t bad = 0; bad < 4; ++bad) {
    std::string words;
    try {
      share_work(4, 4, [&](std::size_t part, std::size_t, std::size_t) {
        if (part == bad) throw std::runtime_error("part " + std::to_string(part));
      });
    } catch (const std::runtime_error& error) {
      words = error.what();
    }
    EXPECT_EQ(words, "part " + std::to_string(bad));
  }
}

TEST(InParallel, CallsEachOnceWithoutThreads) {
  const NoThreads none;
  std::vector<int> calls(100, 0);
  in_parallel(calls.size(), 8, [&](std::size_t i) { ++calls[i]; });
  EXPECT_EQ(calls, std::vector<int>(100, 1));
}

}  // namespace
}  // namespace tessera
