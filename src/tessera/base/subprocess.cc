#include "tessera/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "tessera/base/files.h"
#include "tessera/base/interruption.h"
#include "tessera/base/spawn.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// The environment of this process with `extra` replacing or removing what is already there.
std::vector<std::string> child_environment(const std::vector<std::string>& extra) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> merged;
  for (const std::string& entry : extra) {
    if (entry.find('=') != std::string::npos) merged.push_back(entry);
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    bool replaced = false;
    for (const std::string& other : extra) replaced |= name_of(other) == name_of(*entry);
    if (!replaced) merged.emplace_back(*entry);
  }
  return merged;
}

// Appends the data that are in the pipe now; false at its end. When a child writes faster than we
// read, it reads a part at a time, so that the time limit is checked in between.
bool drain(int pipe, std::string& output) {
  constexpr int kReadsAtATime = 64;
  char buffer[1 << 14];
  for (int i = 0; i < kReadsAtATime; ++i) {
    const ssize_t got = ::read(pipe, buffer, sizeof buffer);
    if (got > 0) {
      const std::size_t room = kMostOutputBytes - output.size();
      output.append(buffer, std::min(static_cast<std::size_t>(got), room));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

// Kernels before 5.3 have no process descriptors: poll ignores the -1 and the wait is cut short.
int open_process(pid_t id) { return static_cast<int>(::syscall(SYS_pidfd_open, id, 0)); }

int wait_milliseconds(bool has_deadline, Clock::time_point deadline, int process) {
  constexpr int kLookAgain = 10;
  const int longest = process < 0 ? kLookAgain : -1;
  if (!has_deadline) return longest;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const int bounded = static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
  return longest < 0 ? bounded : std::min(bounded, longest);
}

// What check_interruption() throws.
std::exception_ptr interrupted() try {
  check_interruption();
  return nullptr;
} catch (...) {
  return std::current_exception();
}

// Collects output until the child is gone, and returns its status. A grandchild that outlives it
// and keeps the pipe open is not waited for. An interruption ends the child and is kept.
int collect(Child child, int pipe, const SubprocessOptions& options, SubprocessResult& result,
            std::exception_ptr& interruption) {
  constexpr int kLongestWait = 50;  // milliseconds
  const double timeout_seconds = options.timeout_seconds;
  const bool has_deadline = timeout_seconds > 0;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_seconds));
  const int process = open_process(child.id);
  bool open = true;
  while (!has_ended(child)) {
    int wait = wait_milliseconds(has_deadline && !result.timed_out, deadline, process);
    if (options.is_interruptible && !interruption) {
      wait = wait < 0 ? kLongestWait : std::min(wait, kLongestWait);
      if ((interruption = interrupted())) ::kill(-child.id, SIGKILL);
    }
    pollfd events[2] = {{open ? pipe : -1, POLLIN, 0}, {process, POLLIN, 0}};
    ::poll(events, 2, wait);
    if (open) open = drain(pipe, result.output);
    if (has_deadline && !result.timed_out && Clock::now() >= deadline && !has_ended(child)) {
      result.timed_out = true;
      ::kill(-child.id, SIGKILL);
    }
  }
  const int status = reap(child);
  if (open) drain(pipe, result.output);
  if (process >= 0) ::close(process);
  return status;
}

void run(SpawnPlan plan, const SubprocessOptions& options, SubprocessResult& result) {
  std::exception_ptr interruption;
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) {
    result.output = std::strerror(errno);
    return;
  }
  plan.input = above_streams(::open("/dev/null", O_RDWR | O_CLOEXEC));
  plan.output = above_streams(pipe[1]);
  plan.error = options.merge_stderr ? plan.output : plan.input;
  const Child child = spawn(plan);
  ::close(plan.input);
  ::close(plan.output);
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);

  result.started = child.error == 0;
  if (child.id > 0) {
    const int status = collect(child, pipe[0], options, result, interruption);
    if (result.started && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  }
  if (!result.started) result.output = std::strerror(child.error);
  ::close(pipe[0]);
  if (interruption) std::rethrow_exception(interruption);
}

bool is_executable(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// A relative path of a program is relative to this process's folder, not to the child's.
fs::path resolve_program(const std::string& name) {
  const fs::path found = find_executable(name);
  std::error_code ignored;
  return found.empty() ? found : fs::absolute(found, ignored);
}

}  // namespace

SubprocessResult run_subprocess(const std::vector<std::string>& argv,
                                const SubprocessOptions& options) {
  SubprocessResult result;
  const fs::path file = argv.empty() ? fs::path() : resolve_program(argv[0]);
  if (file.empty()) return result;

  std::vector<std::string> arguments = argv;
  std::vector<std::string> variables = child_environment(options.extra_environment);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> variable_pointers = pointers_to(variables);
  SpawnPlan plan;
  plan.file = file.c_str();
  plan.argv = argument_pointers.data();
  plan.environment = variable_pointers.data();
  if (!options.working_folder.empty()) plan.folder = options.working_folder.c_str();
  run(plan, options, result);
  return result;
}

std::filesystem::path find_executable(const std::string& name) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) {
    return is_executable(name) ? fs::path(name) : fs::path();
  }
  const std::string path = environment("PATH");
  for (const std::string_view folder : split(path, ':')) {
    const fs::path candidate = folder.empty() ? fs::path(name) : fs::path(folder) / name;
    if (is_executable(candidate)) return candidate;
  }
  return {};
}

}  // namespace tessera
