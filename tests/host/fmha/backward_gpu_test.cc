// The flash kernels of gradients without a GPU: rules, problems, launches and what is chosen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "host/spec/expect_error.h"
#include "tessera/device/cuda/fmha/flash_backward_arguments.h"
#include "tessera/device/cuda/fmha/flash_backward_sizes.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

constexpr const char* kGradients128 =
    "fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_s3_sm90a";
constexpr const char* kInOrder128 =
    "fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitordered1_s3_sm90a";

// In bf16 and of these sizes where the fields say nothing else.
Problem gradients_of(const std::string& fields) {
  std::string line = "fmha kind=backward " + fields;
  for (const char* usual : {"heads=4", "seqlen_q=300", "seqlen_k=500", "dtype=bf16"}) {
    const std::string word = usual, key = word.substr(0, word.find('=') + 1);
    if (line.find(" " + key) == std::string::npos) line += " " + word;
  }
  return parse_problem(line);
}

struct RefusedKernel {
  const char *name, *sentence;
};
constexpr RefusedKernel kRefusedKernels[] = {
    {"fmha_backward_fp32_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_s3_sm90a",
     "tmaws computes gradients in fp16 or bf16, got in fp32"},
    {"fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_biasalibi_softcap_dropout_splitatomic1_s3_"
     "sm90a",
     "tmaws with 128 keys of a block computes gradients without bias, soft cap and dropout, got "
     "bias alibi, a soft cap, dropout"},
    {"fmha_backward_bf16_tmaws_128x64x128_3x1x1_1x1x1_splitatomic1_s3_sm90a",
     "tmaws has 2 consumers over m (2x1x1) with kind=backward, got 3x1x1"},
    {"fmha_backward_bf16_tmaws_128x128x128_2x1x1_1x1x1_splitatomic1_s3_sm90a",
     "tile must be one of 128x128x64, 128x64x128, 64x64x64, 64x64x128, 64x64x192, 64x64x256 with "
     "kind=backward, got 128x128x128"},
    {"fmha_backward_bf16_tmaws_64x64x96_2x1x1_1x1x1_splitatomic1_s3_sm90a",
     "tile must be one of 128x128x64, 128x64x128, 64x64x64, 64x64x128, 64x64x192, 64x64x256 with "
     "kind=backward, got 64x64x96"},
    {"fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_sm90a",
     "stages must be at least 2 with kind=backward, got 1"},
    {"fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_s3_sm90a",
     "split_k must be ordered or atomic with kind=backward, which says how sums of dq are added, "
     "got none"},
    {"fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_slices3_s3_sm90a",
     "slices must be one of 1, 2, 4, 8 with kind=backward, got 3"},
    {"fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_s4_sm90a",
     "needs 265552 bytes of shared memory, sm90a has 232448"},
};

TEST(FmhaBackwardFlash, SaysWhichRuleIsBroken) {
  const Target gpu = load_target("sm90a");
  for (const RefusedKernel& row : kRefusedKernels) {
    EXPECT_EQ(family().is_legal(parse_name(row.name), gpu).reason, row.sentence) << row.name;
  }
  for (const char* name : {kGradients128, kInOrder128}) {
    const KernelSpec spec = parse_name(name);
    EXPECT_EQ(name_of(spec), name);
    EXPECT_EQ(family().is_legal(spec, gpu).reason, "") << name;
  }
}

struct RefusedGradients {
  const char *fields, *sentence;
};
constexpr RefusedGradients kRefusedGradients[] = {
    {"hdim=136", "hdim must be 8 to 128 with tmaws and tile 128x64x128, got 136"},
    {"hdim=64 hdim_v=136", "hdim_v must be 8 to 128 with tmaws and tile 128x64x128, got 136"},
    {"hdim=60", "hdim must be a multiple of 8 with tmaws, got 60"},
    {"hdim=64 hdim_v=20", "hdim_v must be a multiple of 8 with tmaws, got 20"},
    {"hdim=64 batch=0", "batch must be 1 to 268435456 with tmaws and tile 128x64x128, got 0"},
    {"hdim=64 seqlen_q=0", "seqlen_q must be 1 to 268435456 with tmaws and tile 128x64x128, got 0"},
    {"hdim=64 seqlen_k=0", "seqlen_k must be 1 to 268435456 with tmaws and tile 128x64x128, got 0"},
    {"hdim=64 scale=-2", "tmaws needs a scale above 0, got -2"},
    {"hdim=64 dq_stride_d=2 dq_stride_s=1000",
     "tmaws reads elements of dq that are neighbours, got a stride of 2"},
    {"hdim=64 dout_stride_s=260",
     "the strides of dout must be multiples of 8 elements, above 0 and below 549755813888, with "
     "tmaws, got 260 from token to token"},
    {"hdim=64 batch=2 dout_stride_b=0",
     "the strides of dout must be multiples of 8 elements, above 0 and below 549755813888, with "
     "tmaws, got 0 from sequence to sequence"},
};

