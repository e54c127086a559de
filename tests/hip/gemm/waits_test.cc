// The waits of GEMM's main loops for AMD GPUs: how many loads a tile's turn leaves under way. Two
// problems differ in their tiles of K alone, so that what comes before and after the loop counts in
// neither.
#include <gtest/gtest.h>

#include <map>

#include "hip/emulated_test.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/mfma.h"

namespace tessera {
namespace {

class WaitsOfGemm : public EmulatedTest {
 protected:
  WaitsOfGemm() : EmulatedTest(Op::gemm) {}

  // The waits of a problem with so many tiles of K, whose operands are aligned.
  std::map<int, std::int64_t> waits_of(const KernelSpec& spec, const Source& source,
                                       EmulatedKernel& kernel, int tiles) {
    const Shape3& t = spec.algorithm.tile;
    kernel.statistics = {};
    check(spec, source, kernel,
          gemm::problem_of(std::get<GemmSignature>(spec.signature), t.m, t.n, t.k * tiles));
    std::map<int, std::int64_t> waits;
    for (const auto& [left, times] : kernel.statistics.vm_waits) {
      waits[left] = static_cast<std::int64_t>(times);
    }
    return waits;
  }

  // How many loads a turn leaves under way at least.
  int least_left(const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
    const auto few = waits_of(spec, source, kernel, 4);
    int least = 64;
    for (const auto& [left, times] : waits_of(spec, source, kernel, 8)) {
      const auto found = few.find(left);
      if (times > (found == few.end() ? 0 : found->second)) least = std::min(least, left);
    }
    return least;
  }

  // Loads of 16 bytes, or of dwords where lanes transpose, that a lane asks for a tile.
  static int loads_of_tile(const KernelSpec& spec, int bytes_of_a, int bytes_of_b) {
    const Algorithm& a = spec.algorithm;
    const int size = size_of(std::get<GemmSignature>(spec.signature).a);
    return (a.tile.m * a.tile.k * size / bytes_of_a + a.tile.n * a.tile.k * size / bytes_of_b) /
           tile::block_lanes(a);
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, WaitsOfGemm, testing::Values("gfx90a", "gfx942", "gfx950"),
                         [](const auto& row) { return row.param; });

// mem has the loads of another tile under way while it waits for one.
TEST_P(WaitsOfGemm, MemKeepsATileUnderWay) {
  for_each_kernel(
      {"gemm_fp16_rcr_mem_64x64x64_2x2x1_32x32x16_intrawave",
       "gemm_bf16_rrr_mem_64x64x64_2x2x1_32x32x16_intrawave"},
      [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
        const bool lines = std::get<GemmSignature>(spec.signature).layout == GemmLayout::rcr;
        EXPECT_GE(least_left(spec, source, kernel), loads_of_tile(spec, 16, lines ? 16 : 4));
      });
}

// compv3 and compv4 ask for a tile and wait for all of it a turn later.
TEST_P(WaitsOfGemm, OneTileIsWaitedForAtATime) {
  for_each_kernel({"gemm_fp16_rcr_compv3_64x64x64_2x2x1_32x32x16_intrawave",
                   "gemm_fp16_rcr_compv4_128x128x32_2x2x1_32x32x16_intrawave"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    EXPECT_EQ(least_left(spec, source, kernel), 0);
                  });
}

// With three tiles in LDS, the copies of one stay under way. Compilers tend to wait for all.
TEST_P(WaitsOfGemm, AsyncKeepsATileUnderWay) {
  if (GetParam() != "gfx950") GTEST_SKIP() << GetParam() << " copies no tiles";
  for_each_kernel({"gemm_fp16_rcr_async_64x64x64_2x2x1_32x32x16_intrawave_s3",
                   "gemm_fp16_crr_async_64x64x64_2x2x1_32x32x16_intrawave_s3",
                   "gemm_int8_rrr_async_64x64x128_2x2x1_32x32x32_intrawave_s3",
                   "gemm_fp8_ccr_async_64x64x128_2x2x1_32x32x32_intrawave_s3",
                   "gemm_fp16_rcr_async_64x64x64_2x2x1_32x32x16_intrawave_s2"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    EXPECT_EQ(least_left(spec, source, kernel),
                              spec.algorithm.stages == 3 ? loads_of_tile(spec, 16, 16) : 0);
                  });
}

// Where dwords of an operand aren't aligned, it is no copy: lanes load it, and those that lie past
// the end load nothing, so that no wait of theirs brings the copies of the other operand.
TEST_P(WaitsOfGemm, CopiesOfTheOtherOperandAreWaitedFor) {
  if (GetParam() != "gfx950") GTEST_SKIP() << GetParam() << " copies no tiles";
  for_each_kernel({"gemm_fp16_ccr_async_64x64x64_2x2x1_32x32x16_intrawave_s3",
                   "gemm_fp16_crr_async_64x64x64_2x2x1_32x32x16_intrawave_s3",
                   "gemm_fp16_rrr_async_64x64x64_2x2x1_32x32x16_intrawave_s3"},
                  [&](const KernelSpec& spec, const Source& source, EmulatedKernel& kernel) {
                    const auto& s = std::get<GemmSignature>(spec.signature);
                    check(spec, source, kernel, gemm::problem_of(s, 149, 84, 88));
                    check(spec, source, kernel, gemm::problem_of(s, 84, 149, 88));
                  });
}

}  // namespace
}  // namespace tessera
