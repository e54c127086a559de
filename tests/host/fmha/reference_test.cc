// The reference against plain loops, special values, what it notices and what it lets pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "host/fmha/plain_fmha.h"
#include "host/spec/expect_error.h"

namespace tessera::fmha {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint64_t fresh_seed() { return std::random_device{}(); }

FmhaProblem random_problem(RandomFmhas& random) {
  for (;;) {
    const FmhaProblem p = random.problem(40, 40);
    if (!writes_nothing(tensors(p))) return p;
  }
}

// The places of all elements that are written.
struct Place {
  std::string_view tensor;
  std::int64_t at;
};
std::vector<Place> written(const PlainCase& c) {
  std::vector<Place> places;
  for_each_row(c, [&](const PlainRow& row) {
    for (std::int64_t d = 0; d < c.p.hdim_v; ++d) places.push_back({"out", row.out_place(d)});
    if (c.p.lse) places.push_back({"lse", row.lse_place()});
    for (std::int64_t j = 0; c.p.random && j < row.keys; ++j) {
      if (row.sees(j)) places.push_back({"random_values", row.random_place(j)});
    }
  });
  return places;
}

TEST(FmhaReference, AgreesWithPlainLoops) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (int i = 0; i < 200; ++i) {
    const FmhaProblem p = random_problem(random);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    family().validate(p);
    PlainCase c(p);
    c.fill(random);
    c.compute();
    const Mismatch mismatch = c.verify();
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
    EXPECT_LT(mismatch.worst_ratio, 1);
    const std::vector<Place> places = written(c);
    if (places.empty()) continue;
    // One element that is far off is one too many.
    const Place wrong = random.one_of(places);
    const double right = c.load(wrong.tensor, wrong.at);
    const bool is_coarse = size_of(p.out) == 1 && wrong.tensor == "out";
    // Probabilities of 8 bits may round by an eighth, which allows sums of large values much.
    const double far = size_of(kv_type(p)) == 1 ? 8 : 0.25;
    const double other = wrong.tensor == "random_values" ? (right == 0 ? 1 : 0)
                         : is_coarse                     ? (right > 0 ? -1 : 1) - right
                         : std::isinf(right)             ? -100
                                                         : right + far + std::abs(right) / 16;
    c.store(wrong.tensor, wrong.at, other);
    EXPECT_EQ(c.verify().bad, 1) << wrong.tensor << " " << wrong.at << " was " << right;
  }
}

// Kernels that are wrong in one place of the definition.
struct Mistake {
  const char* name;
  void (*make)(FmhaProblem&);
};
constexpr Mistake kMistakes[] = {
    {"window_left", [](FmhaProblem& p) { --p.window_left; }},
    {"window_right", [](FmhaProblem& p) { ++p.window_right; }},
    {"sink", [](FmhaProblem& p) { p.sink = 1; }},
    {"mask", [](FmhaProblem& p) { p.mask = FmhaMask::top_left; }},
    {"scale", [](FmhaProblem& p) { p.scale *= 1.05F; }},
    {"soft cap", [](FmhaProblem& p) { p.soft_cap *= 1.2F; }},
    {"no soft cap", [](FmhaProblem& p) { p.soft_cap = 0; }},
    {"no bias", [](FmhaProblem& p) { p.bias = FmhaBias::none; }},
    {"bias of another head", [](FmhaProblem& p) { p.bias_strides[1] = 0; }},
    {"head of keys", [](FmhaProblem& p) { p.heads_kv = 1; }},
    {"no dropout", [](FmhaProblem& p) { p.p_drop = 0; }},
    {"dropout of less", [](FmhaProblem& p) { p.p_drop -= 0.05F; }},
    {"token of v", [](FmhaProblem& p) { p.v_strides[2] -= p.v_strides[3]; }},
};

TEST(FmhaReference, NoticesWhatIsWrongInOnePlace) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (const DType in : kTypes) {
    for (const Mistake& mistake : kMistakes) {
      FmhaProblem p = fmha_problem(in, 2, 4, 2, 30, 40, 16);
      p.mask = FmhaMask::bottom_right;
      p.window_left = 12, p.window_right = 3, p.sink = 2;
      p.bias = FmhaBias::elementwise;
      p.soft_cap = 2;
      p.p_drop = 0.3F;
      SCOPED_TRACE(fmt::format("seed {}: {} in {}", seed, mistake.name, to_string(in)));
      PlainCase c(p);
      c.fill(random);
      mistake.make(c.p);
      c.compute();
      EXPECT_GT(c.verify().bad, 20);
      c.p = with_strides(p);
      c.compute();
      EXPECT_EQ(c.verify().message, "");
    }
  }
}

