// Launches on a real driver: captured in a graph, and what they cost on the host. The functions
// that only these tests need are taken from the driver here.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/device/cuda/gemm/gemm_arguments.h"
#include "tessera/dispatch/dispatcher.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

template <class Function>
Function driver_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

// Calls the driver's function of that name with these argument types; it must succeed.
template <class... Types>
void call(const char* name, std::type_identity_t<Types>... arguments) {
  EXPECT_EQ(driver_function<int (*)(Types...)>(name)(arguments...), 0) << name;
}

class GpuLaunch : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = runtime::backend_for(target_).unavailable_reason(target_);
    if (!reason.empty()) GTEST_SKIP() << reason;
    DispatcherOptions options;
    options.target = "sm90a";
    options.build.cache.folder = TESSERA_BUILD "/kernel-cache";
    options.build.worker = TESSERA_WORKER;
    dispatcher_ = std::make_unique<Dispatcher>(options);
  }

  Target target_ = load_target("sm90a");
  runtime::Place place_{&runtime::backend_for(target_), {}};
  std::unique_ptr<Dispatcher> dispatcher_;
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
    // The context is current here once something of it was used; a stream of it is ours.
    dispatcher_->run(problem, placed.operands, {.force = kernel});
    void* stream = nullptr;
    void* context = nullptr;
    call<void**, int>("cuDevicePrimaryCtxRetain", &context, 0);
    call<void*>("cuCtxPushCurrent_v2", context);
    call<void**, unsigned>("cuStreamCreate", &stream, 1);
    RunOptions options{.force = kernel};
    options.launch.stream = stream;
    dispatcher_->run(problem, placed.operands, options);  // its workspace belongs to the stream

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
      const Mismatch mismatch = family_of(problem).verify(problem, owned.operands);
      EXPECT_TRUE(mismatch.ok) << mismatch.message;
    }
    call<void*>("cuGraphExecDestroy", runnable);
    call<void*>("cuGraphDestroy", graph);
    call<void*>("cuStreamDestroy_v2", stream);
    call<void**>("cuCtxPopCurrent_v2", &context);
    call<int>("cuDevicePrimaryCtxRelease_v2", 0);
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
  void* stream = nullptr;
  void* context = nullptr;
  call<void**, int>("cuDevicePrimaryCtxRetain", &context, 0);
  call<void*>("cuCtxPushCurrent_v2", context);
  call<void**, unsigned>("cuStreamCreate", &stream, 1);
  RunOptions options = plain;
  options.launch = {
      .stream = stream, .workspace = workspace.data(), .workspace_bytes = workspace.size()};

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
    const Mismatch mismatch = family_of(problem).verify(problem, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    place_.backend->fill(workspace.data(), 0x5a, workspace.size(), place_.options);
    place_.backend->synchronize(place_.options);
  }
  call<void*>("cuGraphExecDestroy", runnable);
  call<void*>("cuGraphDestroy", graph);
  call<void*>("cuStreamDestroy_v2", stream);
  call<void**>("cuCtxPopCurrent_v2", &context);
  call<int>("cuDevicePrimaryCtxRelease_v2", 0);
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
  const Launch launch = family_of(problem).bind(ready.spec, problem, placed.operands);
  ready.loaded->launch(launch, place_.options);

  void* context = nullptr;
  call<void**, int>("cuDevicePrimaryCtxRetain", &context, 0);
  call<void*>("cuCtxPushCurrent_v2", context);
  double raw = 0;
  {
    RawLaunch nothing;
    ASSERT_EQ(nothing(), 0);
    raw = seconds_of(place_, [&] { nothing(); });
  }
  call<void**>("cuCtxPopCurrent_v2", &context);
  call<int>("cuDevicePrimaryCtxRelease_v2", 0);

  const double kernel = seconds_of(place_, [&] { ready.loaded->launch(launch, place_.options); });
  const double whole = seconds_of(place_, [&] { dispatcher_->run(problem, placed.operands); });
  fmt::print("driver {:.0f} ns, launch {:.0f} ns, dispatch and launch {:.0f} ns\n", raw * 1e9,
             kernel * 1e9, whole * 1e9);
  EXPECT_LE(kernel - raw, kGoal);
}

}  // namespace
}  // namespace tessera
