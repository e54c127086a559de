// Device memory, events, and what is known of devices.
#include <numeric>
#include <vector>

#include "host/runtime/cuda_fixture.h"
#include "tessera/runtime/benchmark.h"
#include "tessera/runtime/cuda_info.h"

namespace tessera::runtime {
namespace {

using CudaMemory = CudaTest;

TEST_F(CudaMemory, CopiesThereAndBack) {
  std::vector<int> sent(1000), got(1000);
  std::iota(sent.begin(), sent.end(), 42);
  const std::size_t bytes = sent.size() * sizeof(int);
  const DeviceBuffer memory({&backend(), {.device = 1}}, bytes);
  backend().copy_to_device(memory.data(), sent.data(), bytes, {.device = 1});
  backend().copy_to_host(got.data(), memory.data(), bytes, {.device = 1});
  EXPECT_EQ(got, sent);
  backend().fill(memory.data(), 0x5a, 100, {.device = 1});
  backend().copy_to_host(got.data(), memory.data(), bytes, {.device = 1});
  EXPECT_EQ(got[24], 0x5a5a5a5a);
  EXPECT_EQ(got[25], sent[25]);
}

TEST_F(CudaMemory, BuffersReleaseWhatTheyHold) {
  const int before = fake().counters().frees;
  {
    DeviceBuffer a({&backend(), {}}, 100);
    DeviceBuffer b = std::move(a);
    a = DeviceBuffer({&backend(), {}}, 50);
    EXPECT_EQ(a.size(), 50U);
    EXPECT_EQ(b.size(), 100U);
    const DeviceBuffer nothing({&backend(), {}}, 0);
    EXPECT_EQ(nothing.data(), nullptr);
  }
  EXPECT_EQ(fake().counters().frees, before + 2);
}

TEST_F(CudaMemory, EventsMeasureWhatLiesBetweenThem) {
  const auto begin = backend().make_event({});
  const auto end = backend().make_event({});
  const auto kernel = load();
  begin->record({});
  for (int i = 0; i < 3; ++i) kernel->launch(small_launch(), {});  // 1 ms each
  end->record({});
  EXPECT_NEAR(end->seconds_since(*begin), 3e-3, 1e-9);
}

TEST_F(CudaMemory, AnEventThatFailsNamesTheKernel) {
  const auto begin = backend().make_event({});
  const auto end = backend().make_event({});
  begin->record({});
  fake().settings().async_result = 701;
  load("bad")->launch(small_launch(), {});
  end->record({});
  EXPECT_EQ(error_of(ErrorCode::launch_failed, [&] { end->seconds_since(*begin); }),
            "kernel 'bad', the last one launched on its stream, failed on device 0 (Fake GPU 0, "
            "compute capability 9.0): CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (as the test wished)");
}

// The fake's clock: a millisecond a launch, a quarter of one a fill.
TEST_F(CudaMemory, MeasuresByTheDevicesClockAndFlushesBetweenReadings) {
  const auto kernel = load();
  const Place place{&backend(), {.stream = stream()}};
  const auto calls = [&](int count) {
    return [&, count] {
      for (int i = 0; i < count; ++i) kernel->launch(small_launch(), place.options);
    };
  };
  const Protocol cold{.rounds = 5, .warmup = 1, .soak_seconds = 0.001, .flush_caches = true};
  const std::vector<Timing> timings = measure({{"one", calls(1)}, {"two", calls(2)}}, cold, place);
  ASSERT_EQ(timings.size(), 2U);
  EXPECT_EQ(timings[0].seconds.size(), 5U);
  EXPECT_NEAR(timings[0].median_seconds, 1e-3, 1e-9);
  EXPECT_NEAR(timings[1].median_seconds, 2e-3, 1e-9);
  EXPECT_EQ(fake().counters().fills, 2 * 5);
  const int before = fake().counters().launches;
  measure({{"one", calls(1)}}, {.rounds = 2, .warmup = 1, .min_seconds = 0.008}, place);
  EXPECT_EQ(fake().counters().launches, before + 1 + 2 * 8);
}

TEST_F(CudaMemory, TellsWhatItFound) {
  const CudaInfo info = cuda_info();
  EXPECT_EQ(info.library, FAKE_CUDA);
  EXPECT_EQ(info.cuda, "13.0");
  EXPECT_EQ(info.unavailable, "");
  ASSERT_EQ(info.devices.size(), 2U);
  EXPECT_EQ(info.devices[1].name, "Fake GPU 1");
  EXPECT_EQ(info.devices[1].major, 9);
  EXPECT_EQ(info.devices[1].units, 132);
  EXPECT_EQ(info.devices[1].memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(backend().device_name({.device = 1}), "Fake GPU 1");
  EXPECT_EQ(backend().cache_bytes({}), std::size_t{1} << 20);
  EXPECT_FALSE(backend().uses_host_memory());
}

}  // namespace
}  // namespace tessera::runtime
