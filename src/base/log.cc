#include "tessera/base/log.h"

#include <mutex>
#include <set>
#include <string>

#include "tessera/base/enums.h"
#include "tessera/base/forever.h"
#include "tessera/base/fork.h"

namespace tessera {
namespace {

struct LogState {
  Mutex mutex;
  LogSink sink;
  std::set<std::string, std::less<>> warned;
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
    if (!state().warned.emplace(message).second) return;
  }
  log(LogLevel::warning, message);
}

}  // namespace tessera
