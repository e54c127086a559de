// The log sink. The library never prints: it hands lines to whoever asked for them.
#pragma once

#include <functional>
#include <string_view>

namespace tessera {

enum class LogLevel { warning, info };
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the process-wide sink; an empty function turns logging off (the default). Thread-safe.
// One call of it runs at a time, and none of the former sink's once this returns. A sink may log
// and replace itself, but not run problems; what it throws reaches whoever logged.
void set_log_sink(LogSink sink);

void log(LogLevel level, std::string_view message);

// Logs a warning whose text is not among the last ones that this process has logged so: 4096 are
// remembered, then all are forgotten.
void warn_once(std::string_view message);

}  // namespace tessera
