// Every call of the driver fails once, then with an error that ends the context, then for good:
// what is said, what is kept, and that the next call works.
#include <fmt/format.h>

#include <thread>
#include <vector>

#include "host/runtime/cuda_fixture.h"
#include "tessera/runtime/benchmark.h"

namespace tessera::runtime {
namespace {

constexpr std::size_t kElements = 64;
constexpr std::size_t kBytes = kElements * sizeof(float);

// Where a launch of this test keeps its operands.
struct Operands {
  const float* from;
  float* to;
};

void double_all(const fake_cuda::LaunchRecord& record) {
  Operands operands{};
  std::memcpy(&operands, record.arguments, sizeof(operands));
  for (std::size_t i = 0; i < kElements; ++i) operands.to[i] = 2 * operands.from[i];
}

TensorMap window(const void* base) {
  return {.offset = 256,
          .base = base,
          .dtype = DType::fp32,
          .rank = 3,
          .sizes = {8, 8, 1},
          .strides = {32, 256},
          .box = {8, 8, 1},
          .swizzle_bytes = 32};
}

struct CudaFaults : CudaTest {
  // A launch that needs all that a kernel can need.
  static Launch full_launch(const DeviceBuffer& from, const DeviceBuffer& to) {
    Launch launch = small_launch();
    const Operands operands{static_cast<const float*>(from.data()), static_cast<float*>(to.data())};
    std::memcpy(launch.arguments.data(), &operands, sizeof(operands));
    launch.pointers = {from.data(), to.data()};
    launch.steps = {
        {.entry = 1, .extent = Step::Extent::any, .grid = {4, 1, 1}, .block = {128, 1, 1}},
        {.extent = Step::Extent::resident,
         .grid = {160, 1, 1},
         .cluster = {16, 1, 1},
         .shared_memory_bytes = 100'000}};
    launch.workspace = {
        .bytes = 80'000, .counter_bytes = 64, .clear_bytes = 1000, .address_offset = 64};
    launch.tensor_maps.push(window(from.data()));
    return launch;
  }

  // Loads, allocates, copies, launches with the caller's workspace and with ours, times, waits; the
  // result is looked at.
  std::vector<float> work() {
    const Place place{&backend(), {.stream = stream()}};
    std::vector<float> values(kElements, 21);
    const auto kernel = load("kernel", {"", "_prepare"});
    const DeviceBuffer from(place, kBytes), to(place, kBytes), workspace(place, 80'000);
    backend().copy_to_device(from.data(), values.data(), kBytes, place.options);
    backend().fill(to.data(), 0, kBytes, place.options);
    const Launch launch = full_launch(from, to);
    fake().settings().kernel = nullptr;
    LaunchOptions options = place.options;
    options.workspace = workspace.data();
    options.workspace_bytes = workspace.size();
    kernel->launch(launch, options);
    fake().settings().kernel = double_all;
    kernel->launch(launch, place.options);
    backend().synchronize(place.options);
    const Protocol protocol{.rounds = 1, .warmup = 1, .min_seconds = 0, .flush_caches = true};
    measure({{"kernel", [&] { kernel->launch(launch, place.options); }}}, protocol, place);
    backend().copy_to_host(values.data(), to.data(), kBytes, place.options);
    return values;
  }

  // The error of one run of it; empty when it gave the right result.
  std::string try_work() {
    std::string said;
    try {
      EXPECT_EQ(work(), std::vector<float>(kElements, 42));
    } catch (const Error& error) {
      said = error.what();
    }
    fake().settings().kernel = nullptr;
    return said;
  }

  void fail_from(int call, int result, bool lasts) {
    fake().reset();
    fake().settings().devices = kDevices;
    fake().settings().fault_call = call;
    fake().settings().fault_result = result;
    fake().settings().fault_lasts = lasts ? 1 : 0;
  }

  // As a kernel that failed does, and the caller is told of it.
  void lose_context(int device) {
    fail_from(1, 700, false);
    std::strcpy(fake().settings().fault_name, "cuStreamSynchronize");
    error_of(ErrorCode::launch_failed, [&] { backend().synchronize({.device = device}); });
    fail_from(0, 0, false);
  }
};

bool holds_no_more(const fake_cuda::Held& now, const fake_cuda::Held& before) {
  return now.modules <= before.modules && now.functions <= before.functions &&
         now.blocks <= before.blocks && now.events <= before.events && now.pushed == before.pushed;
}

// A failure while something is let go is nobody's to report: what could not be let go is kept. If
// it ended the context, the next call says so.
TEST_F(CudaFaults, EachCallFailsOnceAndTheNextWorks) {
  try_work();
  for (const int result : {999, 2, 400, 700}) {
    const std::string reason = result == 999 ? "the driver's error 999" : "as the test wished";
    fail_from(0, result, false);
    ASSERT_EQ(try_work(), "");
    const int calls = fake().counters().calls;
    ASSERT_GT(calls, 100);
    for (int call = 1; call <= calls; ++call) {
      const fake_cuda::Held before = fake().held();
      fail_from(call, result, false);
      std::string error = try_work();
      const std::string hit =
          fmt::format("call {} ({}) with {}", call, fake().counters().fault_hit, result);
      const bool is_clean_up = error.empty() || hit.find("PopCurrent") != std::string::npos;
      fail_from(0, 0, false);
      if (error.empty() && result == 700) error = try_work();
      if (!error.empty()) {
        EXPECT_NE(error.find(reason), std::string::npos) << hit << ": " << error;
        EXPECT_NE(error.find("evice"), std::string::npos) << hit << ": " << error;
      }
      EXPECT_EQ(try_work(), "") << hit << ", after: " << error;
      EXPECT_TRUE(is_clean_up || holds_no_more(fake().held(), before)) << hit;
      fake().unwind();
    }
  }
}

// From some call on nothing works any more: a device that is gone, busy or broken.
TEST_F(CudaFaults, ADeviceThatStopsForGoodIsNoKernelsFault) {
  try_work();
  for (const int result : {46, 802, 214, 719}) {
    for (int call = 20; call <= 140; call += 5) {
      fail_from(call, result, true);
      EXPECT_NE(try_work() + try_work(), "") << call;
      fake().settings().fault_call = 1;
      error_of(ErrorCode::unsupported, [&] { backend().synchronize({.stream = stream()}); });
      const std::string again = try_work();
      EXPECT_EQ(again.find("cannot load kernel 'kernel': "), 0U) << again;
      fail_from(0, 0, false);
      fake().unwind();
      try_work();  // is told of what was lost
      EXPECT_EQ(try_work(), "") << call << " with " << result;
    }
  }
}

TEST_F(CudaFaults, AContextThatTheHostResetsIsReplaced) {
  EXPECT_EQ(try_work(), "");
  const auto kernel = load();
  kernel->launch(small_launch(), {});
  for (const bool is_made_again : {false, true}) {
    fake().reset_context(0);
    fake().settings().other_holder = is_made_again ? 1 : 0;
    EXPECT_EQ(error_of(ErrorCode::unsupported, [&] { kernel->launch(small_launch(), {}); }),
              "cannot make the context current on device 0 (Fake GPU 0, compute capability 9.0): "
              "CUDA_ERROR_CONTEXT_IS_DESTROYED (as the test wished)");
    kernel->launch(small_launch(), {});
    EXPECT_EQ(try_work(), "");
  }
}

TEST_F(CudaFaults, AStreamThatIsGoneIsNamed) {
  const auto kernel = load();
  const auto event = backend().make_event({});
  kernel->launch(small_launch(), {.stream = stream()});
  fake().settings().gone_stream = stream();
  const std::string why =
      " on device 0 (Fake GPU 0, compute capability 9.0): CUDA_ERROR_INVALID_HANDLE (as the test "
      "wished); check that the stream still exists and belongs to this device's primary context";
  const LaunchOptions there{.stream = stream()};
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { kernel->launch(small_launch(), there); }),
            "cannot launch kernel 'kernel'" + why);
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { load("new")->launch(small_launch(), there); }),
            "new: cannot ask whether its stream is captured" + why);
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { backend().synchronize(there); }),
            "kernel 'kernel', the last one launched on its stream, failed" + why);
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { event->record(there); }),
            "cannot record an event" + why);
  kernel->launch(small_launch(), {});
  fake().settings().gone_stream = nullptr;
  kernel->launch(small_launch(), there);
}

