// The log sink. The library never prints; it passes lines to the sink that the program set.
#pragma once

#include <functional>
#include <string_view>

#pragma GCC visibility push(default)
namespace tessera {

enum class LogLevel { warning, info };
using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the process-wide sink; an empty function turns logging off (the default). Thread-safe.
// One call of the sink runs at a time. After this returns, the former sink is not called any more.
// A sink may log and replace itself, but must not run problems. Its exceptions reach the code that
// logged.
void set_log_sink(LogSink sink);

void log(LogLevel level, std::string_view message);

// Logs a warning unless the same text was logged by this function before. It remembers up to 4096
// texts and then forgets all of them.
void warn_once(std::string_view message);

}  // namespace tessera
#pragma GCC visibility pop
