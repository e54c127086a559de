// Launches of several steps, and the kinds of windows that the copy engine takes.
#include <algorithm>
#include <vector>

#include "host/runtime/cuda_fixture.h"
#include "tessera/device/cuda/abi.h"

namespace tessera::runtime {
namespace {

using fake_cuda::EncodedMap;

struct CudaSteps : CudaTest {
  DeviceBuffer memory{{&backend(), {}}, 4096};

  std::vector<std::string> kernels_of_launches() const {
    std::vector<std::string> names;
    for (int i = 0; i < fake().counters().launches; ++i)
      names.emplace_back(fake().record(i).kernel);
    return names;
  }
  EncodedMap encoded(const TensorMap& map) {
    Launch launch = small_launch();
    launch.tensor_maps.push(map);
    load()->launch(launch, {});
    EncodedMap got{};
    std::memcpy(&got, last_record().arguments + map.offset, sizeof(got));
    return got;
  }
};

TEST_F(CudaSteps, RunInTheirOrderWithTheSameArguments) {
  Launch launch = small_launch();
  launch.steps = {
      {.entry = 2, .extent = Step::Extent::any, .grid = {100'000, 1, 1}, .block = {256, 1, 1}},
      {.grid = {7, 3, 2}, .block = {96, 1, 1}, .shared_memory_bytes = 100'000},
      {.entry = 1, .extent = Step::Extent::resident, .grid = {1000, 1, 1}, .cluster = {4, 1, 1}}};
  launch.workspace = {.bytes = 1 << 20, .address_offset = 64};
  const auto kernel = load("gemm_x", {"", "_combine", "_prepare"});
  kernel->launch(launch, {.stream = stream()});
  EXPECT_EQ(kernels_of_launches(),
            (std::vector<std::string>{"gemm_x_prepare", "gemm_x", "gemm_x_combine"}));
  const fake_cuda::LaunchRecord first = fake().record(0), second = fake().record(1),
                                third = fake().record(2);
  EXPECT_EQ(first.grid[0], 8U * 132);  // no more than the device's units can be busy with
  EXPECT_EQ(first.block[0], 256U);
  EXPECT_EQ(first.max_shared_bytes, 0);
  EXPECT_EQ(second.grid[1], 3U);
  EXPECT_EQ(second.max_shared_bytes, 100'000);
  EXPECT_EQ(third.grid[0], 240U);  // 60 clusters of 4 run at once
  for (const fake_cuda::LaunchRecord& record : {first, second, third}) {
    EXPECT_EQ(record.stream, stream());
    EXPECT_EQ(std::memcmp(record.arguments, first.arguments, launch.arguments.size()), 0);
  }
}

TEST_F(CudaSteps, RememberWhatEachEntryRunsAtOnce) {
  fake().settings().blocks_per_unit = 1;
  Launch launch = small_launch();
  const Step resident = {
      .extent = Step::Extent::resident, .grid = {1000, 1, 1}, .block = {128, 1, 1}};
  launch.steps = {resident, resident};
  launch.steps[1].entry = 1;
  launch.steps[1].block = {256, 1, 1};
  const auto kernel = load("gemm_x", {"", "_reduce"});
  kernel->launch(launch, {});
  const int queries = fake().counters().occupancy_queries;
  kernel->launch(launch, {});
  EXPECT_EQ(fake().counters().occupancy_queries, queries);
  EXPECT_EQ(last_record().grid[0], 132U);
}

TEST_F(CudaSteps, AMissingEntryFailsWhenTheKernelIsLoaded) {
  std::strcpy(fake().settings().missing_entry, "_reduce");
  const auto kernel = load("gemm_x", {"", "_reduce"});
  EXPECT_EQ(error_of(ErrorCode::load_failed, [&] { kernel->launch(small_launch(), {}); }),
            "cannot load kernel 'gemm_x': its cubin must hold the entry 'gemm_x_reduce', but does "
            "not; clear its cache entry to build it again");
  EXPECT_EQ(fake().counters().launches, 0);
  EXPECT_EQ(fake().counters().modules, fake().counters().unloads);
}

TEST_F(CudaSteps, AnEntryThatTheKernelDoesNotList) {
  Launch launch = small_launch();
  launch.steps[0].entry = 2;
  const auto kernel = load("gemm_x", {"", "_reduce"});
  EXPECT_EQ(error_of(ErrorCode::internal, [&] { kernel->launch(launch, {}); }),
            "gemm_x: a step runs entry 2, the kernel has entries 0 to 1");
}

TEST_F(CudaSteps, AFifthStepIsRefused) {
  Launch launch;
  for (int i = 0; i < 4; ++i) launch.steps.push({});
  EXPECT_EQ(error_of(ErrorCode::internal, [&] { launch.steps.push({}); }),
            "a list takes at most 4 items, got 5");
}

TEST_F(CudaSteps, ASecondParameterFollowsTheFirst) {
  Launch launch = small_launch();
  launch.arguments.add(memory.data());
  launch.steps = {{.entry = 1}};
  load("gemm_x", {"", "_pack"})->launch(launch, {});
  EXPECT_STREQ(last_record().kernel, "gemm_x_pack");
  EXPECT_EQ(last_record().second_parameter, memory.data());
}

TEST_F(CudaSteps, ArgumentsAreFilledInWhereTheyLie) {
  struct Block {
    std::uint64_t first, second;
    unsigned char rest[1008];
  };
  Launch launch = small_launch();
  launch.arguments.add(memory.data());
  launch.arguments.make<Block>().second = 5;
  EXPECT_EQ(launch.arguments.size(), sizeof(Block));
  EXPECT_EQ(launch.arguments.second(), 0U);
  load()->launch(launch, {});
  Block got{};
  std::memcpy(&got, last_record().arguments, sizeof(got));
  EXPECT_EQ(got.first, 0U);
  EXPECT_EQ(got.second, 5U);
  EXPECT_EQ(std::count(std::begin(got.rest), std::end(got.rest), 0), 1008)
      << "nothing of 0x11 is left";
}

TEST_F(CudaSteps, AnArgumentBlockOfAllThatCudaTakes) {
  struct Block {
    std::byte bytes[ArgumentBlock::kMostBytes - 8];
  } block;
  std::memset(block.bytes, 0x22, sizeof(block));
  Launch launch = small_launch();
  launch.arguments.set(block);
  launch.arguments.add(memory.data());
  EXPECT_EQ(launch.arguments.size(), 4096U);
  const Launch copy = launch;
  load()->launch(copy, {});
  EXPECT_EQ(last_record().arguments[1023], 0x22);
  void* last = nullptr;
  std::memcpy(&last, last_record().last_word, sizeof(last));
  EXPECT_EQ(last, memory.data());
}

TEST_F(CudaSteps, WindowsHaveOneToFiveDimensions) {
  for (int rank = 1; rank <= 5; ++rank) {
    TensorMap map{};
    map.base = memory.data();
    map.dtype = DType::bf16;
    map.rank = rank;
    map.sizes = {64, 7, 6, 5, 4};
    map.strides = {128, 1024, 8192, 65536};
    map.box = {64, 4, 3, 2, 1};
    map.steps = {1, 2, 0, 0, 0};
    map.swizzle_bytes = 128;
    const EncodedMap got = encoded(map);
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.base, reinterpret_cast<std::uint64_t>(memory.data()));
    for (std::size_t i = 0; i < 5; ++i) {
      const bool counts = i < static_cast<std::size_t>(rank);
      EXPECT_EQ(got.sizes[i], counts ? map.sizes[i] : 0) << i;
      EXPECT_EQ(got.box[i], counts ? map.box[i] : 0) << i;
      EXPECT_EQ(got.steps[i], !counts ? 0 : i == 1 ? 2 : 1) << i;
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(got.strides[i], static_cast<int>(i) + 1 < rank ? map.strides[i] : 0) << i;
    }
    EXPECT_EQ(got.pixels, 0U);
  }
}

TensorMap image(const void* base, int rank) {
  TensorMap map{};
  map.base = base;
  map.dtype = DType::fp16;
  map.rank = rank;
  map.sizes = {64, 56, 40, 3, 2};
  map.strides = {128, 7168, 286720, 860160};
  map.steps = {1, 2, 2, 1, 1};
  map.swizzle_bytes = 128;
  map.im2col = {.pixels = 128, .channels = 64, .low = {-1, -2, -3}, .high = {1, 2, 3}};
  return map;
}

TEST_F(CudaSteps, WindowsOnImagesAreUnrolled) {
  for (int rank = 3; rank <= 5; ++rank) {
    const EncodedMap got = encoded(image(memory.data(), rank));
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.type, 6);
    EXPECT_EQ(got.pixels, 128U);
    EXPECT_EQ(got.channels, 64);
    EXPECT_EQ(got.steps[1], 2);
    EXPECT_EQ(got.box[0], 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(got.low[i], i < rank - 2 ? -1 - i : 0);
      EXPECT_EQ(got.high[i], i < rank - 2 ? 1 + i : 0);
    }
  }
}

TEST_F(CudaSteps, WindowsOfOtherDimensionsAreRefused) {
  const auto refusal = [&](TensorMap map) {
    map.base = reinterpret_cast<const void*>(0x1000);
    Launch launch = small_launch();
    launch.tensor_maps.push(map);
    return error_of(ErrorCode::internal, [&] { load()->launch(launch, {}); });
  };
  EXPECT_EQ(refusal(TensorMap{}),
            "kernel: a window of the copy engine has 1 to 5 dimensions, got 0");
  EXPECT_EQ(refusal(image(nullptr, 2)),
            "kernel: a window of the copy engine has 3 to 5 dimensions, got 2");
  EXPECT_EQ(fake().counters().launches, 0);
}

TEST_F(CudaSteps, WindowsLieInTheWorkspace) {
  Launch launch = small_launch();
  launch.workspace = {.bytes = 1 << 20, .address_offset = 256};
  TensorMap map = image(nullptr, 4);
  map.in_workspace = true;
  map.workspace_offset = 4096;
  launch.tensor_maps.push(map);
  load()->launch(launch, {});
  unsigned char* workspace = nullptr;
  std::memcpy(&workspace, last_record().arguments + 256, sizeof(workspace));
  EncodedMap got{};
  std::memcpy(&got, last_record().arguments, sizeof(got));
  EXPECT_EQ(got.base, reinterpret_cast<std::uint64_t>(workspace + 4096));
}

}  // namespace
}  // namespace tessera::runtime
