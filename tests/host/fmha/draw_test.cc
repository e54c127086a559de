// The lists of problems to learn from, and the problems that exercise a kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "host/tile/feature_checks.h"
#include "tessera/base/hash.h"
#include "tessera/families/fmha/append.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

std::vector<Problem> drawn(std::string_view set, ProblemSide side, const std::string& target,
                           const std::string& dtype) {
  return draw(set, side, load_target(target), {.dtype = dtype, .layout = ""});
}

std::string digest(const std::vector<Problem>& problems) {
  std::string lines;
  for (const Problem& p : problems) lines += to_string(p) + "\n";
  return hash_hex(lines).substr(0, 16);
}

struct Frozen {
  const char *set, *target, *dtype;
  std::size_t count;
  const char* hash;
  std::size_t unseen_count;
  const char* unseen_hash;
};
constexpr Frozen kFrozen[] = {
    {"wide", "sm90a", "bf16", 300, "1006443e4f019c81", 100, "fd39645b7ee38aba"},
    {"wide", "avx512", "fp32", 300, "bdb445f03a4ce616", 100, "06006e1bba282732"},
    {"forward", "sm90a", "bf16", 600, "a871be4eed19eaa9", 300, "5709743d2eba671d"},
    {"forward", "avx512", "fp32", 300, "ca07a5220b16fa36", 100, "9a90cae485b2e7d3"},
    {"decode", "sm90a", "bf16", 600, "62cfcfecd4c5dcaa", 300, "08072e8348980d77"},
    {"decode", "avx2", "bf16", 300, "45530e937afb97df", 100, "95c86b13ffb6e33b"},
    {"backward", "sm90a", "bf16", 600, "378dbafb297c0b56", 300, "6a4f04dade778040"},
    {"backward", "avx512", "fp32", 300, "01de0519c7f394fa", 100, "419011148fe006be"},
    {"append", "sm90a", "bf16", 300, "5e5e34f8358cdcce", 100, "4bf9a8b919efa225"},
    {"append", "avx512", "fp32", 300, "a74ea8c97bb71eda", 100, "25465cbd2bafca9b"},
};

// Whatever was measured or learned so far was measured and learned on these very lists.
TEST(FmhaProblemSets, AreFrozen) {
  for (const Frozen& f : kFrozen) {
    const auto learned = drawn(f.set, ProblemSide::learned, f.target, f.dtype);
    const auto unseen = drawn(f.set, ProblemSide::unseen, f.target, f.dtype);
    EXPECT_EQ(learned.size(), f.count) << f.target << " " << f.set;
    EXPECT_EQ(digest(learned), f.hash) << f.target << " " << f.set;
    EXPECT_EQ(unseen.size(), f.unseen_count) << f.target << " " << f.set;
    EXPECT_EQ(digest(unseen), f.unseen_hash) << f.target << " " << f.set;
  }
}

TEST(FmhaProblemSets, SidesShareNoShapeAndNoProblemIsThereTwice) {
  std::set<std::uint64_t> shapes[2];
  for (const std::string_view set : problem_sets()) {
    for (const char* target : {"avx512", "sm90a"}) {
      for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
        std::set<std::string> lines;
        for (const Problem& p : drawn(set, side, target, "bf16")) {
          EXPECT_TRUE(lines.insert(to_string(p)).second) << to_string(p);
          EXPECT_EQ(parse_problem(to_string(p)), p);
          EXPECT_TRUE(features_fit(p));
          shapes[side == ProblemSide::unseen].insert(family().facts(p).shape_hash);
        }
      }
    }
  }
  for (const std::uint64_t shape : shapes[0]) EXPECT_FALSE(shapes[1].contains(shape));
}

