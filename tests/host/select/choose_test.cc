#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "host/select/fixtures.h"
#include "tessera/select/select_internal.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

// Legal on avx512 for fp32 rcr, in the order of their names.
const std::string kPackab = "gemm_fp32_rcr_packab_96x960x512_1x1x1_12x32x1_avx512";
const std::string kPackbAll = "gemm_fp32_rcr_packb_96x960x512_0x0x1_12x32x1_avx512";
const std::string kPackbSplit = "gemm_fp32_rcr_packb_96x960x512_1x1x0_12x32x1_avx512";
const std::string kPackbOne = "gemm_fp32_rcr_packb_96x960x512_1x1x1_12x32x1_avx512";
const std::vector<std::string> kPool = {kPackab, kPackbAll, kPackbSplit, kPackbOne};

class Choose : public testing::Test {
 protected:
  ChooseOptions with(std::vector<std::shared_ptr<const Ranker>> rankers) {
    return {.rankers = std::move(rankers), .pool = parse_names(kPool)};
  }
  Decision choose_among(std::vector<std::string> names, bool explained = false) {
    return choose(problem_, avx512_, {.pool = parse_names(names), .explain = explained});
  }

  Target avx512_ = load_target("avx512");
  Problem problem_ = gemm_problem(DType::fp32, GemmLayout::rcr, 256, 256, 256);
};

TEST_F(Choose, FirstRankerWithAnOpinionDecides) {
  const auto tuned = fake(ChoiceSource::tuned, {{kPackbOne, 2e-6}});
  const auto learned = fake(ChoiceSource::learned, {{kPackab, 1e-6}});
  const Decision decision = choose(problem_, avx512_, with({tuned, learned}));
  EXPECT_EQ(decision.name, kPackbOne);
  EXPECT_EQ(name_of(decision.spec), kPackbOne);
  EXPECT_EQ(decision.source, ChoiceSource::tuned);
  EXPECT_EQ(decision.predicted_seconds, 2e-6);
  EXPECT_EQ(decision.why, "the test says so");
  EXPECT_EQ(learned->asked, 0);
}

TEST_F(Choose, RankersWithoutAnOpinionPassTheQuestionOn) {
  const auto silent = fake(ChoiceSource::tuned, {});
  const auto foreign = fake(ChoiceSource::learned, {{"gemm_of_another_world", 1e-9}});
  const auto last = fake(ChoiceSource::analytic, {{kPackbAll, 3e-6}, {kPackab, 4e-6}});
  const Decision decision = choose(problem_, avx512_, with({silent, foreign, last}));
  EXPECT_EQ(decision.name, kPackbAll);
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_EQ(silent->asked, 1);
  EXPECT_EQ(foreign->asked, 1);
}

TEST_F(Choose, WithoutAnyOpinionTheFirstLegalRuns) {
  const Decision decision = choose(problem_, avx512_, with({fake(ChoiceSource::tuned, {})}));
  EXPECT_EQ(decision.name, kPackab);
  EXPECT_EQ(decision.source, ChoiceSource::first_legal);
  EXPECT_EQ(decision.why, "first by name of 4 legal candidates: no ranker has an opinion");
}

TEST_F(Choose, DefaultIsAnalytic) {
  const Decision decision = choose(problem_, avx512_);
  EXPECT_EQ(decision.source, ChoiceSource::analytic);
  EXPECT_GT(decision.predicted_seconds, 0);
  EXPECT_EQ(decision.name, name_of(decision.spec));
  EXPECT_EQ(decision.why.substr(0, 27), "least estimated time among ");
  EXPECT_TRUE(decision.considered.empty());
}

