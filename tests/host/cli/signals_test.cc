// Signals that end the program, and limits that would.
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>

#include "host/base/running.h"
#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

class CliSignals : public CliTest {
 protected:
  // A compiler behind a wrapper, as ccache and distcc have it, that says which process it is.
  CliSignals() {
    write_target("mine.json", "mine", "generic");
    write("wrapper",
          "#!/bin/sh\n"
          "case \"$*\" in\n"
          "  *--version*) echo 'fake 1.0' ;;\n"
          "  *-print-prog-name*) echo ;;\n"
          "  *) sleep 60 & echo $! > \"$FILE.$$\"; mv \"$FILE.$$\" \"$FILE\"; wait ;;\n"
          "esac\n");
    fs::permissions(folder() / "wrapper", fs::perms::owner_all);
  }

  // Starts `tessera LINE`, as soon as the compiler runs sends the signal, and returns the signal
  // that ended the program. `compiler` becomes the compiler's process.
  int ended_by(const std::string& line, int signal, int& compiler) const {
    const fs::path file = folder() / "compiler-id";
    fs::remove(file);
    Words words = {"/bin/sh", "-c",
                   "cd \"$0\" && unset TESSERA_NO_JIT TESSERA_PACK && export "
                   "TESSERA_CACHE_DIR=\"$0/cache\" TESSERA_CXX=\"$0/wrapper\" "
                   "FILE=\"$0/compiler-id\" && exec \"$@\" > /dev/null 2>&1",
                   folder().string(), TESSERA_CLI};
    for (const std::string& word : words_of(line)) words.push_back(word);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    // The program leaves signals ignored that were so at its start, as in a shell's background.
    posix_spawnattr_t defaults;
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_init(&defaults);
    posix_spawnattr_setsigdefault(&defaults, &all);
    posix_spawnattr_setflags(&defaults, POSIX_SPAWN_SETSIGDEF);
    pid_t program = 0;
    EXPECT_EQ(posix_spawn(&program, argv[0], nullptr, &defaults, argv.data(), environ), 0);
    posix_spawnattr_destroy(&defaults);
    compiler = id_in(file);
    ::kill(program, signal);
    int status = 0;
    ::waitpid(program, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
};

TEST_F(CliSignals, EndTheCompilerBehindAWrapper) {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE}) {
    int compiler = 0;
    const std::string line = "run gemm m=3 n=4 k=5 --target mine.json --threads 1";
    EXPECT_EQ(ended_by(line, signal, compiler), signal);
    EXPECT_TRUE(ends_soon(compiler)) << "signal " << signal;
  }
}

// Files beyond the limit are an error; the limit is one of 512 or 1024 bytes.
TEST_F(CliSignals, AFileSizeLimitIsASentence) {
  const SubprocessResult result = run_subprocess(
      {"/bin/sh", "-c",
       "ulimit -f 1; exec \"$0\" generate --preselected fp32_rcr_essential --target avx512 "
       "--output-dir kernels 2>&1",
       TESSERA_CLI},
      {.working_folder = folder()});
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find(": File too large\n"), std::string::npos) << result.output;
}

// What the program prints into a file is subject to the same limit.
TEST_F(CliSignals, AFileSizeLimitDoesNotKillWhatPrints) {
  const SubprocessResult result = run_subprocess(
      {"/bin/sh", "-c", "ulimit -f 1; \"$0\" list > out; test $? -lt 128", TESSERA_CLI},
      {.working_folder = folder()});
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

}  // namespace
}  // namespace tessera::cli_test