TEST(FmhaProblemSets, ProblemsAreBounded) {
  double most = 0;
  for (const Problem& p : drawn("wide", ProblemSide::learned, "avx512", "fp32")) {
    EXPECT_LE(flops(p), 0x1p31) << to_string(p);
    EXPECT_LE(bytes(p), 0x1p28) << to_string(p);
    most = std::max(most, flops(p));
  }
  EXPECT_GE(most, 0x1p30);
  most = 0;
  for (const Problem& p : drawn("forward", ProblemSide::learned, "sm90a", "bf16")) {
    EXPECT_LE(flops(p), 0x1p42) << to_string(p);
    EXPECT_LE(bytes(p), 0x1p30) << to_string(p);
    most = std::max(most, flops(p));
  }
  EXPECT_GE(most, 0x1p41);
}

// As the estimate has it. Gradients count where tensor cores compute them or cannot.
TEST(FmhaProblemSets, TheBestKernelTakesAtMost20Milliseconds) {
  const Target target = load_target("sm90a");
  double most = 0;
  for (const char* set : {"forward", "decode", "backward"}) {
    for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
      for (const Problem& p : drawn(set, side, "sm90a", "bf16")) {
        const bool is_backward = fmha_of(p).kind == FmhaKind::backward;
        double best = std::numeric_limits<double>::infinity();
        for (const KernelSpec& spec : family().candidates(p, target)) {
          if (!family().is_legal(spec, target) || !family().supports(spec, p, target)) continue;
          best = std::min(best, estimate(spec, p, target, 0).seconds);
        }
        if (is_backward && fmha_of(p).hdim <= 128 && fmha_of(p).hdim % 8 == 0) {
          best = flops(p) / (0.4 * 989e12);
        }
        EXPECT_LE(best, 20e-3) << to_string(p);
        most = std::max(most, best);
      }
    }
  }
  EXPECT_GE(most, 5e-3);
}

// A model's kernels are all compiled for a sweep of its lists.
TEST(FmhaProblemSets, KernelsOfAModelAreFew) {
  const Target target = load_target("sm90a");
  std::map<std::string, std::set<std::string>> kernels;
  for (const char* set : {"forward", "decode", "backward"}) {
    for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
      for (const Problem& p : drawn(set, side, "sm90a", "bf16")) {
        for (const KernelSpec& spec : family().candidates(p, target)) {
          if (family().is_legal(spec, target)) kernels[model_key(p)].insert(name_of(spec));
        }
      }
    }
  }
  EXPECT_EQ(kernels.size(), 2U);
  for (const auto& [key, names] : kernels) {
    EXPECT_LE(names.size(), 220U) << key;
    EXPECT_GE(names.size(), 16U) << key;
  }
}

// Prompts and training up to 16384 tokens, caches up to 131072.
TEST(FmhaProblemSets, LengthsAreThoseOfUse) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> keys;
  for (const char* set : {"forward", "decode", "backward"}) {
    for (const Problem& problem : drawn(set, ProblemSide::learned, "sm90a", "bf16")) {
      const FmhaProblem& p = fmha_of(problem);
      auto& [least, most] = keys.try_emplace(set, p.seqlen_k, p.seqlen_k).first->second;
      least = std::min(least, p.seqlen_k), most = std::max(most, p.seqlen_k);
      EXPECT_LE(p.seqlen_q, std::string_view(set) == "decode" ? 16 : 16384);
    }
  }
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(keys["forward"], Range(1, 16384));
  EXPECT_EQ(keys["decode"], Range(1, 131072));
  EXPECT_EQ(keys["backward"], Range(1, 16384));
}

