// Compilers that are missing, broken or not allowed. No kernel of these tests is ever built: the
// target is the user's own, so that no pack holds its kernels.
#include <map>
#include <sstream>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliCompiler : public CliTest {
 protected:
  CliCompiler() {
    write_target("mine.json", "mine", "generic");
    kernel_ = run_json("explain gemm m=3 n=4 k=5 --target mine.json --threads 1")
                  .at("decisions")
                  .at(0)
                  .at("kernel");
  }

  // A program that answers like a compiler and then does `action`.
  std::string fake_compiler(const std::string& action) const {
    write("fake-c++",
          "#!/bin/sh\n"
          "case \"$*\" in\n"
          "  *--version*) echo 'fake 1.0' ;;\n"
          "  *-print-prog-name*) echo ;;\n"
          "  *) " +
              action +
              " ;;\n"
              "esac\n");
    fs::permissions(folder() / "fake-c++", fs::perms::owner_all);
    return (folder() / "fake-c++").string();
  }

  // Checks the sentence about the object of the kernel that failed first, and returns where the
  // compiler's words are kept: <cache>/failed/<object>-<key>/log.txt.
  fs::path expect_failed_object(const std::string& got, const std::string& outcome) const {
    const std::string start = "tessera: " + kernel_ + ": ";
    const std::size_t end = got.find(": ", start.size());
    if (!got.starts_with(start + "object_") || end == got.npos) {
      ADD_FAILURE() << got;
      return {};
    }
    const std::string object = got.substr(start.size(), end - start.size());
    fs::path log;
    for (const auto& entry : fs::directory_iterator(folder() / "cache" / "failed")) {
      if (entry.path().filename().string().starts_with(object + "-"))
        log = entry.path() / "log.txt";
    }
    const std::string sentence = start + object + ": " + outcome + "; all it said is in ";
    EXPECT_EQ(got.substr(0, got.find('\n') + 1), sentence + log.string() + "\n");
    return log;
  }

  const char* const line_ = "run gemm m=3 n=4 k=5 --target mine.json --threads 1";
  std::string kernel_;
};

TEST_F(CliCompiler, Forbidden) {
  const std::string problem = run_json("explain gemm m=3 n=4 k=5 --target mine.json --threads 1")
                                  .at("decisions")
                                  .at(0)
                                  .at("problem");
  const std::string where = "no kernel that can run '" + problem + "' is ready; the best one, " +
                            kernel_ + ": is neither in a pack nor in the cache " +
                            (folder() / "cache").string();
  const std::string pack = " or ship a pack with 'tessera pack'";
  expect_failure(line_, where + ", and TESSERA_NO_JIT=1 forbids compiling it; unset it" + pack, 1,
                 {"TESSERA_NO_JIT=1"});
  expect_failure(line_, where + ", and TESSERA_NO_JIT=1 forbids compiling it; unset it" + pack, 1,
                 {"TESSERA_NO_JIT=1", "TESSERA_CXX=/nonexistent"});
  expect_failure("run gemm m=3 n=4 k=5 --target mine.json --threads 1 --no-compile",
                 where + ", and allow_compile = false forbids compiling it; allow it" + pack);
}

TEST_F(CliCompiler, Missing) {
  const std::string sentence =
      "the C++ compiler '/nonexistent', named by TESSERA_CXX, is not an executable file (PATH is "
      "'/usr/bin:/bin'); install one ('apt install g++') or name one with TESSERA_CXX";
  const std::vector<std::string> environment = {"TESSERA_CXX=/nonexistent", "PATH=/usr/bin:/bin"};
  expect_failure(line_, sentence, 1, environment);
  expect_failure("pack --target mine.json --shapes odd --output x.pack", sentence, 1, environment);
  expect_failure(line_,
                 "no C++ compiler was found: looked at TESSERA_CXX (not set), CXX (not set), and "
                 "for g++, c++ and clang++ on PATH '/nonexistent'; install one ('apt install g++') "
                 "or name one with TESSERA_CXX",
                 1, {"PATH=/nonexistent", "CXX"});
}

TEST_F(CliCompiler, Failing) {
  const std::string compiler = fake_compiler("echo 'kernel.cc:1: error: no'; exit 3");
  const CliResult result = run(line_, {"TESSERA_CXX=" + compiler});
  const fs::path log = expect_failed_object(
      result.err, compiler + " failed with exit code 3: kernel.cc:1: error: no");
  EXPECT_TRUE(result.err.ends_with("/log.txt\nkernel.cc:1: error: no\n")) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(read_file(log).find("kernel.cc:1: error: no\n"), std::string::npos);

  const CliResult json =
      run("run gemm m=3 n=4 k=5 --target mine.json --json", {"TESSERA_CXX=" + compiler});
  EXPECT_EQ(Json::parse(json.out).at("error").at("code"), "compile_failed");
  EXPECT_EQ(json.status, 1);
}

// Each object is tried ahead of the kernels, and once more for the kernel that reports it.
TEST_F(CliCompiler, VerifyTriesAFailedKernelOnce) {
  const std::string calls = (folder() / "calls").string();
  const std::string compiler =
      fake_compiler("cksum < object.cc >> " + calls + "; echo 'kernel.cc:1: error: no'; exit 3");
  const CliResult result =
      run({"verify", kernel_, "--target", "mine.json"}, {"TESSERA_CXX=" + compiler});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.out.starts_with("wrong  " + kernel_ + ": object_")) << result.out;
  EXPECT_NE(result.out.find(compiler + " failed with exit code 3: kernel.cc:1: error: no; all it "
                                       "said is in "),
            std::string::npos)
      << result.out;
  EXPECT_TRUE(result.out.ends_with("log.txt\n0 kernels verified, 1 wrong\n")) << result.out;
  std::map<std::string, int> times;
  std::istringstream lines(read_file(calls));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(++times[line], 2) << line;
  EXPECT_FALSE(times.empty());
}

TEST_F(CliCompiler, WritesNoKernel) {
  const std::string compiler = fake_compiler("exit 0");
  const CliResult result = run(line_, {"TESSERA_CXX=" + compiler});
  expect_failed_object(result.err,
                       compiler + " reported success but wrote no object.o: it said nothing");
  EXPECT_EQ(result.status, 1);
}

TEST_F(CliCompiler, FailedKernelsAreLeftOutOfThePack) {
  const CliResult result =
      run({"pack", "--target", "mine.json", "--name", kernel_, "--output", "x.pack"},
          {"TESSERA_CXX=" + fake_compiler("echo 'kernel.cc:1: error: no'; exit 3")});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err.rfind("tessera: " + kernel_ + ": ", 0), 0U) << result.err;
  EXPECT_EQ(result.out, "no kernel was built; x.pack is as it was\n");
  EXPECT_FALSE(fs::exists(folder() / "x.pack"));
}

TEST_F(CliCompiler, DoctorSaysWhatIsMissing) {
  const CliResult result = run("doctor", {"TESSERA_CXX=/nonexistent"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("\nMISSING  C++ compiler     the C++ compiler '/nonexistent', named"),
            std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("\nNot ready: see MISSING above.\n"), std::string::npos) << result.out;
}

}  // namespace
}  // namespace tessera::cli_test