TEST_F(Choose, RankersSeeOnlyLegalCandidatesSortedByName) {
  std::vector<std::string> seen;
  const auto spy = make_learned_ranker({[&](const RankInput& input, std::span<double>) {
    for (const KernelSpec& spec : input.legal) {
      seen.push_back(name_of(spec));
      EXPECT_EQ(family_of(spec).is_legal(spec, avx512_).reason, "");
      EXPECT_EQ(family_of(spec).supports(spec, problem_, avx512_).reason, "");
    }
    EXPECT_EQ(input.threads, 5);
    return false;
  }});
  choose(problem_, avx512_, {.threads = 5, .rankers = {spy}});
  EXPECT_GT(seen.size(), 10u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST_F(Choose, AllUnitsOfTheTargetByDefault) {
  int threads = 0;
  const auto spy = make_learned_ranker({[&](const RankInput& input, std::span<double>) {
    threads = input.threads;
    return false;
  }});
  choose(problem_, avx512_, with({spy}));
  EXPECT_EQ(threads, avx512_.units);
}

TEST_F(Choose, RefusesBadArguments) {
  EXPECT_EQ(
      error_of([&] { choose(problem_, avx512_, {.threads = -2}); }),
      "invalid_argument: choose: threads must be 0 (all units of the target) or more, got -2");
  GemmProblem invalid = std::get<GemmProblem>(problem_);
  invalid.m = -1;
  EXPECT_EQ(error_of([&] { choose(invalid, avx512_); }).substr(0, 16), "invalid_argument");
}

class BrokenRanker final : public Ranker {
 public:
  ChoiceSource source() const override { return ChoiceSource::learned; }
  std::string why(const RankInput&, const Ranked&) const override { return ""; }
  std::vector<Ranked> rank(const RankInput&) const override { return {{9, 1e-6}}; }
};

TEST_F(Choose, RankerThatPointsNowhereIsAnError) {
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, with({std::make_shared<BrokenRanker>()})); }),
            "internal: the learned ranker must return indices below 4, got 9");
}

// ---- pinned ----

TEST_F(Choose, PinnedRuns) {
  const auto ranker = fake(ChoiceSource::learned, {{kPackab, 1e-6}});
  const Decision decision = choose(problem_, avx512_, {.pinned = kPackbOne, .rankers = {ranker}});
  EXPECT_EQ(decision.name, kPackbOne);
  EXPECT_EQ(decision.source, ChoiceSource::pinned);
  EXPECT_EQ(decision.why, "pinned by name");
  EXPECT_GT(decision.predicted_seconds, 0);
  EXPECT_EQ(ranker->asked, 0);
}

TEST_F(Choose, PinnedOutsideTheEnumeratedSpaceRuns) {
  const std::string odd = "gemm_fp32_rcr_packb_36x160x128_3x1x1_12x32x1_avx512";
  const auto space = family_of(problem_).candidates(problem_, avx512_);
  ASSERT_EQ(std::count(space.begin(), space.end(), parse_name(odd)), 0);
  EXPECT_EQ(choose(problem_, avx512_, {.pinned = odd}).name, odd);
}

TEST_F(Choose, PinnedThatIsNoKernelNameIsUnknown) {
  const std::string typo = "gemm_fp32_rcr_packb_96x960x512_1x1x1_12x32z1_avx512";
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, {.pinned = typo}); }),
            "not_found: unknown kernel '" + typo + "', did you mean '" + kPackbOne + "'?");
}

TEST_F(Choose, PinnedLikeNothingKnownGetsTheGrammarsWords) {
  const std::string words = error_of([] { parse_name("zzz"); });
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, {.pinned = "zzz"}); }),
            "not_found: unknown kernel 'zzz': " + words.substr(words.find(' ') + 1));
}

TEST_F(Choose, PinnedOutsideThePoolIsUnknown) {
  ChooseOptions options = {.pinned = kPackbOne, .pool = parse_names({kPackab, kPackbSplit})};
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, options); }),
            "not_found: unknown kernel '" + kPackbOne + "', did you mean '" + kPackab + "'?");
  options.pinned = "zzz";
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, options); }),
            "not_found: unknown kernel 'zzz': it is not among the 2 kernels of the pool");
}

