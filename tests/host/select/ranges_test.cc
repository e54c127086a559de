// Ranges of a problem's field, and the kernels over them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "fixtures.h"
#include "tessera/families/operations.h"
#include "tessera/select/ranges.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

std::string error_of_range(const std::string& text) {
  return error_of([&] { read_range(text); });
}

TEST(FieldRanges, AreReadAndWritten) {
  EXPECT_EQ(read_range("m=1..8192"), (FieldRange{"m", 1, 8192}));
  EXPECT_EQ(read_range("seqlen_q=7..7"), (FieldRange{"seqlen_q", 7, 7}));
  EXPECT_EQ(to_string(FieldRange{"rows", 3, 40}), "rows=3..40");
  EXPECT_EQ(count_of(read_range("m=5..131076")), kMostRangeValues);
}

TEST(FieldRanges, AreRefusedWithASentence) {
  const std::map<std::string, std::string> sentences = {
      {"m=1..", "parse_error: range: 'm=1..' has no end; a range has both, as in m=1..8192"},
      {"m=..5",
       "parse_error: range: 'm=..5' has no first value; a range has both, as in m=1..8192"},
      {"m=5", "parse_error: range: expected field=first..last such as m=1..8192, got 'm=5'"},
      {"=1..5", "parse_error: range: expected field=first..last such as m=1..8192, got '=1..5'"},
      {"m=8..4",
       "invalid_argument: range: m must not end before it begins, got first 8 and last 4"},
      {"m=0..4", "invalid_argument: range: m must begin at 1 or more, got 0"},
      {"m=-3..4", "invalid_argument: range: m must begin at 1 or more, got -3"},
      {"m=1..131073",
       "invalid_argument: range: m must have at most 131072 values, got 131073 (from 1 to 131073)"},
      {"m=1..9223372036854775807",
       "invalid_argument: range: m must have at most 131072 values, got 9223372036854775807 (from "
       "1 to 9223372036854775807)"},
      {"m=1..x",
       "parse_error: range: the last value of m must be a whole number of 64 bits, got 'x'"},
      {"m=1...5",
       "parse_error: range: the last value of m must be a whole number of 64 bits, got '.5'"},
      {"m=one..5",
       "parse_error: range: the first value of m must be a whole number of 64 bits, got 'one'"},
      {"m=1..99999999999999999999",
       "parse_error: range: the last value of m must be a whole number of 64 bits, got "
       "'99999999999999999999'"},
  };
  for (const auto& [text, sentence] : sentences) EXPECT_EQ(error_of_range(text), sentence);
}

TEST(RangedProblems, AreLinesWithOneRange) {
  const std::string line = "gemm m=2..8192 n=4096 k=512 dtype=bf16";
  EXPECT_TRUE(has_range(line));
  EXPECT_FALSE(has_range("gemm m=2 n=4096 k=512 dtype=bf16"));
  const RangedProblem ranged = read_ranged_problem(line);
  EXPECT_EQ(ranged.range, (FieldRange{"m", 2, 8192}));
  EXPECT_EQ(ranged.problem, parse_problem("gemm m=2 n=4096 k=512 dtype=bf16"));
  const RangedProblem again = read_ranged_problem(to_string(ranged));
  EXPECT_EQ(again.problem, ranged.problem);
  EXPECT_EQ(again.range, ranged.range);
  // A field that its default leaves out of a line.
  const RangedProblem batches = read_ranged_problem("gemm m=8 n=8 k=8 batch=1..9");
  EXPECT_EQ(read_ranged_problem(to_string(batches)).range, batches.range);
}

TEST(RangedProblems, AreRefusedWithASentence) {
  const auto error = [](const std::string& line) {
    return error_of([&] { read_ranged_problem(line); });
  };
  EXPECT_EQ(error("gemm m=1 n=8 k=8"),
            "parse_error: range: the line must give one field a range, as in 'gemm m=1..8192 "
            "n=4096 k=4096 dtype=bf16', got 0 ranges");
  EXPECT_EQ(error("gemm m=1..4 n=1..8 k=8"),
            "parse_error: range: the line must give one field a range, as in 'gemm m=1..8192 "
            "n=4096 k=4096 dtype=bf16', got 2 ranges: m=1..4, n=1..8");
  EXPECT_EQ(error("gemm m=8..4 n=8 k=8"),
            "invalid_argument: range: m must not end before it begins, got first 8 and last 4");
  EXPECT_NE(error("gemm m=4 n=8 k=8 btch=1..4").find("did you mean 'batch'?"), std::string::npos);
  EXPECT_NE(error("gemm m=4 n=8 k=8 alpha=1..2").find("alpha of gemm is no whole number"),
            std::string::npos);
}

