#include "tessera/base/processors.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

std::optional<std::int64_t> whole_number(std::string_view word) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<int> least_of(std::optional<int> a, std::optional<int> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::string text_of(const fs::path& file) { return try_read_file(file).value_or(""); }

// The tightest limit on the way from a control group to the root of its hierarchy. In a container
// the group's own folder may be out of sight, but the root is always there.
template <class ReadLimit>
std::optional<int> tightest(const fs::path& root, std::string_view group, const ReadLimit& read) {
  std::optional<int> limit;
  for (fs::path below = fs::path(group).relative_path();; below = below.parent_path()) {
    limit = least_of(limit, read(root / below));
    if (below.empty()) return limit;
  }
}

std::optional<int> limit_v1(const fs::path& group) {
  return parse_cpu_max(text_of(group / "cpu.cfs_quota_us") + ' ' +
                       text_of(group / "cpu.cfs_period_us"));
}

std::optional<int> limit_v2(const fs::path& group) {
  return parse_cpu_max(text_of(group / "cpu.max"));
}

// Lines are "0::/path" for version 2 and "4:cpu,cpuacct:/path" for version 1.
std::optional<int> quota() {
  std::optional<int> limit;
  const std::string groups = text_of("/proc/self/cgroup");
  for (const std::string_view line : split(groups, '\n')) {
    const std::vector<std::string_view> parts = split(line, ':');
    if (parts.size() < 3) continue;
    const std::string_view group = line.substr(parts[0].size() + parts[1].size() + 2);
    const std::vector<std::string_view> controllers = split(parts[1], ',');
    if (parts[0] == "0") {
      limit = least_of(limit, tightest("/sys/fs/cgroup", group, limit_v2));
    } else if (std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end()) {
      limit = least_of(limit, tightest("/sys/fs/cgroup/cpu", group, limit_v1));
    }
  }
  return limit;
}

}  // namespace

Affinity process_affinity() {
  constexpr int kMostProcessors = 1 << 16;
  for (int limit = 1024; limit <= kMostProcessors; limit *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(limit);
    cpu_set_t* set = CPU_ALLOC(limit);
    Affinity found{0, 0};
    if (set != nullptr && sched_getaffinity(::getpid(), bytes, set) == 0) {
      found.count = CPU_COUNT_S(bytes, set);
      while (found.first < limit && !CPU_ISSET_S(found.first, bytes, set)) ++found.first;
    }
    CPU_FREE(set);
    if (found.count > 0) return found;
  }
  return {static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))), 0};
}

int usable_processors() {
  static const int kCount = std::max(1, least_of(process_affinity().count, quota()).value_or(1));
  return kCount;
}

// Linux 5.16 and later; earlier ones, and other processors, refuse.
bool may_use_tiles() {
#if defined(SYS_arch_prctl)
  constexpr int kAskFor = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr int kTileData = 18;    // the number of the tiles' state in XCR0
  static const bool granted = ::syscall(SYS_arch_prctl, kAskFor, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

void refuse_threads(int wanted) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("threads must be at least 0, which means as many as are useful, got {}", wanted));
}

int bounded_threads(int wanted) {
  if (wanted < 0) refuse_threads(wanted);
  if (wanted > kMaxThreads) {
    note_too_many_threads(wanted, kMaxThreads, "no more are ever used");
  }
  return std::min(wanted, kMaxThreads);
}

// There may be millions of launches, so a number that was noted before costs only this comparison.
void note_too_many_threads(int wanted, int most, std::string_view reason) {
  static std::atomic<int> noted = 0;
  if (noted.exchange(wanted, std::memory_order_relaxed) == wanted) return;
  warn_once(fmt::format("{} threads were asked for, {} are used: {}", wanted, most, reason));
}

std::optional<int> parse_cpu_max(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  if (words.size() != 2) return std::nullopt;
  const std::optional<std::int64_t> quota = whole_number(words[0]);
  const std::optional<std::int64_t> period = whole_number(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t whole = *quota / *period + (*quota % *period != 0);
  return static_cast<int>(std::min<std::int64_t>(whole, std::numeric_limits<int>::max()));
}

}  // namespace tessera
