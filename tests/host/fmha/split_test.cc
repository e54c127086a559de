// Attention with split keys without running any kernel: how the work is divided, which kernels
// there are, what they serve, and when they are preferred.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "host/fmha/fmha_problems.h"
#include "host/spec/expect_error.h"
#include "tessera/device/cpu/fmha/flash_parts.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/device/cuda/fmha/split_arguments.h"
#include "tessera/device/cuda/fmha/split_work.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

using device::i64;

class FmhaSplit : public testing::Test {
 protected:
  static Problem problem(const std::string& words) { return parse_problem("fmha " + words); }

  Target target_ = load_target("sm90a");
  unsigned seed_ = std::random_device{}() % 99999;
  RandomFmhas random_{seed_};
};

// ---- parts ----

TEST_F(FmhaSplit, PartsKeepAllUnitsBusy) {
  for (int i = 0; i < 3000; ++i) {
    const i64 items = random_.integer(1, 1500), slices = random_.integer(1, 600);
    const i64 steps = random_.integer(0, 3000), merge = random_.integer(1, 16);
    SCOPED_TRACE(
        fmt::format("seed {}: {} items, {} steps, {} slices", seed_, items, steps, slices));
    const i64 parts = device::split_parts(items, steps, slices, merge);
    ASSERT_GE(parts, 1);
    ASSERT_LE(parts, std::max<i64>(1, std::min(steps, device::kMostSplitParts)));
    EXPECT_TRUE(parts == 1 || items < 4 * slices) << "there is no counter for each tile";
    // Nobody waits longer than without parts. Where merging costs little, the last block ends
    // before twice the time that all units together would need.
    const auto time = [&](i64 count) {
      return double((items * count + slices - 1) / slices) *
             double((steps + count - 1) / count + 2);
    };
    EXPECT_LE(time(parts), time(1));
    if (steps < 200 || items * 100 < slices || merge > 2) continue;
    EXPECT_LT(time(parts), 2 * double(items) * double(steps) / double(slices) + 64);
  }
  // Blocks that run all at once merge a share each, whatever the number of parts. Otherwise the
  // last one merges all: the more rows, the fewer parts.
  EXPECT_EQ(device::split_parts(1, 2048, 264, 1), 264);
  EXPECT_EQ(device::split_parts(1, 2048, 264, 16), 264);
  EXPECT_EQ(device::split_parts(4, 128, 132, 2), 33);
  EXPECT_EQ(device::split_parts(200, 4096, 264, 1), 5);
  EXPECT_EQ(device::split_parts(200, 4096, 264, 10000), 1);
  EXPECT_EQ(device::split_merge_cost(8, 64), 1);
  EXPECT_EQ(device::split_merge_cost(64, 32), 16);
  EXPECT_EQ(device::split_parts(8, 2048, 264, 1), 33);
  EXPECT_EQ(device::split_parts(512, 128, 264, 1), 1);
  EXPECT_EQ(device::split_parts(4, 1, 264, 1), 1);
  EXPECT_EQ(device::split_parts(0, 100, 264, 1), 1);
}

TEST_F(FmhaSplit, PartsCoverAllBlocksOnce) {
  for (int i = 0; i < 2000; ++i) {
    const int blocks = static_cast<int>(random_.integer(0, 500));
    const int teams = static_cast<int>(random_.integer(1, 8));
    const int parts = static_cast<int>(random_.integer(1, 70));
    const i64 asked = random_.coin() ? -random_.integer(1, 20) : 0;
    SCOPED_TRACE(fmt::format("seed {}: {} blocks, {} teams, {} parts, {} asked for", seed_, blocks,
                             teams, parts, asked));
    const int own = device::split_part(blocks, teams, parts, 0, asked).parts;
    ASSERT_GE(own, 1);
    ASSERT_LE(own, parts);
    int next = 0, least = blocks, most = 0;
    for (int index = 0; index < own; ++index) {
      const device::SplitPart part = device::split_part(blocks, teams, parts, index, asked);
      ASSERT_EQ(part.parts, own);
      ASSERT_EQ(part.first, next);
      ASSERT_EQ(part.first % teams, 0);
      next = part.last;
      const int steps = (part.last - part.first + teams - 1) / teams;
      least = std::min(least, steps), most = std::max(most, steps);
    }
    EXPECT_EQ(next, blocks);
    EXPECT_LE(most - least, 1);
  }
}