TEST(ProblemAt, SetsAnyIntegerFieldOfAnyOperation) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"gemm m=3 n=8 k=8", "m"},
      {"gemm m=3 n=8 k=8 batch=4", "batch"},
      {"gemm m=3 n=8 k=8", "k"},
      {"fmha batch=2 heads=4 seqlen_q=16 seqlen_k=32 hdim=64", "seqlen_q"},
      {"fmha batch=2 heads=4 seqlen_q=16 seqlen_k=32 hdim=64", "seqlen_k"},
      {"fmha batch=2 heads=4 seqlen_q=16 seqlen_k=32 hdim=64", "batch"},
      {"conv direction=forward n=2 c=8 k=8 h=9 w=9 y=3 x=3", "n"},
      {"conv direction=forward n=2 c=8 k=8 h=9 w=9 y=3 x=3", "h"},
      {"norm kind=rmsnorm rows=5 columns=64", "rows"}};
  for (const auto& [line, field] : fields) {
    const Problem problem = parse_problem(line);
    const FieldRange range{field, 1, 1000};
    for (const std::int64_t value : {1, 77, 1000}) {
      const Problem at = problem_at(problem, range, value);
      EXPECT_EQ(field_of(at, field), std::to_string(value)) << line;
      const std::int64_t before = std::stoll(field_of(problem, field));
      EXPECT_EQ(problem_at(at, range, before), problem) << line << " " << field;
    }
  }
}

// crr: A is column-major, with a leading dimension of m.
TEST(ProblemAt, KeepsStridesThatWereGiven) {
  const FieldRange range{"m", 1, 100};
  const Problem packed = problem_at(parse_problem("gemm m=1 n=8 k=8 layout=crr"), range, 40);
  EXPECT_EQ(with_strides(std::get<GemmProblem>(packed)).ld_a, 40);
  const Problem given =
      problem_at(parse_problem("gemm m=1 n=8 k=8 layout=crr ld_a=128"), range, 40);
  EXPECT_EQ(with_strides(std::get<GemmProblem>(given)).ld_a, 128);
}

TEST(ProblemAt, RefusesWithASentence) {
  const Problem problem = parse_problem("gemm m=1 n=8 k=8");
  const auto error = [&](const FieldRange& range, std::int64_t value) {
    return error_of([&] { problem_at(problem, range, value); });
  };
  EXPECT_EQ(error({"m", 2, 9}, 10), "invalid_argument: range: m must be from 2 to 9, got 10");
  EXPECT_EQ(error({"m", 2, 9}, 1), "invalid_argument: range: m must be from 2 to 9, got 1");
  EXPECT_EQ(error({"bacth", 1, 9}, 2),
            "not_found: range: gemm has no field 'bacth', did you mean 'batch'?");
  EXPECT_NE(error({"rows", 1, 9}, 2).find("these can have a range: m, n, k, batch"),
            std::string::npos);
  EXPECT_NE(error({"layout", 1, 9}, 2).find("layout of gemm is no whole number"),
            std::string::npos);
}

TEST(RangeGrid, HasEveryValueOfAShortRange) {
  const std::vector<std::int64_t> grid = grid_of({"m", 900, 1155});
  ASSERT_EQ(grid.size(), 256U);
  EXPECT_EQ(grid.front(), 900);
  EXPECT_EQ(grid.back(), 1155);
}

TEST(RangeGrid, HasTheEndsAndTheNeighboursOfTiles) {
  const std::vector<std::int64_t> grid = grid_of({"m", 1, 8191});
  EXPECT_TRUE(std::is_sorted(grid.begin(), grid.end()));
  const std::set<std::int64_t> has(grid.begin(), grid.end());
  EXPECT_EQ(has.size(), grid.size());
  EXPECT_LT(grid.size(), 600U);
  for (std::int64_t value = 1; value <= 64; ++value) EXPECT_TRUE(has.contains(value)) << value;
  for (std::int64_t tile = 16; tile <= 512; tile += 16) {
    for (const std::int64_t by : {-1, 0, 1}) EXPECT_TRUE(has.contains(tile + by)) << tile;
  }
  for (const std::int64_t value : {1023, 1025, 4095, 4097, 6143, 6144, 6145, 8191}) {
    EXPECT_TRUE(has.contains(value)) << value;
  }
  for (std::size_t i = 1; i < grid.size(); ++i) {
    EXPECT_LE(grid[i] - grid[i - 1], std::max<std::int64_t>(8, grid[i] / 16)) << grid[i];
  }
}

// A range that ends at the largest number must not overflow.
TEST(RangeGrid, EndsAtTheLargestNumber) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::int64_t> grid = grid_of({"m", most - 1000, most});
  EXPECT_EQ(grid.front(), most - 1000);
  EXPECT_EQ(grid.back(), most);
}

