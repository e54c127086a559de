// Dropout of attention on CPUs. That masks equal the reference's, bit by bit, is what the
// random problems of fmha_test.cc and the random values of these tests show.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kernel_folder.h"
#include "host/families/asked.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/measure/operands.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

class FmhaDropoutKernels : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = testing_support::seed_of_run();
  RandomFmhas random_{seed_};

  void SetUp() override { fmt::print("seed {}\n", seed_); }

  void launch(const KernelSpec& spec, const Problem& problem, const Operands& operands) {
    testing_support::launch(testing_support::registry_in("fmha_dropout_test"), spec, problem,
                            operands, 2);
  }

  // Problems of one signature, so that tests share a kernel.
  static FmhaProblem problem(std::int64_t queries, std::int64_t keys, std::int64_t hdim) {
    FmhaProblem p = fmha_problem(DType::bf16, 2, 4, 2, queries, keys, hdim);
    p.p_drop = 0.4F;
    p.random = p.lse = true;
    return p;
  }
};

device::FmhaSequence sequence(const FmhaProblem& p, const device::FmhaArguments& g,
                              std::int64_t b) {
  if (p.lengths == FmhaLengths::packed) {
    return device::sequence_of<device::FmhaLengths::packed>(g, b);
  }
  if (p.lengths == FmhaLengths::padded) {
    return device::sequence_of<device::FmhaLengths::padded>(g, b);
  }
  return device::sequence_of<device::FmhaLengths::equal>(g, b);
}

// For each random value whether a query sees its key. `p` has its strides.
std::vector<char> seen_places(const FmhaProblem& p, const FmhaOperands& o, std::size_t bytes) {
  const device::FmhaArguments g = arguments_of(p, o);
  std::vector<char> seen(bytes, 0);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const device::FmhaSequence s = sequence(p, g, b);
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const device::FmhaKeys keys = p.mask == FmhaMask::none ? device::keys_of<false>(g, s, i)
                                                               : device::keys_of<true>(g, s, i);
        const std::int64_t row =
            b * g.lse_stride[0] + h * g.lse_stride[1] + (s.first_query + i) * g.lse_stride[2];
        for (std::int64_t j = 0; j < s.keys; ++j) {
          seen[static_cast<std::size_t>(row * p.seqlen_k + j)] = keys.has(j) ? 1 : 0;
        }
      }
    }
  }
  return seen;
}

// Every mask, lengths, groups of heads; keys that no query sees keep what their bytes held.
TEST_F(FmhaDropoutKernels, RandomValuesAreStoredWhereKeysAreSeen) {
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 3; ++i) {
      FmhaProblem p = without_pages(random_.problem(i % 2 == 0 ? 250 : 40, 40));
      p.p_drop = 0.5F;
      p.random = true;
      const KernelSpec spec = random_.one_of(serving(p, target));
      SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
      const measure::OwnedOperands owned = measure::random_operands(p, seed_);
      launch(spec, p, owned.operands);
      testing_support::expect_verified(p, owned);
      const auto& o = std::get<FmhaOperands>(owned.operands);
      const Tensor& tensor = owned.tensors[owned.outputs.back()];
      const std::vector<char> seen = seen_places(with_strides(p), o, tensor.bytes());
      int written = 0;
      for (std::size_t at = 0; at < seen.size(); ++at) {
        written += seen[at] == 0 && o.random_values[at] != 0x5a ? 1 : 0;
      }
      EXPECT_EQ(written, 0);
    }
  }
}

// The words are read at the launch: by value and in memory they are the same.
TEST_F(FmhaDropoutKernels, WordsInMemoryEqualThoseByValue) {
  const FmhaProblem p = problem(70, 90, 24);
  const KernelSpec spec = family_.general(p, targets_here().front());
  measure::OwnedOperands owned = measure::random_operands(p, seed_);
  auto& o = std::get<FmhaOperands>(owned.operands);
  const auto result = [&] {
    measure::reset_outputs(owned);
    launch(spec, p, owned.operands);
    testing_support::expect_verified(p, owned);
    return std::vector<std::uint8_t>(o.random_values, o.random_values + 2 * 4 * 70 * 90);
  };
  const std::vector<std::uint8_t> in_memory = result();
  o.seed = o.dropout_rng[0], o.offset = o.dropout_rng[1];
  o.dropout_rng = nullptr;
  EXPECT_EQ(result(), in_memory);
  ++o.offset;
  EXPECT_NE(result(), in_memory);
  --o.offset, o.seed ^= 1ULL << 50;
  EXPECT_NE(result(), in_memory);
}

