// Launches on a real driver: captured in a graph, and what they cost on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/driver_calls.h"
#include "cuda/gpu_test.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/families/family.h"

namespace tessera {
namespace {

class GpuLaunch : public GpuTest {
 protected:
  // Captures a run in a graph, whose replays must be correct. After each one `then` is called.
  template <class Then>
  void expect_replays(const Problem& problem, measure::OwnedOperands& owned,
                      measure::PlacedOperands& placed, const RunOptions& options, Then then) {
    void* const stream = options.launch.stream;
    void* graph = nullptr;
    void* runnable = nullptr;
    call<void*, int>("cuStreamBeginCapture_v2", stream, 0);
    dispatcher_->run(problem, placed.operands, options);
    call<void*, void**>("cuStreamEndCapture", stream, &graph);
    call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &runnable, graph, 0);
    for (int replay = 0; replay < 3; ++replay) {
      measure::reset_outputs(owned);
      measure::send_outputs(owned, placed, place_);
      call<void*, void*>("cuGraphLaunch", runnable, stream);
      call<void*>("cuStreamSynchronize", stream);
      measure::fetch_outputs(owned, placed, place_);
      expect_correct(problem, owned);
      then();
    }
    call<void*>("cuGraphExecDestroy", runnable);
    call<void*>("cuGraphDestroy", graph);
  }
};

// A plain kernel, one with partial sums in a workspace, one that copies its operands first.
TEST_F(GpuLaunch, IsCapturedInAGraph) {
  constexpr const char* kKernels[][2] = {
      {"", "gemm m=96 n=136 k=200 dtype=bf16"},
      {"gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered4_slices16_s8_swap_"
       "sm90a",
       "gemm m=9 n=130 k=16384 dtype=bf16"},
      {"gemm_bf16_rcr_tmaws_64x128x64_1x1x1_64x128x16_cooperative_s8_repack_sm90a",
       "gemm m=97 n=131 k=201 dtype=bf16"},
  };
  for (const auto& [kernel, line] : kKernels) {
    SCOPED_TRACE(line);
    const Problem problem = parse_problem(line);
    measure::OwnedOperands owned = measure::random_operands(problem, std::random_device{}());
    measure::PlacedOperands placed = measure::place_operands(owned, place_);
    dispatcher_->run(problem, placed.operands, {.force = kernel});
    const CurrentContext context;
    RunOptions options{.force = kernel};
    call<void**, unsigned>("cuStreamCreate", &options.launch.stream, 1);
    dispatcher_->run(problem, placed.operands, options);  // its workspace belongs to the stream
    expect_replays(problem, owned, placed, options, [] {});
    call<void*>("cuStreamDestroy_v2", options.launch.stream);
  }
}

// With the caller's workspace nothing needs to run before the capture but what loads the kernel.
TEST_F(GpuLaunch, IsCapturedInAGraphWithTheCallersWorkspace) {
  const RunOptions plain{
      .force =
          "gemm_bf16_rcr_tmaws_64x16x128_1x1x1_64x16x16_cooperative_splitordered4_slices16_s8_"
          "swap_sm90a"};
  const Problem problem = parse_problem("gemm m=9 n=130 k=16384 dtype=bf16");
  measure::OwnedOperands owned = measure::random_operands(problem, std::random_device{}());
  measure::PlacedOperands placed = measure::place_operands(owned, place_);
  dispatcher_->run(problem, placed.operands, plain);
  const runtime::DeviceBuffer workspace(place_, dispatcher_->workspace_bytes(problem, plain));
  ASSERT_GT(workspace.size(), 0U);
  place_.backend->fill(workspace.data(), 0xff, workspace.size(), place_.options);
  place_.backend->synchronize(place_.options);
  const CurrentContext context;
  RunOptions options = plain;
  options.launch = {.workspace = workspace.data(), .workspace_bytes = workspace.size()};
  call<void**, unsigned>("cuStreamCreate", &options.launch.stream, 1);
  expect_replays(problem, owned, placed, options, [&] {
    place_.backend->fill(workspace.data(), 0x5a, workspace.size(), place_.options);
    place_.backend->synchronize(place_.options);
  });
  call<void*>("cuStreamDestroy_v2", options.launch.stream);
}

// The driver's own call for a kernel that does nothing but has as long an argument block.
class RawLaunch {
 public:
  RawLaunch() {
    const std::string text = fmt::format(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry nothing(.param .align 64 .b8 block[{}]) {{ ret; }}\n",
        sizeof(block_));
    call<void**, const void*>("cuModuleLoadData", &module_, text.c_str());
    call<void**, void*, const char*>("cuModuleGetFunction", &function_, module_, "nothing");
  }
  ~RawLaunch() { call<void*>("cuModuleUnload", module_); }
  int operator()() {
    void* parameters[] = {block_};
    return launch_(&config_, function_, parameters, nullptr);
  }

 private:
  struct Config {
    unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1}, shared = 0;
    void* stream = nullptr;
    void* attributes = nullptr;
    unsigned num_attributes = 0;
  };
  alignas(64) unsigned char block_[sizeof(device::CudaGemmArguments)] = {};
  Config config_;
  void* module_ = nullptr;
  void* function_ = nullptr;
  int (*launch_)(const Config*, void*, void**, void**) =
      driver_function<int (*)(const Config*, void*, void**, void**)>("cuLaunchKernelEx");
};

// Seconds of the host an action, by the fastest of many short rows that the device keeps up with.
template <class Action>
double seconds_of(const runtime::Place& place, Action action) {
  constexpr int kRows = 50, kCalls = 100;
  double best = 1;
  for (int row = 0; row < kRows; ++row) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) action();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    place.backend->synchronize(place.options);
    best = std::min(best, took.count() / kCalls);
  }
  return best;
}

TEST_F(GpuLaunch, AddsLittleToTheDriversOwnCall) {
  constexpr double kGoal = 1e-6;
  const Problem problem = parse_problem("gemm m=16 n=64 k=64 dtype=bf16");
  const measure::OwnedOperands owned = measure::random_operands(problem, 1);
  const measure::PlacedOperands placed = measure::place_operands(owned, place_);
  const ReadyKernel& ready = dispatcher_->kernel_for(problem);
  const Launch launch =
      family_of(problem).bind(ready.spec, problem, *ready.target, placed.operands);
  ready.loaded->launch(launch, place_.options);

  double raw = 0;
  {
    const CurrentContext context;
    RawLaunch nothing;
    ASSERT_EQ(nothing(), 0);
    raw = seconds_of(place_, [&] { nothing(); });
  }

  const double kernel = seconds_of(place_, [&] { ready.loaded->launch(launch, place_.options); });
  const double whole = seconds_of(place_, [&] { dispatcher_->run(problem, placed.operands); });
  fmt::print("driver {:.0f} ns, launch {:.0f} ns, dispatch and launch {:.0f} ns\n", raw * 1e9,
             kernel * 1e9, whole * 1e9);
  EXPECT_LE(kernel - raw, kGoal);
}

}  // namespace
}  // namespace tessera
