// The flash kernels whose products both have 8 bits against fp64: every length of heads, kind of
// factors, output and length of sequences; and how large errors are for values with a mean, equal
// scores, a peak, growing and falling scores, and outliers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "cuda/fmha/eight_bits.h"
#include "tessera/families/fmha/ways.h"

namespace tessera {
namespace {

// The root of the mean square of roundings to e4m3, which are at most 2^-4 of a weight.
const double kMostRounding = 0x1p-4 / std::sqrt(3.0);

class GpuFmhaByteProducts : public GpuFmhaPipeline {
 protected:
  static bool is_byte_kernel(const KernelSpec& spec) {
    return spec.algorithm.warp_tile.k == fmha::kBytesOfProduct;
  }
  std::vector<KernelSpec> byte_kernels(const Problem& problem) const {
    std::vector<KernelSpec> some = kernels(Pipeline::tmaws, problem);
    std::erase_if(some, [](const KernelSpec& spec) { return !is_byte_kernel(spec); });
    return some;
  }
  void add(const Problem& problem, std::vector<Case>& cases) const {
    const std::vector<KernelSpec> some = byte_kernels(problem);
    ASSERT_FALSE(some.empty()) << to_string(problem);
    for (const KernelSpec& spec : some) cases.push_back({spec, problem});
  }
  void add_random(const Problem& problem, fmha::RandomFmhas& random,
                  std::vector<Case>& cases) const {
    const std::vector<KernelSpec> some = byte_kernels(problem);
    ASSERT_FALSE(some.empty()) << to_string(problem);
    cases.push_back({random.one_of(some), problem});
  }
};

TEST_F(GpuFmhaByteProducts, PlainProblemsAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"hdim=128 seqlen_q=128 seqlen_k=128 out=bf16", "hdim=128 seqlen_q=256 seqlen_k=1152",
        "hdim=128 seqlen_q=300 seqlen_k=2500 out=bf16 mask=bottom_right lse=1",
        "hdim=64 seqlen_q=300 seqlen_k=700 lse=1", "hdim=192 hdim_v=128 seqlen_q=300 seqlen_k=700",
        "hdim=256 seqlen_q=300 seqlen_k=1300 out=bf16 lse=1",
        "hdim=256 seqlen_q=300 seqlen_k=1300 mask=top_left"}) {
    const Problem problem =
        parse_problem(std::string("fmha heads=4 heads_kv=2 dtype=fp8 ") + words);
    ASSERT_NO_FATAL_FAILURE(add(problem, cases));
  }
  check_all(cases);
}

TEST_F(GpuFmhaByteProducts, RandomProblemsAreCorrect) {
  fmha::RandomFmhas random(random_());
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    const FmhaProblem p = for_eight_bits(random, i % 12 == 0 ? 2500 : 300);
    ASSERT_NO_FATAL_FAILURE(add_random(p, random, cases));
  }
  check_all(cases);
}

// Blocks are repaired where scores differ by tens of nats, and multiplied again where by hundreds.
TEST_F(GpuFmhaByteProducts, ScoresThatJumpAreCorrect) {
  std::vector<Case> cases;
  for (const char* words : {"dtype=fp8 scale=0.7", "dtype=bf8 out=bf16 scale=2 mask=bottom_right",
                            "dtype=fp8 out=fp32 scale=-0.6", "dtype=fp8 scale=40"}) {
    for (const int hdim : {64, 128, 192, 256}) {
      const Problem problem = parse_problem(
          fmt::format("fmha batch=2 heads=3 seqlen_q=200 seqlen_k=900 hdim={} hdim_v={} lse=1 {}",
                      hdim, hdim == 192 ? 128 : hdim, words));
      ASSERT_NO_FATAL_FAILURE(add(problem, cases));
    }
  }
  check_all(cases);
}

