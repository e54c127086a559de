// Settings: the calls of a problem builder, as words, so that every language has the same builder.
#pragma once

#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace tessera {

// One call of a builder: a setter and its arguments.
struct Setting {
  std::string setter;
  std::vector<std::string> arguments;
  friend bool operator==(const Setting&, const Setting&) = default;
};

}  // namespace tessera
#pragma GCC visibility pop
