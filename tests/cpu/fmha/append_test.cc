// Appending to a cache on CPUs: fresh random problems over all fields against the fp64 reference of
// what was there before, elements that must stay, lengths of any content, q in place, special
// values. To repeat a failure: --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "host/fmha/append_problems.h"
#include "host/fmha/plain_append.h"
#include "tessera/families/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& append_registry() { return testing_support::registry_in("fmha_append_test"); }

class FmhaAppend : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = testing_support::seed_of_run();
  RandomFmhas random_{seed_};

  measure::OwnedOperands operands(const Problem& problem) {
    return measure::random_operands(problem,
                                    static_cast<std::uint64_t>(random_.integer(0, 1 << 30)));
  }
  void launch(const Target& target, const Problem& problem, const Operands& operands, int threads) {
    const KernelSpec spec = family_.general(problem, target);
    testing_support::launch(append_registry(), spec, problem, operands, threads);
  }
  // Also begins in the middle of the room, behind it, and in front of it.
  void move_positions(const FmhaProblem& p, const FmhaOperands& o) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      if (random_.coin()) continue;
      const auto position = static_cast<std::int32_t>(random_.integer(-3, p.seqlen_k + 2));
      const_cast<std::int32_t*>(o.seqlens_k)[b] = position;
    }
  }
  void expect_right(const Problem& problem, const measure::OwnedOperands& owned,
                    const Reference& before) {
    testing_support::expect_compared(problem, owned, before);
    const FmhaProblem p = with_strides(fmha_of(problem));
    EXPECT_EQ(changed_elsewhere(p, owned), 0);
    if (!shares_places(p, std::get<FmhaOperands>(owned.operands))) return;
    EXPECT_EQ(held_of_no_token(p, owned), 0);
  }
};

TEST_F(FmhaAppend, RandomProblemsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 7; ++i) {
      const FmhaProblem p = random_append(random_, i % 4 == 0 ? 70 : 10, i % 8 == 0 ? 300 : 90);
      family_.validate(p);
      SCOPED_TRACE(fmt::format("seed {}: '{}' on {}", seed_, to_string(Problem(p)), target.name));
      measure::OwnedOperands owned = operands(p);
      if (i % 2 == 0) move_positions(p, std::get<FmhaOperands>(owned.operands));
      const Reference before = family_.reference(p, owned.operands, {});
      testing_support::launch_at_edges(append_registry(), family_.general(p, target), p, owned,
                                       static_cast<int>(random_.integer(1, 5)));
      expect_right(p, owned, before);
    }
  }
}

TEST_F(FmhaAppend, SamplesAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    const Problem any = parse_problem(
        "fmha kind=append heads=1 seqlen_q=1 seqlen_k=1 hdim=2 rotary=half rotate_q=1 dtype=bf16");
    for (const Problem& p : family_.samples(family_.general(any, target), target)) {
      SCOPED_TRACE(fmt::format("seed {}: '{}' on {}", seed_, to_string(p), target.name));
      measure::OwnedOperands owned = operands(p);
      const Reference before = family_.reference(p, owned.operands, {});
      launch(target, p, owned.operands, 2);
      expect_right(p, owned, before);
    }
  }
}

TEST_F(FmhaAppend, SamplesOfPagesAreCorrect) {
  const Target target = targets_here().front();
  for (const char* pages : {"table page_size=4", "list page_size=8 cache_layout=vectorized"}) {
    const Problem any = parse_problem(
        fmt::format("fmha kind=append heads=1 seqlen_q=1 seqlen_k=1 hdim=8 rotary=half rotate_q=1 "
                    "dtype=fp16 pages={}",
                    pages));
    for (const Problem& p : family_.samples(family_.general(any, target), target)) {
      SCOPED_TRACE(fmt::format("seed {}: '{}' on {}", seed_, to_string(p), target.name));
      measure::OwnedOperands owned = operands(p);
      const Reference before = family_.reference(p, owned.operands, {});
      launch(target, p, owned.operands, 2);
      expect_right(p, owned, before);
    }
  }
}

// All sequences have one page, whose places they all write: each holds what one of them has there.
TEST_F(FmhaAppend, SharedPlacesHoldOneOfTheirTokens) {
  for (const char* pages : {"table page_size=16 rotary=half rotate_q=1 dtype=bf16",
                            "list page_size=8 cache_layout=vectorized dtype=fp16",
                            "table page_size=5 rotary=interleaved lengths=padded"}) {
    const Problem p = parse_problem(fmt::format(
        "fmha kind=append batch=6 heads=4 heads_kv=2 seqlen_q=20 seqlen_k=60 hdim=24 num_pages=1 "
        "pages={}",
        pages));
    for (const Target& target : targets_of_run(seed_)) {
      SCOPED_TRACE(fmt::format("seed {}: '{}' on {}", seed_, to_string(p), target.name));
      measure::OwnedOperands owned = operands(p);
      const FmhaProblem full = with_strides(fmha_of(p));
      ASSERT_TRUE(shares_places(full, std::get<FmhaOperands>(owned.operands)));
      const Reference before = family_.reference(p, owned.operands, {});
      EXPECT_GT(held_of_no_token(full, owned), 0);  // before the launch
      launch(target, p, owned.operands, 3);
      expect_right(p, owned, before);
    }
  }
}