// The driver gives an address again; who held it in the lost context must not release it.
TEST_F(CudaFaults, ABufferOfALostContextReleasesNothingOfItsSuccessor) {
  const Place place{&backend(), {.device = 1}};
  std::vector<DeviceBuffer> lost, fresh;
  for (int i = 0; i < 50; ++i) lost.emplace_back(place, 4096);
  std::vector<int> values(4096 / sizeof(int), 7);
  lose_context(1);
  for (int i = 0; i < 50; ++i) {
    fresh.emplace_back(place, 4096);
    backend().copy_to_device(fresh.back().data(), values.data(), 4096, place.options);
  }
  int again = 0;
  for (const DeviceBuffer& buffer : fresh) {
    for (const DeviceBuffer& old : lost) again += buffer.data() == old.data() ? 1 : 0;
  }
  ASSERT_GT(again, 0) << "no address was given again";
  const int blocks = fake().held().blocks;
  lost.clear();
  EXPECT_EQ(fake().held().blocks, blocks);
  for (const DeviceBuffer& buffer : fresh) {
    backend().copy_to_host(values.data(), buffer.data(), 4096, place.options);
    EXPECT_EQ(values.front(), 7);
  }
  fresh.clear();
  EXPECT_EQ(fake().held().blocks, blocks - 50);
}

