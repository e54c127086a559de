// Attention on CPUs against the fp64 reference: fresh random problems over all fields, gaps and
// guard bytes of NaN, queries that are not written, numbers of threads, special values. To repeat a
// failure: --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "host/families/asked.h"
#include "host/fmha/fmha_problems.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera::fmha {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using testing_support::targets_here;
using testing_support::targets_of_run;

Registry& registry() { return testing_support::registry_in("fmha_test"); }

template <class T>
T* writable(const T* data) {
  return const_cast<T*>(data);
}

class FmhaKernels : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::fmha);
  std::uint64_t seed_ = testing_support::seed_of_run();
  RandomFmhas random_{seed_};

  void launch(const KernelSpec& spec, const Problem& problem, const Operands& operands,
              int threads) {
    testing_support::launch(registry(), spec, problem, operands, threads);
  }

  void check(const KernelSpec& spec, const Problem& problem, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}', {} threads", seed_, name_of(spec),
                             to_string(problem), threads));
    measure::OwnedOperands owned =
        measure::random_operands(problem, static_cast<std::uint64_t>(random_.integer(0, 1 << 30)));
    testing_support::launch_at_edges(registry(), spec, problem, owned, threads);
    expect_right(problem, owned);
  }

  void expect_right(const Problem& problem, const measure::OwnedOperands& owned) {
    testing_support::expect_verified(problem, owned);
    EXPECT_EQ(written_elsewhere(with_strides(fmha_of(problem)), owned), 0);
  }

  static bool is_written(const FmhaProblem& p, const FmhaOperands& o, std::int64_t batch,
                         std::int64_t token);
  static int written_elsewhere(const FmhaProblem& p, const measure::OwnedOperands& owned);
};

// Whether some sequence has the query. `batch` is the tensor's.
bool FmhaKernels::is_written(const FmhaProblem& p, const FmhaOperands& o, std::int64_t batch,
                             std::int64_t token) {
  if (p.lengths == FmhaLengths::equal) return true;
  if (p.lengths == FmhaLengths::padded) {
    return token < o.seqlens_q[batch] && o.seqlens_q[batch] > p.skip_q;
  }
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t first = o.seqlens_q[b], end = o.seqlens_q[b + 1];
    if (token >= first && token < end) return end - first > p.skip_q;
  }
  return false;
}

// Bytes of queries that are not to be written and no longer hold what they held.
int FmhaKernels::written_elsewhere(const FmhaProblem& p, const measure::OwnedOperands& owned) {
  const auto& o = std::get<FmhaOperands>(owned.operands);
  int count = 0;
  for (const std::size_t output : owned.outputs) {
    const Tensor& tensor = owned.tensors[output];
    if (tensor.is_report) continue;
    const int width = size_of(tensor.dtype), poison = is_integer(tensor.dtype) ? 0x5a : 0xff;
    const auto* const bytes = static_cast<const unsigned char*>(
        family_of(Op::fmha).pointer(owned.operands, tensor.operand));
    for (std::int64_t row = 0; row < tensor.rows() * tensor.batches; ++row) {
      const std::int64_t token = row % tensor.sizes[1];
      if (is_written(p, o, row / tensor.sizes[1] / tensor.sizes[2], token)) continue;
      for (std::int64_t c = 0; c < tensor.sizes[0]; ++c) {
        const std::int64_t at = (tensor.row_offset(row) + c * tensor.strides[0]) * width;
        for (int i = 0; i < width; ++i) count += bytes[at + i] != poison ? 1 : 0;
      }
    }
  }
  return count;
}

TEST_F(FmhaKernels, RandomOnesAreCorrectOnRandomProblems) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 5; ++i) {
      const FmhaProblem p = random_.problem(i % 3 == 0 ? 300 : 60, i % 4 == 0 ? 200 : 70);
      family_.validate(p);
      const auto specs = serving(p, target);
      ASSERT_FALSE(specs.empty());
      check(random_.one_of(specs), p, static_cast<int>(random_.integer(1, 5)));
      if (i % 4 == 0) check(family_.general(p, target), p, 2);
    }
  }
}