constexpr Mistake kWrongFactors[] = {
    {"no factors", [](FmhaProblem& p) { p.qscale = FmhaQscale::none; }},
    {"blocks of other queries", [](FmhaProblem& p) { p.qscale_block_q = 9; }},
    {"blocks of other keys", [](FmhaProblem& p) { p.qscale_block_k = 11; }},
    {"one factor", [](FmhaProblem& p) { p.qscale = FmhaQscale::per_tensor; }},
    {"one factor of q", [](FmhaProblem& p) { p.qscale = FmhaQscale::kv_block; }},
    {"head of keys", [](FmhaProblem& p) { p.heads_kv = 1; }},
};

TEST(FmhaReference, NoticesWrongFactors) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (const DType in : kEightBits) {
    for (const Mistake& mistake : kWrongFactors) {
      FmhaProblem p = fmha_problem(in, 2, 4, 2, 30, 40, 16);
      p.qscale = FmhaQscale::per_block;
      p.qscale_block_q = 6, p.qscale_block_k = 8;
      SCOPED_TRACE(fmt::format("seed {}: {} in {}", seed, mistake.name, to_string(in)));
      PlainCase c(p);
      c.fill(random);
      mistake.make(c.p);
      c.compute();
      EXPECT_GT(c.verify().bad, 20);
      c.p = with_strides(p);
      c.compute();
      EXPECT_EQ(c.verify().message, "");
    }
  }
}

// ---- what a correct kernel may do ----

float rounded(DType dtype, float x) {
  std::uint32_t word = 0;
  store_element(dtype, &word, 0, double{x});
  return static_cast<float>(load_element(dtype, &word, 0));
}

DType type_of_weights(const FmhaProblem& p) {
  const bool is_exact = p.in == DType::fp32;  // keys may have 8 bits all the same
  return size_of(kv_type(p)) == 1 && !is_exact ? DType::fp16 : p.in;
}

// As flash attention goes: in fp32, blocks of keys, exponentials of 2, weights rounded to the
// inputs' type, or to fp16 where these have 8 bits. Weights of 8 bits are up to 128.
void run_flash(PlainCase& c, std::int64_t block, DType of_weights) {
  const float raised = of_weights == DType::fp8 ? 128 : 1;
  for_each_row(c, [&](const PlainRow& row) {
    const auto log2e = 1.44269504F;
    float most = -kInf, total = 0;
    std::vector<float> sums(static_cast<std::size_t>(c.p.hdim_v), 0);
    for (std::int64_t first = 0; first < row.keys; first += block) {
      std::vector<std::pair<std::int64_t, float>> scores;
      float now = most;
      for (std::int64_t j = first; j < std::min(row.keys, first + block); ++j) {
        if (!row.sees(j)) continue;
        scores.emplace_back(j, static_cast<float>(row.score(j)) * log2e);
        now = std::max(now, scores.back().second);
      }
      if (now == -kInf) continue;
      const float factor = std::exp2(most - now);
      most = now;
      total *= factor;
      for (float& sum : sums) sum *= factor;
      for (const auto& [j, score] : scores) {
        const float weight = std::exp2(score - most);
        total += weight;
        for (std::size_t d = 0; d < sums.size(); ++d) {
          const auto value = static_cast<float>(row.value(j, static_cast<std::int64_t>(d)));
          if (row.factor(j) != 0) sums[d] += rounded(of_weights, weight * raised) / raised * value;
        }
        if (c.p.random) c.store("random_values", row.random_place(j), row.stored_byte(j));
      }
    }
    for (std::size_t d = 0; d < sums.size(); ++d) {
      const float scale = c.p.p_drop == 0 ? 1.0F : 256.0F / static_cast<float>(row.kept());
      const float value = total == 0 ? 0 : sums[d] * (scale / total);
      c.store("out", row.out_place(static_cast<std::int64_t>(d)), row.stored(double{value}));
    }
    if (c.p.lse) c.store("lse", row.lse_place(), double{(most + std::log2(total)) / log2e});
  });
}

TEST(FmhaReference, LetsFlashAttentionPass) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (int i = 0; i < 100; ++i) {
    const FmhaProblem p = random_problem(random);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase c(p);
    c.fill(random);
    run_flash(c, 16, type_of_weights(p));
    const Mismatch mismatch = c.verify();
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }
}