TEST(FmhaBackwardFlash, SaysWhichProblemsItDoesNotServe) {
  const Target gpu = load_target("sm90a");
  for (const RefusedGradients& row : kRefusedGradients) {
    const Verdict verdict =
        family().supports(parse_name(kGradients128), gradients_of(row.fields), gpu);
    EXPECT_EQ(verdict.reason, row.sentence) << row.fields;
  }
}

// Elements of dbias that scores share are added up in any order.
TEST(FmhaBackwardFlash, OrderedSumsNeedABiasOfTheirOwn) {
  const Target gpu = load_target("sm90a");
  struct Row {
    const char *bias, *fields, *sentence;
  };
  constexpr Row kRows[] = {
      {"elementwise", "bias=elementwise", ""},
      {"elementwise", "bias=elementwise bias_stride_h=0",
       "tmaws adds up the gradient of what 600000 scores share in 150000 elements of dbias by "
       "atomic additions, got split_k ordered"},
      {"alibi", "bias=alibi",
       "tmaws adds up the gradient of what 600000 scores share in 4 elements of dbias by atomic "
       "additions, got split_k ordered"},
  };
  for (const Row& row : kRows) {
    for (const bool is_ordered : {false, true}) {
      const std::string name = fmt::format(
          "fmha_backward_bf16_tmaws_64x64x128_2x1x1_1x1x1_bias{}_dbias_split{}1_s3_sm90a", row.bias,
          is_ordered ? "ordered" : "atomic");
      const Problem p = gradients_of(fmt::format("hdim=64 dbias=1 {}", row.fields));
      EXPECT_EQ(family().supports(parse_name(name), p, gpu).reason, is_ordered ? row.sentence : "")
          << name << " on " << row.fields;
    }
  }
}

TEST(FmhaBackwardFlash, AtomicSumsAreNotDeterministic) {
  const Target gpu = load_target("sm90a");
  EXPECT_EQ(family().is_deterministic(parse_name(kGradients128), gpu).reason,
            "deterministic kernels must add up dq in the order of the keys, got split_k atomic");
  EXPECT_EQ(family().is_deterministic(parse_name(kInOrder128), gpu).reason, "");
}

// Blocks of 128 keys where there are many of them and scores are products alone; of 64 keys, or in
// slices, where there are few; fp32 has the general kernel.
TEST(FmhaBackwardFlash, IsChosenWhereItServes) {
  struct Row {
    const char *fields, *begin;
  };
  constexpr Row kRows[] = {
      {"heads=99 hdim=128", "fmha_backward_bf16_tmaws_128x64x128_2x1x1_1x1x1_splitatomic1_s3"},
      {"heads=99 hdim=72 mask=top_left dtype=fp16",
       "fmha_backward_fp16_tmaws_128x64x128_2x1x1_1x1x1_masked_splitatomic1_s3"},
      {"heads=99 hdim=64 lengths=packed",
       "fmha_backward_bf16_tmaws_128x128x64_2x1x1_1x1x1_packed_splitatomic1_s3"},
      {"heads=99 hdim=32", "fmha_backward_bf16_tmaws_128x128x64_2x1x1_1x1x1_splitatomic1_s3"},
      {"hdim=128", "fmha_backward_bf16_tmaws_64x64x128_2x1x1_1x1x1_splitatomic1_s3"},
      {"heads=2 hdim=128 seqlen_q=4000",
       "fmha_backward_bf16_tmaws_64x64x128_2x1x1_1x1x1_splitatomic1_slices8_s3"},
      {"hdim=64 soft_cap=3",
       "fmha_backward_bf16_tmaws_64x64x64_2x1x1_1x1x1_softcap_splitatomic1_s3"},
      {"hdim=64 dtype=fp32", "fmha_backward_fp32_direct_16x32x64"},
      {"hdim=192", "fmha_backward_bf16_tmaws_64x64x256_2x1x1_1x1x1_splitatomic1_s2"},
      {"hdim=192 hdim_v=128", "fmha_backward_bf16_tmaws_64x64x192_2x1x1_1x1x1_splitatomic1_s3"},
  };
  const Target gpu = load_target("sm90a");
  for (const Row& row : kRows) {
    const Problem p = gradients_of(row.fields);
    std::string best;
    double least = 1e30;
    for (const KernelSpec& spec : family().candidates(p, gpu)) {
      if (!family().is_legal(spec, gpu) || !family().supports(spec, p, gpu)) continue;
      const double seconds = estimate(spec, p, gpu, 1).seconds;
      if (seconds < least) least = seconds, best = name_of(spec);
    }
    EXPECT_TRUE(best.starts_with(row.begin)) << row.fields << ": " << best;
  }
}

// ---- launches ----

FmhaOperands aligned_operands() {
  static std::array<std::byte, 64> memory;
  auto* const at = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16);
  FmhaOperands o;
  o.q = o.k = o.v = o.dout = at;
  o.out = o.dq = o.dk = o.dv = at;
  return o;
}

