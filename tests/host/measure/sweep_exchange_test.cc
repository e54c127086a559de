#include "tessera/measure/sweep_exchange.h"

#include <gtest/gtest.h>

#include "broken_text.h"
#include "host/measure/sweep_data.h"
#include "tessera/measure/sweep_check.h"

namespace tessera::measure {
namespace {

using testing_support::message_of;
using testing_support::random_data;
using testing_support::sweep_run;
using testing_support::with;

SweepData read_csv(const std::string& text) { return from_columns(from_csv(text, "f"), "f"); }

// One good row, to be broken.
SweepData one_row() {
  SweepData data;
  data.runs = {sweep_run("a")};
  data.problems = {"gemm m=1 n=2 k=3"};
  data.kernels = {"kernel"};
  data.rows = {{.seconds = 0.5, .min_seconds = 0.25, .readings = 3}};
  return data;
}

TEST(SweepCsv, RoundTripIsExact) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  const SweepData data = random_data(sweep_run("a"), 7, 9, seed);
  EXPECT_EQ(sorted(read_csv(to_csv(to_columns(data)))), data);
}

TEST(SweepCsv, TakesOtherOrdersLineEndsAndColumns) {
  const SweepData data = one_row();
  std::string text = to_csv(to_columns(data));
  text = with(text, "kind,problem", "extra,kind,problem");
  text = with(text, "\nrow,", "\nnonsense,row,");
  std::string crlf;
  for (const char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(sorted(read_csv(crlf + "\r\n")), data);
}

TEST(SweepCsv, HostileTextGetsASentence) {
  const std::string good = to_csv(to_columns(one_row()));
  const auto broken = [&](const std::string& what, const std::string& instead) {
    return message_of([&] { read_csv(with(good, what, instead)); });
  };
  EXPECT_EQ(message_of([] { read_csv(""); }),
            "'f':1: the file is empty; its first line names the columns");
  EXPECT_EQ(message_of([] { read_csv("kind,\"problem"); }), "'f':1: a quoted field has no end");
  EXPECT_EQ(message_of([] { read_csv("\"kind\"x,problem"); }),
            "'f':1: after a quoted field comes a comma, got 'x'");
  EXPECT_EQ(broken("\nrow,", "\nrow,more,"), "'f':2: 23 fields in a table of 22 columns");
  EXPECT_EQ(broken("kernel,outcome", "name,outcome"), "'f': column 'kernel' is missing (its name)");
  EXPECT_EQ(broken(",0.5,", ",nan,"),
            "'f': row 1, column 'seconds': must be finite and at least 0, got nan");
  EXPECT_EQ(broken(",0.5,", ",-1,"),
            "'f': row 1, column 'seconds': must be finite and at least 0, got -1");
  EXPECT_EQ(broken(",0.5,", ",soon,"), "'f':2: column 'seconds' is a number, got 'soon'");
  EXPECT_EQ(broken(",0.5,", ",1e999,"), "'f':2: column 'seconds' is a number, got '1e999'");
  EXPECT_EQ(broken(",0.5,", ",0,"),
            "'f': row 1, column 'seconds': must be above 0 for ok and 0 otherwise, got 0 for ok");
  EXPECT_EQ(broken(",ok,", ",oke,"),
            "'f': row 1, column 'outcome': unknown outcome 'oke', did you mean 'ok'?");
  EXPECT_EQ(broken("\nrow,", "\nraw,"),
            "'f': row 1, column 'kind': must be row or clock, got 'raw'");
  EXPECT_EQ(broken(",3,0,", ",9999999,0,"),
            "'f': row 1, column 'readings': must be from 0 to 1000000, got 9999999");
  EXPECT_EQ(broken("k=3", "k=3 k=4").rfind("'f': row 1, column 'problem': ", 0), 0U);
  EXPECT_EQ(broken(",kernel,ok", "," + std::string(5000, 'x') + ",ok"),
            "'f': row 1, column 'kernel': texts have at most 4096 letters, got 5000");
}

TEST(SweepCsv, OneRunDescribedTwiceIsRefused) {
  const std::string good = to_csv(to_columns(one_row()));
  const std::string row = good.substr(good.find('\n') + 1);
  EXPECT_EQ(message_of([&] { read_csv(good + with(row, "avx2", "avx512")); }),
            "'f': row 2, column 'run': run 'a' is described differently than before");
}

TEST(SweepCsv, CutOffTextNeverCrashes) {
  const std::string good = to_csv(to_columns(random_data(sweep_run("a"), 2, 3, 5)));
  std::size_t refused = 0;
  for (std::size_t length = 0; length < good.size(); ++length) {
    refused += message_of([&] { read_csv(good.substr(0, length)); }) != "no error" ? 1 : 0;
  }
  EXPECT_GT(refused, good.size() / 2);
}

// ---- check ----

std::int64_t count_of(const std::vector<Finding>& findings, const std::string& what) {
  for (const Finding& finding : findings) {
    if (finding.what == what) return finding.count;
  }
  return -1;
}

// Ten kernels within a few percent of each other.
SweepData quiet_data() {
  SweepData data = random_data(sweep_run("a"), 4, 10, 3);
  for (std::size_t i = 0; i < data.rows.size(); ++i) {
    SweepRow& row = data.rows[i];
    row.outcome = Outcome::ok;
    row.seconds = 1e-3 * (1 + 0.01 * static_cast<double>(i % 10));
    row.spread = 0.01;
    row.note.clear();
  }
  data.clock = {{0, 0, 0, 1, 1e-3}, {0, 0, 0, 6, 1.01e-3}, {0, 0, 0, 11, 1e-3}};
  return data;
}

TEST(SweepCheck, QuietDataHasNoFindings) {
  for (const Finding& finding : check(quiet_data())) EXPECT_EQ(finding.count, 0) << finding.what;
}

TEST(SweepCheck, FindsWhatIsPlanted) {
  SweepData data = quiet_data();
  data.rows[3].seconds = 0.5e-3;  // twice as fast as its problem's other kernels
  data.rows[17].spread = 0.2;
  data.rows.push_back(data.rows[20]);
  for (int i = 0; i < 4; ++i) data.clock.push_back({0, 0, 0, 20.0 + i, 1.1e-3});
  const std::vector<Finding> findings = check(data);
  for (const char* what : {"outlier", "drift", "duplicate", "variation"}) {
    EXPECT_EQ(count_of(findings, what), 1) << what;
  }
  EXPECT_EQ(findings[3].examples.at(0),
            data.kernels[static_cast<std::size_t>(data.rows[17].kernel)] + " on '" +
                data.problems[1] + "' (cpu \"model\", 7, 2 threads): 15% over " +
                std::to_string(data.rows[17].readings) + " readings");
}

TEST(SweepCheck, ADisturbedReadingIsNoDrift) {
  SweepData data = quiet_data();
  data.clock[1].seconds = 5e-3;
  EXPECT_EQ(count_of(check(data), "drift"), 0);
}

TEST(SweepCheck, DescribesWhatIsThere) {
  const SweepData data = random_data(sweep_run("a"), 5, 6, 11);
  const Description d = describe(data);
  EXPECT_EQ(d.rows, 30);
  EXPECT_EQ(d.problems, 5);
  EXPECT_EQ(d.kernels, 6);
  EXPECT_EQ(d.clock_readings, 2);
  ASSERT_EQ(d.types.size(), 1U);
  EXPECT_EQ(d.types[0].word, "fp32 rcr");
  EXPECT_EQ(d.types[0].rows, 30);
}

}  // namespace
}  // namespace tessera::measure
