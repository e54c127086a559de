#include "tessera/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/parallel.h"

namespace tessera {
namespace {

TEST(Processors, ReadControlGroupLimits) {
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 2);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 1);
  EXPECT_EQ(parse_cpu_max("9223372036854775807 1"), std::numeric_limits<int>::max());
  EXPECT_EQ(parse_cpu_max("9223372036854775807 9223372036854775807"), 1);
  EXPECT_EQ(parse_cpu_max("-1\n 100000\n"), std::nullopt);
  EXPECT_EQ(parse_cpu_max("100000 0"), std::nullopt);
  EXPECT_EQ(parse_cpu_max(""), std::nullopt);
}

TEST(Processors, AreAtMostThoseOfTheAffinity) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  const Affinity affinity = process_affinity();
  EXPECT_EQ(affinity.count, CPU_COUNT(&mask));
  EXPECT_TRUE(CPU_ISSET(affinity.first, &mask));
  EXPECT_GE(usable_processors(), 1);
  EXPECT_LE(usable_processors(), affinity.count);
}

TEST(Processors, NotesEachNumberThatIsTooLargeOnce) {
  static int fresh = 1025;  // no earlier run in this process has noted it
  const int first = fresh++, second = fresh++;
  std::vector<std::string> notes;
  set_log_sink([&](LogLevel, std::string_view note) { notes.emplace_back(note); });
  EXPECT_EQ(bounded_threads(1024), 1024);
  EXPECT_EQ(bounded_threads(0), 0);
  EXPECT_EQ(notes.size(), 0U);
  for (const int wanted : {first, first, second, first}) {
    EXPECT_EQ(bounded_threads(wanted), 1024);
  }
  set_log_sink({});
  const std::string rest = " threads were asked for, 1024 are used: no more are ever used";
  EXPECT_EQ(notes, (std::vector{std::to_string(first) + rest, std::to_string(second) + rest}));
  EXPECT_EQ(bounded_threads(std::numeric_limits<int>::max()), 1024);
}

// A part for each of two thousand million threads would be a list that no memory holds.
TEST(Processors, BoundSharedLoops) {
  constexpr int kTooMany = std::numeric_limits<int>::max();
  std::atomic<std::size_t> parts = 0, sum = 0;
  share_work(kTooMany, 100'000, [&](std::size_t, std::size_t begin, std::size_t end) {
    ++parts;
    sum += end - begin;
  });
  EXPECT_EQ(parts, 1024U);
  EXPECT_EQ(sum, 100'000U);
}

}  // namespace
}  // namespace tessera
