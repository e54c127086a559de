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
    std::vector<Source> sources;
    for (const FmhaProblem& p : problems) {
      SCOPED_TRACE(to_string(Problem(p)));
      specs.push_back(family_.general(p, target_));
      ASSERT_EQ(family_.is_legal(specs.back(), target_).reason, "");
      sources.push_back(family_.emit(specs.back(), target_));
    }
    const auto built = builder().build_all(sources, target_, 0);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} on '{}'", name_of(specs[i]), to_string(Problem(problems[i]))));
      ASSERT_EQ(built[i].error, "");
      EmulatedKernel kernel(read_file(built[i].artifact.binary));
      expect_lean(specs[i], sources[i], kernel);
      check(specs[i], sources[i], kernel, problems[i]);
      instructions_ += kernel.statistics.instructions;
    }
    fmt::print("{}: {} problems, {} elements, {} instructions\n", target_.name, problems.size(),
               elements_, instructions_);
  }

  RandomFmhas fmhas_{seed_};
};

}  // namespace tessera::fmha