TEST_F(Choose, PinnedThatCannotServeSaysWhy) {
  struct Case {
    std::string kernel;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {"gemm_fp32_rcr_packb_96x960x512_1x1x1_12x32x1_avx2",
       "the kernel is for target 'avx2', the problem is for 'avx512'"},
      {"gemm_bf16_rcr_packab_96x960x512_1x1x1_12x32x2_avx512",
       "the kernel has a=bf16, the problem a=fp32"},
      {"gemm_fp32_rcr_packb_97x960x512_1x1x1_12x32x1_avx512",
       "tile_m 97 is not a multiple of warp_tile_m 12"},
      {"gemm_fp32_rcr_stream_8x1024x512_1x1x1_8x32x1_avx512",
       "stream serves m <= 16 or n <= 8, the smaller of both, got m=256 n=256"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(error_of([&] { choose(problem_, avx512_, {.pinned = c.kernel}); }),
              "illegal_spec: kernel '" + c.kernel + "' cannot run '" + to_string(problem_) +
                  "' on 'avx512': " + c.reason);
  }
}

// ---- pools ----

TEST_F(Choose, PoolIsNeverLeft) {
  for (const std::string& name : kPool) EXPECT_EQ(choose_among({name}).name, name);
}

TEST_F(Choose, PoolWithOtherKernelsUsesThoseThatServe) {
  EXPECT_EQ(choose_among({"gemm_bf16_rcr_packab_96x960x512_1x1x1_12x32x2_avx512",
                          "gemm_fp32_rcr_packb_96x960x512_1x1x1_12x32x1_avx2", kPackbAll})
                .name,
            kPackbAll);
}

TEST_F(Choose, EmptyPoolIsAnError) {
  EXPECT_EQ(error_of([&] { choose_among({}); }), "unsupported: no kernel can run '" +
                                                     to_string(problem_) +
                                                     "' on 'avx512': the pool is empty");
}

// Kernels that break a rule of the problem are nearer than those that break one of the target.
TEST_F(Choose, NothingLegalListsTheNearestMisses) {
  const std::string avx2 = "gemm_fp32_rcr_packb_96x960x512_1x1x1_12x32x1_avx2";
  const std::string bf16 = "gemm_bf16_rcr_packab_96x960x512_1x1x1_12x32x2_avx512";
  const std::string bf16_too = "gemm_bf16_rcr_packab_96x960x512_0x0x1_12x32x2_avx512";
  const std::string stream = "gemm_fp32_rcr_stream_8x1024x512_1x1x1_8x32x1_avx512";
  const std::string uneven = "gemm_fp32_rcr_packb_97x960x512_1x1x1_12x32x1_avx512";
  EXPECT_EQ(error_of([&] {
              choose_among({avx2, bf16, uneven, stream, bf16_too});
            }),
            "unsupported: no kernel can run '" + to_string(problem_) +
                "' on 'avx512': all 5 candidates are refused; nearest misses: " + bf16_too +
                " (the kernel has a=bf16, the problem a=fp32); " + stream +
                " (stream serves m <= 16 or n <= 8, the smaller of both, got m=256 n=256); " +
                uneven + " (tile_m 97 is not a multiple of warp_tile_m 12)");
}

TEST_F(Choose, ShuffledPoolGivesTheSameDecision) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<KernelSpec> pool = family_of(problem_).candidates(problem_, avx512_);
  const Decision expected = choose(problem_, avx512_);
  for (int i = 0; i < 3; ++i) {
    std::shuffle(pool.begin(), pool.end(), random);
    pool.push_back(pool[random() % pool.size()]);  // twice the same changes nothing
    const Decision decision = choose(problem_, avx512_, {.pool = pool});
    EXPECT_EQ(decision.name, expected.name);
    EXPECT_EQ(decision.predicted_seconds, expected.predicted_seconds);
    EXPECT_EQ(decision.why, expected.why);
  }
}

// ---- general kernels ----

TEST_F(Choose, GeneralKernelRunsWhatNoCandidateServes) {
  // Without waves the product of the lists is empty; the general kernel brings its own wave.
  Target narrow = avx512_;
  narrow.spaces[Op::gemm].waves = {};
  const Decision decision = choose(problem_, narrow);
  EXPECT_EQ(decision.source, ChoiceSource::first_legal);
  EXPECT_EQ(decision.why, "the family's general kernel: none of 0 candidates serves");
  EXPECT_EQ(family_of(problem_).is_legal(decision.spec, narrow).reason, "");
  EXPECT_GT(decision.predicted_seconds, 0);
}

TEST_F(Choose, PoolDoesNotFallBackToTheGeneralKernel) {
  EXPECT_EQ(error_of([&] {
              choose_among({"gemm_bf16_rcr_packab_96x960x512_1x1x1_12x32x2_avx512"});
            }).substr(0, 27),
            "unsupported: no kernel can ");
}

TEST_F(Choose, NothingAtAllIsAnError) {
  Target bare = avx512_;
  bare.spaces[Op::gemm].pipelines = {};
  EXPECT_EQ(error_of([&] { choose(problem_, bare); }),
            "unsupported: no kernel can run '" + to_string(problem_) +
                "' on 'avx512': the target's space holds no kernel with its signature");
  Target weak = avx512_;
  weak.vector_registers = 2;
  EXPECT_EQ(error_of([&] { choose(problem_, weak); }).substr(0, 27), "unsupported: no kernel can ");
}

