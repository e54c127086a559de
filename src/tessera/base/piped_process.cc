#include "tessera/base/piped_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {

PipedProcess::PipedProcess(const std::vector<std::string>& argv) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(ErrorCode::io_error, fmt::format("cannot talk to '{}': no socket: {}", argv.front(),
                                                 std::strerror(errno)));
  }
  std::vector<std::string> words = argv;
  const std::vector<char*> pointers = pointers_to(words);
  SpawnPlan plan;
  plan.file = argv.front().c_str();
  plan.argv = pointers.data();
  plan.environment = environ;
  plan.input = plan.output = above_streams(pair[1]);
  plan.error = above_streams(open("/dev/null", O_WRONLY | O_CLOEXEC));
  child_ = spawn(plan);
  close(plan.input);
  close(plan.error);
  socket_ = pair[0];
  if (child_.error == 0) return;
  const int error = child_.error;
  end();
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
  using Clock = std::chrono::steady_clock;
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

// A child that closed its side gets a moment to end by itself, so that its own signal is reported.
int PipedProcess::end() {
  if (socket_ < 0) return signal_;
  shutdown(socket_, SHUT_RDWR);
  close(std::exchange(socket_, -1));
  if (child_.id < 0) return signal_;
  constexpr int kMoments = 100;
  bool by_itself = false;
  for (int i = 0; i < kMoments && !by_itself; ++i) {
    by_itself = has_ended(child_);
    if (!by_itself) usleep(1000);
  }
  kill(-child_.id, SIGKILL);
  const int status = reap(child_);
  if (by_itself && WIFSIGNALED(status)) signal_ = WTERMSIG(status);
  return signal_;
}

}  // namespace tessera
