// What declarations of all operations share: wildcards, and whether a pipeline is the target's.
#pragma once

#include <string>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher::decl {

inline constexpr const char* ANY = "*";
inline constexpr int ANY_INT = -1;

namespace detail {

inline std::string pattern(const Shape& shape) {
  const auto number = [](int value) { return value == ANY_INT ? "*" : std::to_string(value); };
  return number(shape.m) + "x" + number(shape.n) + "x" + number(shape.k);
}

inline bool has_pipeline(const Machine& machine, tessera::Op op, const std::string& word) {
  if (word == ANY) return true;
  const auto& spaces = machine.dispatcher->target().spaces;
  const auto space = spaces.find(op);
  if (space == spaces.end()) return false;
  for (const tessera::Pipeline pipeline : space->second.pipelines) {
    if (tessera::to_string(pipeline) == word) return true;
  }
  return false;
}

// Says that a declaration's pipeline is not one of the target's.
inline void tell_other_kernels(const Machine& machine, const std::string& pipeline) {
  dispatcher::detail::tell("pipeline " + pipeline + " is not one of " + machine.name +
                           "'s; its own kernels for what is declared are taken");
}

}  // namespace detail
}  // namespace ck_tile::dispatcher::decl
