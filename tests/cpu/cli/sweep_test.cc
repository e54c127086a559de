// tessera sweep and tessera data on real kernels and tiny problems.
#include <fmt/format.h>

#include <random>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliSweep : public CliTest {
 protected:
  CliSweep() {
    std::string text;
    for (int m = 1; m <= kProblems; ++m) text += fmt::format("gemm m={} n=24 k=16\n", m);
    write("problems.txt", text);
    std::vector<std::string> names;
    const Target target = load_target("generic");
    const std::vector<Problem> some = {gemm_problem(DType::fp32, GemmLayout::rcr, 9, 24, 16)};
    for (const KernelSpec& spec : measure::kernels_for(some, target, "*_packb_*")) {
      if (names.size() < kKernels) names.push_back(name_of(spec));
    }
    kernels_ = join(names, ",");
  }

  Words sweep_words(const std::string& store) const {
    return {"sweep",   "--problems", "problems.txt", "--kernels", kernels_, "--target",
            "generic", "--store",    store,          "--threads", "1"};
  }
  measure::SweepData read(const std::string& store) const {
    return measure::sorted(
        measure::SweepStore(folder() / store, measure::OpenMode::existing).read());
  }

  static constexpr int kProblems = 40;
  static constexpr std::size_t kKernels = 3;
  std::string kernels_;
};