// Kernels may round weights to 8 bits where nothing else happens to scores and weights.
TEST(FmhaReference, LetsWeightsOfEightBitsPass) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (int i = 0; i < 60; ++i) {
    FmhaProblem p = small_problem(3, random.integer(1, 600), 16);
    p.in = p.dtype_bias = random.one_of(kEightBits);
    p.out = random.coin() ? DType::fp32 : DType::bf16;
    p.mask = static_cast<FmhaMask>(random.integer(0, 2));
    if (random.coin()) p.scale = static_cast<float>(3 * random.normal());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase c(p);
    c.fill(random);
    run_flash(c, 64, DType::fp8);
    const Mismatch mismatch = c.verify();
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }
}

// Equal weights of 1024 keys: tensor cores that cut off bits lose about 1%, and without a second
// level of sums several times that by more keys.
TEST(FmhaReference, LetsSumsOfEightBitsLoseLittle) {
  FmhaProblem p = small_problem(1, 1024, 16);
  p.in = p.dtype_bias = DType::fp8, p.out = DType::fp32, p.lse = false;
  PlainCase c(p);
  for (std::int64_t i = 0; i < 1024 * 16; ++i) c.store("k", i, 0), c.store("v", i, 1);
  const auto is_ok = [&](double value) {
    for (std::int64_t i = 0; i < 16; ++i) c.store("q", i, 1), c.store("out", i, value);
    return c.verify().ok;
  };
  EXPECT_TRUE(is_ok(1));
  EXPECT_TRUE(is_ok(0.97));
  EXPECT_FALSE(is_ok(0.815));
}

// Scores that grow from block to block, or fall: every block has another largest score.
TEST(FmhaReference, LetsGrowingScoresPass) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (const DType in : kTypes) {
    for (const double nats : {0.01, 20.0, 70.0, -20.0}) {
      FmhaProblem p = small_problem(3, 200, 8);
      p.in = p.out = p.dtype_bias = in;
      p.bias = FmhaBias::elementwise;
      p.dtype_bias = DType::fp32;
      SCOPED_TRACE(fmt::format("seed {}: {} {} nats", seed, to_string(in), nats));
      PlainCase c(p);
      c.fill(random);
      for (std::int64_t i = 0; i < 3 * 200; ++i) {
        c.store("bias", i, static_cast<float>(i % 200 / 16) * nats + c.load("bias", i));
      }
      run_flash(c, 16, type_of_weights(p));
      const Mismatch mismatch = c.verify();
      EXPECT_TRUE(mismatch.ok) << mismatch.message;
    }
  }
}

// ---- special values ----

// Two queries and two keys, one element each. Both keys have the score 0.
class FmhaSpecial : public testing::Test {
 protected:
  static FmhaProblem two() {
    FmhaProblem p = small_problem(2, 2, 1);
    p.bias = FmhaBias::elementwise;
    p.scale = 1;
    return p;
  }

  void set(std::string_view tensor, std::vector<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      c_.store(tensor, static_cast<std::int64_t>(i), double{values[i]});
    }
  }
  std::string verdict(std::vector<float> out, std::vector<float> lse) {
    set("out", std::move(out));
    set("lse", std::move(lse));
    return c_.verify().message;
  }
  std::int64_t bad(std::vector<float> out, std::vector<float> lse) {
    set("out", std::move(out));
    set("lse", std::move(lse));
    return c_.verify().bad;
  }

  PlainCase c_{two()};
  const float two_ = std::log(2.0F);
};

TEST_F(FmhaSpecial, EqualScores) {
  set("v", {3, 5});
  EXPECT_EQ(verdict({4, 4}, {two_, two_}), "");
  EXPECT_EQ(bad({4.0001F, 4}, {two_, two_ + 1e-4F}), 2);
}

TEST_F(FmhaSpecial, NanOfAQueryStaysInItsRow) {
  set("v", {3, 5});
  set("q", {kNan, 0});
  EXPECT_EQ(verdict({kNan, 4}, {kNan, two_}), "");
  EXPECT_EQ(bad({4, 4}, {two_, two_}), 2);
}

TEST_F(FmhaSpecial, NanOfAKeyOrAValueReachesWhoSeesIt) {
  set("v", {3, 5});
  set("k", {0, kNan});
  EXPECT_EQ(verdict({kNan, kNan}, {kNan, kNan}), "");
  EXPECT_EQ(bad({kNan, 4}, {kNan, kNan}), 1);
  set("k", {0, 0});
  set("v", {kNan, 5});
  EXPECT_EQ(verdict({kNan, kNan}, {two_, two_}), "");
  EXPECT_EQ(bad({kNan, kNan}, {kNan, two_}), 1);
}