TEST(FmhaBackwardFlash, PreparesMultipliesAndConverts) {
  const Problem p = gradients_of("batch=3 heads=6 heads_kv=2 hdim=72 hdim_v=40 mask=bottom_right");
  for (const bool is_ordered : {false, true}) {
    const KernelSpec spec = parse_name(is_ordered ? kInOrder128 : kGradients128);
    const Launch launch = family().bind(spec, p, load_target(spec.target), aligned_operands());
    ASSERT_EQ(launch.steps.size(), 3U);
    const std::int64_t blocks = 3 * 6 * 5;  // of 64 queries
    for (const std::size_t i : {0, 2}) {
      EXPECT_EQ(launch.steps[i].entry, i == 0 ? 1 : 2);
      EXPECT_EQ(launch.steps[i].grid[0], static_cast<unsigned>(blocks));
      EXPECT_EQ(launch.steps[i].block[0], 256U);
    }
    EXPECT_EQ(launch.steps[1].entry, 0);
    EXPECT_EQ(launch.steps[1].grid[0], 3U * 2 * 4);
    EXPECT_EQ(launch.steps[1].block[0], 384U);
    EXPECT_EQ(launch.steps[1].extent, Step::Extent::resident);
    const std::int64_t sums = 64 * 128 * 4, stats = (64 * 3 + 8) * 4, turns = is_ordered ? 8 : 0;
    EXPECT_EQ(launch.workspace.bytes,
              static_cast<std::size_t>(device::kCounterBytes + blocks * (sums + stats + turns)));
    EXPECT_EQ(launch.workspace.counter_bytes, 8U);
    ASSERT_EQ(launch.tensor_maps.size(), 6U);
    const std::array<unsigned, 6> rows = {64, 128, 128, 64, 16, 16};
    const std::array<unsigned, 6> hdims = {72, 72, 40, 40, 72, 40};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(launch.tensor_maps[i].box[1], rows[i]) << i;
      EXPECT_EQ(launch.tensor_maps[i].sizes[0], hdims[i]) << i;
    }
    device::FlashBackwardArguments g;
    std::memcpy(&g, launch.arguments.data(), sizeof(g));
    EXPECT_EQ(g.right, 500 - 300 + 1);
    EXPECT_EQ(g.query_blocks, 5);
    EXPECT_EQ(g.key_blocks, 4);
  }
}

TEST(FmhaBackwardFlash, StepsHaveNames) {
  const KernelSpec spec = parse_name(kGradients128);
  EXPECT_EQ(family().stage(spec, load_target("sm90a"), "_prepare"), "prepare");
  EXPECT_EQ(family().stage(spec, load_target("sm90a"), ""), "dq dk dv");
  EXPECT_EQ(family().stage(spec, load_target("sm90a"), "_convert"), "convert");
}

// Every tensor that is read or written 16 bytes at a time, by the copy engine or by threads.
TEST(FmhaBackwardFlash, RefusesTensorsThatAreNotAligned) {
  const KernelSpec spec = parse_name(kGradients128);
  const Problem p = gradients_of("hdim=128");
  const auto expect_refused = [&](const char* name, FmhaOperands o) {
    expect_error(
        ErrorCode::invalid_argument,
        fmt::format("fmha: {} must be aligned to 16 bytes for tmaws, got an address 2 past "
                    "a multiple of that; use a direct kernel",
                    name),
        [&] { family().bind(spec, p, load_target(spec.target), o); });
  };
  const auto moved = [](void* at) { return static_cast<void*>(static_cast<std::byte*>(at) + 2); };
  FmhaOperands o = aligned_operands();
  o.dq = moved(o.dq);
  expect_refused("dq", o);
  o = aligned_operands();
  o.out = moved(o.out);
  expect_refused("out", o);
  o = aligned_operands();
  o.dk = moved(o.dk);
  expect_refused("dk", o);
}

// A block's parts follow each other in shared memory, at multiples of what swizzled tiles need.
TEST(FmhaBackwardFlash, PartsOfABlockAreAligned) {
  for (const device::FlashBackwardShape shape : {device::FlashBackwardShape{128, 128, 64, 64, 3},
                                                 {128, 64, 128, 128, 3},
                                                 {64, 64, 192, 128, 3},
                                                 {64, 64, 256, 256, 2}}) {
    const device::FlashBackwardSizes z = device::flash_backward_sizes(shape);
    for (const int part : {z.values, z.queries, z.douts, z.gradients, z.out}) {
      EXPECT_EQ(part % 1024, 0);
    }
    EXPECT_EQ(z.stats % 16, 0);
    EXPECT_EQ(z.place % 16, 0);
    EXPECT_EQ(z.barriers % 8, 0);
    EXPECT_EQ(z.bytes, device::flash_backward_bytes(shape));
  }
}

}  // namespace
}  // namespace tessera::fmha
