// What a launch hands to the driver, and what it keeps.
#include <thread>
#include <vector>

#include "host/runtime/cuda_fixture.h"

namespace tessera::runtime {
namespace {

using fake_cuda::EncodedMap;

TensorMap window(const void* base, std::size_t offset) {
  return {.offset = offset,
          .base = base,
          .dtype = DType::bf16,
          .rank = 3,
          .sizes = {100, 50, 2},
          .strides = {208, 10400},
          .box = {64, 32, 1},
          .swizzle_bytes = 128};
}

struct CudaLaunch : CudaTest {
  DeviceBuffer memory{{&backend(), {}}, 4096};
};

TEST_F(CudaLaunch, HandsOverTheGeometryAndTheArguments) {
  Launch launch = small_launch();
  launch.steps[0].grid = {7, 3, 2};
  launch.steps[0].block = {96, 1, 1};
  launch.steps[0].shared_memory_bytes = 100'000;
  const auto kernel = load();
  kernel->launch(launch, {.stream = stream()});
  const fake_cuda::LaunchRecord got = last_record();
  EXPECT_STREQ(got.kernel, "kernel");
  EXPECT_EQ(got.stream, stream());
  EXPECT_EQ(got.device, 0);
  EXPECT_EQ((std::vector<unsigned>(got.grid, got.grid + 3)), (std::vector<unsigned>{7, 3, 2}));
  EXPECT_EQ((std::vector<unsigned>(got.block, got.block + 3)), (std::vector<unsigned>{96, 1, 1}));
  EXPECT_EQ((std::vector<unsigned>(got.cluster, got.cluster + 3)),
            (std::vector<unsigned>{1, 1, 1}));
  EXPECT_EQ(got.shared_bytes, 100'000U);
  EXPECT_EQ(got.max_shared_bytes, 100'000);
  EXPECT_EQ(got.any_cluster, 0);
  EXPECT_EQ(std::memcmp(got.arguments, launch.arguments.data(), launch.arguments.size()), 0);
}

TEST_F(CudaLaunch, DoesNothingForAnEmptyLaunch) {
  Launch launch = small_launch();
  launch.steps = {};
  load()->launch(launch, {});
  EXPECT_EQ(fake().counters().launches, 0);
}

TEST_F(CudaLaunch, LoadsTheModuleOncePerDeviceAndUnloadsIt) {
  {
    const auto kernel = load();
    EXPECT_EQ(fake().counters().modules, 0);
    for (int i = 0; i < 3; ++i) {
      kernel->launch(small_launch(), {.device = 0});
      kernel->launch(small_launch(), {.device = 1});
      EXPECT_EQ(last_record().device, 1);
    }
    EXPECT_EQ(fake().counters().modules, 2);
  }
  EXPECT_EQ(fake().counters().unloads, 2);
}

TEST_F(CudaLaunch, LeavesTheCallersContextCurrent) {
  load()->launch(small_launch(), {.device = 1});
  EXPECT_GT(fake().counters().pushes, 0);
  EXPECT_EQ(fake().counters().pushes, fake().counters().pops);
}

TEST_F(CudaLaunch, AllowsLargeClusters) {
  Launch launch = small_launch();
  launch.steps[0].cluster = {16, 1, 1};
  launch.steps[0].grid = {32, 1, 1};
  load()->launch(launch, {});
  EXPECT_EQ(last_record().any_cluster, 1);
  EXPECT_EQ(last_record().cluster[0], 16U);
}

TEST_F(CudaLaunch, CutsAPersistentGridToWhatTheDeviceRunsAtOnce) {
  struct Case {
    unsigned grid;
    unsigned cluster;
    unsigned expected;
  };
  fake().settings().blocks_per_unit = 2;  // of 132 units
  fake().settings().max_clusters = 60;
  const Case cases[] = {
      {1000, 1, 264}, {264, 1, 264}, {100, 1, 100}, {1000, 4, 240}, {120, 4, 120}};
  for (const Case& c : cases) {
    Launch launch = small_launch();
    launch.steps[0].extent = Step::Extent::resident;
    launch.steps[0].grid = {c.grid, 1, 1};
    launch.steps[0].cluster = {c.cluster, 1, 1};
    const auto kernel = load();
    kernel->launch(launch, {});
    EXPECT_EQ(last_record().grid[0], c.expected) << c.grid << " in clusters of " << c.cluster;
    const int queries = fake().counters().occupancy_queries;
    kernel->launch(launch, {});
    EXPECT_EQ(fake().counters().occupancy_queries, queries);
  }
}

TEST_F(CudaLaunch, RefusesAPersistentKernelThatDoesNotFit) {
  fake().settings().blocks_per_unit = 0;
  Launch launch = small_launch();
  launch.steps[0].extent = Step::Extent::resident;
  launch.steps[0].block = {384, 1, 1};
  launch.steps[0].shared_memory_bytes = 200'000;
  EXPECT_EQ(
      error_of(ErrorCode::launch_failed, [&] { load()->launch(launch, {}); }),
      "kernel: does not fit on device 0 (Fake GPU 0, compute capability 9.0) with 384 threads "
      "and 200000 bytes of shared memory a block, in clusters of 1");
}

TEST_F(CudaLaunch, EncodesTensorMapsIntoTheArguments) {
  Launch launch = small_launch();
  launch.tensor_maps.push(window(memory.data(), 0));
  launch.tensor_maps.push(window(memory.data(), 256));
  launch.tensor_maps[1].dtype = DType::fp8;
  launch.tensor_maps[1].swizzle_bytes = 32;
  load()->launch(launch, {});
  const fake_cuda::LaunchRecord got = last_record();
  EncodedMap first{}, second{};
  std::memcpy(&first, got.arguments, sizeof(first));
  std::memcpy(&second, got.arguments + 256, sizeof(second));
  EXPECT_EQ(first.base, reinterpret_cast<std::uint64_t>(memory.data()));
  EXPECT_EQ(first.type, 9U);
  EXPECT_EQ(first.sizes[1], 50U);
  EXPECT_EQ(first.strides[1], 10400U);
  EXPECT_EQ(first.box[0], 64U);
  EXPECT_EQ(first.swizzle, 3U);
  EXPECT_EQ(first.steps[2], 1U);
  EXPECT_EQ(first.rank, 3U);
  EXPECT_EQ(second.type, 0U);
  EXPECT_EQ(second.swizzle, 1U);
  EXPECT_EQ(got.arguments[128], 0x11);  // between the maps nothing changes
}

TEST_F(CudaLaunch, RemembersTensorMapsUntilAnythingDiffers) {
  Launch launch = small_launch();
  launch.tensor_maps.push(window(static_cast<char*>(memory.data()) + 512, 0));
  const auto kernel = load();
  kernel->launch(launch, {});
  kernel->launch(launch, {});
  EXPECT_EQ(fake().counters().encodes, 1);
  void (*const changes[])(TensorMap&) = {
      [](TensorMap& m) { m.base = static_cast<const char*>(m.base) + 16; },
      [](TensorMap& m) { m.dtype = DType::fp16; },
      [](TensorMap& m) { m.sizes[0] = 99; },
      [](TensorMap& m) { m.sizes[1] = 49; },
      [](TensorMap& m) { m.sizes[2] = 1; },
      [](TensorMap& m) { m.strides[0] = 224; },
      [](TensorMap& m) { m.strides[1] = 11200; },
      [](TensorMap& m) { m.box[0] = 32; },
      [](TensorMap& m) { m.box[1] = 16; },
      [](TensorMap& m) { m.box[2] = 2; },
      [](TensorMap& m) { m.steps[1] = 2; },
      [](TensorMap& m) { m.rank = 2; },
      [](TensorMap& m) { m.im2col.pixels = 64; },
      [](TensorMap& m) { m.swizzle_bytes = 64; }};
  int expected = 1;
  for (const auto& change : changes) {
    Launch other = launch;
    change(other.tensor_maps[0]);
    kernel->launch(other, {});
    EXPECT_EQ(fake().counters().encodes, ++expected);
    EncodedMap got{};
    std::memcpy(&got, last_record().arguments, sizeof(got));
    EXPECT_EQ(got.box[0], got.pixels == 0 ? other.tensor_maps[0].box[0] : 0);
    EXPECT_EQ(got.sizes[0], other.tensor_maps[0].sizes[0]);
  }
}

TEST_F(CudaLaunch, RefusesAMisalignedWindow) {
  Launch launch = small_launch();
  launch.tensor_maps.push(window(reinterpret_cast<const void*>(0x1008), 0));
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { load()->launch(launch, {}); }),
            "kernel: the copy engine cannot move the window bf16 at 0x1008, 100 x 50 x 2 elements "
            "with strides of 208 and 10400 bytes, copied in boxes of 64 x 32 x 1: its address must "
            "be a multiple of 16 bytes, got one 8 past");
  launch.tensor_maps[0] = window(memory.data(), 0);
  launch.tensor_maps[0].strides[0] = 204;
  EXPECT_EQ(
      error_of(ErrorCode::launch_failed, [&] { load()->launch(launch, {}); })
              .substr(std::string("kernel: the copy engine cannot move the window bf16 at ").size())
              .find("its strides must be multiples of 16 bytes, got 204") != std::string::npos,
      true);
  EXPECT_EQ(fake().counters().launches, 0);
}

TEST_F(CudaLaunch, GrowsTheWorkspaceOfEachStreamAndZeroesIt) {
  Launch launch = small_launch();
  launch.workspace.address_offset = 64;
  const auto workspace_of = [&](std::size_t bytes, void* on, int device) {
    launch.workspace.bytes = bytes;
    load()->launch(launch, {.stream = on, .device = device});
    unsigned char* address = nullptr;
    std::memcpy(&address, last_record().arguments + 64, sizeof(address));
    return address;
  };
  // A stream of its own: others may have left a workspace on the default one.
  unsigned char* const small = workspace_of(1000, stream(), 0);
  EXPECT_TRUE(std::all_of(small, small + 1000, [](unsigned char c) { return c == 0; }));
  EXPECT_EQ(workspace_of(500, stream(), 0), small);
  EXPECT_NE(workspace_of(1000, stream(), 1), small);
  const int allocations = fake().counters().allocations;
  unsigned char* const large = workspace_of(1001, stream(), 0);
  EXPECT_NE(large, small);
  EXPECT_EQ(workspace_of(2000, stream(), 0), large);  // it grew to twice its size
  EXPECT_EQ(fake().counters().allocations, allocations + 1);
  EXPECT_EQ(fake().counters().frees, 0);  // captured graphs may still use the small one
}

TEST_F(CudaLaunch, AllocatesNothingWhileAStreamIsCaptured) {
  int fresh = 0;
  const LaunchOptions options{.stream = &fresh};
  Launch launch = small_launch();
  const auto kernel = load();
  fake().settings().capturing = 1;
  EXPECT_EQ(
      error_of(ErrorCode::launch_failed, [&] { kernel->launch(launch, options); }),
      "kernel: is not on device 0 (Fake GPU 0, compute capability 9.0) yet, and nothing can be "
      "loaded while the stream is captured; launch it once before the capture");
  fake().settings().capturing = 0;
  kernel->launch(launch, options);
  launch.workspace.bytes = 4096;
  fake().settings().capturing = 1;
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(launch, options); }),
            "kernel: needs 4096 bytes of workspace on this stream, which has 0, and nothing can be "
            "allocated while the stream is captured; launch it once before the capture");
  fake().settings().capturing = 0;
  kernel->launch(launch, options);
  fake().settings().capturing = 1;
  const fake_cuda::Counters before = fake().counters();
  kernel->launch(launch, options);
  const fake_cuda::Counters& after = fake().counters();
  EXPECT_EQ(after.launches, before.launches + 1);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.modules, before.modules);
  EXPECT_EQ(after.fills, before.fills);
}

