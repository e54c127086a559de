// Streams that are closed or full, and what is said on them in the meantime.
#include <csignal>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliStreams : public CliTest {
 protected:
  CliResult run_redirected(const std::string& redirection, const std::string& line) const {
    return run_in_shell("exec \"$0\" \"$@\" " + redirection, words_of(line));
  }
};

const std::string kGenerate = "generate --preselected fp32_rcr_essential --target avx2 ";

TEST_F(CliStreams, Closed) {
  for (const std::string redirection : {">&- 2>&-", "<&- >&- 2>&-", "2>&-", ">&-"}) {
    for (const std::string line : {"list --dtypes", "targets", "version --json"}) {
      EXPECT_EQ(run_redirected(redirection, line).status, 0) << line << " " << redirection;
    }
    EXPECT_EQ(run_redirected(redirection, "targets nonsense").status, 1) << redirection;
  }
}

// What is reported in the meantime must not end up in what is written.
TEST_F(CliStreams, ClosedWhileFilesAreWritten) {
  ASSERT_EQ(run(words_of(kGenerate + "--output-dir open")).status, 0);
  ASSERT_EQ(run_redirected("<&- >&- 2>&-", kGenerate + "--output-dir closed").status, 0);
  std::size_t files = 0;
  for (const auto& file : fs::recursive_directory_iterator(folder() / "open")) {
    if (!file.is_regular_file()) continue;
    ++files;
    const fs::path other = folder() / "closed" / fs::relative(file, folder() / "open");
    EXPECT_EQ(read_file(file), try_read_file(other).value_or("missing")) << other;
  }
  EXPECT_GT(files, 2U);
}

TEST_F(CliStreams, FullStdout) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "/dev/full is missing";
  write("shapes.txt", "gemm m=1 n=1 k=1\n");
  const std::string sentence =
      "tessera: not everything could be written to stdout: No space left on device\n";
  for (const std::string line :
       {"--help", "--version", "run --help", "version", "targets", "targets avx2", "doctor",
        "list --target avx2", "list --target avx2 --json", "list --sets",
        "explain --shapes shapes.txt --target avx2", "problems wide --target avx2",
        "explain --shapes shapes.txt --target avx2 --json", "completion bash", "cache list"}) {
    const CliResult full = run_redirected(">/dev/full 2>\"$CLI_STDERR\"", line);
    EXPECT_EQ(full.status, 1) << line;
    EXPECT_EQ(full.err, sentence) << line;
  }
  const CliResult usage = run_redirected(">/dev/full 2>\"$CLI_STDERR\"", "run --frob --json");
  EXPECT_EQ(usage.status, 2);
  EXPECT_EQ(usage.err, sentence);
}

TEST_F(CliStreams, FullStderrHarmsNothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "/dev/full is missing";
  EXPECT_EQ(run_redirected("2>/dev/full", kGenerate + "--output-dir x").status, 0);
  EXPECT_EQ(run_redirected("2>/dev/full", "targets nonsense").status, 1);
}

// Rows are printed as they are known, and each is longer than a pipe holds: a reader that has
// enough ends the program in the first one. The second would tell that its model is damaged.
TEST_F(CliStreams, ExplainsAListRowByRow) {
  write("shapes.txt", "gemm m=1 n=64 k=64\ngemm m=1 n=64 k=64 dtype=bf16\n");
  fs::create_directories(folder() / "models" / "gemm_avx512_bf16");
  write("models/gemm_avx512_bf16/manifest.json", "damaged");
  const Words words = words_of("explain --shapes shapes.txt --target avx512 --json");
  const std::vector<std::string> models = {"TESSERA_MODELS=models"};
  const std::string to_stderr = "\"$0\" \"$@\" 2>\"$CLI_STDERR\"";
  const CliResult whole = run_in_shell(to_stderr, words, models);
  EXPECT_NE(whole.err.find("gemm_avx512_bf16"), std::string::npos) << whole.err;
  const CliResult result =
      run_in_shell("{ " + to_stderr +
                       "; echo $? >status; } | head -c 14; while [ ! -s status ]; do sleep 0.01; "
                       "done; read status <status; exit $status",
                   words, models);
  EXPECT_EQ(result.out, "{\"decisions\":[");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.status, 128 + SIGPIPE);
}

TEST_F(CliStreams, EndlessWordsAreNotRepeated) {
  const std::string word(100'000, 'x');
  for (const Words& words :
       {Words{"explain", "gemm", "m=1", "n=1", "k=1", "--force", word}, Words{"show", word},
        Words{"list", "--dtype", word}, Words{"run", "--" + word}, Words{word}}) {
    const CliResult result = run(words);
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(result.err.find("tessera: "), 0U);
    EXPECT_LT(result.err.size(), 9000U) << words.front();
  }
}

TEST_F(CliStreams, SignsOfLifeHaveALimit) {
  const CliResult result =
      run(words_of(kGenerate + "--output-dir x"), {"TESSERA_PROGRESS_SECONDS=soon"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err,
            "tessera: TESSERA_PROGRESS_SECONDS must be a number from 0 to 86400, got soon\n");
}

}  // namespace
}  // namespace tessera::cli_test
