// What tests of attention's pipelines on a GPU share.
#pragma once

#include <vector>

#include "cuda/gpu_test.h"
#include "host/fmha/fmha_problems.h"

namespace tessera {

class GpuFmhaPipeline : public GpuTest {
 protected:
  // All kernels of a pipeline that serve a problem.
  std::vector<KernelSpec> kernels(Pipeline pipeline, const Problem& problem) const {
    std::vector<KernelSpec> found;
    for (const KernelSpec& spec : family_.candidates(problem, target_)) {
      if (spec.algorithm.pipeline != pipeline || !family_.is_legal(spec, target_)) continue;
      if (family_.supports(spec, problem, target_)) found.push_back(spec);
    }
    return found;
  }

  void check(const KernelSpec& spec, const Problem& problem) {
    check_twice(name_of(spec), problem, expect_correct);
  }

  const Family& family_ = family_of(Op::fmha);
};

}  // namespace tessera
