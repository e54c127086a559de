#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

using CliProblems = CliTest;

TEST_F(CliProblems, LinesAreAShapeFile) {
  const CliResult result = run("problems edge --target avx512 --dtype bf16 --layout rrr --unseen");
  EXPECT_EQ(result.status, 0) << result.err;
  const auto expected =
      family_of(Op::gemm).draw("edge", ProblemSide::unseen, load_target("avx512"), {"bf16", "rrr"});
  std::vector<Problem> problems;
  for (const std::string_view line : split(result.out, '\n')) {
    if (!line.empty() && line[0] != '#') problems.push_back(parse_problem(line));
  }
  EXPECT_EQ(problems, expected);
}

TEST_F(CliProblems, Json) {
  const Json json = run_json("problems models --target sm90a --dtype fp8");
  EXPECT_EQ(json.at("set"), "models");
  EXPECT_EQ(json.at("unseen"), false);
  EXPECT_EQ(json.at("target"), "sm90a");
  const auto expected = family_of(Op::gemm).draw("models", ProblemSide::learned,
                                                 load_target("sm90a"), {"fp8", "rcr"});
  ASSERT_EQ(json.at("problems").size(), expected.size());
  EXPECT_EQ(json.at("problems").at(0), to_string(expected[0]));
}

}  // namespace
}  // namespace tessera::cli_test
