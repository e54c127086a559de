// The device headers that operations share, in kernels that no operation has: two different wgmma
// instructions in one, and Hopper's main loop and store with other arguments than GEMM's.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/files.h"
#include "tessera/families/family.h"
#include "tessera/families/headers.h"
#include "tessera/families/tile/wgmma.h"
#include "tessera/jit/build.h"
#include "tessera/jit/nvrtc.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using tile::Wgmma;
using tile::WgmmaFrom;

// The code of a kernel: the section .text.<name> of its cubin.
std::string code_of(const std::string& name, const std::string& text) {
  jit::BuildOptions options;
  options.cache.folder = TESSERA_BUILD "/kernel-cache";
  options.worker = TESSERA_WORKER;
  const Source source{.name = name, .extension = ".cu", .text = text, .headers = headers_of(text)};
  const jit::Artifact built = jit::Builder(options).build(source, load_target("sm90a"));
  const std::string image = read_file(built.binary);
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof(header));
  const auto section = [&](std::size_t index) {
    Elf64_Shdr entry;
    std::memcpy(&entry, image.data() + header.e_shoff + index * sizeof(entry), sizeof(entry));
    return entry;
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr entry = section(i);
    if (image.data() + names.sh_offset + entry.sh_name == ".text." + name) {
      return image.substr(entry.sh_offset, entry.sh_size);
    }
  }
  ADD_FAILURE() << name << " has no code";
  return {};
}

// Instructions of 16 bytes begin with their number in 12 bits.
int count(const std::string& code, std::uint64_t number) {
  int found = 0;
  for (std::size_t at = 0; at + 16 <= code.size(); at += 16) {
    std::uint64_t word = 0;
    std::memcpy(&word, code.data() + at, sizeof(word));
    found += (word & 0xfff) == number ? 1 : 0;
  }
  return found;
}
constexpr std::uint64_t kHgmmaOfDescriptors = 0x9f0;
constexpr std::uint64_t kHgmmaOfRegisters = 0xdf0;

constexpr const char* kTwo = R"(
using namespace tessera::device;

// As attention does: the first product's sums are the second one's P.
extern "C" __global__ void __launch_bounds__(128) two(u64 q, u64 k, u64 v, float* out) {
  using Scores = Wgmma<bf16, bf16, 16, WgmmaFrom::k_lines, WgmmaFrom::k_lines>;
  using Sums = Wgmma<bf16, bf16, 64, WgmmaFrom::registers, WgmmaFrom::row_lines>;
  float scores[8] = {};
  float sums[32] = {};
  wgmma_fence();
  Scores::multiply(scores, q, k, 0);
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (float& x : scores) wgmma_done(x);
  u32 p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = round_pair<bf16>(scores[i * 2], scores[i * 2 + 1]);
  wgmma_fence();
  Sums::multiply(sums, p, v, 0);
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    wgmma_done(sums[i]);
    out[threadIdx.x * 32 + i] = sums[i];
  }
}
)";

