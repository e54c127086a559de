// Statics that a program may still use while it ends.
#pragma once

#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace tessera {

// A value that is never destroyed, so that atexit() handlers and destructors of older statics may
// use it. It lies in static memory, so leak checkers find the memory that it owns.
template <class T>
class Forever {
 public:
  template <class... Args>
  explicit Forever(Args&&... args) {
    ::new (static_cast<void*>(bytes_)) T(std::forward<Args>(args)...);
  }
  Forever(const Forever&) = delete;
  Forever& operator=(const Forever&) = delete;

  T& operator*() { return *std::launder(reinterpret_cast<T*>(bytes_)); }
  const T& operator*() const { return *std::launder(reinterpret_cast<const T*>(bytes_)); }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  alignas(T) unsigned char bytes_[sizeof(T)];
};

}  // namespace tessera
