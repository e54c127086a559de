// Data of programs: filling, a reference on the host, and comparing with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>

namespace ck_tile::dispatcher::utils {

struct ValidationResult {
  bool correct = false;
  double max_diff = 0, mean_diff = 0;
  double accuracy = 0;  // percent
  std::int64_t matches = 0, total = 0;

  void print(std::ostream& out = std::cout) const {
    out << "  " << (correct ? "correct" : "wrong") << ": " << matches << " of " << total
        << " elements (" << accuracy << "%), largest difference " << max_diff << ", mean "
        << mean_diff << "\n";
  }
};

// An element matches within atol + rtol * |reference|. As in the original, 99.9% of them make a
// result correct; Dispatcher::validate() wants all.
template <class T>
ValidationResult validate_result(const T* result, const T* reference, std::int64_t size,
                                 double rtol = 1e-3, double atol = 1e-2) {
  ValidationResult found;
  found.total = size;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto wanted = static_cast<double>(reference[i]);
    const double difference = std::fabs(static_cast<double>(result[i]) - wanted);
    found.max_diff = std::max(found.max_diff, difference);
    found.mean_diff += difference / static_cast<double>(size);
    found.matches += difference <= atol + rtol * std::fabs(wanted) ? 1 : 0;
  }
  found.accuracy = 100.0 * static_cast<double>(found.matches) / static_cast<double>(size);
  found.correct = found.accuracy >= 99.9;
  return found;
}

// All three matrices are row-major.
template <class A, class B, class C>
void compute_reference_gemm(const A* a, const B* b, C* c, std::int64_t m, std::int64_t n,
                            std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += static_cast<double>(a[i * k + l]) * static_cast<double>(b[l * n + j]);
      }
      c[i * n + j] = static_cast<C>(sum);
    }
  }
}

template <class T>
void fill_random(T* data, std::int64_t size, T least = T(-1), T most = T(1)) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<float> draw(static_cast<float>(least), static_cast<float>(most));
  std::generate(data, data + size, [&] { return static_cast<T>(draw(random)); });
}
template <class T>
void fill_zeros(T* data, std::int64_t size) {
  std::fill(data, data + size, T(0));
}
template <class T>
void fill_ones(T* data, std::int64_t size) {
  std::fill(data, data + size, T(1));
}
template <class T>
void fill_identity(T* data, std::int64_t rows, std::int64_t cols) {
  fill_zeros(data, rows * cols);
  for (std::int64_t i = 0; i < std::min(rows, cols); ++i) data[i * cols + i] = T(1);
}

}  // namespace ck_tile::dispatcher::utils
