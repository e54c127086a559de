// Tests of a family's kernels on the emulator, for each of AMD's targets.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
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
  bool one_in(int count) { return between(1, count) == 1; }

  // The kernels of the target's essential sets that the filter takes, each once.
  std::vector<KernelSpec> essential(bool (*takes)(const KernelSpec&)) const {
    std::set<std::string> names;
    std::vector<KernelSpec> specs;
    for (const std::string& set : family_.preselected_names()) {
      if (!set.ends_with("_essential")) continue;
      try {
        for (KernelSpec& spec : family_.preselected(set, target_)) {
          if (takes(spec) && names.insert(name_of(spec)).second) specs.push_back(std::move(spec));
        }
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;  // a set of other targets
      }
    }
    return specs;
  }

  static void expect_lean(const KernelSpec&, const Source& source, const EmulatedKernel& kernel) {
    for (const std::string& entry : source.entries) {
      SCOPED_TRACE(entry);
      const emulator::Facts facts = kernel.facts(source.name + entry);
      EXPECT_EQ(facts.scratch_bytes, 0U);
      EXPECT_EQ(facts.vgpr_spills, 0U);
      EXPECT_EQ(facts.sgpr_spills, 0U);
      EXPECT_EQ(facts.uncovered, 0U);
    }
  }

  // How many matrix instructions the code of a kernel has; all of them are one.
  static std::uint64_t mfmas_in(const emulator::Facts& facts) {
    EXPECT_LE(facts.mfmas.size(), 1U);
    return facts.mfmas.empty() ? 0 : facts.mfmas.begin()->second;
  }

  // Runs the kernel and compares every element; `prepare` may change what is read, and learns
  // where the operands are.
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
    Launch launch = family_.bind(spec, problem, target_, owned.operands);
    adjust_(launch);
    const std::uint64_t before = kernel.statistics.mfmas;
    ASSERT_EQ(kernel.run(source.name, source, launch, memory, 1), "");
    executed_mfmas_ = kernel.statistics.mfmas - before;
    const Mismatch mismatch = family_.compare(problem, owned.operands, wanted);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(measure::gaps_intact(owned), "");
    ++problems_;
    elements_ += mismatch.checked;
  }

  static jit::Builder builder() {
    jit::BuildOptions options;
    options.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.worker = TESSERA_WORKER;
    options.use_shipped_packs = false;
    return jit::Builder(options);
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
    const auto built = builder().build_all(sources, target_, 0);
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
  std::function<void(Launch&)> adjust_ = [](Launch&) {};  // what a launch of much work is like
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::uint64_t executed_mfmas_ = 0;  // by the last check
  int problems_ = 0;
  std::int64_t elements_ = 0;
  std::uint64_t instructions_ = 0;
};

}  // namespace tessera
