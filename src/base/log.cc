#include "tessera/base/log.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_set>

#include "tessera/base/hash.h"

#include "tessera/base/enums.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"

namespace tessera {
namespace {

// What is remembered stays small in a process that warns of something new for ever.
constexpr std::size_t kRememberedWarnings = 4096;

struct LogState {
  Mutex mutex;
  LogSink sink;
  std::unordered_set<std::uint64_t> warned;  // hashes of their texts
};

LogState& state() {
  static Forever<LogState> instance;
  return *instance;
}

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

void log(LogLevel level, std::string_view message) {
  check_enum("log level", level, LogLevel::info);
  const std::lock_guard lock(state().mutex);
  if (state().sink) state().sink(level, message);
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
