// A machine with packs and without a compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/base/log.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/dispatch/range_plan.h"
#include "tessera/families/operations.h"
#include "tessera/jit/pack.h"
#include "tessera/jit/toolchain.h"
#include "tessera/measure/operands.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

const GemmProblem kProblem = gemm_problem(DType::fp32, GemmLayout::rcr, 33, 17, 29);

// A pack with the third best kernel for the problem, alone.
struct NoCompiler : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-no-compiler-");
  fs::path pack = folder / "one.pack";
  std::uint64_t seed = std::random_device{}();
  std::vector<std::string> warnings;
  KernelSpec best;
  KernelSpec packed;

  NoCompiler() {
    RecordProperty("seed", std::to_string(seed));
    const Decision decision = Dispatcher(with_compiler()).explain(kProblem);
    best = decision.considered.at(0).spec;
    packed = decision.considered.at(2).spec;
    write_pack_of(packed);
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level == LogLevel::warning) warnings.emplace_back(line);
    });
  }
  ~NoCompiler() override {
    set_log_sink({});
    remove_tree(folder);
  }

  DispatcherOptions with_compiler() const {
    DispatcherOptions o;
    o.target = "generic";
    o.build.cache.folder = folder / "cache";
    o.build.use_shipped_packs = false;
    return o;
  }
  DispatcherOptions without_compiler() const {
    DispatcherOptions o = with_compiler();
    o.build.compiler = "/nowhere/c++";
    o.build.packs = {pack.string()};
    return o;
  }

  void write_pack_of(const KernelSpec& spec) const {
    const Target target = load_target("generic");
    const Source source = family_of(kProblem).emit(spec, target);
    const jit::Artifact artifact = jit::Builder(with_compiler().build).build(source, target);
    const jit::PackInput input{{source.name, jit::source_key(source, target), target.name, 0},
                               artifact.binary};
    jit::write_pack(pack, {&input, 1});
  }
};

TEST_F(NoCompiler, TheBestPackedKernelRuns) {
  Dispatcher dispatcher(without_compiler());
  const measure::OwnedOperands owned = measure::random_operands(kProblem, seed);
  RunOptions run;
  run.verify = true;
  EXPECT_NO_THROW(dispatcher.run(kProblem, owned.operands, run));
  const ReadyKernel& kernel = dispatcher.kernel_for(kProblem);
  EXPECT_EQ(kernel.name, name_of(packed));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("runs on " + name_of(packed) + ": the best of those that are ready; "),
            std::string::npos)
      << warnings[0];
  EXPECT_NE(warnings[0].find(name_of(best) + " among them"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("/nowhere/c++"), std::string::npos) << warnings[0];
}

TEST_F(NoCompiler, PlansOverARangeChooseAmongPackedKernels) {
  Dispatcher dispatcher(without_compiler());
  const auto plan = dispatcher.plan_range(kProblem, {"m", 20, 400});
  for (const PlannedPart& part : plan->parts()) EXPECT_EQ(part.kernel, name_of(packed));
  const measure::OwnedOperands owned = measure::random_operands(kProblem, seed);
  plan->launch(kProblem.m, owned.operands);
  EXPECT_TRUE(verify(kProblem, owned.operands).ok) << seed;
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("chooses among the kernels that are ready"), std::string::npos)
      << warnings[0];
}

TEST_F(NoCompiler, ExplainSaysTheSame) {
  const Decision with = Dispatcher(with_compiler()).explain(kProblem);
  const Decision without = Dispatcher(without_compiler()).explain(kProblem);
  EXPECT_EQ(without.name, name_of(packed));
  EXPECT_EQ(without.considered.size(), with.considered.size());
  EXPECT_EQ(without.considered.front().name, without.name);
  const auto refused = [&](const Considered& c) { return c.name == name_of(best); };
  const auto found = std::find_if(without.considered.begin(), without.considered.end(), refused);
  ASSERT_NE(found, without.considered.end());
  EXPECT_EQ(found->refusal.find("it is in no pack, and cannot be compiled here: "), 0U)
      << found->refusal;
}

TEST_F(NoCompiler, TheBestKernelNeedsNoReplacement) {
  write_pack_of(best);
  Dispatcher dispatcher(without_compiler());
  EXPECT_EQ(dispatcher.kernel_for(kProblem).name, name_of(best));
  EXPECT_EQ(dispatcher.explain(kProblem).why, Dispatcher(with_compiler()).explain(kProblem).why);
  EXPECT_TRUE(warnings.empty());
}

// Whatever the batch: a kernel that is ready for some batches only would give others other bits.
TEST_F(NoCompiler, BatchesAgreeOnAKernelThatIsReady) {
  DispatcherOptions wish = without_compiler();
  wish.batch_invariant = true;
  const auto serves_any = [](const KernelSpec& spec) {
    return spec.algorithm.pipeline == Pipeline::packab && spec.algorithm.wave.k == 1;
  };
  const std::vector<KernelSpec> all = kernels_for(kProblem, load_target("generic"));
  const auto found = std::find_if(all.rbegin(), all.rend(), serves_any);
  ASSERT_NE(found, all.rend());
  write_pack_of(*found);
  Dispatcher dispatcher(wish);
  for (const std::int64_t m : {1, 33, 500}) {
    const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, m, 17, 29);
    EXPECT_EQ(dispatcher.kernel_for(p).name, name_of(*found));
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0].find("any batch of gemm gets one of the 1 kernels that are ready: "), 0U)
      << warnings[0];
}

TEST_F(NoCompiler, WhatIsForcedIsNotReplaced) {
  Dispatcher dispatcher(without_compiler());
  RunOptions run;
  run.force = name_of(best);
  try {
    dispatcher.kernel_for(kProblem, run);
    FAIL() << "ran a kernel that could not be built";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed) << error.what();
  }
}

TEST_F(NoCompiler, NothingPackedServesTheProblem) {
  Dispatcher dispatcher(without_compiler());
  try {
    dispatcher.kernel_for(gemm_problem(DType::int8, GemmLayout::rcr, 33, 17, 29));
    FAIL() << "ran without a kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed) << error.what();
    EXPECT_NE(std::string(error.what()).find("/nowhere/c++"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
