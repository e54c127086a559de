// Step 1: three loops, as the formula has them. docs/ladder/01_naive.md explains it.
#include "ladder.h"

namespace step1 {

void multiply(const ladder::Gemm& g) {
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int p = 0; p < g.k; ++p) sum += g.a[i * g.k + p] * g.b[p * g.n + j];
      g.c[i * g.n + j] = sum;
    }
  }
}

constexpr ladder::Step kStep{"01_naive", multiply, 1, 1};

}  // namespace step1

#ifndef LADDER_ALL
int main(int argc, char** argv) { return ladder::run(step1::kStep, argc, argv); }
#endif
