// Contractions and operands with several sources against the fp64 reference: any number of
// dimensions in any order, with gaps and strides of 0, every type, and memory that ends where no
// byte may be touched.
#include <fmt/format.h>

#include <set>
#include <tuple>

#include "arranged.h"
#include "cpu/gemm/kernel_test.h"
#include "cpu/gemm/sample.h"
#include "tessera/families/operands.h"

namespace tessera {
namespace arranged_test {
namespace {

using gemm_kernel::GemmKernelTest;
using gemm_kernel::Kernels;
using tile_registry::targets;

Kernels kernels() {
  Kernels all;
  for (const Target& target : targets()) {
    std::set<std::tuple<DType, Pipeline>> seen;
    for (KernelSpec spec : gemm_sample::sample(target)) {
      auto& s = std::get<GemmSignature>(spec.signature);
      s.arranged = true;
      if (!family_of(Op::gemm).is_legal(spec, target)) continue;
      const bool is_own = target.name == host_target().name;
      const bool is_first = is_own && seen.insert({s.a, spec.algorithm.pipeline}).second;
      (is_first ? all.usual : all.others).push_back(spec);
    }
  }
  return all;
}

class ArrangedKernel : public GemmKernelTest {
 protected:
  void check(const GemmProblem& p) {
    const int threads = static_cast<int>(arranged::draw(random, 1, 3));
    SCOPED_TRACE(fmt::format("seed {}: {} threads={}", seed, to_string(Problem(p)), threads));
    family.validate(p);
    if (!family.supports(spec, p, target)) return;
    measure::OwnedOperands owned = measure::random_operands(p, random());
    validate_operands(family, p, owned.operands);
    if (arranged::one_in(random, 2)) {
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
  }
};

TEST_P(ArrangedKernel, MatchesTheReferenceForAnyDimensions) {
  for (int i = 0; i < 16 && !HasFailure(); ++i) {
    check(arranged::problem_of(random, signature, 40));
  }
}

std::string name_of_row(const testing::TestParamInfo<KernelSpec>& row) {
  return name_of(row.param);
}
const Kernels& all_kernels() {
  static const Kernels all = kernels();
  return all;
}
INSTANTIATE_TEST_SUITE_P(Usual, ArrangedKernel, testing::ValuesIn(all_kernels().usual),
                         name_of_row);
INSTANTIATE_TEST_SUITE_P(Long, ArrangedKernel, testing::ValuesIn(all_kernels().others),
                         name_of_row);

}  // namespace
}  // namespace arranged_test
}  // namespace tessera
