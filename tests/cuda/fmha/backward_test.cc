// Gradients of attention on a GPU against the fp64 reference: every essential kernel on its
// samples, and any features together.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/fmha/pipelines.h"
#include "host/fmha/backward_problems.h"

namespace tessera {
namespace {

class GpuFmhaBackward : public GpuFmhaPipeline {};

TEST_F(GpuFmhaBackward, EveryEssentialKernelIsCorrectOnItsSamples) {
  std::vector<KernelSpec> specs;
  for (const KernelSpec& spec : essential(family_)) {
    if (std::get<FmhaSignature>(spec.signature).kind == FmhaKind::backward) specs.push_back(spec);
  }
  ASSERT_EQ(specs.size(), 28U);
  ASSERT_NO_FATAL_FAILURE(build(specs));
  for (const KernelSpec& spec : specs) {
    for (const Problem& problem : family_.samples(spec, target_)) check(spec, problem);
  }
}

TEST_F(GpuFmhaBackward, AnyFeaturesTogetherAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const FmhaProblem p =
        fmha::random_backward(random, i % 4 == 0 ? 200 : 50, i % 8 == 0 ? 512 : 130);
    cases.push_back({family_.general(p, target_), p});
  }
  check_all(cases);
}

// ---- tensor cores ----

std::int64_t in_eights(std::int64_t hdim) { return std::max<std::int64_t>(8, hdim / 8 * 8); }

// Scores that are more than products, and the gradient of a bias, or of slopes.
void bend(fmha::RandomFmhas& random, FmhaProblem& p) {
  p.bias = static_cast<FmhaBias>(random.integer(0, 2));
  if (p.bias == FmhaBias::elementwise) p.dtype_bias = random.coin() ? p.in : DType::fp32;
  if (p.bias == FmhaBias::alibi && random.coin()) p.slope_stride = p.heads;
  p.dbias = p.bias != FmhaBias::none && random.coin();
  if (p.dbias && p.bias == FmhaBias::elementwise && random.coin()) {
    for (std::int64_t& stride : p.bias_strides) stride = random.coin() ? 0 : kPacked;
  }
  if (random.coin()) p.soft_cap = static_cast<float>(random.integer(1, 8)) / 2;
  if (random.coin()) p.p_drop = static_cast<float>(random.integer(1, 999)) / 1000;
}

// What the kernels of tensor cores compute; all else is random. Heads before tokens, and gaps, in
// every other problem.
FmhaProblem for_tensor_cores(fmha::RandomFmhas& random, std::int64_t longest) {
  FmhaProblem p;
  p.kind = FmhaKind::backward;
  p.in = p.out = p.dtype_bias = random.coin() ? DType::fp16 : DType::bf16;
  p.batch = random.integer(1, 3);
  const std::int64_t group = random.integer(1, 4);
  p.heads = group * random.integer(1, 3);
  p.heads_kv = p.heads / group;
  p.seqlen_q = random.integer(1, longest), p.seqlen_k = random.integer(1, longest);
  constexpr std::int64_t kWidest[] = {64, 128, 192, 256};
  const std::int64_t widest = kWidest[random.integer(0, 3)],
                     widest_v = widest == 192 ? 128 : widest;
  p.hdim = random.coin() ? widest : in_eights(random.integer(8, widest));
  p.hdim_v = random.coin() ? std::min(p.hdim, widest_v) : in_eights(random.integer(8, widest_v));
  if (random.coin()) bend(random, p);
  p.mask = static_cast<FmhaMask>(random.integer(0, 2));
  if (p.mask != FmhaMask::none && random.coin()) {
    p.window_left = random.integer(-1, longest);
    p.window_right = random.integer(-1, longest);
    if (random.coin()) p.sink = random.integer(0, longest);
  }
  p.dlse = random.coin();
  p.lengths = static_cast<FmhaLengths>(random.integer(0, 2));
  if (p.lengths != FmhaLengths::equal && random.coin()) p.skip_q = random.integer(0, p.seqlen_q);
  if (p.lengths == FmhaLengths::packed || random.coin()) return p;
  const std::int64_t row = p.hdim + 8 * random.integer(0, 2);
  const std::int64_t row_v = p.hdim_v + 8 * random.integer(0, 2);
  const auto strides = [](std::int64_t heads, std::int64_t tokens, std::int64_t elements) {
    return FmhaStrides{heads * tokens * elements, tokens * elements, elements, 1};
  };
  p.dq_strides = strides(p.heads, p.seqlen_q, row);
  p.dk_strides = p.k_strides = strides(p.heads_kv, p.seqlen_k, row);
  p.dv_strides = strides(p.heads_kv, p.seqlen_k, row_v);
  p.dout_strides = p.out_strides = strides(p.heads, p.seqlen_q, row_v);
  return p;
}

TEST_F(GpuFmhaBackward, TensorCoresAreCorrectOnRandomProblems) {
  constexpr int kRandomProblems = 40;
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < kRandomProblems; ++i) {
    const Problem problem = for_tensor_cores(random, i % 4 == 0 ? 700 : 200);
    for (int kernel = 0; kernel < 3; ++kernel) {
      ASSERT_NO_FATAL_FAILURE(add_one(Pipeline::tmaws, problem, random, cases));
    }
  }
  check_all(cases);
}

