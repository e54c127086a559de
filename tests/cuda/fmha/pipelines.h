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

  struct Case {
    KernelSpec spec;
    Problem problem;
  };
  // Few of these kernels are shipped, and each takes seconds to compile: they are built side by
  // side before the first one runs.
  void check_all(const std::vector<Case>& cases) {
    std::vector<KernelSpec> specs;
    for (const Case& each : cases) specs.push_back(each.spec);
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const Case& each : cases) check(each.spec, each.problem);
  }
  // Every kernel of the pipeline that serves the problem.
  void add_all(Pipeline pipeline, const Problem& problem, std::vector<Case>& cases) const {
    const std::vector<KernelSpec> some = kernels(pipeline, problem);
    ASSERT_FALSE(some.empty()) << to_string(problem);
    for (const KernelSpec& spec : some) cases.push_back({spec, problem});
  }
  // One of them.
  void add_one(Pipeline pipeline, const Problem& problem, fmha::RandomFmhas& random,
               std::vector<Case>& cases) const {
    const std::vector<KernelSpec> some = kernels(pipeline, problem);
    ASSERT_FALSE(some.empty()) << to_string(problem);
    cases.push_back({random.one_of(some), problem});
  }

  const Family& family_ = family_of(Op::fmha);
};

}  // namespace tessera
