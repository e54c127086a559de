#include "tessera_kernel.h"

#include <tessera/tessera.hpp>

namespace ladder {

void tessera_on(const Gemm& g, int threads) {
  static tessera::Dispatcher dispatcher;
  tessera::RunOptions options;
  options.launch.threads = threads;
  const auto problem =
      tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rrr, g.m, g.n, g.k);
  dispatcher.run(problem, tessera::GemmOperands{.a = g.a, .b = g.b, .out = g.c}, options);
}

}  // namespace ladder