// Where each sequence says how many parts there are, a launch for longer ones changes none.
TEST_F(FmhaSplit, PartsOfASequenceDoNotFollowTheLaunch) {
  EXPECT_EQ(device::split_own_steps(64), 8);
  EXPECT_EQ(device::split_own_steps(1024), 1);
  for (int i = 0; i < 2000; ++i) {
    const int blocks = static_cast<int>(random_.integer(0, 500));
    const int teams = static_cast<int>(random_.integer(1, 8));
    const i64 steps = random_.integer(1, 20);
    const auto own = static_cast<int>(device::split_own_parts((blocks + teams - 1) / teams, steps));
    const int more = own + static_cast<int>(random_.integer(1, 60));
    for (int index = 0; index < own; ++index) {
      const device::SplitPart a = device::split_part(blocks, teams, own, index, -steps);
      const device::SplitPart b = device::split_part(blocks, teams, more, index, -steps);
      ASSERT_EQ(a.parts, b.parts) << seed_;
      ASSERT_EQ(a.first, b.first) << seed_;
      ASSERT_EQ(a.last, b.last) << seed_;
    }
  }
}

// No tile of a shorter sequence has many more blocks of keys than the longest one's last tile,
// which the launch counts: a window may lie so, or that tile may have fewer queries.
TEST_F(FmhaSplit, ALaunchHasPartsForEveryTile) {
  constexpr int kKeys = 16, kRows = 16;
  for (int i = 0; i < 3000; ++i) {
    FmhaProblem p = with_strides(random_.problem(90, 8));
    p.seqlen_q = std::min<std::int64_t>(p.seqlen_q, 16);
    if (p.mask == FmhaMask::none || p.seqlen_q == 0 || p.seqlen_k == 0) continue;
    SCOPED_TRACE(fmt::format("seed {}: '{}'", seed_, to_string(Problem(p))));
    const device::FmhaArguments g = fmha::arguments_of(p, FmhaOperands{});
    const i64 group = p.heads / p.heads_kv;
    const auto blocks_of_tile = [&](const device::FmhaSequence& s, i64 tile) {
      const i64 first = tile * kRows / group;
      const i64 last = std::min((tile * kRows + kRows - 1) / group, s.queries - 1);
      return device::split_blocks<true>(g, s, first, last, kKeys).count;
    };
    const device::FmhaSequence longest = {p.seqlen_q, p.seqlen_k, 0, 0};
    const int counted = blocks_of_tile(longest, (p.seqlen_q * group - 1) / kRows);
    const device::FmhaSequence other = {random_.integer(1, p.seqlen_q),
                                        random_.integer(1, p.seqlen_k), 0, 0};
    const i64 tile = random_.integer(0, (other.queries * group - 1) / kRows);
    EXPECT_LE(blocks_of_tile(other, tile), counted + device::kSplitSpareSteps);
  }
}

// The blocks in their order, each once, with every key that a row sees.
TEST_F(FmhaSplit, BlocksHaveEveryKeyThatARowSees) {
  for (int i = 0; i < 2000; ++i) {
    FmhaProblem p = random_.problem(90, 8);
    if (p.mask == FmhaMask::none || p.seqlen_q == 0) continue;
    SCOPED_TRACE(fmt::format("seed {}: '{}'", seed_, to_string(Problem(p))));
    const device::FmhaArguments g = fmha::arguments_of(with_strides(p), FmhaOperands{});
    const device::FmhaSequence s = {p.seqlen_q, p.seqlen_k, 0, 0};
    const i64 first = random_.integer(0, p.seqlen_q - 1);
    const i64 last = random_.integer(first, p.seqlen_q - 1);
    const int keys = random_.one_of(std::array{16, 32});
    const device::SplitBlocks blocks = device::split_blocks<true>(g, s, first, last, keys);
    std::vector<bool> has(static_cast<std::size_t>(p.seqlen_k + keys));
    int before = -1;
    for (int index = 0; index < blocks.count; ++index) {
      const int block = blocks.block(index);
      ASSERT_GT(block, before);
      ASSERT_LT(i64{block} * keys, p.seqlen_k);
      before = block;
      std::fill_n(has.begin() + i64{block} * keys, keys, true);
    }
    for (i64 query = first; query <= last; ++query) {
      const device::FmhaKeys seen = device::keys_of<true>(g, s, query);
      for (i64 key = 0; key < p.seqlen_k; ++key) {
        ASSERT_TRUE(!seen.has(key) || has[static_cast<std::size_t>(key)]) << query << ", " << key;
      }
    }
  }
}

