// Settings: the calls of a problem builder, as words, so that every language has the same builder;
// and what comes of them.
#pragma once

#include <string>
#include <vector>

#include "tessera/spec/problem.h"

#pragma GCC visibility push(default)
namespace tessera {

// One call of a builder: a setter and its arguments.
struct Setting {
  std::string setter;
  std::vector<std::string> arguments;
  friend bool operator==(const Setting&, const Setting&) = default;
};

// What settings say of the choice among kernels, which no problem can hold. Whoever settles a
// problem gives it to the dispatcher, or refuses a dispatcher that was made otherwise.
struct ChoiceSettings {
  std::string target;          // DispatcherOptions::target; empty: any
  bool deterministic = false;  // DispatcherOptions::deterministic
  friend bool operator==(const ChoiceSettings&, const ChoiceSettings&) = default;
};

// All that settings say.
struct [[nodiscard]] SettledProblem {
  Problem problem;
  ChoiceSettings choice;
};

}  // namespace tessera
#pragma GCC visibility pop
