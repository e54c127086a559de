// Kernels of attention for AMD GPUs on the emulator: random problems, each with a kernel of its own
// signature, against the fp64 reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
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
    for_each_built(
        specs,
        [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
          check(spec, source, kernel, problems[next++]);
        },
        1);
  }

  // Problems that draw() makes, of every type in turn; `usual` of them in a usual run.
  template <class Types, class Draw>
  std::vector<FmhaProblem> drawn(std::size_t usual, std::size_t others, const Types& types,
                                 const Draw& draw) {
    const std::size_t count =
        is_usual_run(target_.name) ? usual : others * static_cast<std::size_t>(test_times());
    std::vector<FmhaProblem> problems;
    while (problems.size() < count) {
      const FmhaProblem p = draw();
      if (p.in == types[problems.size() % types.size()]) problems.push_back(p);
    }
    return problems;
  }

  RandomFmhas fmhas_{seed_};
};

}  // namespace tessera::fmha