TEST(FmhaFlashParts, FollowFromTheProblem) {
  EXPECT_EQ(device::flash_parts({1, 1, 2047, 0, 64}), 1);
  EXPECT_EQ(device::flash_parts({1, 2, 2047, 0, 64}), 3);
  EXPECT_EQ(device::flash_parts({1, 32, 2047, 0, 64}), 7);
  EXPECT_EQ(device::flash_parts({1, 1, 131072, 0, 64}), 128);
  EXPECT_EQ(device::flash_parts({8, 1, 131072, 0, 64}), 32);
  EXPECT_EQ(device::flash_parts({200, 1, 131072, 0, 64}), 1);
  EXPECT_EQ(device::flash_parts({0, 1, 131072, 0, 64}), 1);
  EXPECT_EQ(device::flash_own_parts(32, 0, 1024), 1);
  EXPECT_EQ(device::flash_own_parts(32, 5000, 1024), 4);
  EXPECT_EQ(device::flash_own_parts(32, 131072, 1024), 32);
  EXPECT_EQ(device::flash_parts({200, 1, 131072, 7, 64}), 7);
  EXPECT_EQ(device::flash_parts({1, 1, 300, 7, 64}), 4);
  EXPECT_EQ(device::flash_parts({1, 1, 63, 7, 64}), 1);
  EXPECT_EQ(device::flash_parts({0, 1, 131072, 7, 64}), 1);
}

// Heads of a token that are neighbours are read together, as many as a tile has rows for.
TEST(FmhaFlashParts, TakeHeadsThatLieSideBySideTogether) {
  const auto together = [](const std::string& fields, device::i64 tile) {
    const Problem problem = parse_problem("fmha seqlen_k=4096 " + fields);
    const FmhaProblem p = with_strides(std::get<FmhaProblem>(problem));
    return device::flash_heads_together(fmha::arguments_of(p, {}),
                                        static_cast<device::FmhaCacheLayout>(p.cache_layout),
                                        size_of(p.in), tile);
  };
  EXPECT_EQ(together("heads=32 heads_kv=8 seqlen_q=1 hdim=128", 192), 8);
  EXPECT_EQ(together("heads=32 heads_kv=8 seqlen_q=2 hdim=128 dtype=bf16", 192), 8);
  EXPECT_EQ(together("heads=32 heads_kv=8 seqlen_q=1 hdim=128", 16), 4);
  EXPECT_EQ(together("heads=256 seqlen_q=1 hdim=64", 192), 192);
  EXPECT_EQ(together("heads=32 heads_kv=8 seqlen_q=3 hdim=128", 192), 1);  // 12 rows of a head
  EXPECT_EQ(together("heads=32 seqlen_q=1 hdim=72", 192), 1);
  EXPECT_EQ(together("heads=32 seqlen_q=1 hdim=64 dtype=fp8", 192), 1);
  EXPECT_EQ(together("heads=32 seqlen_q=1 hdim=64 k_stride_b=8388608 k_stride_h=262144 "
                     "k_stride_s=64 k_stride_d=1",
                     192),
            1);  // a head's tokens follow each other
  EXPECT_EQ(together("heads=32 seqlen_q=1 hdim=64 pages=table page_size=16 num_pages=256", 192),
            32);
  EXPECT_EQ(together("heads=32 seqlen_q=1 hdim=64 pages=table page_size=16 num_pages=256 "
                     "cache_layout=vectorized",
                     192),
            1);
}

