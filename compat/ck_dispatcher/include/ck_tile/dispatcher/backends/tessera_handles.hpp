// Tessera's C ABI from C++17: handles that give themselves back, errors as exceptions, and fields
// of the library's JSON.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "ck_tile/dispatcher/dispatcher_error.hpp"

namespace ck_tile::dispatcher::backends {

// Throws the library's sentence: UnsupportedProblem for what no kernel can do.
inline void check(tsr_status_t status) {
  switch (status) {
    case TSR_OK:
      return;
    case TSR_INVALID_ARGUMENT:
    case TSR_NOT_FOUND:
    case TSR_UNSUPPORTED:
    case TSR_ILLEGAL_SPEC:
      throw UnsupportedProblem(tsr_error());
    default:
      throw DispatcherError(tsr_error());
  }
}

// What a function returns through its last argument, a text or a handle.
template <class Function, class... Arguments>
std::string text_of(Function function, Arguments... arguments) {
  char* text = nullptr;
  check(function(arguments..., &text));
  const std::string copy = text;
  tsr_free(text);
  return copy;
}

template <class Handle, class Function, class... Arguments>
std::shared_ptr<Handle> made_by(void (*destroy)(Handle*), Function function,
                                Arguments... arguments) {
  Handle* handle = nullptr;
  check(function(arguments..., &handle));
  return std::shared_ptr<Handle>(handle, destroy);
}

using ProblemHandle = std::shared_ptr<tsr_problem_t>;
inline ProblemHandle problem_of(const std::string& line) {
  return made_by<tsr_problem_t>(tsr_problem_destroy, tsr_problem_parse, line.c_str());
}

// The object that a command of the command line prints.
inline std::string command(const char* name, const std::string& options) {
  return text_of(
      [&](char** json) { return tsr_command(name, options.c_str(), nullptr, nullptr, json); });
}

// Where the value of the first field of this name begins, behind `from`; npos where there is none.
// The library's own JSON has no such name in a text.
inline std::size_t value_place(const std::string& json, const std::string& name,
                               std::size_t from = 0) {
  const std::size_t found = json.find("\"" + name + "\":", from);
  if (found == std::string::npos) return found;
  return json.find_first_not_of(" \n", found + name.size() + 3);
}

// A text between quotation marks at a place, without its escapes.
inline std::string quoted_at(const std::string& json, std::size_t place) {
  std::string text;
  for (std::size_t i = place + 1; i < json.size() && json[i] != '"'; ++i) {
    if (json[i] == '\\') ++i;
    text += json[i];
  }
  return text;
}

// A field's text, or its number as a text; empty where there is none.
inline std::string field(const std::string& json, const std::string& name, std::size_t from = 0) {
  const std::size_t place = value_place(json, name, from);
  if (place == std::string::npos) return {};
  if (json[place] == '"') return quoted_at(json, place);
  return json.substr(place, json.find_first_of(",}]\n", place) - place);
}

inline double number_field(const std::string& json, const std::string& name) {
  return std::strtod(field(json, name).c_str(), nullptr);
}

// A field that is a list of texts.
inline std::vector<std::string> texts_field(const std::string& json, const std::string& name,
                                            std::size_t from = 0) {
  std::vector<std::string> texts;
  std::size_t place = value_place(json, name, from);
  if (place == std::string::npos) return texts;
  const std::size_t end = json.find(']', place);
  for (place = json.find('"', place); place < end;) {
    texts.push_back(quoted_at(json, place));
    place = json.find('"', json.find('"', place + 1) + 1);
  }
  return texts;
}

}  // namespace ck_tile::dispatcher::backends
