// Step 6: blocks that stay in the caches. docs/ladder/06_blocking.md explains it.
#include "blocks.h"

namespace step6 {

using ladder::kBlockK;
using ladder::kBlockM;
using ladder::kBlockN;
using ladder::kColumns;
using ladder::kRows;
using ladder::Range;

// A panel of B comes from L3 once. While all panels of A pass by, both are read from L2.
void multiply_block(const ladder::Gemm& g, Range m, Range n, Range k, const float* a,
                    const float* b) {
  for (int j = n.begin; j < n.end; j += kColumns) {
    for (int i = m.begin; i < m.end; i += kRows) {
      ladder::tile(k.size(), a + (i - m.begin) * k.size(), b + (j - n.begin) * k.size(),
                   g.c + i * g.n + j, g.n, k.begin > 0);
    }
  }
}

// The five loops of Goto and van de Geijn: columns, k, rows, and the two of multiply_block.
void multiply(const ladder::Gemm& g) {
  auto& [a, b] = ladder::space();
  for (int j = 0; j < g.n; j += kBlockN) {
    const Range n{j, std::min(j + kBlockN, g.n)};
    for (int p = 0; p < g.k; p += kBlockK) {
      const Range k{p, std::min(p + kBlockK, g.k)};
      pack_block_b(g, n, k, b.data());
      for (int i = 0; i < g.m; i += kBlockM) {
        const Range m{i, std::min(i + kBlockM, g.m)};
        pack_block_a(g, m, k, a.data());
        multiply_block(g, m, n, k, a.data(), b.data());
      }
    }
  }
}

constexpr ladder::Step kStep{"06_blocking", multiply, kRows, kColumns};

}  // namespace step6

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step6::kStep, argc, argv); }
#endif