class SharedHeaders : public testing::Test {
 protected:
  void SetUp() override {
    try {
      jit::find_nvrtc({.library = {}, .worker = TESSERA_WORKER});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(SharedHeaders, TwoInstructionsInOneKernel) {
  using enum WgmmaFrom;
  const Wgmma instructions[] = {
      {DType::bf16, DType::bf16, 16, k_lines, k_lines},
      {DType::bf16, DType::bf16, 64, registers, row_lines},
  };
  const std::string code = code_of("two",
                                   "#include \"tessera/device/cuda/ptx.h\"\n"
                                   "#include \"tessera/device/cuda/wgmma.h\"\n\n" +
                                       tile::wgmma_text(instructions) + kTwo);
  EXPECT_EQ(count(code, kHgmmaOfDescriptors), 1);
  EXPECT_EQ(count(code, kHgmmaOfRegisters), 1);
}

// A convolution of 1x1 windows: pixels by channels.
constexpr const char* kPointwise = R"(
using namespace tessera::device;

struct PointwiseArguments {
  CudaTensorMap in_map, weight_map, out_map;
  i64 pixels, channels, depth, batch;
  const void* c;
  const void* d[4];
  void* out;
  i64 ld_c, ld_out, ld_d[4];
  i64 batch_stride_c, batch_stride_out, batch_stride_d[4];
  float alpha, beta, clamp_lo, clamp_hi;
  static constexpr int pointer_arrays = 0;
};
constexpr i64 rows_of(const PointwiseArguments& a) { return a.pixels; }
constexpr i64 columns_of(const PointwiseArguments& a) { return a.channels; }

struct Config {
  using Acc = float;
  using Out = bf16;
  using D = bf16;
  static constexpr int kTileM = 128, kTileN = 128, kTileK = 64, kWaveM = 2, kStages = 4;
  static constexpr int kClusterM = 1, kClusterN = 1, kNumSteps = 0, kNumD = 0;
  static constexpr bool kPingpong = false, kSwapAb = false, kDirectStore = false;
};

struct Pointwise {
  using In = MatrixLoader<OperandTile<bf16, 128, 64, true>, 1>;
  using Weight = MatrixLoader<OperandTile<bf16, 128, 64, true>, 1>;
  using Loop = TmaMainLoop<Config, In, Weight>;
  static constexpr int kAreaBytes = 64 * 64 * 4;
  static constexpr int kOffsetStore = Config::kStages * Loop::kStageBytes;
  static constexpr int kOffsetBarriers = kOffsetStore + Loop::kConsumers * kAreaBytes;
  using Store = TileStore<Config, PointwiseArguments, Loop::kBlocks, 128, 64, kAreaBytes>;

  const PointwiseArguments& a;
  u32 shared;
  Loop loop;
  TileOrder order;
  int tiles;

  __device__ StepRange steps() const { return {0, static_cast<int>((a.depth + 63) / 64)}; }
  __device__ void produce() const {
    if (!loop.is_filler()) return;
    Loop::Ring ring;
#pragma unroll 1
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
      const TileOrder::Tile tile = order.tile(i);
      loop.fill(ring, steps(), [&] {
        return Loop::Loaders{{&a.in_map, tile.p * 128, tile.batch, loop.share_p()},
                             {&a.weight_map, tile.q * 128, 0, loop.share_q()}};
      });
    }
  }
  __device__ void consume() const {
    Loop::Ring ring;
    float sums[Loop::kBlocks][Loop::kAccumulators] = {};
    u32 phases = 0;
    const u32 area = shared + kOffsetStore + loop.warpgroup * kAreaBytes;
    const Store store = {a, &a.out_map, nullptr, area, 1 + loop.warpgroup, loop.thread, 0, phases};
#pragma unroll 1
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
      const TileOrder::Tile tile = order.tile(i);
      loop.multiply(sums, ring, loop.release(), steps().last);
      store.store(sums, {tile.p * 128 + loop.warpgroup * 64, tile.q * 128, tile.batch});
    }
    if (loop.thread == 0) stores_wait_all();
  }
};

extern "C" __global__ void __launch_bounds__(Pointwise::Loop::kThreads, 1)
pointwise(const __grid_constant__ PointwiseArguments a) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  using Loop = Pointwise::Loop;
  const Loop loop = Loop::at(shared, shared + Pointwise::kOffsetBarriers, 0);
  const int p = static_cast<int>((a.pixels + 127) / 128);
  const int q = static_cast<int>((a.channels + 127) / 128);
  const int batches = static_cast<int>(a.batch);
  const Pointwise block = {a, shared, loop, {p, q, batches, 8}, p * q * batches};
  if (threadIdx.x == 0) {
    loop.init_ring();
    barrier_init_fence();
  }
  __syncthreads();
  loop.run_roles(block);
}
)";

TEST_F(SharedHeaders, MainLoopOfAnotherOperation) {
  const Wgmma instruction{.p = DType::bf16, .q = DType::bf16, .columns = 128};
  const std::string code = code_of("pointwise",
                                   "#include \"tessera/device/cuda/tile_order.h\"\n"
                                   "#include \"tessera/device/cuda/tma_main_loop.h\"\n"
                                   "#include \"tessera/device/cuda/tma_store.h\"\n\n" +
                                       tile::wgmma_text(std::span(&instruction, 1)) + kPointwise);
  EXPECT_EQ(count(code, kHgmmaOfDescriptors), 4);  // 64 of k, 16 at a time
  EXPECT_EQ(count(code, kHgmmaOfRegisters), 0);
}

// Boxes of every rank, with and without multicast.
constexpr const char* kBoxes = R"(
#include "tessera/device/cuda/tma.h"
using namespace tessera::device;

template <int kRank>
__device__ void move(const CudaTensorMap* map, u32 shared, int at) {
  TmaBox<kRank> box = {map, {}};
  for (int i = 0; i < kRank; ++i) box.at[i] = at + i;
  tma_load<false>({shared, shared, 0, kEvictNormal}, box);
  tma_load<true>({shared, shared, 1, kEvictNormal}, box);
  tma_fetch(box);
  tma_store(box, shared);
}
extern "C" __global__ void boxes(const __grid_constant__ CudaTensorMap map, u32 shared, int at) {
  move<3>(&map, shared, at);
  move<4>(&map, shared, at);
  move<5>(&map, shared, at);
}
)";

TEST_F(SharedHeaders, BoxesOfEveryRank) { EXPECT_NE(code_of("boxes", kBoxes), ""); }

}  // namespace
}  // namespace tessera