TEST_F(Choose, ZeroSizesAreServed) {
  for (const char* line : {"gemm m=0 n=5 k=5", "gemm m=5 n=0 k=5", "gemm m=5 n=5 k=0",
                           "gemm m=0 n=0 k=0", "gemm m=5 n=5 k=5 batch=0"}) {
    EXPECT_EQ(error_of([&] { choose(parse_problem(line), avx512_); }), "no error") << line;
  }
}

// ---- determinism ----

TEST_F(Choose, DeterministicRefusesSumsThatFollowTheThreads) {
  const auto split = fake(ChoiceSource::learned, {{kPackbSplit, 1e-6}, {kPackbOne, 2e-6}});
  ChooseOptions options = with({split});
  EXPECT_EQ(choose(problem_, avx512_, options).name, kPackbSplit);
  options.deterministic = true;
  EXPECT_EQ(choose(problem_, avx512_, options).name, kPackbOne);
  options = {.pinned = kPackbSplit, .deterministic = true};
  EXPECT_EQ(error_of([&] { choose(problem_, avx512_, options); }),
            "illegal_spec: kernel '" + kPackbSplit + "' cannot run '" + to_string(problem_) +
                "' on 'avx512': deterministic kernels must have wave_k = 1, since the order of the "
                "sum follows the number of threads, got wave_k = 0");
}

TEST_F(Choose, EnvironmentDoesNotMatter) {
  const Decision before = choose(problem_, avx512_);
  const std::vector<const char*> names = {"TESSERA_TARGET", "TESSERA_CXX", "TESSERA_NO_JIT",
                                          "TESSERA_PACK", "OMP_NUM_THREADS"};
  for (const char* name : names) setenv(name, "1", 1);
  const Decision after = choose(problem_, avx512_);
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(after.name, before.name);
  EXPECT_EQ(after.predicted_seconds, before.predicted_seconds);
}

// ---- considered and explain ----

TEST_F(Choose, ConsideredHoldsEveryCandidateOnce) {
  const Decision decision = choose(problem_, avx512_, {.explain = true});
  const auto space = family_of(problem_).candidates(problem_, avx512_);
  ASSERT_EQ(decision.considered.size(), space.size());
  EXPECT_EQ(decision.considered[0].name, decision.name);
  const auto first_refused =
      std::find_if(decision.considered.begin(), decision.considered.end(),
                   [](const Considered& entry) { return !entry.refusal.empty(); });
  for (auto entry = decision.considered.begin(); entry != decision.considered.end(); ++entry) {
    EXPECT_EQ(entry->refusal.empty(), entry < first_refused) << entry->name;
    EXPECT_EQ(entry->name, name_of(entry->spec));
    const bool ordered = entry + 1 == decision.considered.end() || entry + 1 == first_refused ||
                         (entry < first_refused ? entry->predicted_seconds <=
                                                      (entry + 1)->predicted_seconds * (1 + 1e-6)
                                                : entry->name < (entry + 1)->name);
    EXPECT_TRUE(ordered) << entry->name;
  }
}

// The ranker that decided names one kernel; the next one orders the others.
TEST_F(Choose, ConsideredIsOrderedByTheRankersInTurn) {
  ChooseOptions options =
      with({fake(ChoiceSource::tuned, {{kPackbOne, 5e-6}}),
            fake(ChoiceSource::learned, {{kPackbAll, 2e-6}, {kPackbOne, 1e-6}})});
  options.explain = true;
  const Decision decision = choose(problem_, avx512_, options);
  ASSERT_EQ(decision.considered.size(), 4u);
  struct Row {
    std::string name;
    ChoiceSource source;
    double seconds;
  };
  const std::vector<Row> expected = {{kPackbOne, ChoiceSource::tuned, 5e-6},
                                     {kPackbAll, ChoiceSource::learned, 2e-6},
                                     {kPackab, ChoiceSource::first_legal, 0},
                                     {kPackbSplit, ChoiceSource::first_legal, 0}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(decision.considered[i].name, expected[i].name);
    EXPECT_EQ(decision.considered[i].source, expected[i].source);
    EXPECT_EQ(decision.considered[i].predicted_seconds, expected[i].seconds);
  }
}

TEST_F(Choose, PinnedIsExplainedBesideWhatItReplaces) {
  const auto learned = fake(ChoiceSource::learned, {{kPackab, 1e-6}});
  ChooseOptions options = with({learned});
  options.pinned = kPackbOne;
  options.explain = true;
  const Decision decision = choose(problem_, avx512_, options);
  ASSERT_EQ(decision.considered.size(), 4u);
  EXPECT_EQ(decision.considered[0].name, kPackbOne);
  EXPECT_EQ(decision.considered[0].source, ChoiceSource::pinned);
  EXPECT_EQ(decision.considered[1].name, kPackab);
}

