// Tessera: declare, generate, compile, cache, choose and run tile kernels. This header is the
// stable C++ API, and libtessera.so exports what it declares; nothing else needs to be included.
//
//   #include <tessera/tessera.hpp>
//   #include <vector>
//
//   int main() {
//     std::vector<float> a(128 * 768, 1.0F), b(3072 * 768, 2.0F), out(128 * 3072);
//     tessera::GemmProblem problem =
//         tessera::gemm_problem(tessera::DType::fp32, tessera::GemmLayout::rcr, 128, 3072, 768);
//     tessera::Dispatcher dispatcher;  // for this machine
//     dispatcher.run(problem, tessera::GemmOperands{.a = a.data(), .b = b.data(),
//                                                   .out = out.data()});
//     return out[0] == 2.0F * 768 ? 0 : 1;
//   }
//
// Every failure is a tessera::Error whose what() is a sentence. What the library knows about an
// operation is asked by the functions in operations.h. The table behind them is no part of this
// API: tools.hpp has it.
#pragma once

#include "tessera/base/children.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/version.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/dispatch/range_plan.h"
#include "tessera/families/fmha_builder.h"
#include "tessera/families/operations.h"
#include "tessera/jit/build.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/select/select.h"
#include "tessera/spec/einsum.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/numeric.h"
#include "tessera/spec/problem.h"
#include "tessera/spec/target.h"
#include "tessera/targets/targets.h"
