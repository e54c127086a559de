// A short list inside its owner. It allocates nothing, and copying copies only its items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <type_traits>

namespace tessera {

// Throws Error{internal}, which says that a list of at most `most` items was given one more.
[[noreturn]] void refuse_one_more_than(std::size_t most);

// At most kMost items of a plain type.
template <class T, std::size_t kMost>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  InlineVector() {}
  InlineVector(std::initializer_list<T> items) {
    for (const T& item : items) push(item);
  }
  InlineVector(const InlineVector& other) { *this = other; }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    std::uninitialized_copy_n(other.begin(), other.size_, items_);
    size_ = other.size_;
    return *this;
  }

  bool operator==(const InlineVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  // Throws Error{internal} when the list is full.
  void push(const T& item) {
    if (size_ == kMost) refuse_one_more_than(kMost);
    std::construct_at(items_ + size_, item);
    ++size_;
  }
  // Adds T{}, to be filled in where it lies. Throws as push() does.
  T& add() {
    if (size_ == kMost) refuse_one_more_than(kMost);
    return *std::construct_at(items_ + size_++);
  }

  static constexpr std::size_t most() { return kMost; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t index) { return items_[index]; }
  const T& operator[](std::size_t index) const { return items_[index]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }

 private:
  std::size_t size_ = 0;
  union {
    T items_[kMost];  // the first size_ exist
  };
};

}  // namespace tessera
