// Step 5: vectors of the machine's width. docs/ladder/05_vectors.md explains it.
#include "ladder.h"
#include "vectors.h"

namespace step5 {

using ladder::kColumns;
using ladder::kRows;

void multiply(const ladder::Gemm& g) {
  std::vector<float> a(static_cast<std::size_t>(g.m) * g.k);
  std::vector<float> b(static_cast<std::size_t>(kColumns) * g.k);
  for (int i = 0; i < g.m; i += kRows) {
    ladder::pack_a(g.a + i * g.k, g.k, kRows, g.k, a.data() + i * g.k);
  }
  for (int j = 0; j < g.n; j += kColumns) {
    ladder::pack_b(g.b + j, g.n, kColumns, g.k, b.data());
    for (int i = 0; i < g.m; i += kRows) {
      ladder::tile(g.k, a.data() + i * g.k, b.data(), g.c + i * g.n + j, g.n, false);
    }
  }
}

constexpr ladder::Step kStep{"05_vectors", multiply, kRows, kColumns};

}  // namespace step5

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step5::kStep, argc, argv); }
#endif
