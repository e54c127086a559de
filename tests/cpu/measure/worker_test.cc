// The real worker program, with real kernels.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cpu/broken_compiler.h"
#include "tessera/base/files.h"
#include "tessera/base/subprocess.h"
#include "tessera/measure/child.h"
#include "tessera/targets/targets.h"
#include "tessera/tune/autotune.h"

namespace tessera::measure {
namespace {

struct WorkerTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-worker-");
  Target target = load_target("generic");
  GemmProblem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 20, 30, 40);
  jit::BuildOptions build;
  tune::AutotuneOptions options;

  WorkerTest() {
    build.cache.folder = folder / "cache";
    options.worker = TESSERA_WORKER;
    options.top = 2;
    options.budget_seconds = 120;  // the machine may be busy
  }
  ~WorkerTest() override { remove_tree(folder); }

  std::vector<KernelSpec> candidates() const {
    std::vector<KernelSpec> legal;
    for (const KernelSpec& spec : family_of(Op::gemm).candidates(problem, target)) {
      const Family& family = family_of(Op::gemm);
      if (family.is_legal(spec, target) && family.supports(spec, problem, target)) {
        legal.push_back(spec);
      }
      if (legal.size() == 2) break;
    }
    return legal;
  }

  std::vector<tune::Measurement> run() const {
    Registry registry("worker", build);
    registry.add_target(target);
    tune::Store store;
    return autotune(problem, target, candidates(), registry, store, options);
  }

  void expect_measured(const std::vector<tune::Measurement>& found) const {
    ASSERT_EQ(found.size(), 2U);
    for (const tune::Measurement& m : found) {
      EXPECT_EQ(m.outcome, Outcome::ok) << m.kernel << ": " << m.note;
      EXPECT_GT(m.seconds, 0);
    }
    EXPECT_LE(found[0].seconds, found[1].seconds);
  }
};

TEST_F(WorkerTest, MeasuresStridedBatchesWithEverything) {
  problem.batch = 2;
  problem.ld_out = 37;
  problem.beta = 0.5F;
  problem.epilogue = parse_epilogue("bias+add+relu");
  expect_measured(run());
}

TEST_F(WorkerTest, PacksBForPreshuffleKernels) {
  problem.preshuffled_b = true;
  expect_measured(run());
}

TEST_F(WorkerTest, TakesAnEmptyProblem) {
  problem.m = 0;
  const std::vector<tune::Measurement> found = run();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].outcome, Outcome::ok) << found[0].note;
}

// No disk takes the kernels: the children find them in this process's descriptors.
TEST_F(WorkerTest, ReachesKernelsThatLiveInMemory) {
  write_file(folder / "plain", "");
  build.cache.folder = folder / "plain" / "cache";
  Registry registry("memory", build);
  ASSERT_TRUE(registry.builder().cache().is_memory_only());
  expect_measured(run());
}

TEST_F(WorkerTest, CatchesAKernelThatWritesOutsideItsWindow) {
  problem.ld_out = 37;
  const testing_support::Breakage all[] = {{"*",
                                            "auto g = static_cast<const GemmArguments*>(arguments);"
                                            "static_cast<float*>(g->out)[g->n] = 1;"}};
  build.compiler = testing_support::broken_compiler(folder, all).string();
  const std::vector<tune::Measurement> found = run();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].outcome, Outcome::wrong);
  EXPECT_EQ(found[0].note,
            "output: 4 bytes outside the 20 x 30 window were written, the first at byte 120 of an "
            "output of 2932 bytes");
}

TEST_F(WorkerTest, AnswersNonsenseWithASentence) {
  const SubprocessResult usage = run_subprocess({TESSERA_WORKER});
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_EQ(usage.output.find("usage: tessera-worker REQUEST"), 0U) << usage.output;
  const SubprocessResult nonsense = run_subprocess({TESSERA_WORKER, "{\"problem\":"});
  EXPECT_EQ(nonsense.exit_code, 1);
  const std::string error = nlohmann::json::parse(nonsense.output).at("error");
  EXPECT_EQ(error.find("worker request: "), 0U) << error;
}

TEST_F(WorkerTest, AnswersAMissingBinaryWithASentence) {
  WorkerRequest request;
  request.problem = to_string(Problem(problem));
  request.target = target;
  request.kernels = {{name_of(candidates().front()), (folder / "none.so").string()}};
  const WorkerReply reply = ask_worker(TESSERA_WORKER, request);
  EXPECT_TRUE(reply.lost);
  EXPECT_EQ(reply.readings.at(0).outcome, Outcome::failed);
  EXPECT_EQ(reply.readings.at(0).note.find("cannot load kernel '" + request.kernels[0].name + "'"),
            0U)
      << reply.readings.at(0).note;
}

}  // namespace
}  // namespace tessera::measure
