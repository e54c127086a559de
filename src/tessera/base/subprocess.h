// Child processes, started with an argument vector and never through a shell.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct SubprocessOptions {
  std::filesystem::path working_folder;        // empty: inherited
  std::vector<std::string> extra_environment;  // "NAME=value", or "NAME" to remove it
  double timeout_seconds = 0;  // 0: no limit; after it the child's process group is killed
  bool merge_stderr = true;    // true: stderr goes to `output`; false: it is dropped
  // Whether check_interruption() is called while the child runs. The child is killed before that
  // error is passed on.
  bool is_interruptible = false;
};

// Output beyond this size is read and dropped.
inline constexpr std::size_t kMostOutputBytes = std::size_t{16} << 20;

// In a program that ignores SIGCHLD or waits for all its children, the system may lose the exit
// code and the signal of a child: it then counts as one that ended with 0.
struct SubprocessResult {
  int exit_code = -1;  // -1 when it died on a signal or could not start
  int signal = 0;      // the signal that ended it, 0 for none
  bool timed_out = false;
  bool started = false;  // false: argv[0] was not found, or the system refused
  std::string output;    // the child's output; if it did not start, the system's reason
  bool ok() const { return started && exit_code == 0; }
};

// Runs argv to completion and collects its output. Never throws for what the child does.
SubprocessResult run_subprocess(const std::vector<std::string>& argv,
                                const SubprocessOptions& options = {});

// The first executable file called `name` on PATH (or `name` itself if it holds a slash); empty if
// there is none.
std::filesystem::path find_executable(const std::string& name);

}  // namespace tessera
