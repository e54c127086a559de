// Where the output of a command goes, and who says that the command shall end.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/tools.hpp"

namespace tessera::commands {

using Json = nlohmann::ordered_json;

// How progress is shown without a bar: a sign of life now and then, or a line for each step.
enum class Plain { signs, lines };

// Shows the steps of one activity. Both functions are called by one thread at a time.
struct ProgressView {
  std::function<void(std::size_t done, std::size_t total, std::string_view what)> step;
  std::function<void()> clear;  // removes what is shown, so that other text can be printed
};

// Everything that a command says and asks passes through one console. The command line's console
// is its terminal; the console of run_command() collects the JSON. No function may be empty.
struct Console {
  bool json = false;  // one JSON object as the output, or text for people
  std::function<void(std::string_view text)> put_out;
  std::function<void(std::string_view text)> put_err;
  std::function<ProgressView(const std::string& label, Plain plain)> show;
  std::function<bool()> stop;  // true: end soon; many threads may ask
  // Called before a stage that asks `stop` by itself and keeps what is complete when it ends.
  std::function<void()> before_stoppable;

  // The same as put_out and put_err with fmt's format strings.
  template <typename... Values>
  void write_out(fmt::format_string<Values...> format, Values&&... values) const {
    put_out(fmt::format(format, std::forward<Values>(values)...));
  }
  template <typename... Values>
  void write_err(fmt::format_string<Values...> format, Values&&... values) const {
    put_err(fmt::format(format, std::forward<Values>(values)...));
  }

  // Prints the object in one line, so that it is also the last line of the output.
  void print_json(const Json& value) const;
  // "tessera: ..." on stderr.
  void print_error(const Error& error) const;
  // Throws Error{cancelled} when the command shall end.
  void check_stop() const;
};

// Prints {"<key>":[row,...]} in one line. Each row is printed as soon as it is known, so that a
// million rows need no memory.
class JsonRows {
 public:
  JsonRows(const Console& console, std::string key) : console_(console), key_(std::move(key)) {}
  void add(const Json& row);
  // Ends the object, and adds "error" to it if there is one.
  void end(const std::optional<Error>& error);

 private:
  void begin();
  const Console& console_;
  std::string key_;
  std::size_t rows_ = 0;
};

// The exception that is being handled, as an Error.
Error current_error();

// {"code":...,"message":...}.
Json error_json(const Error& error);

// Ends the output of a command that prints its rows one by one: closes the JSON object, or prints
// the error as text. Returns the exit status.
int end_rows(JsonRows& rows, const std::optional<Error>& error, const Console& console);

// The progress of one activity; what is shown of it is removed at the end.
class Progress {
 public:
  Progress(const Console& console, const std::string& label, Plain plain)
      : view_(console.show(label, plain)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::size_t done, std::size_t total, std::string_view what) {
    view_.step(done, total, what);
  }
  void clear() { view_.clear(); }

 private:
  ProgressView view_;
};

}  // namespace tessera::commands