// One of each tile, on whole tiles, edges, no queries, no keys.
TEST_F(FmhaKernels, EveryTileIsCorrectOnItsSamples) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    FmhaProblem p = small_problem(1, 1, 64);
    p.in = p.dtype_bias = random_.coin() ? random_.one_of(kTypes) : random_.one_of(kEightBits);
    p.out = p.in;
    if (size_of(p.in) == 1) p.qscale = static_cast<FmhaQscale>(random_.integer(0, 3));
    p.mask = FmhaMask::bottom_right;
    p.lengths = static_cast<FmhaLengths>(random_.integer(0, 2));
    p.bias = static_cast<FmhaBias>(random_.integer(0, 2));
    p.pages = static_cast<FmhaPages>(random_.integer(0, 2));
    if (p.pages != FmhaPages::none && random_.coin()) p.cache_layout = FmhaCacheLayout::vectorized;
    for (const KernelSpec& spec : serving(p, target)) {
      for (const Problem& sample : family_.samples(spec, target)) {
        check(spec, sample, static_cast<int>(random_.integer(1, 3)));
      }
    }
  }
}

// Latent attention, the longest heads of all.
TEST_F(FmhaKernels, LongestHeads) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (const std::int64_t queries : {1, 19}) {
      FmhaProblem p = fmha_problem(random_.one_of(kTypes), 2, 4, 1, queries, 150, 576);
      p.hdim_v = 512;
      p.lse = true;
      check(random_.one_of(serving(p, target)), p, 2);
    }
  }
}

// Few queries and many keys, which are cut into parts.
FmhaProblem long_problem(RandomFmhas& random, int turn) {
  FmhaProblem p = random.problem(3, 40);
  p.seqlen_q = random.integer(1, 5);
  p.seqlen_k = random.integer(2048, 5000);
  p.tokens_q = p.tokens_k = kPacked;
  p.num_pages = p.max_pages = p.table_stride = p.page_entries = kPacked;
  p.q_strides = p.k_strides = p.v_strides = p.out_strides = p.bias_strides = kPackedTokens;
  p.skip_q = 0;
  if (p.mask != FmhaMask::none && turn % 2 == 0) p.mask = FmhaMask::bottom_right;
  if (turn % 4 == 0 && p.window_left >= 0) p.window_left = 2500;
  if (p.num_splits > 0) p.num_splits = random.integer(1, 90);
  return p;
}

TEST_F(FmhaKernels, KeysInPartsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 3; ++i) {
      const FmhaProblem p = long_problem(random_, i);
      family_.validate(p);
      check(random_.one_of(serving(p, target)), p, static_cast<int>(random_.integer(1, 5)));
    }
  }
}

// Around the number of rows up to which keys and values are read in place, and heads of whole
// vectors, which that needs.
TEST_F(FmhaKernels, FewRowsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    const DType type = random_.one_of(kTypes);
    for (const std::int64_t rows : {1, 2, 7, 8, 9}) {
      FmhaProblem p = small_problem(1, random_.integer(1, 200), 16 * random_.integer(1, 5));
      p.hdim_v = 16 * random_.integer(1, 5);
      p.batch = 2, p.heads = 2 * rows, p.heads_kv = 2;
      p.lengths = FmhaLengths::padded;
      p.in = p.out = p.dtype_bias = type;
      check(serving(p, target).front(), p, 2);
    }
  }
}