// A number of parts that a caller asks for.
TEST(FmhaSplits, AreCheckedAndHonoured) {
  const std::string line = "fmha batch=2 heads=8 heads_kv=2 seqlen_q=1 seqlen_k=9000 hdim=64 ";
  const auto refused = [&](const std::string& fields, const std::string& sentence) {
    expect_error(ErrorCode::invalid_argument, sentence,
                 [&] { family().validate(parse_problem(line + fields)); });
  };
  EXPECT_NO_THROW(family().validate(parse_problem(line + "num_splits=512")));
  refused("num_splits=513", "fmha: num_splits must be at most 512, got 513");
  EXPECT_NO_THROW(family().validate(parse_problem(line + "num_splits=-1")));
  refused("num_splits=-2", "fmha: num_splits must be at least -1, got -2");
  refused("kind=append num_splits=2", "fmha: num_splits must be 0 with kind=append, got 2");
  const Target target = load_target("avx2");
  const auto parts = [&](const std::string& fields) {
    const Problem p = parse_problem(line + fields);
    return fmha::bind(family().general(p, target), p, target, FmhaOperands{}).parts;
  };
  EXPECT_EQ(parts(""), 17);  // of 512 keys of two heads at least
  EXPECT_EQ(parts("num_splits=1"), 1);
  EXPECT_EQ(parts("num_splits=11"), 11);
  EXPECT_EQ(parts("num_splits=500"), 140);  // whole blocks of 64 keys
}

TEST(FmhaSplits, AreHonouredOnHopper) {
  Target target = load_target("sm90a");
  FmhaProblem p = with_strides(fmha_problem(DType::bf16, 2, 8, 2, 1, 9000, 128));
  const Algorithm a = kSplitGpu.algorithms(target)[1];
  for (const std::int64_t splits : {1, 2, 30, 512}) {
    p.num_splits = splits;
    const std::int64_t steps = (9000 + a.tile.n * a.wave.n - 1) / (a.tile.n * a.wave.n);
    const KernelSpec spec = {.signature = signature_of(p), .algorithm = a, .target = "sm90a"};
    EXPECT_EQ(kSplitGpu.bind(spec, p, target, {}).parts, std::min(splits, steps));
  }
  p.batch = 100000;
  const KernelSpec spec = {.signature = signature_of(p), .algorithm = a, .target = "sm90a"};
  EXPECT_EQ(kSplitGpu.serves(spec, with_strides(p), target).reason.substr(0, 38),
            "splitkv cuts the keys of at most 16384");
}

// ---- kernels ----

TEST_F(FmhaSplit, SaysWhichRuleIsBroken) {
  const std::pair<const char*, const char*> rejected[] = {
      {"fp32_splitkv_16x16x128_1x4x1_1x1x1_s3",
       "splitkv computes fp16, bf16, fp8 or bf8, got fp32"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1_dropout_s3", "splitkv computes without dropout"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1_pagestable_vectorized_s3",
       "splitkv reads pages whose layout is linear, got vectorized"},
      {"bf16_splitkv_16x16x128_1x9x1_1x1x1_s3",
       "wave must be m x n x 1, m warps over rows and n over keys, at most 8 in all, got 1x9x1"},
      {"bf16_splitkv_32x16x128_1x4x1_1x1x1_s3",
       "tile must be 16 x n x k with 1 warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
       "64x32x576 with wave 4x1x1, got 32x16x128"},
      {"bf16_splitkv_16x16x192_1x4x1_1x1x1_s3",
       "tile must be 16 x n x k with 1 warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
       "64x32x576 with wave 4x1x1, got 16x16x192"},
      {"bf16_splitkv_16x16x576_1x4x1_1x1x1_s3",
       "tile must be 16 x n x k with 1 warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
       "64x32x576 with wave 4x1x1, got 16x16x576"},
      {"bf16_splitkv_64x32x576_4x2x1_1x1x1_s4",
       "tile must be 64 x n x k with 4 warps over rows, n 16, 32 or 64, k 64, 128 or 256, or "
       "64x32x576 with wave 4x1x1, got 64x32x576"},
      {"bf16_splitkv_64x32x576_4x1x1_1x1x1_s3", "stages must be 4 with tile 64x32x576, got 3"},
      {"fp32_splitkv_64x32x576_4x1x1_1x1x1_s4",
       "splitkv computes fp16, bf16, fp8 or bf8, got fp32"},
      {"bf16_splitkv_16x16x128_1x4x1_1x8x1_s3", "warp tile must be 1x1x1, got 1x8x1"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1", "stages must be between 2 and 8, got 1"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1_slices4097_s3",
       "slices must be between 1 and 4096, got 4097"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1_s3_swap",
       "swap_ab must be false with splitkv, got true"},
      {"bf16_splitkv_16x64x256_1x4x1_1x1x1_s3",
       "needs 794624 bytes of shared memory, sm90a has 232448"},
      {"bf16_splitkv_16x32x128_1x4x1_1x1x1_s3",
       "n must be at most 16 with 1 warps over rows, k 128 and keys of bf16, got 32"},
      {"bf16_splitkv_16x16x128_1x4x1_1x1x1_kvfp8_s3",
       "n must be 32 with 1 warps over rows, k 128 and keys of fp8, got 16"},
      {"fp8_splitkv_64x32x128_4x1x1_1x1x1_outbf16_s5",
       "n must be 64 with 4 warps over rows, k 128 and keys of fp8, got 32"},
      {"fp16_splitkv_64x32x576_4x1x1_1x1x1_kvbf8_s4",
       "stages must be 3 with tile 64x32x576 and keys of 8 bits, got 4"},
      {"fp16_splitkv_64x32x576_4x1x1_1x1x1_kvbf8_scalespertoken_s3",
       "tile 64x32x576 takes factors of tensors and of heads, got qscale per_token"},
  };
  for (const auto& [name, reason] : rejected) {
    const KernelSpec spec = parse_name(fmt::format("fmha_forward_{}_sm90a", name));
    EXPECT_EQ(family().is_legal(spec, target_).reason, reason) << name;
  }
  const KernelSpec spec = parse_name("fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_s3_sm90a");
  EXPECT_EQ(family().is_legal(spec, target_).reason, "");
}

