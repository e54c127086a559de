// Step 8: sizes that no tile divides, and work on the sums while they are near.
// docs/ladder/08_edges_and_epilogue.md explains it.
#include "blocks.h"

namespace step8 {

using ladder::kBlockK;
using ladder::kBlockM;
using ladder::kBlockN;
using ladder::kColumns;
using ladder::kRows;
using ladder::Range;

// What happens to finished sums: relu(sum + bias of the column).
struct Epilogue {
  const float* bias = nullptr;
  bool relu = false;
};

// Panels are padded with zeros, so that every tile is whole; one at an edge goes through a scratch
// tile, of which the part that exists is copied.
void edge_tile(int k, const float* a, const float* b, float* out, int ld, int rows, int columns,
               bool add) {
  float scratch[kRows * kColumns];
  ladder::tile(k, a, b, scratch, kColumns, false);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const float sum = scratch[r * kColumns + c];
      out[r * ld + c] = add ? out[r * ld + c] + sum : sum;
    }
  }
}

// Runs after the last block of k, when the tile was just written and lies in L1.
void finish(const Epilogue& e, float* out, int ld, int column, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    float* row = out + r * ld;
    if (e.bias != nullptr) {
      for (int c = 0; c < columns; ++c) row[c] += e.bias[column + c];
    }
    if (e.relu) {
      for (int c = 0; c < columns; ++c) row[c] = std::max(row[c], 0.0F);
    }
  }
}

void multiply_block(const ladder::Gemm& g, const Epilogue& e, Range m, Range n, Range k,
                    const float* a, const float* b) {
  for (int j = n.begin; j < n.end; j += kColumns) {
    for (int i = m.begin; i < m.end; i += kRows) {
      const int rows = std::min(kRows, m.end - i), columns = std::min(kColumns, n.end - j);
      const float* panel_a = a + (i - m.begin) * k.size();
      const float* panel_b = b + (j - n.begin) * k.size();
      float* out = g.c + i * g.n + j;
      if (rows == kRows && columns == kColumns) {
        ladder::tile(k.size(), panel_a, panel_b, out, g.n, k.begin > 0);
      } else {
        edge_tile(k.size(), panel_a, panel_b, out, g.n, rows, columns, k.begin > 0);
      }
      if (k.end == g.k) finish(e, out, g.n, j, rows, columns);
    }
  }
}

void multiply_with(const ladder::Gemm& g, const Epilogue& e) {
  auto& [a, b] = ladder::space();
  for (int j = 0; j < g.n; j += kBlockN) {
    const Range n{j, std::min(j + kBlockN, g.n)};
    for (int p = 0; p < g.k; p += kBlockK) {
      const Range k{p, std::min(p + kBlockK, g.k)};
      pack_block_b(g, n, k, b.data());
      for (int i = 0; i < g.m; i += kBlockM) {
        const Range m{i, std::min(i + kBlockM, g.m)};
        pack_block_a(g, m, k, a.data());
        multiply_block(g, e, m, n, k, a.data(), b.data());
      }
    }
  }
}

void multiply(const ladder::Gemm& g) { multiply_with(g, {}); }

constexpr ladder::Step kStep{"08_edges_and_epilogue", multiply, 1, 1};

}  // namespace step8

#ifndef LADDER_ALL
int main(int argc, char** argv) {
  // Bias and ReLU in the same pass, against the naive product and a pass of its own.
  std::mt19937 random(7);
  const int m = 37, n = 75, k = 401;
  const auto a = ladder::random_matrix(m, k, random), b = ladder::random_matrix(k, n, random);
  const auto bias = ladder::random_matrix(1, n, random);
  std::vector<float> c(m * n), expected(m * n);
  step8::multiply_with({m, n, k, a.data(), b.data(), c.data()}, {bias.data(), true});
  ladder::naive({m, n, k, a.data(), b.data(), expected.data()});
  for (int i = 0; i < m * n; ++i) expected[i] = std::max(expected[i] + bias[i % n], 0.0F);
  if (!ladder::equal(step8::kStep, {m, n, k, a.data(), b.data(), c.data()}, expected)) return 1;
  return ladder::run(step8::kStep, argc, argv);
}
#endif
