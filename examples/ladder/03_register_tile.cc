// Step 3: a tile of C stays in registers. docs/ladder/03_register_tile.md explains it.
#include "ladder.h"

namespace step3 {

constexpr int kRows = 4;
constexpr int kColumns = 32;

// For all of k: each element of A that was loaded serves 32 products, each of B serves 4.
void tile(const ladder::Gemm& g, int i, int j) {
  float sums[kRows][kColumns] = {};
  const float* a = g.a + i * g.k;
  for (int p = 0; p < g.k; ++p) {
    const float* b = g.b + p * g.n + j;
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r * g.k + p];
      for (int c = 0; c < kColumns; ++c) sums[r][c] += x * b[c];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) g.c[(i + r) * g.n + j + c] = sums[r][c];
  }
}

void multiply(const ladder::Gemm& g) {
  for (int j = 0; j < g.n; j += kColumns) {
    for (int i = 0; i < g.m; i += kRows) tile(g, i, j);
  }
}

constexpr ladder::Step kStep{"03_register_tile", multiply, kRows, kColumns};

}  // namespace step3

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step3::kStep, argc, argv); }
#endif
