// Kernels for groups of unequal sizes against the fp64 reference: fresh random groups, empty ones,
// one that has everything, strides, scalars, epilogues, threads, and rows that are left alone.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "cpu/gemm/kernel_test.h"
#include "cpu/gemm/sample.h"
#include "grouped.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace grouped_test {
namespace {

using gemm_kernel::GemmKernelTest;
using gemm_kernel::Kernels;
using tile_registry::targets;

constexpr GemmGrouping kGroupings[] = {GemmGrouping::contiguous, GemmGrouping::indexed,
                                       GemmGrouping::masked, GemmGrouping::along_k,
                                       GemmGrouping::lists};

// A kernel of the sample, made for groups. The others of a usual run have one grouping each.
Kernels kernels() {
  Kernels all;
  std::size_t next = 0;
  for (const Target& target : targets()) {
    std::set<std::tuple<DType, Pipeline, std::string>> seen;
    for (KernelSpec spec : gemm_sample::sample(target)) {
      auto& s = std::get<GemmSignature>(spec.signature);
      s.grouping = kGroupings[next % std::size(kGroupings)];
      if (spec.algorithm.pipeline == Pipeline::stream) continue;  // as dense kernels do
      spec = gemm_kernel::streaming_every_second(next, spec, target);
      if (!family_of(Op::gemm).is_legal(spec, target)) continue;
      const bool is_own = target.name == host_target().name && size_of(s.a) != 1;
      const bool is_first = (is_own || target.name == tile_emulator::kName) &&
                            seen.insert({s.a, spec.algorithm.pipeline, target.name}).second;
      (is_first ? all.usual : all.others).push_back(spec);
      next += 1;
    }
  }
  return all;
}

class GroupedKernel : public GemmKernelTest {
 protected:
  GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t groups) {
    GemmProblem p = gemm::problem_of(signature, m, n, k);
    p.groups = groups;
    const bool coin = draw(0, 1) == 0;
    (p.grouping == GemmGrouping::lists ? p.group_strides : p.group_int64) = coin;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    if (p.out == DType::int8) p.alpha = 0x1p-9F;
    return p;
  }

  // Strides that are longer than the sizes, and C.
  void loosen(GemmProblem& p) {
    p = with_strides(p);
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += draw(0, 5);
    p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
    if (p.grouping == GemmGrouping::lists) {
      p.batch_stride_a = p.batch_stride_b = p.batch_stride_c = p.batch_stride_out = kPacked;
      return p.batch_stride_d.fill(kPacked);
    }
    p.batch_stride_a = 60 * p.ld_a, p.batch_stride_b = 60 * p.ld_b;
    p.batch_stride_c = 60 * p.ld_c + 1, p.batch_stride_out = 60 * p.ld_out + 1;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += draw(0, 5);
      p.batch_stride_d[i] = draw(0, 3) == 0 ? 0 : 60 * p.ld_d[i];
    }
  }

  void check(const GemmProblem& p, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    family.validate(p);
    measure::OwnedOperands owned = measure::random_operands(p, random());
    if (draw(0, 3) != 0) grouped::fill_numbers(p, owned.operands, random);
    validate_operands(family, p, owned.operands);
    const std::vector<std::byte> before = grouped::bytes_of_out(owned);
    launch(p, owned.operands, threads);
    if (spec.algorithm.pipeline == Pipeline::stream) {
      const std::vector<std::byte> made = grouped::bytes_of_out(owned);
      launch(p, owned.operands, threads % 3 + 1);
      EXPECT_EQ(grouped::bytes_of_out(owned), made) << "bits follow the number of threads";
    }
    EXPECT_EQ(grouped::gaps_intact(p, owned), "");
    const Mismatch mismatch = family.verify(p, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(grouped::touched(p, owned, before), 0U) << "elements of no group changed";
  }
};

TEST_P(GroupedKernel, MatchesTheReferenceAtAnySizes) {
  const Shape3& tile = spec.algorithm.tile;
  const auto threads = [&] { return static_cast<int>(draw(1, 3)); };
  check(problem(0, 5, 7, 3), threads());
  check(problem(5, 0, 7, 3), threads());
  check(problem(5, 6, 0, 2), threads());
  check(problem(7, 5, 3, 0), threads());
  check(problem(1, 1, 1, 1), threads());
  check(problem(draw(1, 90), draw(1, 70), draw(1, 90), draw(1, 9)), threads());
  check(problem(draw(30, 200), draw(1, 50), draw(1, 60), draw(10, 300)), threads());
  check(problem(tile.m + draw(1, 90), draw(1, 40), draw(1, 20), draw(1, 4)), threads());
  check(problem(draw(1, 40), draw(1, 40), tile.k + draw(1, 90), draw(1, 3)), threads());
  for (const std::int64_t m : {draw(1, 90), std::int64_t{0}}) {
    GemmProblem checked = problem(m, draw(1, 70), draw(1, 90), draw(1, 9));
    checked.check_groups = true;
    check(checked, threads());
  }
}

TEST_P(GroupedKernel, ReadsStridesAndC) {
  for (int i = 0; i < 6; ++i) {
    GemmProblem p = problem(draw(1, 50), draw(1, 50), draw(1, 50), draw(1, 7));
    loosen(p);
    check(p, static_cast<int>(draw(1, 3)));
  }
}

// What the numbers say that do not fit is written, and nothing else.
TEST_P(GroupedKernel, ReportsNumbersThatDoNotFit) {
  GemmProblem p = problem(20, 9, 30, 4);
  p.check_groups = true;
  measure::OwnedOperands owned = measure::random_operands(p, random());
  const auto& o = std::get<GemmOperands>(owned.operands);
  const grouped::BadNumbers bad = grouped::fill_bad_numbers(p, owned.operands);
  const std::vector<std::byte> before = grouped::bytes_of_out(owned);
  launch(p, owned.operands, 2);
  EXPECT_EQ(before, grouped::bytes_of_out(owned));
  EXPECT_EQ(o.bad_group[0], 1);
  EXPECT_EQ(o.bad_group[1], bad.place);
  EXPECT_EQ(o.bad_group[2], bad.number);
  EXPECT_EQ(o.bad_group[3], bad.bound);
}

std::string name_of_row(const testing::TestParamInfo<KernelSpec>& row) {
  return name_of(row.param);
}
const Kernels& all_kernels() {
  static const Kernels all = kernels();
  return all;
}
INSTANTIATE_TEST_SUITE_P(Usual, GroupedKernel, testing::ValuesIn(all_kernels().usual), name_of_row);
INSTANTIATE_TEST_SUITE_P(Long, GroupedKernel, testing::ValuesIn(all_kernels().others), name_of_row);

}  // namespace
}  // namespace grouped_test
}  // namespace tessera