// What the header promises, for random changes of the kernel at random values.
TEST(RangeParts, AreRightAtEveryValueThatWasAsked) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    FieldRange range{"m", 1 + static_cast<std::int64_t>(random() % 3000), 0};
    range.last = range.first + static_cast<std::int64_t>(random() % 9000);
    std::vector<std::int64_t> changes;
    for (std::size_t i = 0; i < random() % 12; ++i) {
      changes.push_back(range.first + static_cast<std::int64_t>(
                                          random() % static_cast<std::uint64_t>(count_of(range))));
    }
    const auto name_at = [&](std::int64_t value) {
      const auto passed = std::count_if(changes.begin(), changes.end(),
                                        [&](std::int64_t change) { return change <= value; });
      return "kernel" + std::to_string(passed % 3);
    };
    std::mutex mutex;
    std::map<std::int64_t, std::string> asked;
    const KernelOf kernel_of = [&](std::int64_t value) {
      const std::lock_guard lock(mutex);
      return asked[value] = name_at(value);
    };
    const std::vector<RangePart> parts = parts_of(range, kernel_of, 3);
    ASSERT_FALSE(parts.empty());
    EXPECT_EQ(parts.front().first, range.first);
    EXPECT_EQ(parts.back().last, range.last);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(asked.contains(parts[i].first)) << parts[i].first;
      EXPECT_TRUE(asked.contains(parts[i].last)) << parts[i].last;
      if (i == 0) continue;
      EXPECT_EQ(parts[i].first, parts[i - 1].last + 1);
      EXPECT_NE(parts[i].kernel, parts[i - 1].kernel);
    }
    for (const auto& [value, kernel] : asked) {
      const auto part = std::find_if(parts.begin(), parts.end(),
                                     [last = value](auto& p) { return last <= p.last; });
      EXPECT_EQ(part->kernel, kernel) << value;
    }
    EXPECT_EQ(parts_of(range, name_at, 1), parts);
  }
}

// Every change of a short range is found.
TEST(RangeParts, AreExactForShortRanges) {
  const auto kernel_of = [](std::int64_t value) { return value % 5 == 0 ? "five" : "other"; };
  const std::vector<RangePart> parts = parts_of({"m", 1, 12}, kernel_of);
  EXPECT_EQ(
      parts,
      (std::vector<RangePart>{
          {1, 4, "other"}, {5, 5, "five"}, {6, 9, "other"}, {10, 10, "five"}, {11, 12, "other"}}));
}

TEST(RangeParts, OfOneValueAreOne) {
  EXPECT_EQ(parts_of({"m", 7, 7}, [](std::int64_t) { return "one"; }),
            (std::vector<RangePart>{{7, 7, "one"}}));
}

TEST(RangeParts, FailAsTheCallFails) {
  const auto fail = [](std::int64_t value) -> std::string {
    if (value == 77) throw Error(ErrorCode::unsupported, "not at 77");
    return "kernel";
  };
  for (const int jobs : {1, 4}) {
    EXPECT_EQ(error_of([&] { parts_of({"m", 1, 100}, fail, jobs); }), "unsupported: not at 77");
  }
}

TEST(RangeParts, AskAgainWhereAKernelDoesNotServe) {
  const std::vector<RangePart> parts = {{1, 10, "even"}, {11, 12, "any"}};
  const auto serves = [](std::int64_t value, const std::string& kernel) {
    return kernel == "any" || value % 4 != 0;
  };
  const auto kernel_of = [](std::int64_t) { return "any"; };
  for (const int jobs : {1, 3}) {
    EXPECT_EQ(with_served(parts, serves, kernel_of, jobs),
              (std::vector<RangePart>{{1, 3, "even"},
                                      {4, 4, "any"},
                                      {5, 7, "even"},
                                      {8, 8, "any"},
                                      {9, 10, "even"},
                                      {11, 12, "any"}}));
  }
  // What is asked again may join its neighbours.
  EXPECT_EQ(with_served({{1, 4, "even"}, {5, 5, "any"}}, serves, kernel_of),
            (std::vector<RangePart>{{1, 3, "even"}, {4, 5, "any"}}));
}

// Real choosing: every kernel is a choice at the ends of its part, and serves all of it once
// with_served() has looked.
TEST(RangeParts, OfRealChoicesServeEveryValue) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<std::string> lines = {
      "gemm m=1..700 n=64 k=96 dtype=bf16", "gemm m=1..400 n=56 k=72 layout=crr",
      "norm kind=softmax rows=1..900 columns=333",
      "fmha heads=2 seqlen_q=1..300 seqlen_k=300 hdim=64 dtype=bf16"};
  const std::string line = lines[random() % lines.size()];
  const Target target = load_target(random() % 2 == 0 ? "avx512" : "sm90a");
  SCOPED_TRACE(line + " on " + target.name);
  const auto [problem, range] = read_ranged_problem(line);
  const KernelOf kernel_of = [&, &problem = problem, &range = range](std::int64_t value) {
    return choose(problem_at(problem, range, value), target).name;
  };
  const Serves serves = [&, &problem = problem, &range = range](std::int64_t value,
                                                                const std::string& kernel) {
    return static_cast<bool>(
        supports(parse_name(kernel), problem_at(problem, range, value), target));
  };
  const std::vector<RangePart> parts = with_served(parts_of(range, kernel_of), serves, kernel_of);
  for (const RangePart& part : parts) {
    EXPECT_EQ(kernel_of(part.first), part.kernel) << part.first;
    EXPECT_EQ(kernel_of(part.last), part.kernel) << part.last;
    const std::int64_t between =
        part.first + static_cast<std::int64_t>(random()) % (part.last - part.first + 1);
    EXPECT_TRUE(serves(between, part.kernel)) << between << " " << part.kernel;
  }
}

}  // namespace
}  // namespace tessera