// More tiles than units, so that blocks take several, whose products overlap.
TEST_F(GpuFmhaByteProducts, ManyTilesAreCorrect) {
  std::vector<Case> cases;
  for (const char* words :
       {"batch=8 heads=16 heads_kv=4 seqlen_q=500 seqlen_k=300 hdim=64 dtype=fp8 out=bf16",
        "batch=4 heads=16 heads_kv=2 seqlen_q=777 seqlen_k=2777 hdim=128 mask=top_left dtype=fp8 "
        "qscale=per_tensor",
        "batch=8 heads=9 seqlen_q=300 seqlen_k=520 hdim=128 mask=bottom_right dtype=bf8 "
        "qscale=per_block",
        "batch=60 heads=4 seqlen_q=300 seqlen_k=200 hdim=64 lengths=packed dtype=fp8 out=fp8 "
        "qscale=kv_block",
        "batch=20 heads=8 heads_kv=2 seqlen_q=500 seqlen_k=400 hdim=128 lengths=padded "
        "mask=bottom_right window_left=200 dtype=fp8",
        "batch=4 heads=16 seqlen_q=500 seqlen_k=1500 hdim=256 mask=top_left window_left=999 "
        "dtype=fp8 out=bf16",
        "batch=4 heads=16 seqlen_q=500 seqlen_k=500 hdim=256 mask=top_left window_left=99 "
        "dtype=fp8 out=bf16 qscale=per_block qscale_block_k=128"}) {
    ASSERT_NO_FATAL_FAILURE(add(parse_problem(std::string("fmha lse=1 ") + words), cases));
  }
  check_all(cases);
}

// ---- how large errors are ----

// Operands of one sequence in e4m3 without gaps, and the fp64 answer.
struct Operands8 {
  FmhaProblem p;
  measure::OwnedOperands& owned;

  const FmhaOperands& pointers() const { return std::get<FmhaOperands>(owned.operands); }
  static double load(const void* data, std::int64_t at) {
    return load_element(DType::fp8, data, at);
  }
  std::int64_t place(std::int64_t token, std::int64_t head, std::int64_t heads,
                     std::int64_t hdim) const {
    return (token * heads + head) * hdim;
  }
  // Sets each element of keys or values to change(token, what it was).
  void change(const void* data, const std::function<double(std::int64_t, double)>& change) const {
    auto* const to = const_cast<void*>(data);
    for (std::int64_t i = 0; i < p.seqlen_k * p.heads * p.hdim; ++i) {
      store_element(DType::fp8, to, i, change(i / (p.heads * p.hdim), load(data, i)));
    }
  }

  std::vector<double> row(std::int64_t query, std::int64_t head) const {
    std::vector<double> weights, sums(static_cast<std::size_t>(p.hdim), 0);
    double most = -1e300, total = 0;
    for (std::int64_t key = 0; key < p.seqlen_k; ++key) {
      double score = 0;
      for (std::int64_t e = 0; e < p.hdim; ++e) {
        score += load(pointers().q, place(query, head, p.heads, p.hdim) + e) *
                 load(pointers().k, place(key, head, p.heads, p.hdim) + e);
      }
      weights.push_back(score * double{p.scale});
      most = std::max(most, weights.back());
    }
    for (double& weight : weights) total += weight = std::exp(weight - most);
    for (std::int64_t key = 0; key < p.seqlen_k; ++key) {
      const double share = weights[static_cast<std::size_t>(key)] / total;
      for (std::int64_t e = 0; e < p.hdim; ++e) {
        sums[static_cast<std::size_t>(e)] +=
            share * load(pointers().v, place(key, head, p.heads, p.hdim) + e);
      }
    }
    return sums;
  }

