// The least there is to it: one multiplication, checked against the plain loop.
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

// out = A x B, row-major, as one would write it without a library.
std::vector<float> plain_loop(const std::vector<float>& a, const std::vector<float>& b, int m,
                              int n, int k) {
  std::vector<float> out(a.size() / k * n, 0.0F);
  for (int i = 0; i < m; ++i) {
    for (int p = 0; p < k; ++p) {
      for (int j = 0; j < n; ++j) out[i * n + j] += a[i * k + p] * b[p * n + j];
    }
  }
  return out;
}

}  // namespace

int main() {
  const int m = 96;
  const int n = 80;
  const int k = 112;
  std::vector<float> a(m * k);
  std::vector<float> b(k * n);
  std::vector<float> out(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = static_cast<float>(i % 17) / 16;
  for (int i = 0; i < k * n; ++i) b[i] = static_cast<float>(i % 13) / 16 - 0.4F;

  // What is asked. rrr: A, B and the result are all row-major.
  const tessera::GemmProblem problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, m, n, k);
  try {
    // For this machine. Thread-safe: keep one as long as you multiply. The first run of a problem
    // chooses, builds and loads a kernel; every later one finds it again within 100 ns.
    tessera::Dispatcher dispatcher;
    const tessera::GemmOperands operands{.a = a.data(), .b = b.data(), .out = out.data()};
    dispatcher.run(problem, operands);

    std::printf("problem  %s\n", to_string(problem).c_str());
    std::printf("machine  %s\n", dispatcher.target().description.c_str());
    std::printf("kernel   %s\n", dispatcher.kernel_for(problem).name.c_str());
  } catch (const tessera::Error& error) {  // every failure, as a whole sentence
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }

  const std::vector<float> expected = plain_loop(a, b, m, n, k);
  float worst = 0;
  for (int i = 0; i < m * n; ++i) worst = std::max(worst, std::abs(out[i] - expected[i]));
  std::printf("largest difference from the plain loop: %g\n", worst);
  return worst < 1e-4F ? 0 : 1;
}
