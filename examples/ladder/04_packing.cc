// Step 4: A and B are copied into the order of their use. docs/ladder/04_packing.md explains it.
#include "ladder.h"

namespace step4 {

constexpr int kRows = 4;
constexpr int kColumns = 32;

// Panels of 4 rows of A: for each p the 4 elements of a column lie side by side.
void pack_a(const ladder::Gemm& g, float* packed) {
  for (int i = 0; i < g.m; i += kRows) {
    for (int p = 0; p < g.k; ++p) {
      for (int r = 0; r < kRows; ++r) *packed++ = g.a[(i + r) * g.k + p];
    }
  }
}

// A panel of 32 columns of B: for each p the 32 elements of a row lie side by side.
void pack_b(const ladder::Gemm& g, int j, float* packed) {
  for (int p = 0; p < g.k; ++p) {
    for (int c = 0; c < kColumns; ++c) *packed++ = g.b[p * g.n + j + c];
  }
}

// Both operands are read from front to back, without a stride.
void tile(int k, const float* a, const float* b, float* out, int ld) {
  float sums[kRows][kColumns] = {};
  for (int p = 0; p < k; ++p, a += kRows, b += kColumns) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kColumns; ++c) sums[r][c] += a[r] * b[c];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) out[r * ld + c] = sums[r][c];
  }
}

void multiply(const ladder::Gemm& g) {
  std::vector<float> a(static_cast<std::size_t>(g.m) * g.k);
  std::vector<float> b(static_cast<std::size_t>(kColumns) * g.k);
  pack_a(g, a.data());
  for (int j = 0; j < g.n; j += kColumns) {
    pack_b(g, j, b.data());
    for (int i = 0; i < g.m; i += kRows) {
      tile(g.k, a.data() + i * g.k, b.data(), g.c + i * g.n + j, g.n);
    }
  }
}

constexpr ladder::Step kStep{"04_packing", multiply, kRows, kColumns};

}  // namespace step4

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step4::kStep, argc, argv); }
#endif
