// Random numbers for problem sets. They are computed from a counter with whole numbers only, so
// that every machine and every version draws the same.
#pragma once

#include <cstdint>
#include <iterator>

namespace tessera {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
// OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The numbers of one draw. Each number is a function of the stream, the index of the draw and the
// number's place in it.
class Draw {
 public:
  Draw(std::uint64_t stream, std::uint64_t index) : state_(mix(stream) ^ mix(~index)) {}

  // A number in [0, count).
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(mix(state_ + ++place_) % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + below(most - least + 1);
  }
  // A number in [2^low, 2^high). Every octave is equally likely, and so is every number within an
  // octave.
  std::int64_t log_uniform(int low, int high) {
    const std::int64_t octave = std::int64_t{1} << between(low, high - 1);
    return octave + below(octave);
  }
  template <class List>
  auto one_of(const List& list) {
    return list[static_cast<std::size_t>(below(std::ssize(list)))];
  }

 private:
  std::uint64_t state_;
  std::uint64_t place_ = 0;
};

}  // namespace tessera
