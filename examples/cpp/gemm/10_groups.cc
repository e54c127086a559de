// Groups of unequal sizes in one launch: the rows of each expert of a layer against the weights of
// that expert, and products whose sizes and matrices have nothing in common.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using Matrix = std::vector<float>;

Matrix matrix(int rows, int columns, int seed) {
  Matrix all(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(seed)) % 17) / 16 - 0.4F;
  }
  return all;
}

// The largest difference of out (m x n) from A (m x k) x B (k x n).
float worst(const float* a, const float* b, const float* out, int m, int n, int k) {
  float most = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int p = 0; p < k; ++p) sum += static_cast<double>(a[i * k + p]) * b[p * n + j];
      most = std::max(most, std::abs(out[i * n + j] - static_cast<float>(sum)));
    }
  }
  return most;
}

// Rows go by experts, which end at `ends`. The kernel reads the ends, and the host does not.
float experts(tessera::Dispatcher& dispatcher) {
  const int n = 48, k = 64;
  const std::vector<std::int32_t> ends = {5, 5, 90, 100};  // the second expert has no row
  const Matrix a = matrix(100, k, 1), b = matrix(4 * k, n, 2);
  Matrix out(100 * n);
  tessera::GemmProblem problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, 100, n, k);
  problem.groups = 4;
  problem.grouping = tessera::GemmGrouping::contiguous;
  dispatcher.run(problem,
                 tessera::GemmOperands{
                     .a = a.data(), .b = b.data(), .out = out.data(), .group_ends = ends.data()});
  float most = 0;
  for (int expert = 0, begin = 0; expert < 4; begin = ends[expert], ++expert) {
    most = std::max(most, worst(a.data() + begin * k, b.data() + expert * k * n,
                                out.data() + begin * n, ends[expert] - begin, n, k));
  }
  return most;
}

// Arrays of pointers and of sizes. The problem has the greatest sizes; group_strides says that rows
// of each group lie by its own.
float lists(tessera::Dispatcher& dispatcher) {
  const std::vector<std::int32_t> m = {30, 7, 64}, n = {16, 80, 5}, k = {40, 3, 50};
  std::vector<Matrix> a, b, out;
  std::vector<const void*> a_list, b_list;
  std::vector<void*> out_list;
  for (std::size_t i = 0; i < m.size(); ++i) {
    a.push_back(matrix(m[i], k[i], 3)), b.push_back(matrix(k[i], n[i], 4));
    out.emplace_back(static_cast<std::size_t>(m[i] * n[i]));
    a_list.push_back(a[i].data()), b_list.push_back(b[i].data()), out_list.push_back(out[i].data());
  }
  const tessera::Problem problem = tessera::parse_problem(
      "gemm m=64 n=80 k=50 layout=rrr groups=3 grouping=lists group_strides=1");
  tessera::GemmOperands operands{.a = a_list.data(), .b = b_list.data(), .out = out_list.data()};
  operands.group_sizes = {m.data(), n.data(), k.data()};
  operands.group_lds = {k.data(), n.data(), nullptr, n.data()};  // of A, B, C and out
  dispatcher.run(problem, operands);
  float most = 0;
  for (std::size_t i = 0; i < m.size(); ++i) {
    most = std::max(most, worst(a[i].data(), b[i].data(), out[i].data(), m[i], n[i], k[i]));
  }
  return most;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const float of_experts = experts(dispatcher), of_lists = lists(dispatcher);
  std::printf("largest difference: experts %g, lists %g\n", of_experts, of_lists);
  return of_experts < 1e-4F && of_lists < 1e-4F ? 0 : 1;
}
