// What all steps of the ladder share: a problem, random operands, the check, the clock.
//
// Each step is one file with a function that multiplies. It is also a program:
//     g++ -std=c++20 -O3 -march=native -fopenmp 05_vectors.cc && ./a.out [M N K]
// Elements are small whole numbers. Their sums are exact in any order as long as 64 k is below
// 2^24, so that every step must give the naive result bit by bit.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace ladder {

// C = A x B. All three are row-major: A is m x k, B is k x n, C is m x n.
struct Gemm {
  int m, n, k;
  const float* a;
  const float* b;
  float* c;
};

using Multiply = void (*)(const Gemm&);

// What a step can multiply: m, n and k must be multiples of these.
struct Step {
  const char* name;
  Multiply multiply;
  int multiple_m, multiple_n;
};

inline std::vector<float> random_matrix(int rows, int columns, std::mt19937& random) {
  std::uniform_int_distribution<int> numbers(-8, 8);
  std::vector<float> matrix(static_cast<std::size_t>(rows) * columns);
  for (float& x : matrix) x = static_cast<float>(numbers(random));
  return matrix;
}

inline void naive(const Gemm& g) {
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int p = 0; p < g.k; ++p) sum += g.a[i * g.k + p] * g.b[p * g.n + j];
      g.c[i * g.n + j] = sum;
    }
  }
}

inline double seconds_of(Multiply multiply, const Gemm& g) {
  const auto start = std::chrono::steady_clock::now();
  multiply(g);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double gflops(const Gemm& g, double seconds) { return 2e-9 * g.m * g.n * g.k / seconds; }

inline bool equal(const Step& step, const Gemm& g, const std::vector<float>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (g.c[i] == expected[i]) continue;
    std::fprintf(stderr, "%s: element (%zu, %zu) is %g, the naive loops give %g\n", step.name,
                 i / g.n, i % g.n, g.c[i], expected[i]);
    return false;
  }
  return true;
}

// The program of one step: multiplies, checks against the naive loops, prints both speeds.
inline int run(const Step& step, int argc, char** argv) {
  const int m = argc > 3 ? std::atoi(argv[1]) : 2 * 96;
  const int n = argc > 3 ? std::atoi(argv[2]) : 3 * 64;
  const int k = argc > 3 ? std::atoi(argv[3]) : 500;
  if (m < 1 || n < 1 || k < 1 || m % step.multiple_m != 0 || n % step.multiple_n != 0) {
    std::fprintf(stderr, "%s: M must be a multiple of %d and N of %d, got %d and %d, K %d\n",
                 step.name, step.multiple_m, step.multiple_n, m, n, k);
    return 2;
  }
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const std::vector<float> a = random_matrix(m, k, random);
  const std::vector<float> b = random_matrix(k, n, random);
  std::vector<float> c(static_cast<std::size_t>(m) * n);
  std::vector<float> expected(c.size());
  const double slow = seconds_of(naive, {m, n, k, a.data(), b.data(), expected.data()});
  const Gemm g{m, n, k, a.data(), b.data(), c.data()};
  double best = seconds_of(step.multiply, g);
  for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of(step.multiply, g));
  std::printf("%s, %d x %d x %d, seed %u: %.2f GFLOP/s, naive %.2f GFLOP/s\n", step.name, m, n, k,
              seed, gflops(g, best), gflops(g, slow));
  return equal(step, g, expected) ? 0 : 1;
}

}  // namespace ladder
