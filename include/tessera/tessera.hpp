// Tessera: declare, generate, compile, cache, choose and run tile kernels. This header is the whole
// C++ API; nothing else needs to be included.
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
// Every failure is a tessera::Error whose what() is a sentence.
#pragma once

#include <string_view>

#include "tessera/base/children.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/base/streams.h"
#include "tessera/base/subprocess.h"
#include "tessera/base/text.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/family.h"
#include "tessera/jit/build.h"
#include "tessera/jit/cache.h"
#include "tessera/jit/compilers.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/learn/gains.h"
#include "tessera/learn/lightgbm.h"
#include "tessera/learn/model.h"
#include "tessera/learn/ranker.h"
#include "tessera/learn/shelf.h"
#include "tessera/measure/operands.h"
#include "tessera/measure/sweep.h"
#include "tessera/measure/sweep_check.h"
#include "tessera/measure/sweep_columns.h"
#include "tessera/measure/sweep_exchange.h"
#include "tessera/measure/sweep_store.h"
#include "tessera/registry/generate.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/runtime/cuda_info.h"
#include "tessera/runtime/runtime.h"
#include "tessera/select/select.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/numeric.h"
#include "tessera/spec/problem.h"
#include "tessera/spec/target.h"
#include "tessera/targets/targets.h"
#include "tessera/train/dataset.h"
#include "tessera/train/folds.h"
#include "tessera/train/metrics.h"
#include "tessera/train/report.h"
#include "tessera/train/train.h"
#include "tessera/tune/autotune.h"
#include "tessera/tune/search.h"
#include "tessera/tune/store.h"
#include "tessera/tune/winners.h"

namespace tessera {

// The release that these headers belong to.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace tessera