// Models have no opinion outside of the ranges of what they learned. The shorter lists of CPUs
// leave more problems outside.
TEST(FmhaProblemSets, UnseenProblemsAreInRange) {
  struct Model {
    const char *target, *dtype;
    std::vector<const char*> sets;
  };
  for (const auto& [name, dtype, sets] : {Model{"sm90a", "bf16", {"forward", "decode"}},
                                          {"sm90a", "bf16", {"backward"}},
                                          {"avx512", "fp32", {"forward", "decode"}}}) {
    const Target target = load_target(name);
    std::vector<double> low(features().size(), std::numeric_limits<double>::infinity());
    std::vector<double> high(features().size(), -std::numeric_limits<double>::infinity());
    std::size_t outside = 0, all = 0;
    std::string lines;
    for (const ProblemSide side : {ProblemSide::learned, ProblemSide::unseen}) {
      for (const char* set : sets) {
        for (const Problem& p : drawn(set, side, name, dtype)) {
          const std::vector<double> values = shared_values(p, target, 2);
          std::string_view outside_of;
          for (std::size_t i = 0; i < values.size(); ++i) {
            const double value = values[i];
            if (side == ProblemSide::learned) {
              low[i] = std::min(low[i], value), high[i] = std::max(high[i], value);
            }
            if (value < low[i] || value > high[i]) outside_of = features()[i].name;
          }
          if (side == ProblemSide::learned) continue;
          ++all;
          if (outside_of.empty()) continue;
          ++outside;
          lines += fmt::format("{} of {}\n", outside_of, to_string(p));
        }
      }
    }
    EXPECT_LE(outside * 16, all) << name << " " << sets[0] << "\n" << lines;
  }
}

// Every kind of problem, in every prefix.
TEST(FmhaProblemSets, EightBitsHaveFactors) {
  for (const std::string_view set : {"wide", "forward", "decode"}) {
    std::set<FmhaQscale> kinds;
    std::set<DType> outs;
    for (const Problem& p : drawn(set, ProblemSide::learned, "sm90a", "fp8")) {
      family().validate(p);
      kinds.insert(fmha_of(p).qscale), outs.insert(fmha_of(p).out);
    }
    EXPECT_EQ(kinds.size(), 4U) << set;
    EXPECT_EQ(outs, (std::set{DType::fp16, DType::fp8})) << set;
  }
}

TEST(FmhaProblemSets, EveryPrefixIsAMix) {
  struct Kind {
    const char* name;
    bool (*is_one)(const FmhaProblem&);
    double least;  // share of a prefix
  };
  constexpr Kind kKinds[] = {
      {"one query", [](const FmhaProblem& p) { return p.seqlen_q == 1; }, 0.1},
      {"as many keys", [](const FmhaProblem& p) { return p.seqlen_q == p.seqlen_k; }, 0.2},
      {"masked", [](const FmhaProblem& p) { return p.mask != FmhaMask::none; }, 0.3},
      {"not masked", [](const FmhaProblem& p) { return p.mask == FmhaMask::none; }, 0.2},
      {"window", [](const FmhaProblem& p) { return p.window_left >= 0; }, 0.02},
      {"groups", [](const FmhaProblem& p) { return p.heads_kv != kPacked; }, 0.3},
      {"packed", [](const FmhaProblem& p) { return p.lengths == FmhaLengths::packed; }, 0.03},
      {"padded", [](const FmhaProblem& p) { return p.lengths == FmhaLengths::padded; }, 0.08},
      {"bias", [](const FmhaProblem& p) { return p.bias == FmhaBias::elementwise; }, 0.03},
      {"alibi", [](const FmhaProblem& p) { return p.bias == FmhaBias::alibi; }, 0.03},
      {"soft cap", [](const FmhaProblem& p) { return p.soft_cap != 0; }, 0.02},
      {"lse", [](const FmhaProblem& p) { return p.lse; }, 0.1},
      {"128", [](const FmhaProblem& p) { return p.hdim == 128; }, 0.15},
      {"64", [](const FmhaProblem& p) { return p.hdim == 64; }, 0.1},
      {"unequal heads", [](const FmhaProblem& p) { return p.hdim_v != kPacked; }, 0.05},
  };
  for (const char* target : {"sm90a", "avx512"}) {
    const auto all = drawn("wide", ProblemSide::learned, target, "bf16");
    for (const std::size_t size : {std::size_t{100}, all.size()}) {
      for (const Kind& kind : kKinds) {
        const auto count =
            std::count_if(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size),
                          [&](const Problem& p) { return kind.is_one(fmha_of(p)); });
        EXPECT_GE(double(count), kind.least * double(size))
            << kind.name << " among the first " << size << " on " << target;
      }
    }
  }
}

