#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <set>

#include "host/spec/expect_error.h"
#include "targets_with.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/features_internal.h"
#include "tessera/targets/targets.h"

namespace tessera::gemm {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> extract_all(const Problem& problem, const Target& target, int threads,
                                std::span<const KernelSpec> specs) {
  std::vector<double> columns(features().size() * specs.size(), kNaN);
  extract(problem, target, threads, specs, columns);
  return columns;
}

// Fresh problems and kernels.
class Random {
 public:
  Random() : engine_(seed_) {}
  unsigned seed() const { return seed_; }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  template <class List>
  auto one_of(const List& list) {
    return list[static_cast<std::size_t>(integer(0, std::ssize(list) - 1))];
  }

  std::int64_t size() {
    static constexpr std::int64_t kEdges[] = {0, 1, 2, 7, 8, 128, 4096, 1 << 20};
    if (integer(0, 4) == 0) return one_of(kEdges);
    return static_cast<std::int64_t>(std::exp2(static_cast<double>(integer(0, 1400)) / 100.0));
  }

  GemmProblem problem(DType dtype) {
    static constexpr GemmLayout kAnyLayout[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr,
                                                GemmLayout::ccr};
    static constexpr std::string_view kChains[] = {"none", "bias+gelu", "multi_d_add2", "relu",
                                                   "row_scale+col_scale"};
    GemmProblem p = gemm_problem(dtype, one_of(kAnyLayout), size(), size(), size());
    if (std::min({p.m, p.n, p.k}) == 1 << 20) p.k = 8;  // their product is no valid problem
    if (integer(0, 5) == 0) p.m = p.n = p.k = 4096;
    if (integer(0, 2) == 0) p.batch = integer(0, 9);
    if (integer(0, 3) == 0) p.out = p.d = DType::fp32;
    if (dtype == DType::fp8 && integer(0, 1) == 0) p.b = DType::bf8;
    if (p.out != DType::int32) p.epilogue = parse_epilogue(one_of(kChains));
    if (integer(0, 2) == 0) p.beta = 1;
    if (integer(0, 2) == 0) p.alpha = 2;
    if (integer(0, 2) == 0) add_strides(p);
    if (integer(0, 5) == 0) p.preshuffled_b = !p.pointer_arrays;
    if (integer(0, 2) == 0) add_groups_and_scales(p);
    validate(p);
    return p;
  }

  std::vector<KernelSpec> some(const std::vector<KernelSpec>& all, std::size_t count) {
    std::vector<KernelSpec> specs;
    while (!all.empty() && specs.size() < count) specs.push_back(one_of(all));
    return specs;
  }

 private:
  void add_strides(GemmProblem& p) {
    p.ld_a = std::max(p.m, p.k) + integer(0, 9);
    p.ld_b = std::max(p.n, p.k) + integer(0, 9);
    p.ld_out = p.n + integer(0, 9);
    p.pointer_arrays = integer(0, 3) == 0;
    if (p.pointer_arrays) return;
    if (integer(0, 1) == 0) p.batch_stride_a = 0;
    if (integer(0, 1) == 0) p.batch_stride_b = 0;
  }

  // Every kind that features describe is drawn. Strides stay plain.
  void add_groups_and_scales(GemmProblem& p) {
    GemmProblem q = gemm_problem(p.a, p.layout, p.m, p.n, p.k);
    q.b = p.b, q.out = p.out, q.d = p.d, q.alpha = p.alpha, q.epilogue = p.epilogue;
    p = q;
    const bool has_scales = size_of(p.a) == 1 && p.a != DType::int8 && integer(0, 1) == 0;
    if (has_scales) {
      static constexpr GemmScale kScales[] = {GemmScale::by_1x32, GemmScale::by_1x128,
                                              GemmScale::by_128x128};
      p.scale_a = one_of(kScales);
      p.scale_b = one_of(kScales);
      if (integer(0, 1) == 0) p.scale_type = GemmScaleType::e8m0;
    }
    if (has_scales && integer(0, 1) == 0) return;
    static constexpr GemmGrouping kGroupings[] = {GemmGrouping::contiguous, GemmGrouping::indexed,
                                                  GemmGrouping::masked, GemmGrouping::along_k};
    p.grouping = one_of(kGroupings);
    p.groups = integer(0, 300);
    p.m = std::min<std::int64_t>(p.m, 1 << 14), p.k = std::min<std::int64_t>(p.k, 1 << 14);
  }