TEST_F(CudaFaults, EventsOfALostContextAreMadeAgainButNotRead) {
  const auto begin = backend().make_event({}), end = backend().make_event({});
  begin->record({});
  end->record({});
  EXPECT_EQ(end->seconds_since(*begin), 0);
  lose_context(0);
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { end->seconds_since(*begin); }),
            "cannot read the time between two events on device 0 (Fake GPU 0, compute capability "
            "9.0): they must be of one context, and one of theirs was lost since; record both "
            "again");
  begin->record({});
  load()->launch(small_launch(), {});
  end->record({.device = 1});
  error_of(ErrorCode::launch_failed, [&] { end->seconds_since(*begin); });
  end->record({});
  EXPECT_NEAR(end->seconds_since(*begin), 1e-3, 1e-9);
}

// What it has on the device is gone, whoever broke the context.
TEST_F(CudaFaults, AThreadIsToldOnceOfAContextThatAnotherLost) {
  backend().synchronize({});
  std::thread([&] {
    lose_context(0);
    backend().synchronize({});
  }).join();
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { backend().synchronize({}); }),
            "the context of device 0 (Fake GPU 0, compute capability 9.0) was lost since this "
            "thread used it last, and all memory in it: CUDA_ERROR_ILLEGAL_ADDRESS (as the test "
            "wished); allocate and copy again");
  backend().synchronize({});
}

TEST_F(CudaFaults, ThreadsGoOnWhileCallsFail) {
  constexpr int kThreads = 4, kTurns = 300;
  const auto kernel = load();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTurns; ++i) {
        try {
          const Place place{&backend(), {.stream = stream(), .device = t % 2}};
          const DeviceBuffer memory(place, 512);
          Launch launch = small_launch();
          launch.workspace.bytes = static_cast<std::size_t>(64 + i);
          launch.pointers.push(memory.data());
          kernel->launch(launch, place.options);
          backend().synchronize(place.options);
        } catch (const Error&) {
        }
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    fake().arm(1 + 7 * (i % 5), i % 2 == 0 ? 700 : 999);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  fail_from(0, 0, false);
  for (const int device : {0, 1}) {
    for (int i = 0; i < 2; ++i) {
      try {
        kernel->launch(small_launch(), {.device = device});
      } catch (const Error&) {
        EXPECT_EQ(i, 0);  // the last failure may have been nobody's to tell
      }
    }
  }
  try_work();
  EXPECT_EQ(try_work(), "");
  EXPECT_LE(fake().held().events, kDevices);  // of the last workspace that a caller brought there
}

// One handle, but a stream of its own in each thread: they must not share a workspace.
TEST_F(CudaFaults, TheStreamPerThreadIsAnotherInEachThread) {
  void* const per_thread = reinterpret_cast<void*>(2);
  const auto kernel = load();
  const auto workspace_of_launch = [&] {
    Launch launch = small_launch();
    launch.workspace.bytes = 1000;
    launch.workspace.address_offset = 64;
    kernel->launch(launch, {.stream = per_thread});
    void* address = nullptr;
    std::memcpy(&address, last_record().arguments + 64, sizeof(address));
    return address;
  };
  void* const here = workspace_of_launch();
  void* there = nullptr;
  std::thread([&] { there = workspace_of_launch(); }).join();
  EXPECT_NE(here, there);
  EXPECT_EQ(here, workspace_of_launch());
}

}  // namespace
}  // namespace tessera::runtime
