// Tuning for a GPU, with a driver and a compiler that are none: see fake_cuda/.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tessera/base/files.h"
#include "tessera/measure/child.h"
#include "tessera/targets/targets.h"
#include "tessera/tune/autotune.h"

namespace tessera::measure {
namespace {

struct CudaWorkerTest : testing::Test {
  fs::path folder = make_unique_folder(fs::temp_directory_path(), "tessera-cuda-worker-");
  Target target = load_target("sm90a");
  GemmProblem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 20, 30, 40);
  tune::AutotuneOptions options;
  tune::Store store{":memory:"};

  CudaWorkerTest() {
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    setenv("TESSERA_NVRTC", FAKE_NVRTC, 1);
    options.worker = TESSERA_WORKER;
    options.top = 2;
    options.budget_seconds = 20;
    options.candidate_timeout_seconds = 20;
  }
  ~CudaWorkerTest() override { remove_tree(folder); }

  std::vector<KernelSpec> candidates() const {
    const Family& family = family_of(Op::gemm);
    std::vector<KernelSpec> legal;
    for (const KernelSpec& spec : family.candidates(problem, target)) {
      if (family.is_legal(spec, target) && family.supports(spec, problem, target)) {
        legal.push_back(spec);
      }
      if (legal.size() == 2) break;
    }
    return legal;
  }

  std::vector<tune::Measurement> run(const char* behaviour) {
    setenv("FAKE_CUDA_KERNEL", behaviour, 1);
    jit::BuildOptions build;
    build.cache.folder = folder / "cache";
    build.worker = TESSERA_WORKER;
    build.use_shipped_packs = false;
    Registry registry("worker", build);
    return autotune(problem, target, candidates(), registry, store, options);
  }
};

// The fake's clock counts a millisecond a launch.
TEST_F(CudaWorkerTest, ChecksAndTimesKernelsOnTheDevice) {
  const std::vector<tune::Measurement> found = run("gemm");
  ASSERT_EQ(found.size(), 2U);
  for (const tune::Measurement& m : found) {
    EXPECT_EQ(m.outcome, Outcome::ok) << m.note;
    EXPECT_NEAR(m.seconds, 1e-3, 1e-9);
    EXPECT_EQ(m.device, "Fake GPU 0");
  }
}

// The arrays hold the device's addresses.
TEST_F(CudaWorkerTest, FollowsPointerArrays) {
  problem.batch = 5;
  problem.pointer_arrays = true;
  const std::vector<tune::Measurement> found = run("gemm");
  ASSERT_EQ(found.size(), 2U);
  for (const tune::Measurement& m : found) EXPECT_EQ(m.outcome, Outcome::ok) << m.note;
}

TEST_F(CudaWorkerTest, RefusesAWrongKernel) {
  const std::vector<tune::Measurement> found = run("wrong");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].outcome, Outcome::wrong);
  EXPECT_EQ(found[0].note.find("gemm: out[0, 0] is 1000000, the reference is "), 0U)
      << found[0].note;
}

TEST_F(CudaWorkerTest, ReportsAKernelThatFails) {
  const std::vector<tune::Measurement> found = run("crash");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].outcome, Outcome::crashed);
  EXPECT_EQ(found[0].note, "kernel '" + found[0].kernel +
                               "', the last one launched on its stream, failed on device 0 (Fake "
                               "GPU 0, compute capability 9.0): CUDA_ERROR_ILLEGAL_ADDRESS (as the "
                               "test wished)");
}

// Its process is ended, and with it the device's context; the next kernel gets a fresh one.
TEST_F(CudaWorkerTest, EndsAKernelThatHangsAndGoesOn) {
  options.candidate_timeout_seconds = 2;
  const std::vector<KernelSpec> specs = candidates();
  ASSERT_EQ(specs.size(), 2U);
  setenv("FAKE_CUDA_HANG_ON", name_of(specs[0]).c_str(), 1);
  const std::vector<tune::Measurement> found = run("hang");
  unsetenv("FAKE_CUDA_HANG_ON");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kernel, name_of(specs[1]));
  EXPECT_EQ(found[0].outcome, Outcome::ok) << found[0].note;
  EXPECT_EQ(found[1].outcome, Outcome::timeout);
  EXPECT_EQ(found[1].note, "it ran past its limit of 2 s");
  const auto best = store.best("Fake GPU 0", "sm90a", to_string(Problem(problem)), 1);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->kernel, name_of(specs[1]));
}

}  // namespace
}  // namespace tessera::measure
