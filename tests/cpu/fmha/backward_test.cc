// Gradients of attention on CPUs against the fp64 reference: fresh random problems over all fields,
// with what a kernel of attention gave, gaps and guard bytes of NaN, keys and queries without each
// other, numbers of threads, special values. To repeat a failure: --gtest_filter=...
// --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "host/families/asked.h"
#include "host/fmha/backward_problems.h"
#include "host/fmha/low_scores.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& backward_registry() { return testing_support::registry_in("fmha_backward_test"); }

class FmhaBackward : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = testing_support::seed_of_run();
  RandomFmhas random_{seed_};

  void launch(const KernelSpec& spec, const Problem& problem, const Operands& operands,
              int threads) {
    testing_support::launch(backward_registry(), spec, problem, operands, threads);
  }

  measure::OwnedOperands operands(const Problem& problem) {
    return measure::random_operands(problem,
                                    static_cast<std::uint64_t>(random_.integer(0, 1 << 30)));
  }

  // Replaces out and lse by what attention gives for the other operands.
  void attend(FmhaProblem p, const Target& target, const measure::OwnedOperands& owned) {
    p.kind = FmhaKind::forward, p.lse = true, p.dbias = false;
    p.dout_strides = p.dq_strides = p.dk_strides = p.dv_strides = kPackedTokens;
    launch(family_.general(p, target), p, owned.operands, 2);
  }

  void check(const KernelSpec& spec, const FmhaProblem& p, const Target& target, bool attends) {
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
    measure::OwnedOperands owned = operands(p);
    if (attends) attend(p, target, owned);
    const int threads = static_cast<int>(random_.integer(1, 5));
    testing_support::launch_at_edges(backward_registry(), spec, p, owned, threads);
    testing_support::expect_verified(p, owned);
  }
};

TEST_F(FmhaBackward, RandomProblemsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 4; ++i) {
      const FmhaProblem p = random_backward(random_, i % 3 == 0 ? 300 : 60, i % 4 == 0 ? 200 : 70);
      family_.validate(p);
      const auto specs = serving(p, target);
      ASSERT_FALSE(specs.empty());
      check(random_.one_of(specs), p, target, i % 2 == 0);
    }
  }
}

// Whole tiles, edges, no queries, no keys, the longest heads.
TEST_F(FmhaBackward, SamplesAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    FmhaProblem any = small_problem(1, 1, 64);
    any.kind = FmhaKind::backward, any.lse = false;
    any.in = any.out = any.dtype_bias = random_.one_of(kTypes);
    any.mask = FmhaMask::bottom_right;
    any.lengths = static_cast<FmhaLengths>(random_.integer(0, 2));
    any.bias = static_cast<FmhaBias>(random_.integer(0, 2));
    any.dbias = any.bias != FmhaBias::none, any.dlse = random_.coin();
    for (const KernelSpec& spec : serving(any, target)) {
      for (const Problem& sample : family_.samples(spec, target)) {
        check(spec, std::get<FmhaProblem>(sample), target, random_.coin());
      }
    }
  }
}

// Keys of few heads are dealt out to parts, whose sums of dq are merged.
TEST_F(FmhaBackward, AnyNumberOfThreadsGivesTheSameBits) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (int i = 0; i < 6; ++i) {
    const FmhaProblem p = random_backward(random_, i % 2 == 0 ? 900 : 150, 40);
    const KernelSpec spec = random_.one_of(serving(p, target));
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
    measure::OwnedOperands owned = operands(p);
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 7}) {
      measure::reset_outputs(owned);
      launch(spec, p, owned.operands, threads);
      std::vector<std::byte> now;
      for (const std::size_t output : owned.outputs) {
        const runtime::AlignedBuffer& buffer = owned.storage.at(output);
        const auto* bytes = static_cast<const std::byte*>(buffer.data());
        now.insert(now.end(), bytes, bytes + buffer.size());
      }
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << threads << " threads";
    }
  }
}

// Keys behind the last query's are seen by none, and the first queries see no key.
TEST_F(FmhaBackward, WhatSeesNothingGetsZeros) {
  for (const Target& target : targets_of_run(seed_)) {
    for (const char* mask : {"top_left", "bottom_right"}) {
      FmhaProblem p = std::get<FmhaProblem>(parse_problem(fmt::format(
          "fmha kind=backward heads=2 seqlen_q=30 seqlen_k=300 hdim=16 mask={}", mask)));
      if (p.mask == FmhaMask::bottom_right) std::swap(p.seqlen_q, p.seqlen_k);
      measure::OwnedOperands owned = operands(p);
      attend(p, target, owned);
      launch(family_.general(p, target), p, owned.operands, 2);
      const auto& o = std::get<FmhaOperands>(owned.operands);
      const bool is_dq = p.mask == FmhaMask::bottom_right;
      const auto* const zeros = static_cast<const float*>(is_dq ? o.dq : o.dk);
      const int first = is_dq ? 0 : 30, end = is_dq ? 270 : 300;
      for (int i = first * 32; i < end * 32; ++i) EXPECT_EQ(zeros[i], 0) << mask << " " << i;
      testing_support::expect_verified(p, owned);
    }
  }
}