  unsigned seed_ = std::random_device{}();
  std::mt19937 engine_;
};

std::vector<KernelSpec> legal_candidates(const GemmProblem& problem, const Target& target) {
  std::vector<KernelSpec> legal;
  for (KernelSpec& spec : candidates(problem, target)) {
    if (family().is_legal(spec, target)) legal.push_back(std::move(spec));
  }
  return legal;
}

constexpr DType kDTypes[] = {DType::fp32, DType::tf32, DType::fp16, DType::bf16,
                             DType::fp8,  DType::bf8,  DType::int8};

TEST(GemmFeatures, NamesAreUniqueAndExplained) {
  std::set<std::string_view> names;
  for (const Feature& f : features()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_FALSE(f.unit.empty()) << f.name;
    EXPECT_FALSE(f.formula.empty()) << f.name;
  }
}

// Whoever folds away what candidates share relies on this order.
TEST(GemmFeatures, ProblemAndMachineComeFirst) {
  for (std::size_t i = 0; i < features().size(); ++i) {
    const bool shared = features()[i].group == problem || features()[i].group == hardware;
    EXPECT_EQ(shared, i < kFirstLane) << features()[i].name;
  }
}

TEST(GemmFeatures, RoomOfTheWrongSize) {
  const Problem p = gemm_problem(DType::bf16, GemmLayout::rcr, 8, 8, 8);
  const Target target = load_target("sm90a");
  const std::vector<KernelSpec> specs = {general(p, target)};
  std::vector<double> columns(3);
  const std::string size = std::to_string(features().size());
  expect_error(
      ErrorCode::invalid_argument,
      "gemm: features of 1 kernels take " + size + " x 1 = " + size + " numbers, got room for 3",
      [&] { extract(p, target, 1, specs, columns); });
}

TEST(GemmFeatures, RefusesAListOfAnotherLengthThanFeatures) {
  const Problem p = gemm_problem(DType::bf16, GemmLayout::rcr, 8, 8, 8);
  const Target target = load_target("sm90a");
  const std::vector<KernelSpec> specs = {general(p, target)};
  std::vector<double> columns(features().size());
  const std::vector<FeatureUse> wanted(3);
  expect_error(ErrorCode::invalid_argument,
               "gemm: there are " + std::to_string(features().size()) + " features to want, got 3",
               [&] { extract(p, target, 1, specs, columns, wanted); });
}

// What is wanted has the bits that it has among all; the rest is left alone.
TEST(GemmFeatures, OnlyWhatIsWantedIsWritten) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const std::string name : {"sm90a", "avx512"}) {
    const Target target = load_target(name);
    const GemmProblem p = random.problem(DType::bf16);
    for (const std::size_t count : {std::size_t{1}, 2 * kLanes + 5}) {
      const auto specs = random.some(legal_candidates(p, target), count);
      const std::vector<double> all = extract_all(p, target, 3, specs);
      std::vector<FeatureUse> wanted(features().size());
      for (FeatureUse& each : wanted)
        each = random.one_of(std::array{FeatureUse::none, FeatureUse::first, FeatureUse::all});
      std::vector<double> some(all.size(), -7.25);
      extract(p, target, 3, specs, some, wanted);
      for (std::size_t at = 0; at < all.size(); ++at) {
        const FeatureUse how = wanted[at / specs.size()];
        const bool written =
            how == FeatureUse::all || (how == FeatureUse::first && at % specs.size() == 0);
        ASSERT_EQ(some[at], written ? all[at] : -7.25) << features()[at / specs.size()].name;
      }
    }
  }
}

TEST(GemmFeatures, NoCandidates) {
  const Problem p = gemm_problem(DType::bf16, GemmLayout::rcr, 8, 8, 8);
  extract(p, load_target("sm90a"), 1, {}, {});
}