TEST_F(FmhaSpecial, InfiniteValues) {
  set("v", {kInf, 5});
  EXPECT_EQ(verdict({kInf, kInf}, {two_, two_}), "");
  EXPECT_EQ(bad({kNan, -kInf}, {two_, two_}), 2);
  set("v", {kInf, -kInf});
  EXPECT_EQ(verdict({kNan, kNan}, {two_, two_}), "");
  EXPECT_EQ(bad({kInf, 0}, {two_, two_}), 2);
}

// A weight that is nearly 0 may be 0 in a kernel, and 0 times infinity is NaN.
TEST_F(FmhaSpecial, InfiniteValuesOfVanishingWeights) {
  set("v", {kInf, 5});
  set("bias", {-1000, 0, -20, 0});
  for (const float any : {kNan, kInf, 5.0F}) {
    EXPECT_EQ(verdict({any, kInf}, {0, std::log1p(std::exp(-20.0F))}), "");
  }
}

TEST_F(FmhaSpecial, InfiniteScores) {
  set("v", {3, 5});
  set("bias", {kInf, 0, -kInf, 0});
  for (const float any : {kNan, kInf}) EXPECT_EQ(verdict({kNan, 5}, {any, 0}), "");
  EXPECT_EQ(bad({3, 5}, {kInf, 0}), 1);
  EXPECT_EQ(bad({kNan, 4.9F}, {kInf, 0.01F}), 2);
}

TEST_F(FmhaSpecial, ScoresOfMinusInfinitySeeNothing) {
  set("v", {3, 5});
  set("bias", {-kInf, -kInf, 0, 0});
  EXPECT_EQ(verdict({0, 4}, {-kInf, two_}), "");
  EXPECT_EQ(bad({kNan, 4}, {kNan, two_}), 2);
  EXPECT_EQ(bad({1e-30F, 4}, {-3e38F, two_}), 2);
}

// Products beyond fp32 may be infinite or not, and bound nothing.
TEST_F(FmhaSpecial, ScoresBeyondFp32) {
  set("v", {3, 5});
  set("q", {1e20F, 0});
  set("k", {1e20F, 1});
  EXPECT_EQ(verdict({kNan, 4}, {17, two_}), "");
  EXPECT_EQ(bad({kNan, 3}, {17, 17}), 2);
}

TEST_F(FmhaSpecial, SoftCapBoundsInfiniteProducts) {
  FmhaProblem p = two();
  p.soft_cap = 2;
  c_ = PlainCase(p);
  set("v", {3, 5});
  set("q", {1, 1});
  set("k", {kInf, -kInf});
  const float away = std::exp(-4.0F);
  const float out = (3 + 5 * away) / (1 + away), lse = 2 + std::log1p(away);
  EXPECT_EQ(verdict({out, out}, {lse, lse}), "");
  EXPECT_EQ(bad({3, out}, {kInf, lse}), 2);
}

TEST(FmhaReference, FullyMaskedRows) {
  FmhaProblem p = small_problem(3, 1, 1);
  p.mask = FmhaMask::bottom_right;
  PlainCase c(p);
  c.store("v", 0, 7);
  for (const auto& [at, out, lse] :
       {std::tuple(0, 0.0F, -kInf), {1, 0.0F, -kInf}, {2, 7.0F, 0.F}}) {
    c.store("out", at, double{out});
    c.store("lse", at, double{lse});
  }
  EXPECT_EQ(c.verify().message, "");
  c.store("out", 0, 1e-30);
  c.store("lse", 1, -1e30);
  EXPECT_EQ(c.verify().bad, 2);
}

// A value that no query sees may be anything.
TEST(FmhaReference, UnseenKeysDoNotMatter) {
  FmhaProblem p = small_problem(2, 4, 1);
  p.mask = FmhaMask::top_left;
  p.window_left = 0;
  PlainCase c(p);
  for (const std::int64_t at : {2, 3}) c.store("k", at, kNan), c.store("v", at, kNan);
  c.store("v", 0, 3), c.store("v", 1, 5);
  c.store("out", 0, 3), c.store("out", 1, 5);
  EXPECT_EQ(c.verify().message, "");
  p.sink = 1;  // the second query sees the first key again
  c.problem.sink = 1;
  EXPECT_EQ(c.verify().bad, 2);
  c.store("out", 1, 4), c.store("lse", 1, std::log(2.0));
  EXPECT_EQ(c.verify().message, "");
}

