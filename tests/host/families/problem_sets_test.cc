#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "host/spec/expect_error.h"
#include "tessera/base/hash.h"
#include "tessera/families/family.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using Sizes = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

Sizes sizes_of(const Problem& problem) {
  const auto& p = std::get<GemmProblem>(problem);
  return {p.m, p.n, p.k};
}

std::span<const std::string_view> problem_sets() { return family_of(Op::gemm).problem_sets(); }

// Only operands of 8 bits have scales.
std::vector<std::string_view> sets_of(DType dtype) {
  const auto all = problem_sets();
  std::vector<std::string_view> some(all.begin(), all.end());
  if (dtype != DType::fp8) std::erase(some, "block_scaled");
  return some;
}

std::vector<Problem> learned(std::string_view set, const Target& target, DType dtype,
                             std::string_view layout) {
  return family_of(Op::gemm).draw(set, ProblemSide::learned, target,
                                  {std::string(to_string(dtype)), std::string(layout)});
}
std::vector<Problem> unseen(std::string_view set, const Target& target, DType dtype,
                            std::string_view layout) {
  return family_of(Op::gemm).draw(set, ProblemSide::unseen, target,
                                  {std::string(to_string(dtype)), std::string(layout)});
}

std::string digest(const std::vector<Problem>& problems) {
  std::string lines;
  for (const Problem& p : problems) lines += to_string(p) + "\n";
  return hash_hex(lines).substr(0, 16);
}

struct Frozen {
  std::string target;
  DType dtype;
  std::string_view set;
  std::size_t count;
  std::string_view hash;
  std::size_t unseen_count;
  std::string_view unseen_hash;
};
const Frozen kFrozen[] = {
    {"sm90a", DType::bf16, "wide", 1200, "d88d6d746b8bf0f5", 400, "c2d835bb970a8263"},
    {"sm90a", DType::bf16, "edge", 500, "e1153eb46a014010", 320, "448ac656577605bd"},
    {"sm90a", DType::bf16, "models", 1460, "f68a4095dc059e52", 754, "66f078365c578836"},
    {"sm90a", DType::fp8, "wide", 1200, "16cdc44076c3671e", 400, "f657bde077720ce6"},
    {"sm90a", DType::fp8, "edge", 500, "71f669d5e4acf203", 320, "380e9c0c13decbde"},
    {"sm90a", DType::fp8, "models", 1481, "577ccd6bbe1aa8db", 761, "3cf20f997bd9be0d"},
    {"avx512", DType::fp32, "wide", 1200, "d0d89a19b46f28fb", 400, "5d8e4e756b7c36a6"},
    {"avx512", DType::fp32, "edge", 500, "d2367b41e470d39a", 320, "8c29cee659c0b667"},
    {"avx512", DType::fp32, "models", 804, "80a71cc5a6c672ff", 397, "f708c4c03bd805c8"},
    {"avx512", DType::bf16, "wide", 1200, "f2dddb63bfd4d170", 400, "99bd9dae6600766d"},
    {"avx512", DType::bf16, "edge", 500, "94bb79477536d1d0", 320, "151b07cb7a1ec58e"},
    {"avx512", DType::bf16, "models", 887, "aba5ec7c7df734c2", 425, "923e9b407cee9c29"},
    {"avx512", DType::int8, "wide", 1200, "3925a3f380f2baeb", 400, "a67ec62a37373d82"},
    {"avx512", DType::int8, "edge", 500, "faa2f09a49fe6744", 320, "4f25570980a2b6d0"},
    {"avx512", DType::int8, "models", 914, "0a9a433503bd58e3", 444, "3eee82327f6e5167"},
    {"sm90a", DType::bf16, "experts", 1200, "e95871d11736b50a", 440, "82e52a07f7192157"},
    {"sm90a", DType::fp8, "experts", 1200, "996a20301a47c809", 440, "02c2791404c445e7"},
    {"sm90a", DType::fp8, "block_scaled", 1200, "85167cf2339fd2b8", 440, "1701c7e6e89769e3"},
    {"avx512", DType::fp32, "experts", 916, "f45292ba3663a878", 372, "927d0933dc753e61"},
    {"avx512", DType::bf16, "experts", 963, "09aa5ad8c1097860", 390, "3ad68e3d93e94fa6"},
    {"avx512", DType::fp8, "block_scaled", 1200, "53c3c576e5645526", 440, "20f7ea539673c152"},
};