// Every feature of random valid problems is written and finite; a kernel's numbers do not depend on
// its company, and those that candidates share are shared.
TEST(GemmFeatures, BatchEqualsSingle) {
  Random random;
  for (const std::string& name : targets_with(Op::gemm)) {
    const Target target = load_target(name);
    for (int round = 0; round < 12; ++round) {
      const DType dtype = kDTypes[static_cast<std::size_t>(round) % std::size(kDTypes)];
      if (!target.spaces.at(Op::gemm).warp_tiles.contains(dtype)) continue;
      const GemmProblem p = random.problem(dtype);
      const int threads = static_cast<int>(random.integer(0, 20));
      const auto specs = random.some(legal_candidates(p, target), kLanes + 17);
      const std::vector<double> all = extract_all(p, target, threads, specs);
      ASSERT_EQ(all, extract_all(p, target, threads, specs));
      for (std::size_t i = 0; i < specs.size(); i += 13) {
        const auto one = extract_all(p, target, threads, std::span(specs).subspan(i, 1));
        for (std::size_t f = 0; f < one.size(); ++f) {
          const double value = all[f * specs.size() + i];
          ASSERT_EQ(std::bit_cast<std::uint64_t>(value), std::bit_cast<std::uint64_t>(one[f]))
              << features()[f].name << " of " << name_of(specs[i]) << ", seed " << random.seed();
          ASSERT_TRUE(std::isfinite(value)) << features()[f].name << " of " << name_of(specs[i])
                                            << " on " << to_string(Problem(p));
          if (f < kFirstLane) {
            ASSERT_EQ(value, all[f * specs.size()]) << features()[f].name;
          }
        }
      }
    }
  }
}

TEST(GemmFeatures, HugeProblemsStayFinite) {
  for (const std::string name : {"sm90a", "avx512", "gfx942"}) {
    const Target target = load_target(name);
    GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rcr, 1, 1, 1);
    const auto specs = legal_candidates(p, target);
    for (auto side : {&GemmProblem::m, &GemmProblem::n, &GemmProblem::k, &GemmProblem::batch}) {
      GemmProblem huge = p;
      huge.*side = std::int64_t{1} << 58;
      validate(huge);
      for (const double value : extract_all(huge, target, 3, specs)) {
        ASSERT_TRUE(std::isfinite(value)) << to_string(Problem(huge));
      }
    }
  }
}

TEST(GemmFeatures, VectorsOfAnyWidthGiveTheSameBits) {
  Random random;
  for (const std::string name : {"sm90a", "avx512"}) {
    const Target target = load_target(name);
    const GemmProblem p = random.problem(DType::bf16);
    const auto specs = random.some(legal_candidates(p, target), kLanes);
    const Facts facts = facts_of(p, target, 6);
    const auto one = std::make_unique<Lanes>();
    const auto other = std::make_unique<Lanes>();
    gather(facts, specs, *one);
    gather(facts, specs, *other);
    fill(facts, *one);
    fill_portable(facts, *other);
    for (std::size_t f = 0; f < kNumLanes; ++f) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(one->of[f][i]),
                  std::bit_cast<std::uint64_t>(other->of[f][i]))
            << kFeatures[kFirstLane + f].name << ", seed " << random.seed();
      }
    }
  }
}

TEST(GemmFeatures, SharedBytesAreTheLaunchs) {
  const Target target = load_target("sm90a");
  for (const DType dtype : kDTypes) {
    for (const GemmLayout layout : {GemmLayout::rcr, GemmLayout::crr}) {
      GemmProblem p = gemm_problem(dtype, layout, 64, 64, 64);
      if (p.out != DType::int32) p.epilogue = parse_epilogue("bias+gelu+add");
      const auto specs = legal_candidates(p, target);
      ASSERT_FALSE(specs.empty());
      const auto columns = extract_all(p, target, 1, specs);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const auto& s = std::get<GemmSignature>(specs[i].signature);
        const std::int64_t bytes = shared_memory(s, specs[i].algorithm).all;
        ASSERT_EQ(columns[feature("shared_bytes") * specs.size() + i], static_cast<double>(bytes))
            << name_of(specs[i]);
      }
    }
  }
}

