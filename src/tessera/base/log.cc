#include "tessera/base/log.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "tessera/base/enums.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/base/hash.h"

namespace tessera {
namespace {

// The limit keeps the memory small in a process that always has new warnings.
constexpr std::size_t kRememberedWarnings = 4096;

struct LogState {
  WorkMutex calls;  // guards calls of the sink, which may take long
  Mutex mutex;      // guards what follows
  std::shared_ptr<const LogSink> sink;
  std::unordered_set<std::uint64_t> warned;  // hashes of their texts
};

LogState& state() {
  static Forever<LogState> instance;
  return *instance;
}

thread_local int t_calls = 0;  // nested calls of the sink by this thread

// One thread at a time calls the sink or replaces it.
struct OneAtATime {
  OneAtATime() {
    if (t_calls++ == 0) state().calls.lock();
  }
  ~OneAtATime() {
    if (--t_calls == 0) state().calls.unlock();
  }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;
};

}  // namespace

void set_log_sink(LogSink sink) {
  std::shared_ptr<const LogSink> other;
  if (sink) other = std::make_shared<const LogSink>(std::move(sink));
  const OneAtATime turn;
  const std::lock_guard lock(state().mutex);
  state().sink.swap(other);
}

void log(LogLevel level, std::string_view message) {
  check_enum("log level", level, LogLevel::info);
  const OneAtATime turn;
  std::shared_ptr<const LogSink> sink;  // stays while it runs, even if it replaces itself
  {
    const std::lock_guard lock(state().mutex);
    sink = state().sink;
  }
  if (sink) (*sink)(level, message);
}

void warn_once(std::string_view message) {
  {
    const std::lock_guard lock(state().mutex);
    auto& warned = state().warned;
    const std::uint64_t hash = hash64(message);
    if (warned.contains(hash)) return;
    if (warned.size() >= kRememberedWarnings) warned = {};
    warned.insert(hash);
  }
  log(LogLevel::warning, message);
}

}  // namespace tessera
