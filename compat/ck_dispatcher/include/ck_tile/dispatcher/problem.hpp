// What a GEMM is asked for. Types and layouts are the kernels'.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace ck_tile::dispatcher {

// A matrix as it lies in memory; a transposed one is cols x rows in the product.
struct TensorShape {
  std::int64_t rows = 0, cols = 0;
  bool is_transposed = false;

  TensorShape() = default;
  TensorShape(std::int64_t r, std::int64_t c, bool transposed = false)
      : rows(r), cols(c), is_transposed(transposed) {}
  std::int64_t logical_rows() const { return is_transposed ? cols : rows; }
  std::int64_t logical_cols() const { return is_transposed ? rows : cols; }
};

namespace detail {

inline void require_equal(const char* what, std::int64_t first, std::int64_t second) {
  if (first == second) return;
  throw std::invalid_argument(std::string(what) + " must be equal, got " + std::to_string(first) +
                              " and " + std::to_string(second));
}

}  // namespace detail

struct Problem {
  std::int64_t M = 0, N = 0, K = 0;
  std::int32_t k_batch = 1;      // a wish: kernels split K as they were made to
  std::int32_t smem_budget = 0;  // bytes; 0: any
  bool prefer_persistent = false;
  bool enable_validation = false;
  // C[b] = alpha * A[b] x B[b] + beta * C[b] for so many matrices, which lie one behind the other.
  std::int64_t batch_size = 1;
  float alpha = 1, beta = 0;

  Problem() = default;
  Problem(std::int64_t m, std::int64_t n, std::int64_t k) : M(m), N(n), K(k) {}

  bool is_valid() const { return M > 0 && N > 0 && K > 0 && k_batch > 0 && batch_size > 0; }
  // Multiply-adds count as two. What 64 bits cannot hold is the largest number that they can.
  std::int64_t num_ops() const {
    std::int64_t product = 2;
    for (const std::int64_t size : {M, N, K, batch_size}) {
      if (__builtin_mul_overflow(product, size, &product)) {
        return std::numeric_limits<std::int64_t>::max();
      }
    }
    return product;
  }

  // These throw std::invalid_argument with the two numbers where sizes do not fit.
  static Problem from_shapes(TensorShape a, TensorShape b, TensorShape c) {
    detail::require_equal("the columns of A and the rows of B", a.logical_cols(), b.logical_rows());
    detail::require_equal("the rows of A and of C", a.logical_rows(), c.logical_rows());
    detail::require_equal("the columns of B and of C", b.logical_cols(), c.logical_cols());
    return {a.logical_rows(), b.logical_cols(), a.logical_cols()};
  }
  static Problem from_dimensions(std::int64_t a_rows, std::int64_t a_cols, std::int64_t b_rows,
                                 std::int64_t b_cols, std::int64_t c_rows, std::int64_t c_cols) {
    return from_shapes({a_rows, a_cols}, {b_rows, b_cols}, {c_rows, c_cols});
  }
  // Rows and columns in memory; a transposed matrix is turned in the product.
  static Problem from_ab(std::int64_t a_rows, std::int64_t a_cols, std::int64_t b_rows,
                         std::int64_t b_cols, bool a_transposed = false,
                         bool b_transposed = false) {
    const TensorShape a(a_rows, a_cols, a_transposed), b(b_rows, b_cols, b_transposed);
    return from_shapes(a, b, {a.logical_rows(), b.logical_cols()});
  }
  // Elements of the three tensors.
  void validate_sizes(std::int64_t a_size, std::int64_t b_size, std::int64_t c_size) const {
    detail::require_equal("the elements of A and M * K", a_size, batch_size * M * K);
    detail::require_equal("the elements of B and K * N", b_size, batch_size * K * N);
    detail::require_equal("the elements of C and M * N", c_size, batch_size * M * N);
  }
};

class ProblemBuilder {
 public:
  ProblemBuilder& from_ab(std::int64_t a_rows, std::int64_t a_cols, std::int64_t b_rows,
                          std::int64_t b_cols, bool a_transposed = false,
                          bool b_transposed = false) {
    const Problem sizes =
        Problem::from_ab(a_rows, a_cols, b_rows, b_cols, a_transposed, b_transposed);
    return dimensions(sizes.M, sizes.N, sizes.K);
  }
  ProblemBuilder& dimensions(std::int64_t m, std::int64_t n, std::int64_t k) {
    problem_.M = m, problem_.N = n, problem_.K = k;
    return *this;
  }
  ProblemBuilder& m(std::int64_t size) { return problem_.M = size, *this; }
  ProblemBuilder& n(std::int64_t size) { return problem_.N = size, *this; }
  ProblemBuilder& k(std::int64_t size) { return problem_.K = size, *this; }
  ProblemBuilder& batch_size(std::int64_t count) { return problem_.batch_size = count, *this; }
  ProblemBuilder& alpha(float factor) { return problem_.alpha = factor, *this; }
  ProblemBuilder& beta(float factor) { return problem_.beta = factor, *this; }
  ProblemBuilder& split_k(std::int32_t parts) { return problem_.k_batch = parts, *this; }
  ProblemBuilder& smem_budget(std::int32_t bytes) { return problem_.smem_budget = bytes, *this; }
  ProblemBuilder& persistent(bool value = true) {
    return problem_.prefer_persistent = value, *this;
  }
  ProblemBuilder& validate(bool value = true) { return problem_.enable_validation = value, *this; }
  // Throws std::invalid_argument for sizes below 1.
  Problem build() const {
    if (problem_.is_valid()) return problem_;
    throw std::invalid_argument(
        "M, N, K, split_k and batch_size must be at least 1, got " + std::to_string(problem_.M) +
        ", " + std::to_string(problem_.N) + ", " + std::to_string(problem_.K) + ", " +
        std::to_string(problem_.k_batch) + " and " + std::to_string(problem_.batch_size));
  }

 private:
  Problem problem_;
};

}  // namespace ck_tile::dispatcher