// The first page out of range that new tokens need is reported, and nothing else is written.
TEST_F(FmhaAppend, ABadPageStopsACheckedLaunch) {
  const Target target = targets_here().front();
  for (const char* pages : {"table", "list"}) {
    const Problem p = parse_problem(fmt::format(
        "fmha kind=append batch=3 heads=2 seqlen_q=6 seqlen_k=40 hdim=16 page_size=4 pages={} "
        "check_pages=1 lengths=padded",
        pages));
    measure::OwnedOperands owned = operands(p);
    const auto& o = std::get<FmhaOperands>(owned.operands);
    auto* const table = const_cast<std::int32_t*>(o.page_table);
    auto* const before = const_cast<std::int32_t*>(o.seqlens_k);
    auto* const counts = const_cast<std::int32_t*>(o.seqlens_q);
    for (int b = 0; b < 3; ++b) before[b] = 5 + 10 * b, counts[b] = 6;
    table[0] = -3;         // which lies before the new tokens
    table[10 + 6] = -3;    // and behind them: the last one is 20
    table[20 + 7] = 1000;  // of positions 28 to 31
    launch(target, p, owned.operands, 2);
    const auto report = [&] { return std::vector<std::int32_t>(o.bad_page, o.bad_page + 4); };
    EXPECT_EQ(report(), (std::vector<std::int32_t>{1, 2, 7, 1000})) << pages;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(std::memcmp(owned.storage[owned.outputs[i]].data(), owned.originals[i].data(),
                            owned.originals[i].size()),
                0);
    }
    table[20 + 7] = 29;
    launch(target, p, owned.operands, 2);
    EXPECT_EQ(report(), (std::vector<std::int32_t>{0, -1, -1, -1})) << pages;
  }
}

TEST_F(FmhaAppend, QMayBeTurnedInPlace) {
  for (const FmhaRotary rotary : {FmhaRotary::interleaved, FmhaRotary::half}) {
    for (const Target& target : targets_of_run(seed_)) {
      FmhaProblem p = fmha_of(parse_problem(
          "fmha kind=append batch=2 heads=3 seqlen_q=5 seqlen_k=20 hdim=72 rotary_dim=44 "
          "rotate_q=1 rotary=half"));
      p.rotary = rotary;
      p.in = p.out = p.dtype_bias = random_.one_of(kTypes);
      SCOPED_TRACE(fmt::format("seed {}: {}", seed_, to_string(Problem(p))));
      measure::OwnedOperands owned = operands(p);
      launch(target, p, owned.operands, 2);
      auto in_place = owned.operands;
      auto& o = std::get<FmhaOperands>(in_place);
      const auto bytes = static_cast<std::size_t>(2 * 5 * 3 * 72 * size_of(p.in));
      o.out = const_cast<void*>(o.q);
      validate_operands(family_, p, in_place);
      launch(target, p, in_place, 2);
      EXPECT_EQ(std::memcmp(o.q, std::get<FmhaOperands>(owned.operands).out, bytes), 0);
    }
  }
}

constexpr std::array kAnyPages = {"", " pages=table page_size=4", " pages=list page_size=2"};

// Whatever lengths and tables hold, no other memory is touched.
TEST_F(FmhaAppend, LengthsOutOfRangeAreClamped) {
  const auto any = [&] {
    return static_cast<std::int32_t>(random_.integer(-(1LL << 31), 2147483647));
  };
  for (const char* lengths : {"equal", "packed", "padded"}) {
    for (const Target& target : targets_of_run(seed_)) {
      const Problem p = parse_problem(
          fmt::format("fmha kind=append batch=4 heads=2 seqlen_q=6 seqlen_k=9 hdim=16 rotary=half "
                      "rotate_q=1 lengths={}{}",
                      lengths, random_.one_of(kAnyPages)));
      measure::OwnedOperands owned = operands(p);
      const auto& o = std::get<FmhaOperands>(owned.operands);
      for (int i = 0; i < 4; ++i) const_cast<std::int32_t*>(o.seqlens_k)[i] = any();
      for (int i = 0; o.seqlens_q != nullptr && i < 4; ++i) {
        const_cast<std::int32_t*>(o.seqlens_q)[i] = any();
      }
      for (const std::int32_t* pages : {o.page_table, o.page_starts}) {
        for (int i = 0; pages != nullptr && i < 4; ++i) {
          const_cast<std::int32_t*>(pages)[i] = any();
        }
      }
      launch(target, p, owned.operands, 1);
      EXPECT_EQ(measure::gaps_intact(owned), "") << "seed " << seed_;
    }
  }
}

// Elements behind the turned ones keep every bit; a pair with a NaN or an infinity keeps to itself.
TEST_F(FmhaAppend, SpecialValuesStayInTheirPairs) {
  for (const DType in : kTypes) {
    for (const char* rotary : {"none", "interleaved", "half"}) {
      FmhaProblem p = fmha_of(parse_problem(
          fmt::format("fmha kind=append heads=1 seqlen_q=3 seqlen_k=9 hdim=40 rotary={}", rotary)));
      p.in = p.out = p.dtype_bias = in;
      if (p.rotary != FmhaRotary::none) p.rotary_dim = 36;
      for (const Target& target : targets_of_run(seed_)) {
        SCOPED_TRACE(fmt::format("seed {}: {}", seed_, to_string(Problem(p))));
        measure::OwnedOperands owned = operands(p);
        auto* const data = const_cast<void*>(std::get<FmhaOperands>(owned.operands).k_new);
        store_element(in, data, 3, std::numeric_limits<double>::quiet_NaN());
        store_element(in, data, 40 + 20, std::numeric_limits<double>::infinity());
        store_element(in, data, 80 + 38, -std::numeric_limits<double>::infinity());
        const Reference before = family_.reference(p, owned.operands, {});
        launch(target, p, owned.operands, 1);
        expect_right(p, owned, before);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::fmha
