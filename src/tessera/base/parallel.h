// Sharing a loop between threads that end with the loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/base/processors.h"

namespace tessera {

// Calls work(0), ..., work(count - 1) on `jobs` threads, the calling thread included (0: one for
// each processor that this process may use). After an exception, no further call starts, and the
// first exception is thrown here.
template <typename Work>
void in_parallel(std::size_t count, int jobs, const Work& work) {
  const auto wanted =
      static_cast<std::size_t>(jobs > 0 ? bounded_threads(jobs) : usable_processors());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::once_flag failed;
  const auto loop = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      std::call_once(failed, [&failure] { failure = std::current_exception(); });
      next = count;
    }
  };
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < std::min(wanted, count)) threads.emplace_back(loop);
  } catch (...) {  // no more threads, or no memory for them: fewer do the work
  }
  loop();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

// Gives each of `threads` an equal part of [0, count): work(part, begin, end). When fewer threads
// can be started, each does several parts.
template <typename Work>
void share_work(int threads, std::size_t count, const Work& work) {
  const auto wanted = static_cast<std::size_t>(std::clamp(threads, 1, kMaxThreads));
  const std::size_t parts = std::min(wanted, std::max<std::size_t>(count, 1));
  in_parallel(parts, static_cast<int>(parts), [&](std::size_t part) {
    work(part, count * part / parts, count * (part + 1) / parts);
  });
}

}  // namespace tessera
