#include "tessera/tune/winners.h"

#include <gtest/gtest.h>

#include "host/measure/sweep_data.h"

namespace tessera::tune {
namespace {

using testing_support::sweep_run;

// Problem p0: k0 1 ms, k1 2 ms, k2 wrong; p1: k0 3 ms, k1 too slow to be a finalist; p2: k2 hung.
measure::SweepData three_problems() {
  measure::SweepData data;
  data.runs = {sweep_run("a")};
  data.runs[0].protocol = "words";
  data.problems = {"p0", "p1", "p2"};
  data.kernels = {"k0", "k1", "k2"};
  data.rows = {
      {.problem = 0, .kernel = 0, .seconds = 1e-3, .spread = 0.1, .finalist = true},
      {.problem = 0, .kernel = 1, .seconds = 2e-3, .spread = 0.2, .finalist = true},
      {.problem = 0, .kernel = 2, .outcome = measure::Outcome::wrong, .note = "off"},
      {.problem = 1, .kernel = 0, .seconds = 3e-3, .finalist = true},
      {.problem = 1, .kernel = 1, .seconds = 2e-3},
      {.problem = 1, .kernel = 2, .outcome = measure::Outcome::failed, .note = "no compiler"},
      {.problem = 2, .kernel = 2, .outcome = measure::Outcome::timeout, .note = "hung"},
  };
  return data;
}

Machine machine() {
  const measure::SweepRun run = sweep_run("a");
  return {run.device, run.target, run.threads};
}

TEST(Winners, FinalistsAndRefusals) {
  const std::vector<Measurement> found = winners_of(three_problems(), machine());
  const auto m = [](const char* problem, const char* kernel, measure::Outcome outcome,
                    double seconds, double spread, const char* note) {
    return Measurement{machine().device, machine().target, problem, kernel, machine().threads,
                       outcome,          seconds,          spread,  note,   "words"};
  };
  const std::vector<Measurement> expected = {
      m("p0", "k0", measure::Outcome::ok, 1e-3, 0.1, ""),
      m("p0", "k1", measure::Outcome::ok, 2e-3, 0.2, ""),
      m("p0", "k2", measure::Outcome::wrong, 0, 0, "off"),
      m("p1", "k0", measure::Outcome::ok, 3e-3, 0, ""),
      m("p2", "k2", measure::Outcome::timeout, 0, 0, "hung")};
  EXPECT_EQ(found, expected);
}

TEST(Winners, OtherMachinesDoNotCount) {
  for (int part = 0; part < 3; ++part) {
    Machine other = machine();
    if (part == 0) other.device = "another";
    if (part == 1) other.target = "avx512";
    if (part == 2) other.threads = 7;
    EXPECT_TRUE(winners_of(three_problems(), other).empty());
    EXPECT_TRUE(changes_of(three_problems(), other, {{"p0", "k1"}}).empty());
  }
}

TEST(Winners, ChangesAgainstWhatWasChosen) {
  const std::vector<Change> changes = changes_of(
      three_problems(), machine(), {{"p0", "k1"}, {"p1", "general"}, {"p2", "k2"}, {"p9", "k0"}});
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].problem, "p0");
  EXPECT_EQ(changes[0].before, "k1");
  EXPECT_EQ(changes[0].after, "k0");
  EXPECT_EQ(changes[0].before_seconds, 2e-3);
  EXPECT_EQ(changes[0].after_seconds, 1e-3);
  EXPECT_EQ(changes[1].after, "k0");
  EXPECT_EQ(changes[1].before_seconds, 0);
}

}  // namespace
}  // namespace tessera::tune
