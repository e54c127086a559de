// Kernels with gates, rows by index and outputs of 8 bits against the fp64 reference: with every
// grouping, random sizes, strides, scalars, epilogues and threads, rows of no index, which are left
// alone, and memory that ends where no byte may be touched.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "cpu/gemm/kernel_test.h"
#include "cpu/gemm/sample.h"
#include "grouped.h"
#include "outputs.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace outputs_test {
namespace {

using gemm_kernel::GemmKernelTest;
using gemm_kernel::Kernels;
using tile_registry::targets;

// What is asked besides a sample's signature.
struct Asked {
  GemmGate gate;
  bool interleaved;
  GemmIndexing indexing;
  NormQuant quant;
  GemmGrouping grouping;
};
constexpr Asked kAsked[] = {
    {GemmGate::silu_mul, false, GemmIndexing::gathered, NormQuant::none, GemmGrouping::contiguous},
    {GemmGate::none, false, GemmIndexing::scattered, NormQuant::none, GemmGrouping::contiguous},
    {GemmGate::gelu_mul, true, GemmIndexing::none, NormQuant::block, GemmGrouping::none},
    {GemmGate::gelu_tanh_mul, false, GemmIndexing::scattered, NormQuant::row,
     GemmGrouping::indexed},
    {GemmGate::silu_mul, true, GemmIndexing::gathered, NormQuant::tensor, GemmGrouping::none},
    {GemmGate::none, false, GemmIndexing::gathered, NormQuant::row, GemmGrouping::contiguous},
    {GemmGate::silu_mul, false, GemmIndexing::none, NormQuant::block, GemmGrouping::masked},
    {GemmGate::gelu_mul, false, GemmIndexing::none, NormQuant::none, GemmGrouping::along_k},
    {GemmGate::none, false, GemmIndexing::none, NormQuant::tensor, GemmGrouping::along_k},
    {GemmGate::gelu_tanh_mul, true, GemmIndexing::none, NormQuant::row, GemmGrouping::masked},
    {GemmGate::none, false, GemmIndexing::scattered, NormQuant::block, GemmGrouping::none},
    {GemmGate::none, false, GemmIndexing::gathered, NormQuant::none, GemmGrouping::none},
};

GemmSignature with(GemmSignature s, const Asked& asked, std::size_t next) {
  const bool is_exact = s.acc == DType::int32;
  s.gate = is_exact ? GemmGate::none : asked.gate;
  s.gate_interleaved = asked.interleaved && !is_exact;
  s.indexing = asked.indexing, s.quant = asked.quant, s.grouping = asked.grouping;
  if (s.quant == NormQuant::none) return s;
  s.out = next % 2 == 0 ? DType::fp8 : DType::bf8;
  s.d = next % 3 == 0 ? DType::bf16 : DType::fp32;
  return s;
}

Kernels kernels() {
  Kernels all;
  std::size_t next = 0;
  for (const Target& target : targets()) {
    std::set<std::tuple<DType, Pipeline, std::string>> seen;
    for (KernelSpec spec : gemm_sample::sample(target)) {
      auto& s = std::get<GemmSignature>(spec.signature);
      s = with(s, kAsked[next % std::size(kAsked)], next / std::size(kAsked) + next);
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

class OutputsKernel : public GemmKernelTest {
 protected:
  GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
    return outputs::problem_of(signature, m, n, k, random);
  }

  void check(const GemmProblem& p, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    family.validate(p);
    measure::OwnedOperands owned = measure::random_operands(p, random());
    const auto& o = std::get<GemmOperands>(owned.operands);
    grouped::fill_numbers(p, owned.operands, random);
    outputs::fill_index(p, o, random);
    validate_operands(family, p, owned.operands);
    const auto before = outputs::bytes_of_outputs(owned);
    if (draw(0, 1) == 0) {
      launch(p, owned.operands, threads);
      if (spec.algorithm.pipeline == Pipeline::stream) {
        const auto made = outputs::bytes_of_outputs(owned);
        launch(p, owned.operands, threads % 3 + 1);
        EXPECT_EQ(outputs::bytes_of_outputs(owned), made) << "bits follow the number of threads";
      }
    } else {
      const AtEdges begin(owned, Edge::begin), end(owned, Edge::end);
      launch(p, begin.operands(), threads);
      launch(p, end.operands(), threads);
      end.fetch(owned);
    }
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const Mismatch mismatch = family.verify(p, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    outputs::expect_left_alone(p, owned, before);
  }
};

TEST_P(OutputsKernel, MatchesTheReferenceAtAnySizes) {
  const Shape3& tile = spec.algorithm.tile;
  const auto threads = [&] { return static_cast<int>(draw(1, 3)); };
  check(problem(0, 5, 7), threads());
  check(problem(5, 0, 7), threads());
  check(problem(5, 6, 0), threads());
  check(problem(1, 1, 1), threads());
  check(problem(draw(1, 90), draw(1, 70), draw(1, 90)), threads());
  check(problem(draw(1, 20), draw(200, 600), draw(1, 40)), threads());
  check(problem(tile.m + draw(1, 90), draw(1, 40), draw(1, 20)), threads());
  check(problem(draw(1, 30), tile.n + draw(1, 90), draw(1, 20)), threads());
  check(problem(draw(1, 40), draw(1, 40), tile.k + draw(1, 90)), threads());
  check(problem(draw(500, 1100), draw(1, 9), draw(1, 9)), threads());
  GemmProblem checked = problem(0, draw(1, 70), draw(1, 90));
  checked.check_groups = checked.grouping != GemmGrouping::none;
  check(checked, threads());
}

TEST_P(OutputsKernel, ReadsStridesAndC) {
  for (int i = 0; i < 6; ++i) {
    GemmProblem p = problem(draw(1, 50), draw(1, 300), draw(1, 50));
    outputs::loosen(p, random);
    check(p, static_cast<int>(draw(1, 3)));
  }
}

// A number that names no row is skipped, however large: nothing outside of an operand is touched.
TEST_P(OutputsKernel, SkipsIndicesThatNameNoRow) {
  GemmProblem p = problem(40, 20, 30);
  if (p.indexing == GemmIndexing::none) GTEST_SKIP() << "the kernel has no index";
  measure::OwnedOperands owned = measure::random_operands(p, random());
  const auto& o = std::get<GemmOperands>(owned.operands);
  auto* const index = const_cast<std::int32_t*>(o.row_index);
  index[3] = static_cast<std::int32_t>(p.index_room), index[5] = 1 << 30, index[7] = -5;
  EXPECT_THROW(gemm::refuse_bad_index(p, o), Error);
  launch(p, owned.operands, 2);
  EXPECT_EQ(measure::gaps_intact(owned), "");
  for (const int at : {3, 5, 7}) index[at] = -1;
  const Mismatch mismatch = family.verify(p, owned.operands);
  EXPECT_TRUE(mismatch.ok) << mismatch.message;
}

// Numbers beyond what a type holds become its largest, and a NaN stays one.
TEST_P(OutputsKernel, KeepsNanAndSaturates) {
  GemmProblem p = problem(9, 140, 8);
  if (p.quant == NormQuant::none || p.a != DType::fp32) GTEST_SKIP() << "out has no 8 bits";
  p.alpha = 0x1p40F;
  measure::OwnedOperands owned = measure::random_operands(p, random());
  const auto& o = std::get<GemmOperands>(owned.operands);
  const_cast<float*>(static_cast<const float*>(o.b))[0] = std::numeric_limits<float>::quiet_NaN();
  launch(p, owned.operands, 2);
  const Mismatch mismatch = family.verify(p, owned.operands);
  EXPECT_TRUE(mismatch.ok) << mismatch.message;
}

std::string name_of_row(const testing::TestParamInfo<KernelSpec>& row) {
  return name_of(row.param);
}
const Kernels& all_kernels() {
  static const Kernels all = kernels();
  return all;
}
INSTANTIATE_TEST_SUITE_P(Usual, OutputsKernel, testing::ValuesIn(all_kernels().usual), name_of_row);
INSTANTIATE_TEST_SUITE_P(Long, OutputsKernel, testing::ValuesIn(all_kernels().others), name_of_row);

}  // namespace
}  // namespace outputs_test
}  // namespace tessera