  // The root of the mean square of errors of some rows, as a share of that of the answer.
  double error() const {
    double wrong = 0, all = 0;
    const auto* const out = static_cast<const float*>(pointers().out);
    for (std::int64_t query = 0; query < p.seqlen_q; query += 7) {
      for (std::int64_t head = 0; head < p.heads; ++head) {
        const std::vector<double> right = row(query, head);
        const float* const got = out + place(query, head, p.heads, p.hdim);
        for (std::size_t e = 0; e < right.size(); ++e) {
          wrong += (double{got[e]} - right[e]) * (double{got[e]} - right[e]);
          all += right[e] * right[e];
        }
      }
    }
    return std::sqrt(wrong / all);
  }
};

struct Kind {
  const char* name;
  void (*change)(const Operands8&);
};
constexpr Kind kKinds[] = {
    {"as drawn", [](const Operands8&) {}},
    {"values of one sign",
     [](const Operands8& x) {
       x.change(x.pointers().v, [](std::int64_t, double v) { return std::abs(v); });
     }},
    {"equal scores",
     [](const Operands8& x) {
       x.change(x.pointers().k, [](std::int64_t, double) { return 0.0; });
     }},
    {"a peak",
     [](const Operands8& x) {
       x.change(x.pointers().k, [](std::int64_t i, double k) { return i == 77 ? 32 * k : k; });
     }},
    {"growing scores",  // blocks come from the last one on
     [](const Operands8& x) {
       x.change(x.pointers().k,
                [](std::int64_t i, double k) { return k * std::exp2(-double(i / 128) / 2 + 3); });
     }},
    {"falling scores",
     [](const Operands8& x) {
       x.change(x.pointers().k,
                [](std::int64_t i, double k) { return k * std::exp2(double(i / 128) / 2 - 3); });
     }},
    {"outliers",
     [](const Operands8& x) {
       x.change(x.pointers().k, [](std::int64_t i, double k) { return i % 97 == 5 ? 10 * k : k; });
     }},
};

class GpuFmhaByteErrors : public GpuFmhaByteProducts {
 protected:
  double error_of(const KernelSpec& spec, const Problem& problem, const Kind& kind) {
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    const Operands8 operands{with_strides(std::get<FmhaProblem>(problem)), owned};
    kind.change(operands);
    run_at(Edge::last, name_of(spec), problem, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    const double error = operands.error();
    say(fmt::format("{:20} {:.2e}  {}", kind.name, error, name_of(spec)));
    return error;
  }
};

TEST_F(GpuFmhaByteErrors, AreThoseOfRoundedWeights) {
  for (const int hdim : {64, 128, 256}) {
    const Problem problem = parse_problem(
        fmt::format("fmha heads=2 seqlen_q=130 seqlen_k=2000 hdim={} dtype=fp8 out=fp32", hdim));
    const std::vector<KernelSpec> specs = byte_kernels(problem);
    ASSERT_FALSE(specs.empty());
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      for (const Kind& kind : kKinds) {
        EXPECT_LE(error_of(spec, problem, kind), kMostRounding) << kind.name << name_of(spec);
      }
    }
  }
}

// Tensor cores cut off bits of long sums of values of one sign. A second level of sums keeps them.
TEST_F(GpuFmhaByteErrors, OfLongSumsStaySmallByTwoLevels) {
  for (const int hdim : {128, 256}) {
    const Problem problem = parse_problem(
        fmt::format("fmha heads=1 seqlen_q=64 seqlen_k=16384 hdim={} dtype=fp8 out=fp32", hdim));
    for (KernelSpec spec : byte_kernels(problem)) {
      if (spec.algorithm.tile.k != hdim) continue;
      KernelSpec single = spec;
      single.algorithm.split_k = SplitK::none, single.algorithm.splits = 1;
      ASSERT_NO_FATAL_FAILURE(build({spec, single}));
      const double two = error_of(spec, problem, kKinds[1]);
      EXPECT_LE(two, 0x1p-5) << name_of(spec);
      EXPECT_GT(error_of(single, problem, kKinds[1]), 2 * two) << name_of(single);
    }
  }
}

}  // namespace
}  // namespace tessera
