// How many threads of a CPU a call is worth.
#include <gtest/gtest.h>

#include "tessera/select/select.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

struct WorthThreads : testing::Test {
  int worth(const char* kernel, const char* problem, int limit) const {
    return worth_threads(parse_name(kernel), parse_problem(problem), avx512_, limit);
  }

  static constexpr const char* kSmall = "gemm_fp32_rcr_small_3072x32x1_0x0x1_12x32x1_avx512";
  static constexpr const char* kPacked = "gemm_fp32_rcr_packab_96x960x512_0x0x1_12x32x1_avx512";
  static constexpr const char* kOne = "gemm_fp32_rcr_packab_96x960x512_1x1x1_12x32x1_avx512";
  Target avx512_ = load_target("avx512");
};

TEST_F(WorthThreads, OneForShortCallsOfEachFamily) {
  EXPECT_EQ(worth(kSmall, "gemm m=4 n=31 k=163", 2), 1);
  EXPECT_EQ(worth(kPacked, "gemm m=4 n=31 k=163", 64), 1);
  EXPECT_EQ(worth("norm_fp32_softmax_rows_1x4096x1_0x1x1_1x1x1_avx512",
                  "norm kind=softmax rows=2 columns=256", 2),
            1);
  EXPECT_EQ(worth("conv_forward_fp32_nhwgc_2d_packab_192x512x576_0x0x1_8x16x1_avx512",
                  "conv direction=forward n=1 c=8 k=8 h=6 w=6 y=3 x=3", 2),
            1);
  EXPECT_EQ(worth("fmha_forward_fp32_flash_192x64x576_0x1x1_6x64x1_avx512",
                  "fmha heads=2 seqlen_q=4 seqlen_k=32 hdim=64", 2),
            1);
}

TEST_F(WorthThreads, AllForLongCalls) {
  for (const int limit : {1, 2, 5, 64}) {
    EXPECT_EQ(worth(kPacked, "gemm m=4000 n=4000 k=4000", limit), limit);
  }
}

// Kernels whose grid is one thread gain nothing.
TEST_F(WorthThreads, OneForKernelsOfOneThread) {
  EXPECT_EQ(worth(kOne, "gemm m=4000 n=4000 k=4000", 64), 1);
}

TEST_F(WorthThreads, GrowWithTheWork) {
  int before = 1;
  bool some_between = false;
  for (int m = 8; m <= 2048; m *= 2) {
    const std::string problem = "gemm m=" + std::to_string(m) + " n=256 k=256";
    const int now = worth(kPacked, problem.c_str(), 64);
    EXPECT_GE(now, before) << problem;
    some_between = some_between || (now > 1 && now < 64);
    before = now;
  }
  EXPECT_TRUE(some_between);
}

}  // namespace
}  // namespace tessera
