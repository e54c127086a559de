#include "tessera/base/piped_process.h"

#include <gtest/gtest.h>
#include <signal.h>

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