// So many keys that every block takes several, in the order of a counter.
TEST_F(GpuFmhaBackward, TensorCoresAreCorrectOnManyBlocks) {
  for (const char* fields :
       {"batch=2 heads=8 heads_kv=4 seqlen_q=1000 seqlen_k=4500 hdim=128 dtype=bf16",
        "heads=8 seqlen_q=4500 seqlen_k=4500 hdim=64 mask=top_left dtype=fp16",
        "batch=3 heads=12 heads_kv=6 seqlen_q=1100 seqlen_k=2900 hdim=64 mask=bottom_right "
        "window_left=700 lengths=packed dtype=bf16",
        "batch=40 heads=8 heads_kv=2 seqlen_q=300 seqlen_k=300 hdim=128 mask=top_left "
        "lengths=padded dtype=bf16",
        "heads=2 seqlen_q=2100 seqlen_k=2900 hdim=256 mask=bottom_right dtype=bf16",
        "heads=4 heads_kv=1 seqlen_q=1500 seqlen_k=1500 hdim=192 hdim_v=128 dtype=fp16"}) {
    const Problem p = parse_problem(std::string("fmha kind=backward ") + fields);
    const std::vector<KernelSpec> specs = kernels(Pipeline::tmaws, p);
    ASSERT_GE(specs.size(), 8U) << fields;
    const auto least = std::ranges::min(specs, {}, [](const KernelSpec& spec) {
                         return spec.algorithm.tile.k;
                       }).algorithm.tile.k;
    for (const KernelSpec& spec : specs) {
      const Algorithm& a = spec.algorithm;
      if (a.tile.k == least && (a.slices == 1 || a.slices == 4)) check(spec, p);
    }
  }
}

// The gradient of a slope has a sum even where one score has the slope alone.
TEST_F(GpuFmhaBackward, SlopesOfOneScoreAreCorrect) {
  for (const char* fields : {"heads=3", "batch=2 heads=3 slope_stride=3"}) {
    const Problem p = parse_problem(
        std::string("fmha kind=backward seqlen_q=1 seqlen_k=1 hdim=64 bias=alibi dbias=1 "
                    "dtype=bf16 ") +
        fields);
    const std::vector<KernelSpec> specs = kernels(Pipeline::tmaws, p);
    ASSERT_FALSE(specs.empty());
    for (const KernelSpec& spec : specs) check(spec, p);
  }
}

// Blocks of keys end in another order in every run.
TEST_F(GpuFmhaBackward, SumsInOrderHaveEqualBits) {
  const Problem p = parse_problem(
      "fmha kind=backward batch=2 heads=16 heads_kv=8 seqlen_q=2048 seqlen_k=2048 hdim=128 "
      "mask=top_left dtype=bf16");
  int looked = 0;
  for (const KernelSpec& spec : kernels(Pipeline::tmaws, p)) {
    if (!family_.is_deterministic(spec, target_)) continue;
    const std::string kernel = name_of(spec);
    measure::OwnedOperands owned = measure::random_operands(p, random_(), usable_processors());
    measure::PlacedOperands placed = place(owned);
    const std::vector<std::byte> first = run(p, owned, placed, placed.operands, kernel);
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(run(p, owned, placed, placed.operands, kernel), first) << kernel << ", run " << i;
    }
    ++looked;
  }
  EXPECT_GE(looked, 1);
}

}  // namespace
}  // namespace tessera
