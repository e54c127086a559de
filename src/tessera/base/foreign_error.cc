#include "tessera/base/foreign_error.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "tessera/base/text.h"

namespace tessera {
namespace {

// "[json.exception.type_error.302] type must be number, but is null": what follows the bracket.
std::string without_code(std::string_view words) {
  const std::size_t end = words.find("] ");
  const bool has_code = words.starts_with("[json.exception.") && end != std::string_view::npos;
  return std::string(has_code ? words.substr(end + 2) : words);
}

std::string path_words(const std::filesystem::filesystem_error& error) {
  constexpr std::size_t kMost = 400;  // of a path; a name of more than 255 letters is an error
  const auto shown = [](const std::filesystem::path& path) {
    return fmt::format("'{}'", shortened(path.string(), kMost));
  };
  if (error.path2().empty()) return shown(error.path1());
  return fmt::format("{} and {}", shown(error.path1()), shown(error.path2()));
}

}  // namespace

Error error_of(const std::exception& error) {
  if (const auto* const own = dynamic_cast<const Error*>(&error)) return *own;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return {ErrorCode::out_of_memory, "not enough memory for what was asked"};
  }
  using std::filesystem::filesystem_error;
  if (const auto* const refused = dynamic_cast<const filesystem_error*>(&error)) {
    return {ErrorCode::io_error, fmt::format("the file system refused {}: {}", path_words(*refused),
                                             refused->code().message())};
  }
  if (const auto* const refused = dynamic_cast<const std::system_error*>(&error)) {
    return {ErrorCode::internal,
            fmt::format("the system refused a call: {}", refused->code().message())};
  }
  return {ErrorCode::internal, without_code(error.what())};
}

}  // namespace tessera