// On CPUs the features are the count without what it leaves out of short calls.
TEST(GemmFeatures, EstimatesAreTheFamilys) {
  Random random;
  for (const std::string& name : targets_with(Op::gemm)) {
    const Target target = load_target(name);
    for (int round = 0; round < 21; ++round) {
      const DType dtype = kDTypes[static_cast<std::size_t>(round) % std::size(kDTypes)];
      if (!target.spaces.at(Op::gemm).warp_tiles.contains(dtype)) continue;
      const GemmProblem p = random.problem(dtype);
      const int threads = static_cast<int>(random.integer(1, 9));
      const auto specs = random.some(legal_candidates(p, target), 90);
      const auto columns = extract_all(p, target, threads, specs);
      const auto value = [&](std::size_t f, std::size_t i) {
        return columns[f * specs.size() + i];
      };
      for (std::size_t i = 0; i < specs.size(); ++i) {
        if (!is_described(specs[i])) continue;
        const Estimate e = is_gpu(target) || asks_for_more(p)
                               ? family().estimate(specs[i], p, target, threads)
                               : estimate_cpu(specs[i], with_strides(p), target, threads);
        const double seconds = std::max(e.seconds, kLeastSeconds);
        const std::pair<std::size_t, double> expected[] = {
            {feature("estimate_log2_seconds"), std::log2(seconds)},
            {feature("estimate_compute_share"), e.compute_seconds / seconds},
            {feature("estimate_memory_share"), e.memory_seconds / seconds},
            {feature("estimate_overhead_share"), e.overhead_seconds / seconds},
            {feature("estimate_utilisation"), e.utilisation}};
        for (const auto& [f, wanted] : expected) {
          // What groups and scales cost besides is overhead for features.
          if (asks_for_more(p) && f == feature("estimate_overhead_share")) continue;
          ASSERT_NEAR(value(f, i), wanted, 1e-9 * std::max(1.0, std::abs(wanted)))
              << features()[f].name << " of " << name_of(specs[i]) << " on "
              << to_string(Problem(p)) << ", seed " << random.seed();
        }
      }
    }
  }
}

TEST(GemmFeatures, NoneIsTheSameEverywhere) {
  Random random;
  std::vector<double> least(features().size(), 1e300);
  std::vector<double> most(features().size(), -1e300);
  const auto take = [&](const std::vector<double>& columns) {
    const std::size_t kernels = columns.size() / features().size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      least[i / kernels] = std::min(least[i / kernels], columns[i]);
      most[i / kernels] = std::max(most[i / kernels], columns[i]);
    }
  };
  for (const std::string& name : targets_with(Op::gemm)) {
    const Target target = load_target(name);
    // All kernels of one problem: a draw of some may miss what few kernels have, such as stream-K.
    const GemmProblem cube = gemm_problem(DType::bf16, GemmLayout::rcr, 4096, 4096, 4096);
    take(extract_all(cube, target, 1, legal_candidates(cube, target)));
    for (int round = 0; round < 70; ++round) {
      const DType dtype = kDTypes[static_cast<std::size_t>(round) % std::size(kDTypes)];
      if (!target.spaces.at(Op::gemm).warp_tiles.contains(dtype)) continue;
      const GemmProblem p = random.problem(dtype);
      const auto specs = random.some(legal_candidates(p, target), 30);
      take(extract_all(p, target, round % 5, specs));
    }
  }
  for (std::size_t f = 0; f < features().size(); ++f) {
    EXPECT_LT(least[f], most[f]) << features()[f].name << ", seed " << random.seed();
  }
}

TEST(GemmFeatures, Log2IsNearTheRealOne) {
  Random random;
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp2(static_cast<double>(random.integer(-40000, 60000)) / 1000.0) *
                     (1 + static_cast<double>(random.integer(0, 1000000)) * 1e-6);
    ASSERT_NEAR(log2_of(x), std::log2(x), 1e-13 * std::max(1.0, std::abs(std::log2(x)))) << x;
  }
  for (int e = -1000; e <= 1000; ++e) ASSERT_EQ(log2_of(std::exp2(e)), e);
}

}  // namespace
}  // namespace tessera::gemm