TEST_F(FmhaSplit, SaysWhatIsNotServed) {
  const KernelSpec spec = parse_name("fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_s3_sm90a");
  const auto reason = [&](const std::string& more) {
    return family()
        .supports(spec, problem("heads=8 heads_kv=2 dtype=bf16 " + more), target_)
        .reason;
  };
  const std::string sizes = "batch=2 seqlen_q=1 seqlen_k=99 ";
  EXPECT_EQ(reason(sizes + "hdim=128 hdim_v=8"), "");
  EXPECT_EQ(reason(sizes + "hdim=128 q_stride_d=2 q_stride_h=256 out_stride_s=1025"), "");
  EXPECT_EQ(reason(sizes + "hdim=136"),
            "hdim must be a multiple of 8 of at most 128 with splitkv and tile 16x16x128, got 136");
  EXPECT_EQ(
      reason(sizes + "hdim=64 hdim_v=20"),
      "hdim_v must be a multiple of 8 of at most 128 with splitkv and tile 16x16x128, got 20");
  EXPECT_EQ(reason(sizes + "hdim=64 k_stride_d=2 k_stride_h=128 k_stride_s=256"),
            "splitkv reads elements of k that are neighbours, got a stride of 2");
  EXPECT_EQ(reason(sizes + "hdim=64 v_stride_s=132"),
            "the strides of v must be multiples of 8 elements with splitkv, got 132 from token to "
            "token");
  EXPECT_EQ(reason("hdim=64 seqlen_q=1 seqlen_k=300000000"),
            "seqlen_k must be at most 268435456 with splitkv, got 300000000");
  EXPECT_EQ(reason("hdim=64 seqlen_k=9 seqlen_q=300000000"),
            "seqlen_q must be at most 67108864 with splitkv and 4 heads a key-value head, got "
            "300000000");
  EXPECT_EQ(reason("hdim=64 seqlen_k=9 batch=10000 seqlen_q=1000000"),
            "splitkv has at most 1073741824 blocks, got about 5000000004 of 16 rows");
}

// A piece of 16 bytes has 16 elements of keys of 8 bits.
TEST_F(FmhaSplit, ServesKeysOfBytes) {
  const KernelSpec spec =
      parse_name("fmha_forward_bf16_splitkv_16x32x128_1x4x1_1x1x1_kvfp8_s3_sm90a");
  EXPECT_EQ(family().is_legal(spec, target_).reason, "");
  const auto reason = [&](const std::string& more) {
    return family()
        .supports(spec,
                  problem("heads=8 heads_kv=2 seqlen_q=1 seqlen_k=99 dtype=bf16 kv=fp8 " + more),
                  target_)
        .reason;
  };
  EXPECT_EQ(reason("hdim=128"), "");
  EXPECT_EQ(reason("hdim=112 hdim_v=16 q_stride_d=2 q_stride_h=224"), "");
  EXPECT_EQ(
      reason("hdim=120"),
      "hdim must be a multiple of 16 of at most 128 with splitkv and tile 16x32x128, got 120");
  EXPECT_EQ(reason("hdim=64 k_stride_s=136"),
            "the strides of k must be multiples of 16 elements with splitkv, got 136 from token to "
            "token");
  EXPECT_EQ(reason("hdim=128 qscale=per_head"),
            "the kernel has qscale=none, the problem qscale=per_head");
  // Keys of 8 bits are read at twice the rate: half the bytes, in the same number of pieces.
  const auto seconds = [&](const std::string& words) {
    double least = 1e9;
    const Problem asked = problem(
        "batch=64 heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192 hdim=128 "
        "lengths=padded dtype=bf16 " +
        words);
    for (const KernelSpec& one : family().candidates(asked, target_)) {
      if (!family().is_legal(one, target_) || !family().supports(one, asked, target_)) continue;
      const double its = estimate(one, asked, target_, 0).seconds;
      if (its < least) least = its;
    }
    return least;
  };
  EXPECT_GT(seconds(""), 1.7 * seconds("kv=fp8"));
  EXPECT_GT(seconds("pages=table page_size=16"), 1.7 * seconds("kv=bf8 pages=table page_size=16"));
}

