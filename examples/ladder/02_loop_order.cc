// Step 2: the same products in another order. docs/ladder/02_loop_order.md explains it.
#include "ladder.h"

namespace step2 {

// The innermost loop walks along a row of B and a row of C: neighbours in memory.
void multiply(const ladder::Gemm& g) {
  for (int i = 0; i < g.m; ++i) {
    float* c = g.c + i * g.n;
    std::fill(c, c + g.n, 0.0F);
    for (int p = 0; p < g.k; ++p) {
      const float a = g.a[i * g.k + p];
      const float* b = g.b + p * g.n;
      for (int j = 0; j < g.n; ++j) c[j] += a * b[j];
    }
  }
}

constexpr ladder::Step kStep{"02_loop_order", multiply, 1, 1};

}  // namespace step2

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step2::kStep, argc, argv); }
#endif
