// What a GEMM is asked for. Types and layouts are the kernels'.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera_ck {

struct Problem {
  std::int64_t M = 0, N = 0, K = 0;
  int k_batch = 1;

  Problem() = default;
  Problem(std::int64_t m, std::int64_t n, std::int64_t k) : M(m), N(n), K(k) {}
  bool is_valid() const { return M > 0 && N > 0 && K > 0 && k_batch > 0; }
  // Multiply-adds count as two. A double, because the product of three sizes may not fit 64 bits.
  double num_ops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
};

class ProblemBuilder {
 public:
  ProblemBuilder& dimensions(std::int64_t m, std::int64_t n, std::int64_t k) {
    problem_.M = m, problem_.N = n, problem_.K = k;
    return *this;
  }
  // A is m x k, B is k2 x n; k and k2 must be equal.
  ProblemBuilder& from_ab(std::int64_t m, std::int64_t k, std::int64_t k2, std::int64_t n) {
    if (k != k2) {
      throw std::invalid_argument("A has " + std::to_string(k) + " columns and B " +
                                  std::to_string(k2) + " rows; the two must be equal");
    }
    return dimensions(m, n, k);
  }
  // A wish: kernels split K as their names say, and the registry holds those that do.
  ProblemBuilder& split_k(int parts) {
    problem_.k_batch = parts;
    return *this;
  }
  // Throws std::invalid_argument for sizes below 1.
  Problem build() const {
    if (!problem_.is_valid()) {
      throw std::invalid_argument("M, N, K and split_k must be at least 1, got " +
                                  std::to_string(problem_.M) + ", " + std::to_string(problem_.N) +
                                  ", " + std::to_string(problem_.K) + " and " +
                                  std::to_string(problem_.k_batch));
    }
    return problem_;
  }

 private:
  Problem problem_;
};

}  // namespace tessera_ck
