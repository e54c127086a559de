#include "tessera/base/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <string_view>

#include "tessera/base/children.h"

namespace tessera {
namespace {

// The running children, each with the process that started it. A forked process has a copy of the
// table and must not treat its parent's children as its own. When the table is full, end_children()
// does not end further children; they die with their thread.
constexpr std::size_t kPlaces = 1024;
constexpr int kOwnerShift = 32;
std::array<std::atomic<std::uint64_t>, kPlaces> places;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "handlers read the table");

using Place = std::atomic<std::uint64_t>*;

// The process that lets no new child start.
std::atomic<pid_t> ending_process = 0;

std::uint64_t entry_of(pid_t owner, pid_t child) {
  return std::uint64_t{static_cast<std::uint32_t>(owner)} << kOwnerShift |
         static_cast<std::uint32_t>(child);
}
pid_t owner_of(std::uint64_t entry) { return static_cast<pid_t>(entry >> kOwnerShift); }
pid_t child_of(std::uint64_t entry) { return static_cast<pid_t>(entry & 0xffffffff); }

// The place is reserved before the child exists, so that the child can fill it in itself.
Place take_place(pid_t owner) {
  for (std::atomic<std::uint64_t>& place : places) {
    std::uint64_t entry = place;
    const bool is_free = owner_of(entry) != owner;
    if (is_free && place.compare_exchange_strong(entry, entry_of(owner, 0))) return &place;
  }
  return nullptr;
}

// Ignoring a signal drops a pending one. Such a signal was sent to the parent's group, to which the
// child belonged for a moment, and the parent handles it. No handler may run in a child that shares
// our memory.
void forget_signals() {
  for (const auto handler : {SIG_IGN, SIG_DFL}) {
    struct sigaction action {};
    action.sa_handler = handler;
    for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  }
}

// Has exec close the program's own descriptors, which it may have opened without O_CLOEXEC. A child
// has a table of its own.
void close_beyond_streams() {
#ifdef SYS_close_range
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  constexpr unsigned kCloseOnExec = 4;
  if (::syscall(SYS_close_range, kFirst, ~0U, kCloseOnExec) == 0) return;
#endif
  close_listed_on_exec();
}

// Runs in the child, which shares our memory until exec. So nothing here may allocate, and the
// child fills in our table. It first enters itself into the table and then asks whether all
// children are being ended, so that one of the two sides always notices the other. Returns why the
// program does not run.
int become(const SpawnPlan& plan, pid_t parent, Place place) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (place != nullptr) *place = entry_of(parent, ::getpid());
  if (::getppid() != parent || ending_process == parent) return ECANCELED;
  ::dup2(plan.input, STDIN_FILENO);
  ::dup2(plan.output, STDOUT_FILENO);
  ::dup2(plan.error, STDERR_FILENO);
  forget_signals();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  close_beyond_streams();
  if (plan.folder == nullptr || ::chdir(plan.folder) == 0) {
    ::execve(plan.file, plan.argv, plan.environment);
  }
  return errno;
}

[[gnu::noinline]] Child fork_and_exec(const SpawnPlan& plan, pid_t parent, Place place) {
  volatile int error = 0;
  const pid_t id = ::vfork();
  if (id == 0) {
    error = become(plan, parent, place);
    ::_exit(127);
  }
  return {.id = id, .error = id < 0 ? errno : error, .place = place};
}

}  // namespace

// opendir() would allocate, and a child that shares our memory must not.
void close_listed_on_exec() {
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) char entries[2048];
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, folder, entries, sizeof(entries));
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      int fd = -1;
      std::from_chars(name.data(), name.data() + name.size(), fd);  // "." and ".." are no numbers
      if (fd > STDERR_FILENO) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
  }
  ::close(folder);
}

// A signal handler must not run in a child that shares our memory.
Child spawn(const SpawnPlan& plan) {
  // When descriptors are short, a child must not get the program's own streams instead.
  if (std::min({plan.input, plan.output, plan.error}) < 0) return {.error = EMFILE};
  sigset_t all, before;
  sigfillset(&all);
  const pid_t self = ::getpid();
  const Place place = take_place(self);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const Child child = fork_and_exec(plan, self, place);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child.id < 0 && place != nullptr) *place = 0;
  return child;
}

bool has_ended(const Child& child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child.id), &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    return info.si_pid == child.id;
  }
  return errno != EINTR;
}

// The place is released first, because after reaping the id may belong to another process.
int reap(Child& child) {
  siginfo_t info{};
  const auto id = static_cast<id_t>(child.id);
  while (::waitid(P_PID, id, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  if (child.place != nullptr) *child.place = 0;
  int status = 0;
  while (::waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
  }
  child = Child{};
  return status;
}

int above_streams(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(fd);
  return moved;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

void end_children() noexcept {
  const pid_t self = ::getpid();
  ending_process = self;
  for (const std::atomic<std::uint64_t>& place : places) {
    const std::uint64_t entry = place;
    if (owner_of(entry) == self && child_of(entry) > 0) ::kill(-child_of(entry), SIGKILL);
  }
}

}  // namespace tessera
