#include "tessera/base/piped_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// How the child starts: in a group of its own, with no signal blocked or ignored, talking on
// `socket`.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, socket, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, socket, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int spawn(pid_t& id, std::vector<char*>& argv) const {
    return posix_spawn(&id, argv.front(), &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

PipedProcess::PipedProcess(const std::vector<std::string>& argv) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ErrorCode::io_error, fmt::format("cannot talk to '{}': no socket: {}", argv.front(),
                                                 std::strerror(errno)));
  }
  std::vector<std::string> words = argv;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int error = SpawnPlan(pair[1]).spawn(id_, pointers);
  close(pair[1]);
  socket_ = pair[0];
  if (error == 0) return;
  close(socket_);
  throw Error(ErrorCode::not_found,
              fmt::format("cannot start '{}': {}", argv.front(), std::strerror(error)));
}

PipedProcess::~PipedProcess() { end(); }

bool PipedProcess::write_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t sent = send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return false;
    if (sent > 0) done += static_cast<std::size_t>(sent);
  }
  return true;
}

LineResult PipedProcess::read_line(std::string& line, double timeout_seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_seconds));
  for (;;) {
    if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
      line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return LineResult::line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd event{socket_, POLLIN, 0};
    const int ready = poll(&event, 1, static_cast<int>(std::clamp<long long>(left, 0, 1'000'000)));
    if (ready == 0 && left <= 0) return LineResult::timeout;
    if (ready <= 0) continue;
    char buffer[1 << 14];
    const ssize_t got = recv(socket_, buffer, sizeof buffer, 0);
    if (got > 0) {
      pending_.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      return LineResult::closed;
    }
  }
}

// A child that closed its end is given a moment to end by itself, so that its own signal is seen.
int PipedProcess::end() {
  if (id_ < 0) return signal_;
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
  constexpr int kMoments = 100;
  int status = 0;
  pid_t gone = 0;
  for (int i = 0; i < kMoments && gone == 0; ++i) {
    gone = waitpid(id_, &status, WNOHANG);
    if (gone == 0) usleep(1000);
  }
  kill(-id_, SIGKILL);
  const bool was_killed = gone == 0;
  while (gone != id_ && (gone = waitpid(id_, &status, 0)) < 0 && errno == EINTR) {
  }
  signal_ = !was_killed && gone == id_ && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  id_ = -1;
  return signal_;
}

}  // namespace tessera