// Masks by finfo.min or by another large number: lse is rounded to the score, which has lost how
// many keys there are.
TEST_F(FmhaBackward, RowsOfLowScoresAreNormalised) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (const char* dtype : {"fp32", "bf16"}) {
      const FmhaProblem p = std::get<FmhaProblem>(parse_problem(fmt::format(
          "fmha kind=backward batch=2 heads=4 heads_kv=2 seqlen_q={} seqlen_k={} hdim=16 "
          "bias=elementwise dbias=1 dtype={}",
          random_.integer(1, 90), random_.integer(2, 300), dtype)));
      for (const double low : {-1e6, -1e9, -max_finite(DType::bf16)}) {
        const KernelSpec spec = random_.one_of(serving(p, target));
        SCOPED_TRACE(fmt::format("{} on '{}', {}", name_of(spec), to_string(Problem(p)), low));
        measure::OwnedOperands owned = operands(p);
        const LowScores scores(p, owned, low);
        scores.hide_keys();
        attend(p, target, owned);
        scores.expect_means();
        launch(spec, p, owned.operands, static_cast<int>(random_.integer(1, 5)));
        scores.expect_gradients();
        EXPECT_EQ(measure::gaps_intact(owned), "");
      }
    }
  }
}

TEST_F(FmhaBackward, SkippedSequencesGiveZerosToTheirKeys) {
  const Target target = targets_here().front();
  const Problem p = parse_problem(
      "fmha kind=backward batch=2 heads=1 seqlen_q=5 seqlen_k=7 hdim=16 lengths=padded skip_q=3");
  measure::OwnedOperands owned = operands(p);
  const auto& o = std::get<FmhaOperands>(owned.operands);
  for (const auto& [at, queries, keys] : {std::array{0, 3, 6}, {1, 4, 7}}) {
    const_cast<std::int32_t*>(o.seqlens_q)[at] = queries;
    const_cast<std::int32_t*>(o.seqlens_k)[at] = keys;
  }
  launch(family_.general(p, target), p, owned.operands, 2);
  const auto *const dk = static_cast<const float*>(o.dk), *const dq =
                                                              static_cast<const float*>(o.dq);
  for (int i = 0; i < 6 * 16; ++i) EXPECT_EQ(dk[i], 0) << i;
  EXPECT_TRUE(std::isnan(dk[6 * 16]));  // behind the sequence's keys
  EXPECT_TRUE(std::isnan(dq[0]));       // a query that is left out
  EXPECT_FALSE(std::isnan(dq[5 * 16]));
  testing_support::expect_verified(p, owned);
}

// Weights are made of lse, whatever it is: none where it is minus infinity.
TEST_F(FmhaBackward, QueriesWithoutSumsGiveNothing) {
  for (const Target& target : targets_of_run(seed_)) {
    const Problem p = parse_problem("fmha kind=backward heads=1 seqlen_q=40 seqlen_k=50 hdim=24");
    measure::OwnedOperands owned = operands(p);
    const auto& o = std::get<FmhaOperands>(owned.operands);
    for (int i = 0; i < 40; i += 3) o.lse[i] = -std::numeric_limits<float>::infinity();
    launch(family_.general(p, target), p, owned.operands, 2);
    for (int d = 0; d < 24; ++d) EXPECT_EQ(static_cast<const float*>(o.dq)[d], 0);
    testing_support::expect_verified(p, owned);
  }
}

// A bias of minus infinity hides a key as a mask does.
TEST_F(FmhaBackward, BiasOfMinusInfinityHidesKeys) {
  for (const Target& target : targets_of_run(seed_)) {
    const FmhaProblem p =
        std::get<FmhaProblem>(parse_problem("fmha kind=backward batch=2 heads=2 seqlen_q=20 "
                                            "seqlen_k=70 hdim=16 bias=elementwise dbias=1 "
                                            "bias_stride_h=0"));
    measure::OwnedOperands owned = operands(p);
    const auto& o = std::get<FmhaOperands>(owned.operands);
    auto* const bias = static_cast<float*>(const_cast<void*>(o.bias));
    for (int i = 0; i < 20; ++i) bias[i * 70 + 11] = -std::numeric_limits<float>::infinity();
    attend(p, target, owned);
    launch(family_.general(p, target), p, owned.operands, 2);
    for (int d = 0; d < 16; ++d) EXPECT_EQ(static_cast<const float*>(o.dk)[11 * 32 + d], 0);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(static_cast<const float*>(o.dbias)[i * 70 + 11], 0);
    testing_support::expect_verified(p, owned);
  }
}

// A NaN of a sequence and head stays there.
TEST_F(FmhaBackward, NanStaysInItsHead) {
  for (const Target& target : targets_of_run(seed_)) {
    for (const DType in : kTypes) {
      FmhaProblem p = std::get<FmhaProblem>(parse_problem(
          "fmha kind=backward batch=2 heads=4 heads_kv=2 seqlen_q=20 seqlen_k=30 hdim=16"));
      p.in = p.out = p.dtype_bias = in;
      measure::OwnedOperands owned = operands(p);
      const auto& o = std::get<FmhaOperands>(owned.operands);
      for (const void* input : {o.q, o.k, o.v, o.dout, static_cast<const void*>(o.out)}) {
        store_element(in, const_cast<void*>(input), 3, std::nan(""));
      }
      launch(family_.general(p, target), p, owned.operands, 2);
      testing_support::expect_verified(p, owned);
    }
  }
}

// What is measured has weights of at most about 1.
TEST_F(FmhaBackward, RandomLogarithmsAreThoseOfSums) {
  const Problem p = parse_problem(
      "fmha kind=backward heads=3 seqlen_q=50 seqlen_k=70 hdim=8 "
      "bias=alibi");
  const measure::OwnedOperands owned = measure::random_operands(p, 7);
  const auto& o = std::get<FmhaOperands>(owned.operands);
  for (int i = 0; i < 150; ++i) {
    EXPECT_GE(o.lse[i], std::log(70.0F) - 1e-5F);
    EXPECT_LE(o.lse[i], std::log(70.0F) + 1);
  }
  for (int i = 0; i < 3; ++i) EXPECT_GT(o.slopes[i], 0);
}

}  // namespace
}  // namespace tessera::fmha
