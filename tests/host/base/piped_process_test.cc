#include "tessera/base/piped_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "host/base/running.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(PipedProcess, TalksLineByLine) {
  PipedProcess child(shell("while read line; do echo \"got $line\"; done"));
  std::string line;
  for (const std::string& word : {std::string("one"), std::string(100000, 'x')}) {
    ASSERT_TRUE(child.write_line(word));
    ASSERT_EQ(child.read_line(line, 20), LineResult::line);
    EXPECT_EQ(line, "got " + word);
  }
  EXPECT_EQ(child.end(), 0);
}

TEST(PipedProcess, KeepsLinesThatCameTogether) {
  PipedProcess child(shell("printf 'a\\nb\\nc'"));
  std::string line;
  EXPECT_EQ(child.read_line(line, 20), LineResult::line);
  EXPECT_EQ(line, "a");
  EXPECT_EQ(child.read_line(line, 20), LineResult::line);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(child.read_line(line, 20), LineResult::closed);  // "c" is no line
}

TEST(PipedProcess, TellsTheSignalThatEndedIt) {
  PipedProcess child(shell("kill -SEGV $$"));
  std::string line;
  EXPECT_EQ(child.read_line(line, 20), LineResult::closed);
  EXPECT_EQ(child.end(), SIGSEGV);
}

TEST(PipedProcess, TimesOutAndIsKilled) {
  PipedProcess child(shell("exec sleep 1000"));
  std::string line;
  EXPECT_EQ(child.read_line(line, 0.02), LineResult::timeout);
  EXPECT_EQ(child.end(), 0);  // by us: no signal of its own
}

TEST(PipedProcess, WritingToOneThatIsGoneIsNoSignal) {
  PipedProcess child(shell("exit 0"));
  std::string line;
  EXPECT_EQ(child.read_line(line, 20), LineResult::closed);
  EXPECT_FALSE(child.write_line("anyone?"));
}

// A process that is killed takes the child with it, whether the child reads or not.
TEST(PipedProcess, DiesWithItsParent) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    PipedProcess child(shell("echo $$; exec sleep 60"));
    std::string line;
    child.read_line(line, 20);
    if (write(channel[1], line.c_str(), line.size() + 1) > 0) pause();
    _exit(1);
  }
  close(channel[1]);
  char id[32] = {};
  EXPECT_GT(read(channel[0], id, sizeof id - 1), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  close(channel[0]);
  EXPECT_TRUE(ends_soon(std::atoi(id))) << "the child still runs";
}

TEST(PipedProcess, SaysWhatCannotBeStarted) {
  try {
    const PipedProcess child({"/no/such/program"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot start '/no/such/program': No such file or directory");
  }
}

}  // namespace
}  // namespace tessera
