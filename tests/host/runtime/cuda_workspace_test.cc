// Memory that the caller brings as a workspace.
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "host/runtime/cuda_fixture.h"
#include "tessera/device/cuda/abi.h"

namespace tessera::runtime {
namespace {

constexpr std::size_t kWorkspaceBytes = device::kCounterBytes + 8192;

struct CudaWorkspace : CudaTest {
  DeviceBuffer memory{{&backend(), {}}, kWorkspaceBytes};
  DeviceBuffer elsewhere{{&backend(), {.device = 1}}, kWorkspaceBytes};
  int other_stream_here = 0;

  static Launch with_workspace(std::size_t bytes = kWorkspaceBytes) {
    Launch launch = small_launch();
    launch.workspace = {.bytes = bytes, .address_offset = 64};
    return launch;
  }
  LaunchOptions options(void* workspace, std::size_t bytes = kWorkspaceBytes) {
    return {.stream = stream(), .workspace = workspace, .workspace_bytes = bytes};
  }
  unsigned char* begin() { return static_cast<unsigned char*>(memory.data()); }
  std::string refusal(ErrorCode code, const LaunchOptions& given) {
    const int before = fake().counters().launches;
    const auto kernel = load();
    const std::string said = error_of(code, [&] { kernel->launch(with_workspace(), given); });
    EXPECT_EQ(fake().counters().launches, before);
    return said;
  }
  std::string text_of(const void* pointer) { return fmt::format("{}", pointer); }
};

void* workspace_of(const fake_cuda::LaunchRecord& record) {
  void* address = nullptr;
  std::memcpy(&address, record.arguments + 64, sizeof(address));
  return address;
}

TEST_F(CudaWorkspace, IsUsedInPlaceOfOurs) {
  const int allocations = fake().counters().allocations;
  load()->launch(with_workspace(), options(memory.data()));
  EXPECT_EQ(workspace_of(last_record()), memory.data());
  EXPECT_EQ(fake().counters().allocations, allocations);
  EXPECT_EQ(fake().counters().fills, 0);  // nothing of it was to be zero
  EXPECT_EQ(load()->workspace_bytes(with_workspace(), {}), kWorkspaceBytes);
}

TEST_F(CudaWorkspace, IsNotLookedAtWhereNoneIsNeeded) {
  const auto kernel = load();
  kernel->launch(small_launch(), options(reinterpret_cast<void*>(0x123), 1));
  kernel->launch(with_workspace(0), options(nullptr, 77));
  EXPECT_EQ(fake().counters().launches, 2);
}

// Whatever the memory held: the counters and what is to be cleared, and no byte more.
TEST_F(CudaWorkspace, IsClearedWhereItMustBeZero) {
  struct Case {
    std::size_t counters, clear, zeros;
  };
  const Case cases[] = {{0, 0, 0},
                        {256, 0, 256},
                        {0, 512, 512},
                        {256, 512, device::kCounterBytes + 512},
                        {device::kCounterBytes, 8192, kWorkspaceBytes}};
  for (const Case& c : cases) {
    backend().fill(memory.data(), 0x77, kWorkspaceBytes, {.stream = stream()});
    Launch launch = with_workspace();
    launch.workspace.counter_bytes = c.counters;
    launch.workspace.clear_bytes = c.clear;
    load()->launch(launch, options(memory.data()));
    EXPECT_EQ(std::count(begin(), begin() + kWorkspaceBytes, 0),
              static_cast<std::ptrdiff_t>(c.zeros));
    EXPECT_EQ(*begin(), c.counters > 0 ? 0 : 0x77);
    EXPECT_EQ(begin()[device::kCounterBytes], c.clear > 0 ? 0 : 0x77);
  }
}

// Ours has counters that are zero already; the data are cleared at each launch.
TEST_F(CudaWorkspace, OursIsClearedBehindTheCounters) {
  Launch launch = with_workspace();
  launch.workspace.counter_bytes = 256;
  launch.workspace.clear_bytes = 512;
  const auto kernel = load();
  int fresh = 0;
  for (int i = 0; i < 2; ++i) {
    kernel->launch(launch, {.stream = &fresh});
    auto* const ours = static_cast<unsigned char*>(workspace_of(last_record()));
    EXPECT_TRUE(std::all_of(ours + device::kCounterBytes, ours + device::kCounterBytes + 512,
                            [](unsigned char c) { return c == 0; }));
    EXPECT_EQ(ours[device::kCounterBytes + 512], i == 0 ? 0 : 0x55);
    std::fill_n(ours + device::kCounterBytes, 8192, 0x55);
  }
  EXPECT_EQ(fake().counters().fills, 3);  // one when it was allocated
}

TEST_F(CudaWorkspace, MoreIsToBeClearedThanThereIs) {
  Launch launch = with_workspace();
  launch.workspace.clear_bytes = 8193;
  EXPECT_EQ(error_of(ErrorCode::internal, [&] { load()->launch(launch, options(memory.data())); }),
            "kernel: 0 bytes of counters and 8193 bytes behind them are to be cleared, the "
            "workspace has 73728 bytes, 65536 of them for counters");
}

TEST_F(CudaWorkspace, TooSmall) {
  EXPECT_EQ(refusal(ErrorCode::invalid_argument, options(memory.data(), kWorkspaceBytes - 1)),
            "kernel: the workspace must hold at least 73728 bytes for this launch, got 73727");
}

TEST_F(CudaWorkspace, Misaligned) {
  EXPECT_EQ(refusal(ErrorCode::invalid_argument, options(begin() + 128)),
            "kernel: the workspace must begin at a multiple of 256 bytes, got an address 128 past "
            "one");
}

TEST_F(CudaWorkspace, NullOfSomeSize) {
  EXPECT_EQ(refusal(ErrorCode::invalid_argument, options(nullptr)),
            "kernel: the workspace must not be null when workspace_bytes is 73728; set it to 0 to "
            "use the library's own");
}

TEST_F(CudaWorkspace, OfAnotherDevice) {
  EXPECT_EQ(refusal(ErrorCode::invalid_argument, options(elsewhere.data())),
            "kernel: the workspace at " + text_of(elsewhere.data()) +
                " is memory of device 1, the kernel was to run on device 0; allocate it there");
}

TEST_F(CudaWorkspace, OfTheHost) {
  const AlignedBuffer host(8 << 20);  // at a multiple of 2 MB
  EXPECT_EQ(refusal(ErrorCode::invalid_argument, options(host.data())),
            "kernel: the workspace at " + text_of(host.data()) +
                " is not memory of a GPU; allocate it on device 0 (Fake GPU 0, compute capability "
                "9.0)");
}

TEST_F(CudaWorkspace, IsAskedAboutOnce) {
  const auto kernel = load();
  kernel->launch(with_workspace(), options(memory.data()));
  const int queries = fake().counters().pointer_queries;
  kernel->launch(with_workspace(), options(memory.data()));
  EXPECT_EQ(fake().counters().pointer_queries, queries);
}

TEST_F(CudaWorkspace, UsedByTwoStreamsAtOnce) {
  const auto kernel = load();
  kernel->launch(with_workspace(), options(memory.data()));
  fake().settings().busy_stream = stream();
  LaunchOptions other = options(begin() + 256, kWorkspaceBytes - 256);  // some of it
  other.stream = &other_stream_here;
  Launch launch = with_workspace(kWorkspaceBytes - 256);
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(launch, other); }),
            "kernel: a launch on stream " + text_of(stream()) +
                " still works in the workspace at " + text_of(begin() + 256) +
                ", this one was to be on stream " + text_of(&other_stream_here) +
                "; wait for it, or bring a workspace for each");
  kernel->launch(with_workspace(), options(memory.data()));  // its own stream goes on
  fake().settings().busy_stream = nullptr;
  kernel->launch(launch, other);
  EXPECT_EQ(last_record().stream, &other_stream_here);
}

