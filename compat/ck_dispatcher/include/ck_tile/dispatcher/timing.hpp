// Clocks, speeds and statistics of programs that measure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <vector>

namespace ck_tile::dispatcher::utils {

class Timer {
 public:
  void start() { start_ = Clock::now(); }
  double elapsed_ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Between start() and stop() on the host's clock: the dispatchers' runs return when they are done,
// and say their own time.
class GpuTimer {
 public:
  explicit GpuTimer(void* stream = nullptr) : stream_(stream) {}
  void set_stream(void* stream) { stream_ = stream; }
  void* get_stream() const { return stream_; }
  void start() { timer_.start(); }
  void stop() { elapsed_ = static_cast<float>(timer_.elapsed_ms()); }
  float elapsed_ms() const { return elapsed_; }

 private:
  void* stream_;
  Timer timer_;
  float elapsed_ = 0;
};

inline double calculate_tflops(std::int64_t m, std::int64_t n, std::int64_t k, double time_ms) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
         (time_ms * 1e-3) / 1e12;
}
template <class A, class B, class C>
double calculate_bandwidth_gbs(std::int64_t m, std::int64_t n, std::int64_t k, double time_ms) {
  const auto bytes = static_cast<double>(m * k) * sizeof(A) +
                     static_cast<double>(k * n) * sizeof(B) +
                     static_cast<double>(m * n) * sizeof(C);
  return bytes / (time_ms * 1e-3) / 1e9;
}

struct BenchmarkStats {
  double min_ms = 0, avg_ms = 0, max_ms = 0, median_ms = 0;
  double tflops = 0, bandwidth_gbs = 0;
  int iterations = 0;

  void print(std::ostream& out = std::cout) const {
    out << std::fixed << std::setprecision(4) << "  min " << min_ms << " ms, mean " << avg_ms
        << " ms, median " << median_ms << " ms, max " << max_ms << " ms\n"
        << std::setprecision(2) << "  " << tflops << " TFLOPS, " << bandwidth_gbs << " GB/s\n";
  }
};

// `work` returns milliseconds.
template <class Work>
BenchmarkStats run_benchmark(Work&& work, int warmup = 2, int iterations = 10) {
  for (int i = 0; i < warmup; ++i) work();
  std::vector<double> times;
  for (int i = 0; i < iterations; ++i) times.push_back(work());
  BenchmarkStats stats;
  stats.iterations = iterations;
  if (times.empty()) return stats;
  std::sort(times.begin(), times.end());
  stats.min_ms = times.front(), stats.max_ms = times.back();
  stats.median_ms = times[times.size() / 2];
  stats.avg_ms =
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  return stats;
}

}  // namespace ck_tile::dispatcher::utils