TEST_F(CudaLaunch, ServesManyThreadsAtOnce) {
  constexpr int kThreads = 8, kLaunches = 200;
  const auto kernel = load();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kLaunches; ++i) {
        Launch launch = small_launch();
        launch.steps[0].extent = Step::Extent::resident;
        launch.steps[0].grid = {1000, 1, 1};
        launch.workspace.bytes = static_cast<std::size_t>(64 + i);
        launch.tensor_maps.push(window(memory.data(), 0));
        launch.tensor_maps[0].sizes[0] = static_cast<std::uint64_t>(8 * (t + 1));
        launch.workspace.address_offset = 256;
        int* const on = reinterpret_cast<int*>(std::uintptr_t{64} * static_cast<unsigned>(t % 3));
        kernel->launch(launch, {.stream = on, .device = t % kDevices});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(fake().counters().launches, kThreads * kLaunches);
  EXPECT_EQ(fake().counters().modules, kDevices);
  EXPECT_EQ(fake().counters().pushes, fake().counters().pops);
  std::vector<int> seen(kThreads + 1, 0);
  for (int i = 0; i < kThreads * kLaunches; ++i) {
    EncodedMap map{};
    std::memcpy(&map, fake().record(i).arguments, sizeof(map));
    ++seen.at(map.sizes[0] / 8);
  }
  EXPECT_EQ(seen, (std::vector<int>{0, 200, 200, 200, 200, 200, 200, 200, 200}));
}

}  // namespace
}  // namespace tessera::runtime
