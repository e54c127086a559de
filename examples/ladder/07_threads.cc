// Step 7: each thread multiplies a rectangle of C. docs/ladder/07_threads.md explains it.
#include <omp.h>

#include "blocks.h"

namespace step7 {

using ladder::kBlockK;
using ladder::kBlockM;
using ladder::kBlockN;
using ladder::kColumns;
using ladder::kRows;
using ladder::Range;

// Step 6 as it was, for some rows and columns of C, by one thread.
void multiply_block(const ladder::Gemm& g, Range m, Range n, Range k, const float* a,
                    const float* b) {
  for (int j = n.begin; j < n.end; j += kColumns) {
    for (int i = m.begin; i < m.end; i += kRows) {
      ladder::tile(k.size(), a + (i - m.begin) * k.size(), b + (j - n.begin) * k.size(),
                   g.c + i * g.n + j, g.n, k.begin > 0);
    }
  }
}

void multiply_rectangle(const ladder::Gemm& g, Range rows, Range columns) {
  auto& [a, b] = ladder::space();
  for (int j = columns.begin; j < columns.end; j += kBlockN) {
    const Range n{j, std::min(j + kBlockN, columns.end)};
    for (int p = 0; p < g.k; p += kBlockK) {
      const Range k{p, std::min(p + kBlockK, g.k)};
      pack_block_b(g, n, k, b.data());
      for (int i = rows.begin; i < rows.end; i += kBlockM) {
        const Range m{i, std::min(i + kBlockM, rows.end)};
        pack_block_a(g, m, k, a.data());
        multiply_block(g, m, n, k, a.data(), b.data());
      }
    }
  }
}

// The grid of threads whose rectangles have the shortest sides: their threads read the least.
int threads_over_m(const ladder::Gemm& g, int threads) {
  int best = 1;
  for (int over_m = 1; over_m <= threads; ++over_m) {
    const auto reads = [&](int m) { return g.m / m + g.n / (threads / m); };
    if (threads % over_m == 0 && reads(over_m) < reads(best)) best = over_m;
  }
  return best;
}

// No thread waits for another: each packs what it reads, and no two write the same element.
void multiply(const ladder::Gemm& g) {
  const int threads = omp_get_max_threads();
  const int over_m = threads_over_m(g, threads);
  const int over_n = threads / over_m;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int t = 0; t < threads; ++t) {
    multiply_rectangle(g, ladder::part(g.m, kRows, over_m, t / over_n),
                       ladder::part(g.n, kColumns, over_n, t % over_n));
  }
}

constexpr ladder::Step kStep{"07_threads", multiply, kRows, kColumns};

}  // namespace step7

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step7::kStep, argc, argv); }
#endif