TEST(FmhaProblemSets, UnknownWord) {
  expect_error(ErrorCode::not_found,
               "unknown problem set 'decoed', did you mean 'decode'? (known: wide, forward, "
               "decode, append, backward)",
               [] { drawn("decoed", ProblemSide::learned, "sm90a", "bf16"); });
}

// Problems that the kernel serves, among them those that kernels get wrong.
void expect_samples(const KernelSpec& spec, const Target& target) {
  const bool is_copied = spec.algorithm.pipeline == Pipeline::tmaws;  // which needs a key
  const std::vector<Problem> problems = samples(spec, target);
  const bool needs_query = is_copied && std::get<FmhaSignature>(spec.signature).kind ==
                                            FmhaKind::backward;  // and a sequence
  EXPECT_EQ(problems.size(), needs_query ? 10U : is_copied ? 12U : 13U) << name_of(spec);
  bool no_query = false, no_key = false, one_query = false, sees_nothing = false;
  for (const Problem& problem : problems) {
    family().validate(problem);
    EXPECT_EQ(family().supports(spec, problem, target).reason, "");
    const FmhaProblem& p = fmha_of(problem);
    no_query |= p.seqlen_q == 0, no_key |= p.seqlen_k == 0, one_query |= p.seqlen_q == 1;
    sees_nothing |= p.mask == FmhaMask::bottom_right && p.seqlen_q > p.seqlen_k && p.seqlen_k > 0;
  }
  EXPECT_TRUE(one_query) << name_of(spec);
  EXPECT_EQ(no_query, !needs_query) << name_of(spec);
  EXPECT_EQ(no_key, !is_copied) << name_of(spec);
  EXPECT_EQ(sees_nothing, std::get<FmhaSignature>(spec.signature).masked) << name_of(spec);
}

TEST(FmhaSamples, AreValidAndServed) {
  for (const char* name : {"avx512", "avx2", "generic", "sm90a"}) {
    const Target target = load_target(name);
    for (const KernelSpec& spec : family().enumerate(target, {})) {
      if (!appends(spec)) expect_samples(spec, target);
    }
  }
}

// Every kind of factors and every output, which kernel sets list where a wish asks for them.
TEST(FmhaSamples, OfEightBits) {
  const Wish wishes[] = {{"in", "bf8"},        {"pages", "table"},    {"lengths", "packed"},
                         {"bias", "none"},     {"masked", "true"},    {"lse", "false"},
                         {"dropout", "false"}, {"soft_cap", "false"}, {"cache_layout", "*"}};
  for (const char* name : {"avx2", "sm90a"}) {
    const Target target = load_target(name);
    std::set<std::pair<FmhaQscale, DType>> kinds;
    for (const KernelSpec& spec : family().enumerate(target, std::span(wishes))) {
      expect_samples(spec, target);
      const auto& s = std::get<FmhaSignature>(spec.signature);
      kinds.emplace(s.qscale, s.out);
    }
    EXPECT_EQ(kinds.size(), 24U) << name;
  }
}

TEST(FmhaSamples, OfFlashKernelsOnHopper) {
  const Target target = load_target("sm90a");
  for (const Algorithm& algorithm : kFlashGpu.algorithms(target)) {
    for (const bool masked : {false, true}) {
      const FmhaSignature signature = {.in = DType::bf16,
                                       .out = DType::bf16,
                                       .dtype_bias = DType::bf16,
                                       .masked = masked,
                                       .lse = true};
      expect_samples({signature, algorithm, target.name}, target);
    }
  }
}

TEST(FmhaSamples, OfKernelsWithSplitKeys) {
  const Target target = load_target("sm90a");
  for (const Algorithm& algorithm : kSplitGpu.algorithms(target)) {
    for (const bool masked : {false, true}) {
      const FmhaSignature signature = {.in = DType::fp16,
                                       .out = DType::fp16,
                                       .dtype_bias = DType::fp16,
                                       .lengths = FmhaLengths::padded,
                                       .masked = masked};
      expect_samples({signature, algorithm, target.name}, target);
    }
  }
}

}  // namespace
}  // namespace tessera::fmha
