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
    for (const std::string_view set : problem_sets()) {
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
      for (const std::string_view set : problem_sets()) {
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
    std::set<std::string> lines;
    for (const Problem& p : learned(set, target, DType::bf16, "crr")) {
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

TEST(ProblemSets, UnknownWords) {
  const Target target = load_target("sm90a");
  expect_error(ErrorCode::not_found,
               "unknown problem set 'model', did you mean 'models'? (known: wide, edge, models)",
               [&] { learned("model", target, DType::bf16, "rcr"); });
  expect_error(ErrorCode::unsupported,
               "target sm90a has no instruction for int32: it has no problems to learn from",
               [&] { learned("wide", target, DType::int32, "rcr"); });
}

}  // namespace
}  // namespace tessera
