// Tuning for a GPU, with a driver and a compiler that are none: see fake_cuda/.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "cpu/waiting_worker.h"
#include "tessera/base/files.h"
#include "tessera/dispatch/dispatcher.h"
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
  tune::Store store;

  CudaWorkerTest() {
    setenv("TESSERA_CUDA_DRIVER", FAKE_CUDA, 1);
    setenv("TESSERA_NVRTC", FAKE_NVRTC, 1);
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("FAKE_NVML_REVERSED", "1", 1);
    options.worker = TESSERA_WORKER;
    options.top = 2;
    options.budget_seconds = 120;
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

  jit::BuildOptions build_options() const {
    jit::BuildOptions build;
    build.cache.folder = folder / "cache";
    build.worker = TESSERA_WORKER;
    build.use_shipped_packs = false;
    return build;
  }

  std::vector<tune::Measurement> run(const char* behaviour) {
    setenv("FAKE_CUDA_KERNEL", behaviour, 1);
    Registry registry("worker", build_options());
    return autotune(problem, target, candidates(), registry, store, options);
  }

  DispatcherOptions dispatcher_options() const {
    DispatcherOptions o;
    o.target = "sm90a";
    o.build = build_options();
    o.tuning_store = (folder / "store.sqlite").string();
    o.tuning_worker = TESSERA_WORKER;
    o.autotune_seconds = 120;
    o.autotune_top = 2;
    return o;
  }

  static RunOptions on_device(int device) {
    RunOptions run;
    run.launch.device = device;
    return run;
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

// Each of two GPUs of different models has a winner of its own.
TEST_F(CudaWorkerTest, LooksUpTheWinnerOfTheDevice) {
  const std::vector<KernelSpec> specs = candidates();
  ASSERT_EQ(specs.size(), 2U);
  const DispatcherOptions o = dispatcher_options();
  for (int device = 0; device < 2; ++device) {
    tune::Measurement row;
    row.device = "Fake GPU " + std::to_string(device);
    row.target = "sm90a";
    row.problem = to_string(Problem(problem));
    row.kernel = name_of(specs[static_cast<std::size_t>(device)]);
    row.threads = 1;
    row.outcome = Outcome::ok;
    row.seconds = 1e-3;
    tune::Store(o.tuning_store).record(row);
  }
  const Dispatcher dispatcher(o);
  for (int device = 0; device < 2; ++device) {
    const Decision decision = dispatcher.explain(problem, on_device(device));
    EXPECT_EQ(decision.source, ChoiceSource::tuned);
    EXPECT_EQ(decision.name, name_of(specs[static_cast<std::size_t>(device)])) << device;
  }
}

TEST_F(CudaWorkerTest, MeasuresOnTheDeviceOfTheRun) {
  setenv("FAKE_CUDA_KERNEL", "gemm", 1);
  DispatcherOptions o = dispatcher_options();
  o.autotune = true;
  Dispatcher dispatcher(o);
  EXPECT_EQ(dispatcher.kernel_for(problem, on_device(1)).source, ChoiceSource::tuned);
  const std::vector<tune::Measurement> rows = tune::Store(o.tuning_store).all();
  EXPECT_EQ(rows.size(), 2U);
  for (const tune::Measurement& row : rows) EXPECT_EQ(row.device, "Fake GPU 1") << row.note;
  EXPECT_NE(Dispatcher(dispatcher_options()).explain(problem, on_device(0)).source,
            ChoiceSource::tuned);
}

// A measurement on one GPU does not disturb one on another.
TEST_F(CudaWorkerTest, MeasuresOnTwoDevicesAtOnce) {
  setenv("FAKE_CUDA_KERNEL", "gemm", 1);
  const testing_support::WaitingWorker worker(folder, TESSERA_WORKER, "\"device\":0,");
  DispatcherOptions o = dispatcher_options();
  o.autotune = true;
  o.tuning_worker = worker.program();
  Dispatcher dispatcher(o);
  std::atomic<bool> has_measured = false;
  std::thread first([&] {
    EXPECT_EQ(dispatcher.kernel_for(problem, on_device(0)).source, ChoiceSource::tuned);
    has_measured = true;
  });
  worker.wait_until_begun();
  EXPECT_EQ(dispatcher.kernel_for(problem, on_device(1)).source, ChoiceSource::tuned);
  EXPECT_FALSE(has_measured);
  worker.go_on();
  first.join();
}

// The parent counts devices in another way than its child, as when CUDA_VISIBLE_DEVICES was changed
// between.
TEST_F(CudaWorkerTest, RefusesADeviceThatIsAnother) {
  WorkerRequest request;
  request.problem = to_string(Problem(problem));
  request.target = target;
  request.kernels = {{name_of(candidates().front()), "/nowhere"}};
  request.device = 1;
  request.device_name = "Fake GPU 0";
  const WorkerReply reply = ask_worker(TESSERA_WORKER, request);
  EXPECT_EQ(reply.readings.at(0).outcome, Outcome::failed);
  EXPECT_EQ(reply.readings.at(0).note,
            "device 1 is a 'Fake GPU 1' in the worker process and a 'Fake GPU 0' in its parent; "
            "set the variables that select devices before the program starts");
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