TEST_F(FmhaSplit, CountsThePiecesOfACache) {
  const KernelSpec spec =
      parse_name("fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_pagestable_s3_sm90a");
  const auto reason = [&](const char* pages) {
    return family()
        .supports(spec,
                  problem(std::string("heads=8 seqlen_q=1 seqlen_k=99 hdim=128 dtype=bf16 "
                                      "pages=table page_size=16 num_pages=") +
                          pages),
                  target_)
        .reason;
  };
  EXPECT_EQ(reason("2000000"), "");
  EXPECT_EQ(reason("3000000"),
            "splitkv reads pages of a cache of at most 34359738368 elements, got about 49152016384 "
            "of k");
}

// Latent attention: heads of 576 elements whose first 512 are the values.
TEST_F(FmhaSplit, SaysWhatLatentAttentionDoesNotServe) {
  const KernelSpec spec = parse_name("fmha_forward_bf16_splitkv_64x32x576_4x1x1_1x1x1_s4_sm90a");
  EXPECT_EQ(family().is_legal(spec, target_).reason, "");
  const auto reason = [&](const std::string& more) {
    return family()
        .supports(spec, problem("heads=128 heads_kv=1 seqlen_q=1 seqlen_k=99 dtype=bf16 " + more),
                  target_)
        .reason;
  };
  EXPECT_EQ(reason("hdim=576 hdim_v=512"), "");
  EXPECT_EQ(reason("hdim=576 hdim_v=512 v_in_k=1"), "");
  const KernelSpec of_bytes =
      parse_name("fmha_forward_bf16_splitkv_64x32x576_4x1x1_1x1x1_kvfp8_scalesperhead_s3_sm90a");
  EXPECT_EQ(family().is_legal(of_bytes, target_).reason, "");
  EXPECT_EQ(family()
                .supports(of_bytes,
                          problem("heads=128 heads_kv=1 seqlen_q=1 seqlen_k=99 dtype=bf16 kv=fp8 "
                                  "qscale=per_head hdim=576 hdim_v=512 v_in_k=1"),
                          target_)
                .reason,
            "");
  EXPECT_EQ(reason("hdim=264 hdim_v=8 batch=3"), "");
  EXPECT_EQ(reason("hdim=8 hdim_v=264"), "");
  EXPECT_EQ(reason("hdim=570 hdim_v=512"),
            "hdim must be a multiple of 8 of at most 576 with splitkv and tile 64x32x576, got 570");
  EXPECT_EQ(
      reason("hdim=512 hdim_v=500"),
      "hdim_v must be a multiple of 8 of at most 512 with splitkv and tile 64x32x576, got 500");
  EXPECT_EQ(reason("hdim=256 hdim_v=128"),
            "tile 64x32x576 serves heads of more than 256 elements, got 256 (hdim) and 128 "
            "(hdim_v)");
  EXPECT_EQ(reason("hdim=576 hdim_v=512 v_in_k=1 k_stride_s=580"),
            "the strides of k must be multiples of 8 elements with splitkv, got 580 from token to "
            "token");
}