TEST(FmhaReference, UnwrittenRowsMayHoldAnything) {
  FmhaProblem p = small_problem(4, 2, 1);
  p.batch = 3;
  p.lengths = FmhaLengths::padded;
  p.skip_q = 2;
  PlainCase c(p);
  const int lengths[] = {3, 2, 0};
  for (int b = 0; b < 3; ++b) c.store("seqlens_q", b, lengths[b]), c.store("seqlens_k", b, 1);
  for (int i = 3; i < 12; ++i) c.store("out", i, kNan), c.store("lse", i, kNan);
  EXPECT_EQ(c.verify().message, "");
  c.store("out", 2, 1);
  EXPECT_EQ(c.verify().bad, 1);
}

// Whatever prefix sums hold, nothing outside of the operands is read.
TEST(FmhaReference, SumsOutOfRangeAreClamped) {
  FmhaProblem p = small_problem(4, 4, 2);
  p.batch = 3;
  p.lengths = FmhaLengths::packed;
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  for (int i = 0; i < 50; ++i) {
    PlainCase c(p);
    for (const std::string_view name : {"seqlens_q", "seqlens_k"}) {
      for (int b = 0; b < 4; ++b) {
        c.store(name, b, static_cast<double>(random.integer(-(1LL << 31), (1LL << 31) - 1)));
      }
    }
    EXPECT_EQ(c.verify().checked, 12 * 3) << seed;
  }
}

// ---- what it says and looks at ----

TEST(FmhaReference, SaysWhichElementIsWrong) {
  FmhaProblem p = small_problem(2, 1, 2);
  p.lse = false;
  PlainCase c(p);
  for (int i = 0; i < 2; ++i) c.store("v", i, 1);
  for (int i = 0; i < 3; ++i) c.store("out", i, 1);
  c.store("out", 3, 7);
  const Mismatch mismatch = c.verify();
  EXPECT_TRUE(
      mismatch.message.starts_with("fmha: out[1, 1] is 7, the reference is 1 with tolerance "))
      << mismatch.message;
  EXPECT_TRUE(mismatch.message.ends_with("(1 of 4 elements checked is outside)"))
      << mismatch.message;
}

TEST(FmhaReference, NeedsItsInputs) {
  PlainCase c(small_problem(2, 2, 3));
  auto& o = std::get<FmhaOperands>(c.operands);
  o.out = const_cast<void*>(o.q);
  expect_error(ErrorCode::invalid_argument,
               "fmha: verify needs q as it was before the kernel ran, but q is out; pass a copy",
               [&] { c.verify(); });
}

TEST(FmhaReference, LimitsChooseRows) {
  FmhaProblem p = small_problem(500, 64, 32);
  p.heads = 2;
  PlainCase c(p);
  const Reference some = reference(p, c.operands, {.rows = 5});
  ASSERT_EQ(some.runs.size(), 10U);  // of out, then of lse
  EXPECT_EQ(some.runs[0].offset, 0);
  EXPECT_EQ(some.runs[4].offset, (499 * 64 + 32) * 4);
  EXPECT_EQ(some.runs[4].bytes, 32 * 4);
  EXPECT_EQ(some.runs[9].offset, 999 * 4);
  EXPECT_EQ(some.runs[9].bytes, 4);
  EXPECT_EQ(reference(p, c.operands, {.elements = 320}).runs.size(), 20U);
  EXPECT_EQ(reference(p, c.operands, {}).runs.size(), 2000U);
  EXPECT_LT(reference(p, c.operands, {.multiplications = 1e5}).runs.size(), 100U);
  p.seqlen_q = 0;
  EXPECT_EQ(reference(p, c.operands, {}).runs.size(), 0U);
}

TEST(FmhaReference, ThreadsDoNotMatter) {
  const std::uint64_t seed = fresh_seed();
  RandomFmhas random(seed);
  PlainCase c(small_problem(50, 60, 8));
  c.fill(random);
  c.compute();
  c.store("out", 77, 9);
  const Mismatch one = compare(c.problem, c.operands, reference(c.problem, c.operands, {}));
  const Mismatch many =
      compare(c.problem, c.operands, reference(c.problem, c.operands, {.threads = 3}));
  EXPECT_EQ(one.message, many.message);
  EXPECT_EQ(one.bad, 1);
}

}  // namespace
}  // namespace tessera::fmha
