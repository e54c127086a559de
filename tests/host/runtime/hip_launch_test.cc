// What a launch hands to HIP, and what it keeps.
#include <cstring>
#include <vector>

#include "host/runtime/hip_fixture.h"
#include "tessera/device/cuda/abi.h"

namespace tessera::runtime {
namespace {

using HipLaunch = HipTest;

TEST_F(HipLaunch, HandsOverTheGeometryAndTheArgumentsAsOneBuffer) {
  Launch launch = small_launch();
  launch.steps[0].grid = {7, 3, 2};
  launch.steps[0].block = {256, 1, 1};
  int second = 0;
  launch.arguments.add(&second);
  load()->launch(launch, {.stream = stream(), .device = 1});
  const fake_hip::LaunchRecord got = last_record();
  EXPECT_STREQ(got.kernel, "kernel");
  EXPECT_EQ(got.stream, stream());
  EXPECT_EQ(got.device, 1);
  EXPECT_EQ((std::vector<unsigned>(got.grid, got.grid + 3)), (std::vector<unsigned>{7, 3, 2}));
  EXPECT_EQ((std::vector<unsigned>(got.block, got.block + 3)), (std::vector<unsigned>{256, 1, 1}));
  EXPECT_EQ(got.shared_bytes, 0U);
  EXPECT_EQ(got.bytes, 512 + sizeof(void*));
  EXPECT_EQ(std::memcmp(got.arguments, launch.arguments.data(), got.bytes), 0);
}

TEST_F(HipLaunch, LoadsTheModuleOncePerDeviceAndUnloadsIt) {
  {
    const auto kernel = load();
    EXPECT_EQ(fake_amd().counters().modules, 0);
    for (int i = 0; i < 3; ++i) {
      kernel->launch(small_launch(), {.device = 0});
      kernel->launch(small_launch(), {.device = 1});
      EXPECT_EQ(last_record().device, 1);
    }
    EXPECT_EQ(fake_amd().counters().modules, 2);
  }
  EXPECT_EQ(fake_amd().counters().unloads, 2);
}

TEST_F(HipLaunch, LeavesTheCallersDeviceAndLastErrorAlone) {
  const auto kernel = load();
  fake_amd().set_device(1);
  kernel->launch(small_launch(), {.device = 0});
  EXPECT_EQ(fake_amd().device(), 1);
  Launch launch = small_launch();
  int of_host = 0;
  launch.pointers.push(&of_host);
  error_of(ErrorCode::invalid_argument, [&] { kernel->launch(launch, {.device = 0}); });
  EXPECT_EQ(fake_amd().device(), 1);
  EXPECT_EQ(fake_amd().last_error(), 0);
  fake_amd().set_device(0);
}

TEST_F(HipLaunch, CutsAPersistentGridToWhatTheDeviceRunsAtOnce) {
  fake_amd().settings().blocks_per_unit = 2;  // of 304 compute units
  const auto kernel = load();
  for (const auto& [grid, expected] : {std::pair{1000U, 608U}, std::pair{100U, 100U}}) {
    Launch launch = small_launch();
    launch.steps[0].extent = Step::Extent::resident;
    launch.steps[0].grid = {grid, 1, 1};
    launch.blocks_offset = 12;
    kernel->launch(launch, {});
    EXPECT_EQ(last_record().grid[0], expected);
    unsigned told = 0;
    std::memcpy(&told, last_record().arguments + 12, sizeof(told));
    EXPECT_EQ(told, expected);
  }
  EXPECT_EQ(fake_amd().counters().occupancy_queries, 1);
}

TEST_F(HipLaunch, RefusesWhatAmdsGpusDoNotHave) {
  Launch launch = small_launch();
  launch.steps[0].cluster = {4, 1, 1};
  EXPECT_EQ(error_of(ErrorCode::internal, [&] { load()->launch(launch, {}); }),
            "kernel: has clusters of 4 blocks, which AMD's HIP runtime does not know");
  launch = small_launch();
  launch.tensor_maps.push({});
  EXPECT_EQ(error_of(ErrorCode::internal, [&] { load()->launch(launch, {}); }),
            "kernel: has 1 tensor maps, which AMD's HIP runtime does not know");
}

TEST_F(HipLaunch, GivesEachStreamAZeroedWorkspaceThatGrows) {
  Launch launch = small_launch();
  launch.workspace = {.bytes = device::kCounterBytes + 100,
                      .counter_bytes = 64,
                      .clear_bytes = 16,
                      .address_offset = 8};
  const auto kernel = load();
  kernel->launch(launch, {.stream = stream()});
  void* first = nullptr;
  std::memcpy(&first, last_record().arguments + 8, sizeof(first));
  EXPECT_EQ(static_cast<unsigned char*>(first)[0], 0);
  EXPECT_EQ(static_cast<unsigned char*>(first)[device::kCounterBytes], 0);
  EXPECT_EQ(fake_amd().counters().allocations, 1);
  kernel->launch(launch, {.stream = stream()});
  EXPECT_EQ(fake_amd().counters().allocations, 1);
  launch.workspace.bytes *= 8;
  kernel->launch(launch, {.stream = stream()});
  EXPECT_EQ(fake_amd().counters().allocations, 2);
}

TEST_F(HipLaunch, TakesTheCallersWorkspaceAndRefusesASecondStream) {
  Launch launch = small_launch();
  launch.workspace = {
      .bytes = device::kCounterBytes, .counter_bytes = 64, .clear_bytes = 0, .address_offset = 0};
  const DeviceBuffer memory({&backend(), {}}, device::kCounterBytes);
  const auto kernel = load();
  LaunchOptions options{
      .stream = stream(), .workspace = memory.data(), .workspace_bytes = memory.size()};
  kernel->launch(launch, options);
  EXPECT_EQ(static_cast<unsigned char*>(memory.data())[63], 0);
  EXPECT_EQ(static_cast<unsigned char*>(memory.data())[64], 0xcd);
  fake_amd().settings().busy_stream = stream();
  options.stream = nullptr;
  const std::string words =
      error_of(ErrorCode::launch_failed, [&] { kernel->launch(launch, options); });
  EXPECT_NE(words.find("still works in the workspace"), std::string::npos) << words;
  EXPECT_EQ(fake_amd().last_error(), 0);
}

TEST_F(HipLaunch, LoadsAndAllocatesNothingDuringACapture) {
  const auto kernel = load();
  fake_amd().settings().capturing = 1;
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), {}); }),
            "kernel: is not on device 0 (Fake Instinct 0, gfx942:sramecc+:xnack-) yet, and nothing "
            "can be loaded while the stream is captured; launch it once before the capture");
  fake_amd().settings().capturing = 0;
  kernel->launch(small_launch(), {});
  fake_amd().settings().capturing = 1;
  kernel->launch(small_launch(), {});
  Launch launch = small_launch();
  launch.workspace.bytes = 1 << 24;
  const std::string words =
      error_of(ErrorCode::launch_failed, [&] { kernel->launch(launch, {.stream = &launch}); });
  EXPECT_NE(words.find("nothing can be allocated while the stream is captured"), std::string::npos)
      << words;
}