Decision decision_of(std::string name, ChoiceSource source, double seconds, std::string why) {
  Decision decision;
  decision.name = std::move(name);
  decision.source = source;
  decision.predicted_seconds = seconds;
  decision.why = std::move(why);
  return decision;
}

Considered considered(const std::string& name, double seconds, const std::string& refusal = "",
                      ChoiceSource source = ChoiceSource::learned) {
  return {KernelSpec{.target = "avx512"}, name, seconds, refusal, source};
}

TEST(Explain, SaysHowManyTimesSlower) {
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 32, 16);
  Decision decision = decision_of("gemm_a", ChoiceSource::learned, 1e-6, "least of 4");
  decision.spec.target = "avx512";
  decision.considered = {considered("gemm_a", 1e-6), considered("gemm_b", 1.9e-6),
                         considered("gemm_c", 2.5e-6), considered("gemm_d", 35.182e-6)};
  const std::string text = explain(problem, {.name = "avx512", .backend = "cpu"}, decision);
  for (const char* words : {", 90.0% slower\n", ", 2.5x slower\n", ", 35x slower\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

TEST(Explain, SaysWhatWasChosenAndWhyNot) {
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 32, 16);
  const Target target = {.name = "avx512", .backend = "cpu", .description = "a test row"};
  Decision decision = decision_of("gemm_short", ChoiceSource::learned, 41.2e-6, "least of 7");
  decision.spec.target = target.name;
  decision.considered = {
      considered("gemm_short", 41.2e-6),
      considered("gemm_equal", 41.2e-6 * (1 + 1e-9)),
      considered("gemm_4", 41.21e-6),
      considered("gemm_longer", 44e-6),
      considered("gemm_5", 46e-6),
      considered("gemm_by_estimate", 30e-6, "", ChoiceSource::analytic),
      considered("gemm_a_longer_one_that_is_not_shown", 50e-6),
      considered("gemm_refused", 0, "tile_m 256 > m 64"),
      considered("gemm_slow", 0, "bf16 takes too long"),
      considered("gemm_too", 0, "tile_m 128 > m 64"),
  };
  const std::string head = "problem   " + to_string(problem) +
                           "\n"
                           "target    avx512 (a test row)\n";
  EXPECT_EQ(explain(problem, target, decision),
            head +
                "chosen    gemm_short        predicted 41.2 us (learned)\n"
                "why       least of 7\n"
                "next      gemm_equal        predicted 41.2 us (learned), as fast, and its name "
                "comes later\n"
                "next      gemm_4            predicted 41.2 us (learned), less than 0.1% slower\n"
                "next      gemm_longer       predicted 44.0 us (learned), 6.8% slower\n"
                "next      gemm_5            predicted 46.0 us (learned), 11.7% slower\n"
                "next      gemm_by_estimate  predicted 30.0 us (analytic), the learned ranker "
                "decided and has no time for it\n"
                "refused   2 kernels: tile_m 256 > m 64\n"
                "refused   1 kernel: bf16 takes too long\n"
                "10 candidates: 7 legal, 3 refused; the numbers of a rule are those of its first "
                "kernel\n");
  decision.considered.erase(decision.considered.begin() + 1, decision.considered.begin() + 6);
  EXPECT_EQ(explain(problem, target, decision, ExplainDetail::everything),
            head +
                "chosen    gemm_short                           predicted 41.2 us (learned)\n"
                "why       least of 7\n"
                "next      gemm_a_longer_one_that_is_not_shown  predicted 50.0 us (learned), 21.4% "
                "slower\n"
                "refused   gemm_refused                         tile_m 256 > m 64\n"
                "refused   gemm_slow                            bf16 takes too long\n"
                "refused   gemm_too                             tile_m 128 > m 64\n"
                "5 candidates: 2 legal, 3 refused\n");
}

TEST(Explain, SaysByWhatTheOthersLost) {
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 32, 16);
  const Target target = {.name = "avx512", .backend = "cpu", .description = "a test row"};
  struct Case {
    ChoiceSource source;
    double chosen_seconds;
    Considered next;
    std::string text;
  };
  for (const Case& c : {
           Case{ChoiceSource::pinned, 2e-6, considered("n", 1e-6),
                "predicted 1.00 us (learned), not the kernel asked for"},
           Case{ChoiceSource::tuned, 2e-6, considered("n", 1e-6),
                "predicted 1.00 us (learned), not the fastest one measured"},
           Case{ChoiceSource::learned, 0, considered("n", 0),
                "no prediction (learned), the model puts it later"},
           Case{ChoiceSource::first_legal, 0, considered("n", 0, "", ChoiceSource::first_legal),
                "no prediction (first_legal), its name comes later"},
       }) {
    Decision decision = decision_of("k", c.source, c.chosen_seconds, "so");
    decision.considered = {considered("k", c.chosen_seconds, "", c.source), c.next};
    const std::string text = explain(problem, target, decision);
    EXPECT_NE(text.find("next      n  " + c.text + "\n"), std::string::npos) << text;
  }
}

