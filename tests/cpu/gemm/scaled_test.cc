// Kernels with scales of blocks against the fp64 reference: fresh random sizes and strides, both
// orders of scales in memory, both of their types, groups, batches, and NaN.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>

#include "cpu/guarded.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace scaled_test {
namespace {

Registry& registry() { return testing_support::registry_in("scaled_test"); }

constexpr GemmScale kScales[] = {GemmScale::none, GemmScale::by_1x32, GemmScale::by_1x128,
                                 GemmScale::by_128x128};
constexpr GemmLayout kLayouts[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                   GemmLayout::ccr};
constexpr GemmGrouping kGroupings[] = {
    GemmGrouping::none, GemmGrouping::contiguous, GemmGrouping::none,    GemmGrouping::indexed,
    GemmGrouping::none, GemmGrouping::masked,     GemmGrouping::along_k, GemmGrouping::none};
constexpr DType kOutputs[] = {DType::bf16, DType::fp32, DType::fp16};
constexpr const char* kEpilogues[] = {"none", "bias+gelu", "none", "multi_d_add2", "col_scale"};

// The `next`-th of a list that goes through all values of each field at its own pace.
GemmSignature signature(std::size_t next) {
  GemmSignature s;
  const std::size_t pair = 1 + next * 7 % 15;  // of scales; not none with none
  s.a = next % 2 == 0 ? DType::fp8 : DType::bf8;
  s.b = next % 3 == 0 ? DType::bf8 : DType::fp8;
  s.acc = DType::fp32;
  s.out = kOutputs[next % 3];
  s.d = next % 4 == 0 ? DType::fp32 : s.out;
  s.layout = kLayouts[next % 4];
  s.grouping = kGroupings[next % 8];
  s.scale_a = kScales[pair % 4], s.scale_b = kScales[pair / 4];
  s.scale_type = next / 2 % 2 == 0 ? GemmScaleType::fp32 : GemmScaleType::e8m0;
  s.epilogue = parse_epilogue(kEpilogues[next % 5]);
  return s;
}

// Kernels of this machine's target go through all shapes; others have a few.
std::vector<KernelSpec> kernels(bool usual) {
  std::vector<KernelSpec> all;
  std::size_t next = 0;
  for (const Target& target : testing_support::targets_here()) {
    const bool is_own = target.name == host_target().name;
    for (std::size_t i = 0; i < (is_own ? 30U : 12U); ++i) {
      const GemmSignature s = signature(next++);
      GemmProblem p = gemm::problem_of(s, 64, 64, 64);
      const auto found = family_of(Op::gemm).legal_candidates(p, target);
      if (found.empty()) ADD_FAILURE() << "no kernel for " << to_string(Problem(p));
      const bool is_usual = is_own && i < 8;
      if (!found.empty() && is_usual == usual) all.push_back(found[i * 5 % found.size()]);
    }
  }
  return all;
}

class ScaledKernel : public testing::TestWithParam<KernelSpec> {
 protected:
  const KernelSpec& spec = GetParam();
  const GemmSignature& signature = std::get<GemmSignature>(spec.signature);
  const Family& family = family_of(Op::gemm);
  std::uint64_t seed = testing_support::seed_of_run();
  std::mt19937_64 random{seed};

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }

  GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
    GemmProblem p = gemm::problem_of(signature, m, n, k);
    if (p.grouping == GemmGrouping::none) p.batch = draw(1, 3);
    if (p.groups > 0) p.groups = draw(1, 4);
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && draw(0, 1) == 1;
    return p;
  }

  // The scales of blocks of rows side by side with room behind them, or those along k, or a place
  // for several of them.
  void loosen_scales(const GemmProblem& p, GemmScale scale, std::int64_t rows,
                     std::int64_t& along_rows, std::int64_t& along_k, std::int64_t& batches) {
    if (scale == GemmScale::none) return;
    const ScaleBlock count = scale_blocks(scale, rows, p.k);
    const std::int64_t width = p.scale_quads ? 4 : 1;
    const std::int64_t steps = (count.k + width - 1) / width;
    if (draw(0, 1) == 0) {
      along_k = width * draw(1, 2), along_rows = along_k * (steps + draw(0, 3));
    } else {
      along_rows = width, along_k = width * (count.rows + draw(0, 3));
    }
    batches = draw(0, 3) == 0 ? 0 : along_rows * (count.rows + 1) + along_k * (steps + 1);
  }

  void loosen(GemmProblem& p) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += draw(0, 5);
    const auto longest = std::max({p.m, p.n, p.k});
    p.batch_stride_a = longest * p.ld_a, p.batch_stride_b = longest * p.ld_b;
    p.batch_stride_c = longest * p.ld_c, p.batch_stride_out = longest * p.ld_out;
    loosen_scales(p, p.scale_a, p.m, p.stride_scale_a_m, p.stride_scale_a_k,
                  p.batch_stride_scale_a);
    loosen_scales(p, p.scale_b, p.n, p.stride_scale_b_n, p.stride_scale_b_k,
                  p.batch_stride_scale_b);
    p.beta = -0.5F;
  }

  void check(const GemmProblem& p) {
    const int threads = static_cast<int>(draw(1, 3));
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    family.validate(p);
    const measure::OwnedOperands owned = measure::random_operands(p, random());
    validate_operands(family, p, owned.operands);
    testing_support::launch_at_edges(registry(), spec, p, owned, threads);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const Mismatch mismatch = family.verify(p, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }
};

