// A contraction of tensors with three and four dimensions, and a product whose A is the sum of two
// matrices and a row that repeats.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<float>;

Numbers values(int count, int seed) {
  Numbers all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(seed)) % 17) / 16 - 0.4F;
  }
  return all;
}

// out[x][n][y] = the sum of a[x][h][y][k] * b[n][h][k]: two dimensions are summed over.
float contract(tessera::Dispatcher& dispatcher) {
  constexpr int kX = 5, kY = 7, kN = 6, kH = 3, kK = 8;
  tessera::Einsum einsum;
  einsum.equation = "xhyk,nhk->xny";
  einsum.a.sizes = {kX, kH, kY, kK}, einsum.b.sizes = {kN, kH, kK};
  einsum.like = tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rcr, 0, 0, 0);
  const tessera::GemmProblem problem = tessera::einsum_problem(einsum);
  std::printf("%s\n", to_string(tessera::Problem(problem)).c_str());
  const Numbers a = values(kX * kH * kY * kK, 1), b = values(kN * kH * kK, 2);
  Numbers out(kX * kN * kY);
  dispatcher.run(problem, tessera::GemmOperands{.a = a.data(), .b = b.data(), .out = out.data()});
  float most = 0;
  for (int i = 0; i < kX * kN * kY; ++i) {
    const int x = i / (kN * kY), n = i / kY % kN, y = i % kY;
    double sum = 0;
    for (int j = 0; j < kH * kK; ++j) {
      const int h = j / kK, k = j % kK;
      sum += static_cast<double>(a[((x * kH + h) * kY + y) * kK + k]) * b[(n * kH + h) * kK + k];
    }
    most = std::max(most, std::abs(out[i] - static_cast<float>(sum)));
  }
  return most;
}

// (a + a1 + a2) x B, where a2 is one row.
float sum_of_three(tessera::Dispatcher& dispatcher) {
  constexpr int kM = 20, kN = 30, kK = 40;
  tessera::GemmProblem problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, kM, kN, kK);
  problem.merge_a = tessera::GemmMerge::add, problem.sources_a = 3;
  problem.ld_more_a[1] = 0;
  const Numbers a = values(kM * kK, 1), a1 = values(kM * kK, 2), a2 = values(kK, 3);
  const Numbers b = values(kK * kN, 4);
  Numbers out(kM * kN);
  dispatcher.run(
      problem,
      tessera::GemmOperands{
          .a = a.data(), .b = b.data(), .out = out.data(), .more_a = {a1.data(), a2.data()}});
  float most = 0;
  for (int i = 0; i < kM * kN; ++i) {
    double sum = 0;
    for (int k = 0; k < kK; ++k) {
      const int at = i / kN * kK + k;
      sum += static_cast<double>(a[at] + a1[at] + a2[k]) * b[k * kN + i % kN];
    }
    most = std::max(most, std::abs(out[i] - static_cast<float>(sum)));
  }
  return most;
}

}  // namespace

int main() {
  tessera::Dispatcher dispatcher;
  const float of_contraction = contract(dispatcher), of_sum = sum_of_three(dispatcher);
  std::printf("contraction: worst error %.1e\nsum of three: worst error %.1e\n", of_contraction,
              of_sum);
  return of_contraction < 1e-4F && of_sum < 1e-4F ? 0 : 1;
}
