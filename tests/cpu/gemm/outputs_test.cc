// Kernels with gates, rows by index and outputs of 8 bits against the fp64 reference: with every
// grouping, random sizes, strides, scalars, epilogues and threads, rows of no index, which are left
// alone, and memory that ends where no byte may be touched.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>

#include "cpu/gemm/sample.h"
#include "cpu/gemm/tile_registry.h"
#include "cpu/guarded.h"
#include "outputs.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace outputs_test {
namespace {

using tile_registry::registry;
using tile_registry::target_named;
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

struct Kernels {
  std::vector<KernelSpec> usual, others;
};

Kernels kernels() {
  Kernels all;
  std::size_t next = 0;
  for (const Target& target : targets()) {
    std::set<std::tuple<DType, Pipeline, std::string>> seen;
    for (KernelSpec spec : gemm_sample::sample(target)) {
      auto& s = std::get<GemmSignature>(spec.signature);
      s = with(s, kAsked[next % std::size(kAsked)], next / std::size(kAsked) + next);
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

class OutputsKernel : public testing::TestWithParam<KernelSpec> {
 protected:
  const KernelSpec& spec = GetParam();
  const GemmSignature& signature = std::get<GemmSignature>(spec.signature);
  const Target& target = target_named(spec.target);
  const Family& family = family_of(Op::gemm);
  std::uint64_t seed = testing_support::seed_of_run();
  std::mt19937_64 random{seed};
  std::shared_ptr<const runtime::LoadedKernel> kernel = registry().get(spec);

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }

  GemmProblem problem(std::int64_t m, std::int64_t n, std::int64_t k) {
    GemmProblem p = gemm::problem_of(signature, m, p_columns(n), k);
    if (p.grouping != GemmGrouping::none) p.groups = draw(0, 9);
    if (p.grouping == GemmGrouping::none && p.indexing == GemmIndexing::none) p.batch = draw(1, 3);
    if (p.indexing != GemmIndexing::none) p.index_room = m + draw(p.m > 0 ? 1 : 0, 40);
    if (p.indexing == GemmIndexing::gathered && m > 0) p.index_room = draw(1, 2 * m);
    p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 1;
    p.clamp_lo = -0.5F, p.clamp_hi = 1.5F;
    p.alpha = p.out == DType::int32 ? 1.0F : p.a == DType::int8 ? 0x1p-9F : 0.75F;
    return p;
  }
  std::int64_t p_columns(std::int64_t n) const {
    return signature.gate == GemmGate::none ? n : n + n % 2;
  }

  // Strides that are longer than the sizes, and C.
  void loosen(GemmProblem& p) {
    p = with_strides(p);
    const std::int64_t rows = std::max(p.m, p.index_room) + 1;
    for (std::int64_t* ld : {&p.ld_a, &p.ld_b, &p.ld_c, &p.ld_out}) *ld += draw(0, 5);
    const std::int64_t longest = std::max({rows, p.n, p.k});
    p.batch_stride_a = longest * p.ld_a, p.batch_stride_b = longest * p.ld_b;
    p.batch_stride_c = rows * p.ld_c + 1, p.batch_stride_out = rows * p.ld_out + 1;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      if (!d_uses(p.epilogue)[i].is_vector()) p.ld_d[i] += draw(0, 5);
      p.batch_stride_d[i] = draw(0, 3) == 0 ? 0 : rows * std::max(p.ld_d[i], p.n);
    }
    if (p.quant == NormQuant::none) p.beta = p.out == DType::int32 ? 2.0F : -0.5F;
  }

  // Groups of random sizes, of which some are empty; rows of no group behind them, or between them.
  void fill_numbers(const GemmProblem& p, const GemmOperands& o) {
    auto* const to = const_cast<std::int32_t*>(gemm::numbers_of(p, o));
    if (to == nullptr) return;
    std::int64_t at = 0;
    const std::int64_t room = p.grouping == GemmGrouping::along_k ? p.k : p.m;
    const std::int64_t most = 1 + 2 * room / std::max<std::int64_t>(1, p.groups);
    if (p.grouping == GemmGrouping::indexed) std::fill_n(to, p.m, -1);
    for (std::int64_t i = 0; i < p.groups; ++i) {
      const std::int64_t size = draw(0, 3) == 0 ? 0 : draw(0, std::min(room - at, most));
      if (p.grouping == GemmGrouping::indexed) {
        std::fill_n(to + at, size, static_cast<int>(i));
        at = std::min(room, at + size + draw(0, 1));
      } else {
        at += size;
        to[i] = static_cast<std::int32_t>(p.grouping == GemmGrouping::masked ? draw(0, p.m) : at);
      }
    }
  }
  void launch(const Problem& p, const Operands& operands, int threads) {
    const OpenMpLimit limit(threads);
    runtime::LaunchOptions options;
    options.threads = threads;
    kernel->launch(family.bind(spec, p, target, operands), options);
  }

  void check(const GemmProblem& p, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    family.validate(p);
    measure::OwnedOperands owned = measure::random_operands(p, random());
    const auto& o = std::get<GemmOperands>(owned.operands);
    fill_numbers(p, o);
    outputs::fill_index(p, o, random);
    validate_operands(family, p, owned.operands);
    const auto before = outputs::bytes_of(owned);
    if (draw(0, 1) == 0) {
      launch(p, owned.operands, threads);
    } else {
      const AtEdges begin(owned, Edge::begin), end(owned, Edge::end);
      launch(p, begin.operands(), threads);
      launch(p, end.operands(), threads);
      end.fetch(owned);
    }
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const Mismatch mismatch = family.verify(p, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_EQ(outputs::touched(p, owned, before), "");
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
}

TEST_P(OutputsKernel, ReadsStridesAndC) {
  for (int i = 0; i < 6; ++i) {
    GemmProblem p = problem(draw(1, 50), draw(1, 300), draw(1, 50));
    loosen(p);
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
