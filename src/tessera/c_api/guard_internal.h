// What every function of the C ABI does: check its arguments, turn exceptions into a status, hand
// texts out.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/seconds.h"
#include "tessera/tessera.h"

namespace tessera::c_api {

using Json = nlohmann::ordered_json;

// Remembers the exception that is being handled as the thread's last failure.
tsr_status_t remember_failure() noexcept;

template <class Body>
tsr_status_t guarded(Body&& body) noexcept {
  try {
    body();
    return TSR_OK;
  } catch (...) {
    return remember_failure();
  }
}

[[noreturn]] void refuse(const std::string& sentence);

// Debug builds know every live handle, so that one that was destroyed is refused. Other builds know
// none, because looking them up would cost more than a launch.
void add_live(const void* handle);
void remove_live(const void* handle);
void check_live(const void* handle, std::string_view what);

// The object of a handle. Throws Error{invalid_argument} for NULL.
template <class Handle>
Handle& object_of(Handle* handle, std::string_view what) {
  if (handle == nullptr) refuse(fmt::format("the {} must not be NULL", what));
#ifndef NDEBUG
  check_live(handle, what);
#endif
  return *handle;
}

// A place that a function writes its result to.
template <class Result>
Result& result_of(Result* place, std::string_view what) {
  if (place == nullptr) refuse(fmt::format("the address for the {} must not be NULL", what));
  return *place;
}

// A text that may not be NULL.
std::string_view text_of(const char* text, std::string_view what);
// The same, where NULL stands for an empty text.
inline std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

// A copy that tsr_free() releases.
char* copy_of(std::string_view text);
// The JSON in one line, bytes that are not UTF-8 replaced.
char* json_copy(const Json& json);

// Gives a new object to the caller.
template <class Handle>
void hand_out(Handle*& place, Handle* made) {
#ifndef NDEBUG
  add_live(made);
#endif
  place = made;
}

template <class Handle>
void destroy(Handle* handle) noexcept {
  if (handle == nullptr) return;
#ifndef NDEBUG
  remove_live(handle);
#endif
  delete handle;
}

// A caller's struct of options as this release knows it: what an older program's shorter struct
// lacks is zero. Throws Error{invalid_argument} for a size that no release has had, and where a
// newer program has set a field that this release does not know.
void read_options(const void* given, void* options, std::size_t size, std::string_view name);

template <class Options>
Options options_of(const Options* given, std::string_view name) {
  Options options = {};
  options.struct_size = sizeof(Options);
  if (given != nullptr) read_options(given, &options, sizeof(Options), name);
  return options;
}

// Throws Error{invalid_argument} for a number below `least`.
void check_least(std::string_view field, double value, double least);

}  // namespace tessera::c_api