TEST_F(FmhaKernels, AnyNumberOfThreadsGivesTheSameBits) {
  fmt::print("seed {}\n", seed_);
  const Target target = targets_here().front();
  for (int i = 0; i < 8; ++i) {
    const FmhaProblem p = i % 4 == 0 ? long_problem(random_, i) : random_.problem(150, 70);
    const KernelSpec spec = random_.one_of(serving(p, target));
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
    measure::OwnedOperands owned = measure::random_operands(p, seed_);
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

// ---- special values ----

// The values of the tests that follow are for fp32 heads of one element.
class FmhaSpecialKernels : public FmhaKernels {
 protected:
  // Runs one kernel of every target on a problem whose operands `change` has changed. Tiles differ
  // in their rows only.
  template <class Change>
  void check_all(const FmhaProblem& p, const Change& change) {
    family_.validate(p);
    for (const Target& target : targets_of_run(seed_)) {
      const KernelSpec spec = random_.one_of(serving(p, target));
      SCOPED_TRACE(fmt::format("seed {}: {} on '{}'", seed_, name_of(spec), to_string(Problem(p))));
      measure::OwnedOperands owned = measure::random_operands(p, seed_);
      change(std::get<FmhaOperands>(owned.operands));
      launch(spec, p, owned.operands, 2);
      expect_right(p, owned);
    }
  }

  static void fill(DType dtype, const void* data, std::int64_t first, std::int64_t count,
                   double value) {
    for (std::int64_t i = first; i < first + count; ++i) {
      store_element(dtype, const_cast<void*>(data), i, value);
    }
  }
};

TEST_F(FmhaSpecialKernels, FullyMaskedRowsAreZeroAndMinusInfinity) {
  FmhaProblem p = small_problem(70, 33, 16);
  p.mask = FmhaMask::bottom_right;
  for (const Target& target : targets_of_run(seed_)) {
    for (const KernelSpec& spec : serving(p, target)) {
      SCOPED_TRACE(name_of(spec));
      measure::OwnedOperands owned = measure::random_operands(p, seed_);
      launch(spec, p, owned.operands, 2);
      const auto& o = std::get<FmhaOperands>(owned.operands);
      const auto* const out = static_cast<const float*>(o.out);
      for (int i = 0; i < 37 * 16; ++i) EXPECT_EQ(out[i], 0) << i;
      for (int i = 0; i < 37; ++i) EXPECT_EQ(o.lse[i], -kInf) << i;
      expect_right(p, owned);
    }
  }
}

TEST_F(FmhaSpecialKernels, NanAndInfinityOfQueriesStayInTheirRows) {
  for (const DType in : kTypes) {
    FmhaProblem p = small_problem(40, 50, 8);
    p.in = p.out = p.dtype_bias = in;
    check_all(p, [&](FmhaOperands& o) {
      fill(in, o.q, 3 * 8, 8, kNan);
      fill(in, o.q, 17 * 8 + 2, 1, kInf);
    });
  }
}

TEST_F(FmhaSpecialKernels, NanOfKeysAndInfinityOfValuesReachWhoSeesThem) {
  for (const float special : {kNan, kInf, -kInf}) {
    for (const bool of_values : {false, true}) {
      const FmhaProblem p = small_problem(40, 50, 8);
      check_all(p, [&](FmhaOperands& o) {
        fill(DType::fp32, of_values ? o.v : o.k, 21 * 8 + 3, 1, special);
      });
    }
  }
}

// What lies behind the keys of a shorter sequence is garbage.
TEST_F(FmhaSpecialKernels, PaddingIsNotRead) {
  for (const FmhaBias bias : {FmhaBias::none, FmhaBias::elementwise}) {
    FmhaProblem p = small_problem(40, 50, 8);
    p.batch = 4;
    p.lengths = FmhaLengths::padded;
    p.bias = bias;
    check_all(p, [&](FmhaOperands& o) {
      for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::int64_t keys = o.seqlens_k[b], queries = o.seqlens_q[b];
        fill(DType::fp32, o.k, (b * 50 + keys) * 8, (50 - keys) * 8, kNan);
        fill(DType::fp32, o.v, (b * 50 + keys) * 8, (50 - keys) * 8, kInf);
        fill(DType::fp32, o.q, (b * 40 + queries) * 8, (40 - queries) * 8, kNan);
        for (std::int64_t i = 0; o.bias != nullptr && i < 40; ++i) {
          fill(DType::fp32, o.bias, (b * 40 + i) * 50 + keys, 50 - keys, kNan);
        }
      }
    });
  }
}

// A bias of minus infinity masks, all keys too.
TEST_F(FmhaSpecialKernels, InfiniteBias) {
  FmhaProblem p = small_problem(40, 150, 8);
  p.bias = FmhaBias::elementwise;
  check_all(p, [&](FmhaOperands& o) {
    fill(DType::fp32, o.bias, 0, 150, -kInf);
    fill(DType::fp32, o.bias, 150, 149, -kInf);
    fill(DType::fp32, o.bias, 2 * 150 + 1, 149, -kInf);
    fill(DType::fp32, o.bias, 3 * 150 + 7, 1, kInf);
    fill(DType::fp32, o.bias, 4 * 150 + 7, 1, kNan);
  });
}

// The largest score grows or falls from block to block.
TEST_F(FmhaSpecialKernels, GrowingScores) {
  for (const DType in : kTypes) {
    for (const double nats : {20.0, 70.0, -20.0, -70.0}) {
      FmhaProblem p = small_problem(20, 400, 16);
      p.in = p.out = in;
      p.dtype_bias = DType::fp32;
      p.bias = FmhaBias::elementwise;
      check_all(p, [&](FmhaOperands& o) {
        auto* const bias = static_cast<float*>(const_cast<void*>(o.bias));
        for (int i = 0; i < 20 * 400; ++i) {
          bias[i] += static_cast<float>(static_cast<double>(i % 400) / 32 * nats);
        }
      });
    }
  }
}

TEST_F(FmhaSpecialKernels, SoftCapOfLargeAndInfiniteProducts) {
  FmhaProblem p = small_problem(20, 60, 8);
  p.soft_cap = 3;
  check_all(p, [&](FmhaOperands& o) {
    fill(DType::fp32, o.q, 0, 8, 1e10);
    fill(DType::fp32, o.q, 8, 8, 1);
    fill(DType::fp32, o.k, 5 * 8, 1, kInf);
    fill(DType::fp32, o.k, 6 * 8, 1, -kInf);
  });
}

// ---- numbers of 8 bits ----

// With one key a result is its value, exactly. All patterns of a type go through all factors, and
// what is stored is rounded to nearest even, and no larger than the largest number.
TEST_F(FmhaSpecialKernels, EightBitsAreReadAndRoundedExactly) {
  fmt::print("seed {}\n", seed_);
  for (const DType in : kEightBits) {
    for (const DType out : kEightBits) {
      if (in == out) continue;
      FmhaProblem p = small_problem(1, 1, 1);
      p.hdim_v = 256, p.in = p.dtype_bias = in, p.out = out;
      p.qscale = FmhaQscale::per_tensor;
      const KernelSpec spec = random_.one_of(serving(p, targets_here().front()));
      for (const float factor : {1.0F, -3.0F, 1e-3F, 40.0F, 1e6F, 0.0F}) {
        SCOPED_TRACE(fmt::format("seed {}: {} by {}", seed_, name_of(spec), factor));
        measure::OwnedOperands owned = measure::random_operands(p, seed_);
        auto& o = std::get<FmhaOperands>(owned.operands);
        const auto by = static_cast<float>(random_.normal());
        *writable(o.descale_v) = by, *writable(o.scale_o) = factor;
        auto* const v = static_cast<unsigned char*>(const_cast<void*>(o.v));
        for (int i = 0; i < 256; ++i) v[i] = static_cast<unsigned char>(i);
        launch(spec, p, owned.operands, 1);
        for (int i = 0; i < 256; ++i) {
          const float x = static_cast<float>(load_element(in, v, i)) * by * factor;
          const auto most = static_cast<float>(max_finite(out));
          unsigned char right = 0;
          store_element(out, &right, 0, std::isnan(x) ? x : std::clamp(x, -most, most));
          const double got = load_element(out, o.out, i), wanted = load_element(out, &right, 0);
          EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
              << i << ": " << got << " instead of " << wanted;
        }
      }
    }
  }
}

// Prefix sums that no caller should pass lead to no access out of range.
TEST_F(FmhaSpecialKernels, SumsOutOfRangeAreClamped) {
  FmhaProblem p = small_problem(40, 50, 8);
  p.batch = 4;
  p.lengths = FmhaLengths::packed;
  for (const Target& target : targets_of_run(seed_)) {
    for (const KernelSpec& spec : serving(p, target)) {
      SCOPED_TRACE(fmt::format("seed {}: {}", seed_, name_of(spec)));
      measure::OwnedOperands owned = measure::random_operands(p, seed_);
      auto& o = std::get<FmhaOperands>(owned.operands);
      for (int i = 0; i < 5; ++i) {
        writable(o.seqlens_q)[i] = static_cast<std::int32_t>(random_.integer(-1000, 1000));
        writable(o.seqlens_k)[i] =
            static_cast<std::int32_t>(random_.integer(-(1LL << 31), (1LL << 31) - 1));
      }
      launch(spec, p, owned.operands, 1);
      EXPECT_EQ(measure::gaps_intact(owned), "");
    }
  }
}

}  // namespace
}  // namespace tessera::fmha