TEST_F(CudaWorkspace, OfManyStreamsIsNotKeptForEver) {
  const auto kernel = load();
  const int events = fake().held().events;
  std::vector<int> streams(1000);
  for (int& each : streams) {
    LaunchOptions given = options(memory.data());
    given.stream = &each;
    kernel->launch(with_workspace(), given);
  }
  EXPECT_LE(fake().held().events, events + 2);
  const DeviceBuffer large({&backend(), {}}, 256 * 1000);
  for (std::size_t i = 0; i < 1000; ++i) {
    kernel->launch(with_workspace(256), options(static_cast<char*>(large.data()) + 256 * i, 256));
  }
  EXPECT_LE(fake().held().events, events + 2);
}

// It runs when the graph does: nothing is allocated, recorded or asked about an earlier stream.
TEST_F(CudaWorkspace, IsCapturedInAGraph) {
  const auto kernel = load();
  kernel->launch(small_launch(), {.stream = stream()});
  fake().settings().capturing = 1;
  const fake_cuda::Counters before = fake().counters();
  Launch launch = with_workspace();
  launch.workspace.counter_bytes = 256;
  kernel->launch(launch, options(memory.data()));
  const fake_cuda::Counters& after = fake().counters();
  EXPECT_EQ(after.launches, before.launches + 1);
  EXPECT_EQ(after.fills, before.fills + 1);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.event_records, before.event_records);
}

TEST_F(CudaWorkspace, IsSharedByThreadsOfOneStream) {
  const auto kernel = load();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) kernel->launch(with_workspace(), options(memory.data()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake().counters().launches, 800);
}

}  // namespace
}  // namespace tessera::runtime
