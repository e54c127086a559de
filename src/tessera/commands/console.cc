#include "tessera/commands/console.h"

#include <exception>
#include <new>

namespace tessera::commands {
namespace {

// JSON in ASCII, so that control characters for terminals are escaped.
std::string dumped(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string message_of(const Error& error) {
  std::string message = error.what();
  if (!error.context().empty()) message += "\n" + error.context();
  message.erase(message.find_last_not_of('\n') + 1);
  return message;
}

}  // namespace

void Console::print_json(const Json& value) const { write_out("{}\n", dumped(value)); }

void Console::print_error(const Error& error) const {
  write_err("tessera: {}\n", message_of(error));
}

void Console::check_stop() const {
  if (stop()) throw Error(ErrorCode::cancelled, "the command was cancelled before it was done");
}

void JsonRows::begin() { console_.write_out("{{{}:[", dumped(key_)); }

void JsonRows::add(const Json& row) {
  const std::string text = dumped(row);  // may run out of memory, so it is made before the first
                                         // byte is printed
  if (rows_ == 0) begin();
  console_.write_out("{}{}", rows_ == 0 ? "" : ",", text);
  ++rows_;
}

void JsonRows::end(const std::optional<Error>& error) {
  if (rows_ == 0) begin();
  console_.write_out("]{}}}\n", error ? ",\"error\":" + dumped(error_json(*error)) : "");
}

Error current_error() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error_of(error);
  }
}

Json error_json(const Error& error) {
  return {{"code", to_string(error.code())}, {"message", message_of(error)}};
}

int end_rows(JsonRows& rows, const std::optional<Error>& error, const Console& console) {
  if (console.json) {
    rows.end(error);
  } else if (error) {
    console.print_error(*error);
  }
  return error ? 1 : 0;
}

}  // namespace tessera::commands