std::vector<std::string> row_texts(const measure::SweepData& data) {
  std::vector<std::string> texts;
  for (const measure::SweepRow& row : data.rows) {
    texts.push_back(
        fmt::format("{} {} {} {} {}", data.problems[static_cast<std::size_t>(row.problem)],
                    data.kernels[static_cast<std::size_t>(row.kernel)],
                    data.runs[static_cast<std::size_t>(row.run)].id, row.seconds, row.at));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST_F(CliSweep, ProblemsThatNoKernelServes) {
  write("problems.txt", "gemm m=4 n=24 k=16\ngemm m=4 n=24 k=16 dtype=bf16\n");
  const CliResult first = run(sweep_words("s.sqlite"));
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out.find("1 of 2 problems measured, 0 were stored before, none of the kernels "
                           "serves 1; 3 rows: 3 ok in s.sqlite\n"),
            0U)
      << first.out;
  const Json json = run_json(sweep_words("s.sqlite"));
  EXPECT_EQ(json.at("stored_before"), 1);
  EXPECT_EQ(json.at("unserved"), 1);
}

// Killed again and again, at any moment: problems are there whole or not at all, nothing that was
// stored is measured again, and in the end nothing is missing or doubled.
TEST_F(CliSweep, ResumesAfterKillMinusNine) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  write("one.txt", "gemm m=500 n=24 k=16\n");
  Words warm = sweep_words("warm.sqlite");
  warm[2] = "one.txt";
  EXPECT_EQ(run(warm).status, 0);  // builds the kernels

  std::vector<std::string> before;
  Words argv = {TESSERA_CLI};
  for (const std::string& word : sweep_words("s.sqlite")) argv.push_back(word);
  int kills = 0;
  for (int turn = 0; turn < 8; ++turn) {
    SubprocessOptions options{.working_folder = folder()};
    options.extra_environment = {"TESSERA_CACHE_DIR=" + (folder() / "cache").string()};
    options.timeout_seconds = 0.1 + 0.001 * static_cast<double>(random() % 400);
    kills += run_subprocess(argv, options).timed_out ? 1 : 0;
    if (!fs::exists(folder() / "s.sqlite")) continue;
    measure::SweepData data;
    try {
      data = read("s.sqlite");
    } catch (const Error& error) {  // killed within its first transaction
      EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
      EXPECT_TRUE(before.empty());
      continue;
    }
    EXPECT_EQ(data.rows.size(), kKernels * data.problems.size());
    const std::vector<std::string> after = row_texts(data);
    EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
    before = after;
  }
  EXPECT_GT(kills, 0);
  const Json report = run_json(sweep_words("s.sqlite"));
  EXPECT_EQ(report.at("remaining"), 0);
  const std::vector<std::string> after = row_texts(read("s.sqlite"));
  EXPECT_EQ(after.size(), kKernels * kProblems);
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

TEST_F(CliSweep, MergedShardsAreTheWhole) {
  std::size_t rows = 0;
  for (const std::string shard : {"1/2", "2/2"}) {
    Words words = sweep_words("part" + shard.substr(0, 1) + ".sqlite");
    words.insert(words.end(), {"--shard", shard});
    rows += run_json(words).at("rows").get<std::size_t>();
  }
  EXPECT_EQ(rows, kKernels * kProblems);
  const Json merged = run_json("data merge all.sqlite part1.sqlite part2.sqlite");
  EXPECT_EQ(merged.at("added"), rows);
  EXPECT_EQ(run_json("data merge all.sqlite part2.sqlite").at("identical"),
            read("part2.sqlite").rows.size());
  const Json described = run_json("data describe all.sqlite");
  EXPECT_EQ(described.at("rows"), rows);
  EXPECT_EQ(described.at("problems"), kProblems);
  EXPECT_EQ(described.at("outcomes"), Json({{"ok", rows}}));
  EXPECT_EQ(run_json(sweep_words("all.sqlite")).at("stored_before"), kProblems);
}

// A stand-in for Slurm's sbatch runs the tasks of an array one after the other. The second one is
// killed on the way and started again, as Slurm does after a node was lost.
TEST_F(CliSweep, AnArrayOfJobsIsTheWhole) {
  write("sbatch", R"(#!/bin/sh
count=${1#--array=1-}
shift
for task in $(seq 1 "$count"); do
  export SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$count
  [ "$task" != 2 ] || timeout -s KILL 0.5 "$@" || true
  "$@" || exit 1
done
)");
  const Words words = {"--problems", "problems.txt", "--kernels", kernels_,
                       "--target",   "generic",      "--threads", "1"};
  const std::string script = (fs::path(TESSERA_SOURCE) / "tools" / "sweep_array.sh").string();
  const CliResult result = run_in_shell(
      "TESSERA=$0 exec /bin/sh sbatch --array=1-3 " + script + " parts \"$@\" 2>\"$CLI_STDERR\"",
      words);
  EXPECT_EQ(result.status, 0) << result.err << result.out;
  const Json merged = run_json(
      "data merge all.sqlite parts/1of3.sqlite parts/2of3.sqlite "
      "parts/3of3.sqlite");
  EXPECT_EQ(merged.at("added"), kKernels * kProblems);
  EXPECT_EQ(run_json("data describe all.sqlite").at("problems"), kProblems);
}

TEST_F(CliSweep, AnArrayNeedsItsTasksNumber) {
  const std::string script = (fs::path(TESSERA_SOURCE) / "tools" / "sweep_array.sh").string();
  const CliResult result =
      run_in_shell("exec /bin/sh " + script + " parts --problems x 2>\"$CLI_STDERR\"", {});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err,
            "sweep_array.sh: SLURM_ARRAY_TASK_ID or SLURM_ARRAY_TASK_COUNT is not set; start it "
            "with sbatch --array=1-N\n");
}

TEST_F(CliSweep, AnArrayHasTheNumbersOfItsShards) {
  const std::string script = (fs::path(TESSERA_SOURCE) / "tools" / "sweep_array.sh").string();
  const auto task = [&](const std::string& id, const std::string& rest) {
    return run_in_shell(rest + " SLURM_ARRAY_TASK_ID=" + id + " TESSERA=echo /bin/sh " + script +
                            " 'a b' --problems 'x y' 2>\"$CLI_STDERR\"",
                        {});
  };
  for (const char* numbers : {"0 7 8", "1 7 4", "3 3 1", "2 9 3"}) {
    std::istringstream words(numbers);
    std::string least, most, count;
    words >> least >> most >> count;
    const CliResult result =
        task(least, "SLURM_ARRAY_TASK_MIN=" + least + " SLURM_ARRAY_TASK_MAX=" + most +
                        " SLURM_ARRAY_TASK_COUNT=" + count);
    EXPECT_EQ(result.status, 2) << result.out;
    EXPECT_EQ(result.err, "sweep_array.sh: the array must be 1-N, got " + count + " tasks from " +
                              least + " to " + most +
                              "; to start a few tasks of an array of N again, say SHARDS=N sbatch "
                              "--array=3,5\n");
  }
  const std::string whole = "sweep --problems x y --shard 3/8 --store a b/3of8.sqlite\n";
  EXPECT_EQ(task("3", "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=8 SLURM_ARRAY_TASK_COUNT=8").out,
            whole);
  EXPECT_EQ(
      task("3", "SHARDS=8 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_COUNT=2")
          .out,
      whole);
}

TEST_F(CliSweep, SaysWhatRemainsWhenTimeIsUp) {
  Words words = sweep_words("s.sqlite");
  words.insert(words.end(), {"--budget", "0.001s"});
  const CliResult result = run(words);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(
      result.out.find("out of time: 40 problems remain; the same command goes on with them\n"),
      std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace tessera::cli_test