// Whatever was measured or learned so far was measured and learned on these very lists.
TEST(ProblemSets, AreFrozen) {
  for (const Frozen& f : kFrozen) {
    const Target target = load_target(f.target);
    const auto seen = learned(f.set, target, f.dtype, "rcr");
    const auto others = unseen(f.set, target, f.dtype, "rcr");
    EXPECT_EQ(seen.size(), f.count) << f.target << " " << f.set;
    EXPECT_EQ(digest(seen), f.hash) << f.target << " " << f.set;
    EXPECT_EQ(others.size(), f.unseen_count) << f.target << " " << f.set;
    EXPECT_EQ(digest(others), f.unseen_hash) << f.target << " " << f.set;
  }
}

TEST(ProblemSets, AreLargeEnough) {
  for (const auto& [name, dtype] : {std::pair{"sm90a", DType::bf16},
                                    {"sm90a", DType::fp8},
                                    {"sm90a", DType::fp32},
                                    {"avx512", DType::fp32},
                                    {"avx512", DType::bf16},
                                    {"avx2", DType::int8}}) {
    const Target target = load_target(name);
    EXPECT_GE(learned("wide", target, dtype, "rcr").size(), 700U);
    for (const std::string_view set : sets_of(dtype)) {
      EXPECT_GE(unseen(set, target, dtype, "rcr").size(), 300U) << set;
    }
  }
}

TEST(ProblemSets, UnseenSizesAreNowhereElse) {
  std::set<Sizes> seen;
  std::set<Sizes> not_seen;
  for (const std::string target_name : {"sm90a", "avx512", "gfx942"}) {
    const Target target = load_target(target_name);
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp8, DType::int8}) {
      if (target_name == "gfx942" && dtype == DType::fp32) continue;
      for (const std::string_view set : sets_of(dtype)) {
        for (const Problem& p : learned(set, target, dtype, "rcr")) {
          seen.insert(sizes_of(p));
        }
        for (const Problem& p : unseen(set, target, dtype, "rrr")) {
          not_seen.insert(sizes_of(p));
        }
      }
    }
  }
  std::vector<Sizes> both;
  std::ranges::set_intersection(seen, not_seen, std::back_inserter(both));
  EXPECT_TRUE(both.empty()) << both.size();
  EXPECT_GT(seen.size(), 2000U);
}

TEST(ProblemSets, NoProblemTwiceAndEveryLineIsRead) {
  const Target target = load_target("sm90a");
  for (const std::string_view set : problem_sets()) {
    const DType dtype = set == "block_scaled" ? DType::fp8 : DType::bf16;
    std::set<std::string> lines;
    for (const Problem& p : learned(set, target, dtype, "crr")) {
      const std::string line = to_string(p);
      EXPECT_TRUE(lines.insert(line).second) << line;
      EXPECT_EQ(parse_problem(line), p) << line;
    }
  }
}

TEST(ProblemSets, ProblemsAreBounded) {
  for (const Problem& problem : learned("wide", load_target("avx512"), DType::fp32, "rcr")) {
    const auto& p = std::get<GemmProblem>(problem);
    EXPECT_LE(2.0 * p.m * p.n * p.k * p.batch, 1e10) << to_string(problem);
  }
  const double a_millisecond = 989.4e12 * 1e-3;
  double most = 0;
  for (const Problem& problem : learned("wide", load_target("sm90a"), DType::bf16, "rcr")) {
    const auto& p = std::get<GemmProblem>(problem);
    EXPECT_LE(std::max({p.m, p.n}), 128256) << to_string(problem);
    most = std::max(most, 2.0 * p.m * p.n * p.k * p.batch);
  }
  EXPECT_LE(most, a_millisecond * 1.001);
  EXPECT_GE(most, a_millisecond / 2);
}

