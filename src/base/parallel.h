// Sharing a loop between threads that live no longer than it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace tessera {

// Gives each of `threads` an equal part of [0, count): work(part, begin, end), which must not
// throw. The calling thread does part 0.
template <typename Work>
void share_work(int threads, std::size_t count, const Work& work) {
  const auto wanted = static_cast<std::size_t>(std::max(threads, 1));
  const std::size_t parts = std::min(wanted, std::max<std::size_t>(count, 1));
  std::vector<std::thread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    others.emplace_back(work, part, count * part / parts, count * (part + 1) / parts);
  }
  work(std::size_t{0}, std::size_t{0}, count / parts);
  for (std::thread& other : others) other.join();
}

}  // namespace tessera
