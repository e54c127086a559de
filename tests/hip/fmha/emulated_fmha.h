// Kernels of attention for AMD GPUs on the emulator: random problems, each with a kernel of its own
// signature, against the fp64 reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hip/emulated_test.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/fmha.h"

namespace tessera::fmha {

class EmulatedFmha : public EmulatedTest {
 protected:
  EmulatedFmha() : EmulatedTest(Op::fmha) {}

  // Builds the general kernel of each problem, counts its code, and runs it.
  void check_all(const std::vector<FmhaProblem>& problems) {
    std::vector<KernelSpec> specs;
    for (const FmhaProblem& p : problems) specs.push_back(family_.general(p, target_));
    std::size_t next = 0;
    for_each_built(specs,
                   [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                     check(spec, source, kernel, problems[next++]);
                   });
  }

  RandomFmhas fmhas_{seed_};
};

}  // namespace tessera::fmha