TEST(ProblemSets, EdgeHoldsTheEdges) {
  const auto problems = learned("edge", load_target("sm90a"), DType::bf16, "rcr");
  int ones[3] = {};
  int odd = 0;
  int tiny = 0;
  int huge = 0;
  for (const Problem& problem : problems) {
    const auto& p = std::get<GemmProblem>(problem);
    ones[0] += p.m == 1;
    ones[1] += p.n == 1;
    ones[2] += p.k == 1;
    odd += p.n % 8 != 0 && p.k % 8 != 0;
    tiny += std::max({p.m, p.n, p.k}) <= 32;
    huge += std::max({p.m, p.n, p.k}) >= 1 << 17;
  }
  for (const int count : ones) EXPECT_GE(count, 30);
  EXPECT_GE(odd, 200);
  EXPECT_GE(tiny, 10);
  EXPECT_GE(huge, 10);
}

int count_of(const std::vector<Problem>& problems, GemmGrouping grouping) {
  return static_cast<int>(std::ranges::count_if(problems, [grouping](const Problem& problem) {
    return std::get<GemmProblem>(problem).grouping == grouping;
  }));
}

TEST(ProblemSets, ExpertsHaveGroupsOfEachKind) {
  for (const auto& [name, dtype] :
       {std::pair{"sm90a", DType::bf16}, {"sm90a", DType::fp8}, {"avx512", DType::fp32}}) {
    const auto problems = learned("experts", load_target(name), dtype, "rcr");
    EXPECT_EQ(count_of(problems, GemmGrouping::none), 0);
    for (const GemmGrouping grouping :
         {GemmGrouping::contiguous, GemmGrouping::masked, GemmGrouping::along_k}) {
      EXPECT_GE(count_of(problems, grouping), 150) << to_string(grouping);
    }
    std::set<std::int64_t> groups;
    for (const Problem& problem : problems) {
      const auto& p = std::get<GemmProblem>(problem);
      groups.insert(p.groups);
      const bool is_turned = p.grouping == GemmGrouping::along_k && dtype != DType::fp8;
      EXPECT_EQ(p.layout, is_turned ? GemmLayout::crr : GemmLayout::rcr);
    }
    EXPECT_EQ(*groups.begin(), 1);
    EXPECT_GE(*groups.rbegin(), 200);
  }
}

TEST(ProblemSets, BlockScaledHasScalesAndRowsFromOneOn) {
  for (const std::string name : {"sm90a", "avx512"}) {
    const auto problems =
        family_of(Op::gemm).draw("block_scaled", ProblemSide::learned, load_target(name), {});
    EXPECT_GE(count_of(problems, GemmGrouping::contiguous), 50);
    EXPECT_GE(count_of(problems, GemmGrouping::masked), 50);
    EXPECT_GE(count_of(problems, GemmGrouping::none), 500);
    std::int64_t most = 0, least = 100;
    for (const Problem& problem : problems) {
      const auto& p = std::get<GemmProblem>(problem);
      EXPECT_EQ(p.a, DType::fp8);
      EXPECT_EQ(p.out, DType::bf16);
      EXPECT_EQ(p.scale_a, GemmScale::by_1x128);
      EXPECT_EQ(p.scale_b, GemmScale::by_128x128);
      most = std::max(most, p.m), least = std::min(least, p.m);
    }
    EXPECT_EQ(least, 1);
    EXPECT_GE(most, 4096);
  }
}

TEST(ProblemSets, UnknownWords) {
  const Target target = load_target("sm90a");
  expect_error(ErrorCode::unsupported,
               "the problem set block_scaled has operands of fp8 and bf8, got bf16",
               [&] { learned("block_scaled", target, DType::bf16, "rcr"); });
  expect_error(ErrorCode::not_found,
               "unknown problem set 'model', did you mean 'models'? (known: wide, edge, models, "
               "experts, block_scaled)",
               [&] { learned("model", target, DType::bf16, "rcr"); });
  expect_error(ErrorCode::unsupported,
               "target sm90a has no instruction for int32: it has no problems to learn from",
               [&] { learned("wide", target, DType::int32, "rcr"); });
}

}  // namespace
}  // namespace tessera