TEST_F(FmhaSplit, ValuesInKeysAreCheckedAndCountedOnce) {
  const std::string line = "heads=16 heads_kv=1 seqlen_q=1 seqlen_k=1000 hdim=576 ";
  const auto refused = [&](const std::string& fields, const std::string& sentence) {
    expect_error(ErrorCode::invalid_argument, sentence,
                 [&] { family().validate(problem(line + fields)); });
  };
  refused("hdim_v=512 v_in_k=1 v_stride_s=512",
          "fmha: v_stride_s must be left out with v_in_k=1, got 512");
  refused("hdim_v=512 v_in_k=1 kind=extend", "fmha: v_in_k must be 0 with kind=extend, got 1");
  refused("hdim_v=512 v_in_k=1 kind=append", "fmha: v_in_k must be 0 with kind=append, got 1");
  refused("hdim_v=512 v_in_k=1 kind=backward", "fmha: v_in_k must be 0 with kind=backward, got 1");
  refused("hdim_v=512 v_in_k=1 pages=table page_size=16 cache_layout=vectorized",
          "fmha: v_in_k must be 0 with cache_layout=vectorized, got 1");
  const Problem wider = problem("heads=1 seqlen_q=1 seqlen_k=9 hdim=64 hdim_v=72 v_in_k=1");
  expect_error(ErrorCode::invalid_argument,
               "fmha: hdim_v must be at most hdim=64 with v_in_k=1, got 72",
               [&] { family().validate(wider); });
  const Problem apart = problem(line + "hdim_v=512"),
                within = problem(line + "hdim_v=512 v_in_k=1");
  EXPECT_NO_THROW(family().validate(within));
  EXPECT_EQ(bytes(apart) - bytes(within), 1000.0 * 512 * 4);
  EXPECT_EQ(tensors(apart).size(), tensors(within).size() + 1);
  // The kernels find out by pointers and strides.
  FmhaOperands o;
  o.k = o.q = &o;
  const device::FmhaArguments g =
      fmha::arguments_of(with_strides(std::get<FmhaProblem>(within)), o);
  EXPECT_EQ(g.v, g.k);
  EXPECT_TRUE(device::values_in_keys<device::FmhaPages::none>(g));
  const device::FmhaArguments other =
      fmha::arguments_of(with_strides(std::get<FmhaProblem>(apart)), o);
  EXPECT_FALSE(device::values_in_keys<device::FmhaPages::none>(other));
}

// The least estimate, as where nothing was measured.
TEST_F(FmhaSplit, IsPreferredForFewQueries) {
  const auto chosen = [&](const std::string& words) {
    const Problem asked = problem(words + " dtype=bf16 hdim=128");
    Algorithm best;
    double least = 1e9;
    for (const KernelSpec& spec : family().candidates(asked, target_)) {
      if (!family().is_legal(spec, target_) || !family().supports(spec, asked, target_)) continue;
      const double seconds = estimate(spec, asked, target_, 0).seconds;
      if (seconds < least) best = spec.algorithm, least = seconds;
    }
    return best;
  };
  for (const char* words :
       {"batch=64 heads=32 heads_kv=8 seqlen_q=1 seqlen_k=8192", "heads=8 seqlen_q=1 seqlen_k=512",
        "heads=64 heads_kv=8 seqlen_q=1 seqlen_k=131072",
        "batch=4 heads=32 heads_kv=8 seqlen_q=4 seqlen_k=4096 mask=bottom_right lengths=padded"}) {
    const Algorithm a = chosen(words);
    EXPECT_EQ(a.pipeline, Pipeline::splitkv) << words;
    EXPECT_EQ(a.tile.m, 16) << words;
    EXPECT_EQ(a.slices, 132) << words;
  }
  EXPECT_EQ(chosen("heads=64 heads_kv=4 seqlen_q=4 seqlen_k=131072").tile.m, 64);
}

TEST_F(FmhaSplit, IsPreferredForLatentAttention) {
  for (const char* words : {"heads=16", "heads=128 batch=32", "heads=128 seqlen_q=512",
                            "heads=128 batch=4 seqlen_q=2 mask=bottom_right lengths=padded"}) {
    const Problem asked = problem(fmt::format(
        "heads_kv=1 {}seqlen_k=4096 hdim=576 hdim_v=512 v_in_k=1 dtype=bf16 {}",
        std::string_view(words).find("seqlen_q") == std::string_view::npos ? "seqlen_q=1 " : "",
        words));
    double split = 1e9, other = 1e9;
    for (const KernelSpec& spec : family().candidates(asked, target_)) {
      if (!family().is_legal(spec, target_) || !family().supports(spec, asked, target_)) continue;
      const double seconds = estimate(spec, asked, target_, 0).seconds;
      (spec.algorithm.pipeline == Pipeline::splitkv ? split : other) = seconds;
    }
    EXPECT_LT(split, other) << words;
  }
}