TEST_P(ScaledKernel, MatchesTheReferenceAtAnySizes) {
  check(problem(5, 6, 0));
  check(problem(1, 1, 1));
  check(problem(0, 5, 7));
  for (int i = 0; i < 4; ++i) check(problem(draw(1, 150), draw(1, 150), draw(1, 300)));
  check(problem(draw(1, 40), draw(1, 40), spec.algorithm.tile.k + draw(1, 200)));
  check(problem(spec.algorithm.tile.m + draw(1, 30), draw(120, 140), draw(1, 40)));
}

TEST_P(ScaledKernel, ReadsStridesOfScalesInBothOrders) {
  for (int i = 0; i < 6; ++i) {
    GemmProblem p = problem(draw(1, 150), draw(1, 150), draw(1, 400));
    loosen(p);
    check(p);
  }
}

std::string name_of_row(const testing::TestParamInfo<KernelSpec>& row) {
  return name_of(row.param);
}
INSTANTIATE_TEST_SUITE_P(Usual, ScaledKernel, testing::ValuesIn(kernels(true)), name_of_row);
INSTANTIATE_TEST_SUITE_P(Long, ScaledKernel, testing::ValuesIn(kernels(false)), name_of_row);

// ---- one number at a time ----

// All elements are 1, and so are all scales; then one of them is another.
struct Ones {
  GemmProblem p;
  std::vector<std::uint8_t> a, b, scale_a, scale_b;
  std::vector<float> out;

  explicit Ones(const char* line) : p(with_strides(std::get<GemmProblem>(parse_problem(line)))) {
    constexpr std::uint8_t kOne = 0x38, kOneScale = 127;  // of E4M3
    a.assign(static_cast<std::size_t>(p.m * p.k), kOne);
    b.assign(static_cast<std::size_t>(p.n * p.k), kOne);
    const ScaleBlock of_a = scale_blocks(p.scale_a, p.m, p.k);
    const ScaleBlock of_b = scale_blocks(p.scale_b, p.n, p.k);
    scale_a.assign(static_cast<std::size_t>(of_a.rows * of_a.k), kOneScale);
    scale_b.assign(static_cast<std::size_t>(of_b.rows * of_b.k), kOneScale);
    out.resize(static_cast<std::size_t>(p.m * p.n));
  }
  float run(std::int64_t row, std::int64_t column) {
    GemmOperands o = {.a = a.data(), .b = b.data(), .out = out.data()};
    o.scale_a = scale_a.data(), o.scale_b = scale_b.data();
    const Target target = host_target();
    const KernelSpec spec = family_of(Op::gemm).general(p, target);
    testing_support::launch(registry(), spec, p, o, 1);
    return out[static_cast<std::size_t>(row * p.n + column)];
  }
};

// mxfp8: rows of A and columns of B by 32 elements along k.
constexpr const char* kMxfp8 =
    "gemm m=3 n=4 k=70 a=fp8 out=fp32 scale_a=1x32 scale_b=1x32 scale_type=e8m0";

TEST(ScaledProduct, MultipliesEachBlockByItsOwnScale) {
  Ones ones(kMxfp8);
  EXPECT_EQ(ones.run(2, 3), 70.0F);
  ones.scale_a[2 * 3 + 1] = 130;  // 2^3 for k from 32 to 64 in row 2
  EXPECT_EQ(ones.run(2, 3), 70.0F + 7 * 32);
  EXPECT_EQ(ones.run(1, 3), 70.0F);
  ones.scale_b[3 * 3 + 2] = 125;  // a quarter for the last 6
  EXPECT_EQ(ones.run(2, 3), 64.0F + 7 * 32 + 1.5F);
  EXPECT_EQ(ones.run(2, 2), 70.0F + 7 * 32);
}

TEST(ScaledProduct, IsNanWhereAScaleIsNan) {
  Ones ones(kMxfp8);
  ones.scale_a[2] = 255;
  EXPECT_TRUE(std::isnan(ones.run(0, 1)));
  EXPECT_EQ(ones.run(1, 1), 70.0F);
}

TEST(ScaledProduct, HasTheLeastAndTheLargestScale) {
  Ones ones("gemm m=1 n=1 k=32 a=fp8 out=fp32 scale_a=1x32 scale_b=1x32 scale_type=e8m0");
  ones.scale_a[0] = 0, ones.scale_b[0] = 254;
  EXPECT_EQ(ones.run(0, 0), 32.0F);
}

}  // namespace
}  // namespace scaled_test
}  // namespace tessera
