// The wish batch_invariant: whatever the batch, the chosen kernel adds up in one order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "host/select/fixtures.h"
#include "tessera/families/family.h"
#include "tessera/families/operations.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

ChooseOptions invariant() { return {.batch_invariant = true}; }

Decision decide(const std::string& line, const Target& target) {
  return choose(parse_problem(line), target, invariant());
}

// The orders of sums of the kernels that are chosen for these lines.
std::set<std::string> orders_of(const std::vector<std::string>& lines, const Target& target) {
  std::set<std::string> orders;
  for (const std::string& line : lines) {
    const Problem problem = any_batch(parse_problem(line)).own;
    const KernelSpec spec = choose(problem, target, invariant()).spec;
    const Family& family = family_of(problem);
    EXPECT_EQ(is_batch_invariant(spec, target).reason, "") << line;
    EXPECT_EQ(family.supports(spec, problem, target).reason, "") << line;
    orders.insert(family.order_of_sums(spec, problem, target));
  }
  return orders;
}

// The line with each of the values of a field.
std::vector<std::string> with_each(const std::string& line, const std::string& field,
                                   const std::vector<std::int64_t>& values) {
  std::vector<std::string> lines;
  for (const std::int64_t value : values)
    lines.push_back(fmt::format("{} {}={}", line, field, value));
  return lines;
}