// Sequences of one batch and those that are packed have the same masks, wherever they lie.
TEST_F(FmhaDropoutKernels, PackingDoesNotChangeTheMask) {
  const FmhaProblem p = problem(20, 50, 8);
  const Target target = targets_here().front();
  measure::OwnedOperands owned = measure::random_operands(p, seed_);
  launch(family_.general(p, target), p, owned.operands);
  FmhaProblem packed = p;
  packed.lengths = FmhaLengths::packed;
  measure::OwnedOperands other = measure::random_operands(packed, seed_);
  auto& o = std::get<FmhaOperands>(other.operands);
  const auto& equal = std::get<FmhaOperands>(owned.operands);
  const std::int32_t sums_q[] = {0, 20, 40}, sums_k[] = {0, 50, 100};
  o.seqlens_q = sums_q, o.seqlens_k = sums_k, o.dropout_rng = equal.dropout_rng;
  launch(family_.general(packed, target), packed, other.operands);
  testing_support::expect_verified(packed, other);
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < 4; ++h) {
      for (int i = 0; i < 20 * 50; ++i) {
        ASSERT_EQ(o.random_values[(h * 40 + b * 20) * 50 + i],
                  equal.random_values[(b * 4 + h) * 20 * 50 + i]);
      }
    }
  }
}

// Weights that are kept count more, so that the mean over many masks is what it is without dropout.
TEST_F(FmhaDropoutKernels, MeanIsThatWithoutDropout) {
  FmhaProblem p = problem(4000, 64, 8);
  p.batch = p.heads = p.heads_kv = 1;
  p.q_strides[2] = p.q_strides[1] = 0;  // one query for all
  const Target target = targets_here().front();
  measure::OwnedOperands owned = measure::random_operands(p, seed_);
  launch(family_.general(p, target), p, owned.operands);
  FmhaProblem plain = p;
  plain.p_drop = 0, plain.random = false;
  measure::OwnedOperands whole = measure::random_operands(plain, seed_);
  launch(family_.general(plain, target), plain, whole.operands);
  const void* const out = std::get<FmhaOperands>(owned.operands).out;
  const void* const expected = std::get<FmhaOperands>(whole.operands).out;
  for (int d = 0; d < 8; ++d) {
    double sum = 0, squares = 0;
    for (int i = 0; i < 4000; ++i) {
      const double x = load_element(p.out, out, i * 8 + d) - load_element(p.out, expected, d);
      sum += x, squares += x * x;
    }
    EXPECT_LT(std::abs(sum), 5 * std::sqrt(squares)) << "seed " << seed_ << ", element " << d;
    EXPECT_GT(squares, 1e-4);
  }
}

// A sum over all weights is the sum before dropout, of those that are dropped, too.
TEST_F(FmhaDropoutKernels, LogSumExpIsThatWithoutDropout) {
  const FmhaProblem p = problem(40, 60, 16);
  const Target target = targets_here().front();
  measure::OwnedOperands owned = measure::random_operands(p, seed_);
  KernelSpec spec = family_.general(p, target);
  launch(spec, p, owned.operands);
  FmhaProblem plain = p;
  plain.p_drop = 0, plain.random = false;
  spec.signature = signature_of(plain);
  const std::vector<float> dropped(std::get<FmhaOperands>(owned.operands).lse,
                                   std::get<FmhaOperands>(owned.operands).lse + 2 * 4 * 40);
  launch(spec, plain, owned.operands);
  const float* const lse = std::get<FmhaOperands>(owned.operands).lse;
  EXPECT_EQ(std::vector<float>(lse, lse + 2 * 4 * 40), dropped);
}

// 0 times infinity is NaN in products, but another query's weight is none of its business.
TEST_F(FmhaDropoutKernels, InfinitiesOfValuesAndNanOfScores) {
  const FmhaProblem p = problem(40, 50, 8);
  for (const Target& target : targets_of_run(seed_)) {
    measure::OwnedOperands owned = measure::random_operands(p, seed_);
    const auto& o = std::get<FmhaOperands>(owned.operands);
    store_element(p.in, const_cast<void*>(o.v), 21 * 2 * 8 + 3,
                  std::numeric_limits<double>::infinity());
    store_element(p.in, const_cast<void*>(o.q), 17 * 4 * 8, std::nan(""));
    launch(family_.general(p, target), p, owned.operands);
    testing_support::expect_verified(p, owned);
  }
}

}  // namespace
}  // namespace tessera::fmha