// The analytic ranker's times have parts, and a kernel that is shipped is preferred within 3%.
TEST(Explain, NamesThePartOfTheEstimate) {
  const Target target = load_target("sm90a");
  const Problem problem = gemm_problem(DType::bf16, GemmLayout::rcr, 4096, 4096, 64);
  const Decision decision = choose(problem, target, {.explain = true});
  const Family& family = family_of(problem);
  const Considered& last =
      *std::find_if(decision.considered.rbegin(), decision.considered.rend(),
                    [](const Considered& entry) { return entry.refusal.empty(); });
  const auto estimate_of = [&](const KernelSpec& spec) {
    return family.estimate(spec, problem, target, target.units);
  };
  const Estimate best = estimate_of(decision.spec);
  const Estimate worst = estimate_of(last.spec);
  EXPECT_EQ(decision.threads, target.units);
  ASSERT_GT(worst.compute_seconds - best.compute_seconds,
            worst.memory_seconds - best.memory_seconds);
  const std::string text = explain(problem, target, decision, ExplainDetail::everything);
  const std::string line =
      fmt::format(" slower: compute {}, chosen {}\n", format_seconds(worst.compute_seconds),
                  format_seconds(best.compute_seconds));
  const std::size_t at = text.find(last.name);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(text.substr(text.find(" slower", at), line.size()), line);
}

TEST(Explain, WithoutCandidatesOnlySaysWhatWasChosen) {
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 64, 32, 16);
  const Target target = {.name = "generic", .backend = "cpu", .description = "any"};
  Decision decision = decision_of("k", ChoiceSource::first_legal, 0, "first");
  const std::string head = "problem   " + to_string(problem) + "\ntarget    generic (any)\n";
  EXPECT_EQ(explain(problem, target, decision),
            head + "chosen    k  no prediction (first_legal)\nwhy       first\n");
  decision.source = ChoiceSource::tuned;
  decision.predicted_seconds = 1e-3;
  EXPECT_EQ(explain(problem, target, decision),
            head + "chosen    k  measured 1.00 ms (tuned)\nwhy       first\n");
}

TEST(Explain, NamesTheStepThatCopiesAndItsBytes) {
  const Problem problem =
      parse_problem("conv direction=forward n=2 c=20 k=64 h=8 w=8 y=3 x=3 dtype=bf16");
  const std::string name =
      "conv_forward_bf16_nhwgc_2d_tmaws_128x64x64_2x1x1_64x64x16_pingpong_s8_repack_sm90a";
  const Target target = load_target("sm90a");
  const std::string text = explain(problem, target, choose(problem, target, {.pinned = name}));
  const std::string line = "copies    " + name +
                           "_prepare makes copies of 33792 bytes before the kernel runs; workspace "
                           "99328 bytes\n";
  EXPECT_NE(text.find(line), std::string::npos) << text;
}

// A thread's first choice takes 0.3 us per candidate of a CPU and 0.6 us of a GPU, a further one
// with the same signature 0.1 us; much more time is for builds without optimisation and with
// sanitizers.
TEST_F(Choose, TakesAtMost40MicrosecondsPerCandidate) {
  for (const char* name : {"avx512", "avx2", "generic", "sm90a"}) {
    const Target target = load_target(name);
    const Problem problem = gemm_problem(DType::bf16, GemmLayout::rcr, 512, 512, 512);
    const std::size_t count = family_of(problem).candidates(problem, target).size();
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      choose(problem, target);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      best = std::min(best, elapsed.count());
    }
    std::printf("choose among %zu candidates of %s: %.2f ms\n", count, name, best * 1e3);
    EXPECT_LT(best, 40e-6 * static_cast<double>(count)) << name;
  }
}

}  // namespace
}  // namespace tessera