TEST_F(FmhaSplit, LatentLaunchSaysWhetherAllBlocksRunAtOnce) {
  const KernelSpec spec =
      parse_name("fmha_forward_bf16_splitkv_64x32x576_4x1x1_1x1x1_slices132_s4_sm90a");
  const auto launch_of = [&](const std::string& words) {
    return fmha::bind(spec,
                      problem("dtype=bf16 heads=128 heads_kv=1 seqlen_q=1 hdim=576 "
                              "hdim_v=512 v_in_k=1 seqlen_k=4096 " +
                              words),
                      load_target("sm90a"), FmhaOperands{});
  };
  const auto waits = [](const Launch& launch) {
    device::SplitArguments g;
    std::memcpy(&g, launch.arguments.data(), sizeof g);
    return g.waits;
  };
  const Launch few = launch_of("batch=32");
  ASSERT_EQ(few.steps.size(), 1U);
  EXPECT_EQ(few.steps[0].grid[0], 128U);  // two parts of each of two tiles
  EXPECT_EQ(few.steps[0].block[0], 384U);
  EXPECT_EQ(few.steps[0].shared_memory_bytes, 231616U);
  EXPECT_EQ(waits(few), 1);
  EXPECT_EQ(few.workspace.counter_bytes, 64 * 4U);
  const Launch many = launch_of("batch=67");
  EXPECT_GT(many.steps[0].grid[0], 132U);
  EXPECT_EQ(waits(many), 0);
}

TEST_F(FmhaSplit, LaunchHasABlockForEachPart) {
  const KernelSpec spec =
      parse_name("fmha_forward_bf16_splitkv_16x16x128_1x4x1_1x1x1_slices264_s3_sm90a");
  const auto launch_of = [&](const std::string& words) {
    return fmha::bind(spec, problem("dtype=bf16 hdim=128 " + words), load_target("sm90a"),
                      FmhaOperands{});
  };
  const Launch many = launch_of("heads=64 heads_kv=8 seqlen_q=1 seqlen_k=131072");
  ASSERT_EQ(many.steps.size(), 1U);
  EXPECT_EQ(many.steps[0].grid[0], 8U * 33);
  EXPECT_EQ(many.steps[0].block[0], 128U);
  EXPECT_EQ(many.workspace.counter_bytes, 8 * 4U);
  EXPECT_EQ(many.workspace.bytes, device::kCounterBytes + 8 * 33 * 16 * (128 + 2) * 4U);
  EXPECT_EQ(many.workspace.address_offset, offsetof(device::SplitArguments, workspace));
  const Launch one = launch_of("batch=64 heads=64 heads_kv=8 seqlen_q=1 seqlen_k=64");
  EXPECT_EQ(one.steps[0].grid[0], 64U * 8);
  EXPECT_EQ(one.workspace.bytes, 0U);
  // A window leaves out what no row sees.
  const Launch window = launch_of(
      "heads=8 heads_kv=1 seqlen_q=1 seqlen_k=131072 mask=bottom_right window_left=255 sink=4");
  EXPECT_LE(window.steps[0].grid[0], 5U);
  EXPECT_TRUE(launch_of("heads=8 seqlen_q=0 seqlen_k=9").steps.empty());
}

TEST_F(FmhaSplit, TextNamesShapeAndFeatures) {
  const FmhaSignature signature = {.in = DType::bf16,
                                   .out = DType::fp32,
                                   .dtype_bias = DType::bf16,
                                   .lengths = FmhaLengths::padded,
                                   .masked = true,
                                   .soft_cap = true};
  const Source source =
      family().emit({signature, kSplitGpu.algorithms(target_)[4], target_.name}, target_);
  for (const char* part :
       {"using In = bf16;", "using Out = float;", "kLengths = FmhaLengths::padded;",
        "kMasked = true, kSoftCap = true, kLse = false;", "kTileM = 64, kTileN = 32, kTileK = 128;",
        "kStages = 5, kWaveM = 4, kWaveN = 1;"}) {
    EXPECT_NE(source.text.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace tessera::fmha