TEST_F(HipLaunch, ChecksWhoseMemoryAPointerIs) {
  const auto kernel = load();
  const auto launch_with = [&](const void* pointer) {
    Launch launch = small_launch();
    launch.pointers.push(pointer);
    kernel->launch(launch, {.device = 0});
  };
  const DeviceBuffer here({&backend(), {.device = 0}}, 256);
  const DeviceBuffer elsewhere({&backend(), {.device = 1}}, 256);
  launch_with(here.data());
  static std::array<char, 64> pinned;
  fake_amd().pin(pinned.data(), pinned.size());
  launch_with(pinned.data());
  int of_host = 0;
  std::string words = error_of(ErrorCode::invalid_argument, [&] { launch_with(&of_host); });
  EXPECT_NE(words.find("is not memory of a GPU; copy the operand to device 0 (Fake Instinct 0, "
                       "gfx942:sramecc+:xnack-)"),
            std::string::npos)
      << words;
  words = error_of(ErrorCode::invalid_argument, [&] { launch_with(elsewhere.data()); });
  EXPECT_NE(words.find("is memory of device 1, the kernel was to run on device 0"),
            std::string::npos)
      << words;
}

TEST_F(HipLaunch, MeasuresTimeAndCopies) {
  const auto kernel = load();
  const auto begin = backend().make_event({}), end = backend().make_event({});
  begin->record({});
  kernel->launch(small_launch(), {});
  end->record({});
  EXPECT_DOUBLE_EQ(end->seconds_since(*begin), 1e-3);
  const DeviceBuffer memory({&backend(), {}}, 8);
  const std::array<char, 8> out = {'t', 'e', 's', 's', 'e', 'r', 'a', '!'};
  std::array<char, 8> in{};
  backend().copy_to_device(memory.data(), out.data(), out.size(), {});
  backend().copy_to_host(in.data(), memory.data(), in.size(), {});
  EXPECT_EQ(in, out);
  backend().fill(memory.data(), 7, 4, {});
  backend().copy_to_host(in.data(), memory.data(), in.size(), {});
  EXPECT_EQ(in[3], 7);
  EXPECT_EQ(in[4], 'e');
  EXPECT_EQ(backend().cache_bytes({}), std::size_t{4} << 20);
  EXPECT_EQ(backend().device_name({.device = 1}), "Fake Instinct 1");
}

}  // namespace
}  // namespace tessera::runtime