const std::vector<std::int64_t> kRows = {1, 2, 7, 16, 33, 64, 127, 128, 1000, 4096, 8192, 100'001};

class BatchInvariantOn : public testing::TestWithParam<const char*> {
 protected:
  const Target target_ = load_target(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Targets, BatchInvariantOn, testing::Values("sm90a", "avx512", "avx2"));

TEST_P(BatchInvariantOn, ProductsHaveOneOrderForAnyRows) {
  for (const char* types : {"", " dtype=bf16", " dtype=fp16"}) {
    for (const char* sizes : {" n=4096 k=4096", " n=1001 k=333", " n=512 k=7168 layout=crr"}) {
      const std::string line = fmt::format("gemm{}{}", sizes, types);
      EXPECT_EQ(orders_of(with_each(line, "m", kRows), target_).size(), 1U) << line;
    }
  }
  EXPECT_EQ(
      orders_of(with_each("gemm m=64 n=256 k=256 dtype=bf16", "batch", {1, 2, 77}), target_).size(),
      1U);
}

TEST_P(BatchInvariantOn, NormalisationsHaveOneOrderForAnyRows) {
  for (const char* line : {"norm kind=softmax columns=131072", "norm kind=rmsnorm columns=4096",
                           "norm kind=layernorm columns=771 dtype=bf16"}) {
    EXPECT_EQ(orders_of(with_each(line, "rows", kRows), target_).size(), 1U) << line;
  }
}

TEST_P(BatchInvariantOn, ConvolutionsHaveOneOrderForAnyImages) {
  for (const char* layer : {"direction=forward c=64 k=64 h=56 w=56 y=3 x=3 pad_h=1 pad_w=1",
                            "direction=forward c=256 k=64 h=56 w=56 y=1 x=1",
                            "direction=forward c=96 k=96 g=96 h=28 w=28 y=3 x=3 pad_h=1 pad_w=1",
                            "direction=backward_data c=64 k=64 h=28 w=28 y=3 x=3"}) {
    const std::string line = fmt::format("conv {} dtype=bf16", layer);
    EXPECT_EQ(orders_of(with_each(line, "n", {1, 2, 3, 8, 64, 256}), target_).size(), 1U) << line;
  }
}

TEST_P(BatchInvariantOn, AttentionHasOneOrderForAnyBatch) {
  const std::string heads =
      "fmha heads=32 heads_kv=8 hdim=128 dtype=bf16 mask=bottom_right "
      "lengths=padded";
  std::vector<std::string> decoding, prefill;
  for (const int batch : {1, 8, 200}) {
    for (const int keys : {100, 4096, 40'000}) {
      decoding.push_back(fmt::format("{} batch={} seqlen_q=1 seqlen_k={}", heads, batch, keys));
      decoding.push_back(fmt::format("{} batch={} seqlen_q=4 seqlen_k={}", heads, batch, keys));
      prefill.push_back(fmt::format("{} batch={} seqlen_q=512 seqlen_k={}", heads, batch, keys));
    }
  }
  EXPECT_EQ(orders_of(decoding, target_).size(), 1U);
  EXPECT_EQ(orders_of(prefill, target_).size(), 1U);
}

// The launch cuts the longest sequence's keys alike, however many sequences there are.
TEST_P(BatchInvariantOn, PartsOfKeysFollowASequenceAlone) {
  std::set<std::int64_t> parts;
  for (const int batch : {1, 3, 64}) {
    const Problem problem =
        any_batch(parse_problem(fmt::format("fmha batch={} heads=32 heads_kv=8 hdim=128 dtype=bf16 "
                                            "seqlen_q=1 seqlen_k=16384",
                                            batch)))
            .own;
    const KernelSpec spec = choose(problem, target_, invariant()).spec;
    parts.insert(family_of(problem).bind(spec, problem, target_, no_operands(problem)).parts);
  }
  EXPECT_EQ(parts.size(), 1U);
  EXPECT_GT(*parts.begin(), 1);
}

TEST_P(BatchInvariantOn, SaysWhatTheOrderIsOf) {
  const Decision decision = decide("gemm m=3 n=4096 k=4096 dtype=bf16", target_);
  EXPECT_NE(decision.why.find("; it adds up as "), std::string::npos) << decision.why;
  EXPECT_NE(decision.why.find("which was chosen for any batch, such as 'gemm m=64 n=4096 k=4096"),
            std::string::npos)
      << decision.why;
}

// ---- what is refused ----

TEST(BatchInvariant, RefusesCutsThatFollowTheGrid) {
  const Target target = load_target("sm90a");
  std::set<std::string> reasons;
  for (const char* line : {"gemm m=300 n=4096 k=4096 dtype=bf16", "gemm m=2 n=4096 k=4096"}) {
    for (const KernelSpec& spec : kernels_for(parse_problem(line), target)) {
      if (!spec.algorithm.streamk && spec.algorithm.pipeline != Pipeline::stream) continue;
      reasons.insert(is_batch_invariant(spec, target).reason);
    }
  }
  EXPECT_EQ(reasons.size(), 2U);
  EXPECT_FALSE(reasons.contains(""));
}

TEST(BatchInvariant, AnotherOrderIsRefusedByASentence) {
  const Target target = load_target("sm90a");
  ChooseOptions options = invariant();
  options.explain = true;
  const Decision decision =
      choose(parse_problem("gemm m=8 n=4096 k=4096 dtype=bf16"), target, options);
  std::size_t others = 0;
  for (const Considered& c : decision.considered) {
    if (c.refusal.find("was chosen for any batch, got another order of sums") != std::string::npos)
      ++others;
  }
  EXPECT_GT(others, 100U);
}

// A measured winner of one batch decides where its order is that of all, and nowhere else.
TEST(BatchInvariant, MeasurementsOfOneBatchDoNotChangeTheOrder) {
  const Target target = load_target("avx512");
  const std::string line = "gemm m=64 n=256 k=1024";
  const Problem problem = parse_problem(line);
  const Decision without = choose(problem, target, invariant());
  for (const KernelSpec& spec : kernels_for(problem, target)) {
    ChooseOptions options = invariant();
    options.rankers = {fake(ChoiceSource::tuned, {{name_of(spec), 1e-6}}), make_analytic_ranker()};
    const Decision with = choose(problem, target, options);
    const Family& family = family_of(problem);
    EXPECT_EQ(family.order_of_sums(with.spec, problem, target),
              family.order_of_sums(without.spec, problem, target))
        << name_of(spec);
  }
}

// The wish says nothing of problems without it.
TEST(BatchInvariant, ProblemsStayAsTheyAre) {
  for (const char* line : {"gemm m=3 n=5 k=7", "norm kind=softmax rows=2 columns=9",
                           "conv direction=forward n=2 c=3 k=4 h=5 w=6 y=1 x=1",
                           "fmha kind=append heads=2 hdim=8 seqlen_q=3 seqlen_k=9"}) {
    const Problem problem = parse_problem(line);
    EXPECT_EQ(any_batch(problem).own, problem) << line;
  }
  const Problem own = any_batch(parse_problem("fmha heads=2 hdim=8 seqlen_q=1 seqlen_k=9")).own;
  EXPECT_EQ(std::get<FmhaProblem>(own).num_splits, -1);
}

}  // namespace
}  // namespace tessera
