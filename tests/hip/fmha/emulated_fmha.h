// Kernels of attention for AMD GPUs on the emulator: random problems, each with a kernel of its own
// signature, against the fp64 reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "hip/gemm/emulated.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/jit/build.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {

class EmulatedFmha : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    try {
      jit::find_hip_compiler({.compiler = {}, .worker = TESSERA_WORKER}, target_);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (emulator::find_objdump().empty()) GTEST_SKIP() << "no llvm-objdump was found";
    fmt::print("seed {}\n", seed_);
  }

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
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    const auto built = jit::Builder(options).build_all(sources, target_, 0);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      SCOPED_TRACE(fmt::format("{} on '{}'", name_of(specs[i]), to_string(Problem(problems[i]))));
      ASSERT_EQ(built[i].error, "");
      EmulatedKernel kernel(read_file(built[i].artifact.binary));
      expect_lean(name_of(specs[i]), sources[i], kernel);
      check(specs[i], sources[i], problems[i], kernel);
    }
    fmt::print("{}: {} problems, {} elements, {} instructions\n", target_.name, problems.size(),
               elements_, instructions_);
  }

  void expect_lean(const std::string& name, const Source& source,
                   const EmulatedKernel& kernel) const {
    for (const std::string& end : source.entries) {
      SCOPED_TRACE(end);
      const emulator::Facts facts = kernel.facts(name + end);
      EXPECT_EQ(facts.scratch_bytes, 0U);
      EXPECT_EQ(facts.vgpr_spills, 0U);
      EXPECT_EQ(facts.sgpr_spills, 0U);
      EXPECT_EQ(facts.uncovered, 0U);
    }
  }

  void check(const KernelSpec& spec, const Source& source, const FmhaProblem& p,
             EmulatedKernel& kernel) {
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("operands of seed {}", seed));
    measure::OwnedOperands owned = measure::random_operands(p, seed, 1, target_.fp8_encoding);
    const Reference wanted = family_.reference(p, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    ASSERT_EQ(kernel.run(name_of(spec), source, family_.bind(spec, p, target_, owned.operands),
                         memory, 1),
              "");
    const Mismatch mismatch = family_.compare(p, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    elements_ += mismatch.checked;
    instructions_ += static_cast<std::int64_t>(kernel.statistics.instructions);
  }

  Target target_ = load_target(GetParam());
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  RandomFmhas fmhas_{seed_};
  std::int64_t elements_ = 0, instructions_ = 0;
};

}  // namespace tessera::fmha
