// A member of a table of functions that must not be left out.
#pragma once

#include <cstddef>
#include <type_traits>

#pragma GCC visibility push(default)
namespace tessera {

// A member that every family must set. A table that leaves it out does not compile.
template <class T>
class Required {
 public:
  using Value = std::decay_t<T>;  // for a function, its address
  constexpr Required(Value value) : value_(value) {}
  constexpr Required(std::nullptr_t) = delete;
  constexpr operator Value() const { return value_; }

 private:
  Value value_;
};

}  // namespace tessera
#pragma GCC visibility pop
