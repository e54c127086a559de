// Tests of a family's kernels on the emulator, for each of AMD's targets.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "hip/gemm/emulated.h"
#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/jit/build.h"
#include "tessera/jit/hip_compilers.h"
#include "tessera/targets/targets.h"

namespace tessera {

class EmulatedTest : public testing::TestWithParam<std::string> {
 protected:
  using Prepare = std::function<void(const Operands&)>;

  explicit EmulatedTest(Op op) : family_(family_of(op)) {}

  void SetUp() override {
    try {
      jit::find_hip_compiler({.compiler = {}, .worker = TESSERA_WORKER}, target_);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (emulator::find_objdump().empty()) GTEST_SKIP() << "no llvm-objdump was found";
    fmt::print("seed {}\n", seed_);
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

  void expect_lean(const KernelSpec& spec, const Source& source,
                   const EmulatedKernel& kernel) const {
    for (const std::string& entry : source.entries) {
      const emulator::Facts facts = kernel.facts(name_of(spec) + entry);
      EXPECT_EQ(facts.scratch_bytes, 0U);
      EXPECT_EQ(facts.vgpr_spills, 0U);
      EXPECT_EQ(facts.sgpr_spills, 0U);
      EXPECT_EQ(facts.uncovered, 0U);
    }
  }

  // Runs the kernel and compares every element; `prepare` may change what is read.
  void check(
      const KernelSpec& spec, const Source& source, EmulatedKernel& kernel, const Problem& problem,
      const Prepare& prepare = [](const Operands&) {}) {
    ASSERT_EQ(family_.supports(spec, problem, target_).reason, "") << to_string(problem);
    const std::uint64_t seed = random_();
    SCOPED_TRACE(fmt::format("'{}', operands of seed {}", to_string(problem), seed));
    measure::OwnedOperands owned = measure::random_operands(problem, seed, 1, target_.fp8_encoding);
    prepare(owned.operands);
    const Reference wanted =
        family_.reference(problem, owned.operands, {.fp8 = target_.fp8_encoding});
    emulator::Memory memory;
    add_operands(owned, memory);
    const Launch launch = family_.bind(spec, problem, target_, owned.operands);
    ASSERT_EQ(kernel.run(name_of(spec), source, launch, memory, 1), "");
    const Mismatch mismatch = family_.compare(problem, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    ++problems_;
    elements_ += mismatch.checked;
  }

  // Builds the kernels, whose names lack the target, and calls visit(spec, source, kernel).
  template <class Visit>
  void for_each_kernel(const std::vector<std::string>& names, const Visit& visit) {
    std::vector<KernelSpec> specs;
    std::vector<Source> sources;
    for (const std::string& name : names) {
      specs.push_back(parse_name(fmt::format("{}_{}", name, target_.name)));
      ASSERT_EQ(family_.is_legal(specs.back(), target_).reason, "") << name;
      sources.push_back(family_.emit(specs.back(), target_));
    }
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    const auto built = jit::Builder(options).build_all(sources, target_, 0);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      SCOPED_TRACE(names[i]);
      ASSERT_EQ(built[i].error, "");
      EmulatedKernel kernel(read_file(built[i].artifact.binary));
      expect_lean(specs[i], sources[i], kernel);
      visit(specs[i], sources[i], kernel);
      instructions_ += kernel.statistics.instructions;
    }
    fmt::print("{}: {} kernels, {} problems, {} elements, {} instructions\n", target_.name,
               names.size(), problems_, elements_, instructions_);
  }

  Target target_ = load_target(GetParam());
  const Family& family_;
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};

 private:
  int problems_ = 0;
  std::int64_t elements_ = 0;
  std::uint64_t instructions_ = 0;
};

}  // namespace tessera
