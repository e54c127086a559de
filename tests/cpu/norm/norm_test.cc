// CPU kernels against the fp64 reference: fresh random problems over all fields, odd sizes,
// strides, numbers of threads, special values, and nothing written elsewhere. To repeat a failure:
// --gtest_filter=... --gtest_random_seed=<the seed printed>.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "cpu/guarded.h"
#include "cpu/kernel_folder.h"
#include "scaled_rows.h"
#include "tessera/families/family.h"
#include "tessera/measure/operands.h"
#include "tessera/registry/registry.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/numeric.h"
#include "tessera/targets/targets.h"

namespace tessera {
namespace {

using testing_support::targets_here;
using testing_support::targets_of_run;

Target target_named(const std::string& name) {
  for (const Target& target : targets_here()) {
    if (target.name == name) return target;
  }
  return load_target(name);
}

Registry& registry() { return testing_support::registry_in("norm_test"); }

class NormKernels : public testing::Test {
 protected:
  const Family& family_ = family_of(Op::norm);
  std::uint64_t seed_ = testing_support::seed_of_run();
  std::mt19937_64 random_{seed_};

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  void launch(const KernelSpec& spec, const Problem& problem, const Operands& operands,
              int threads) {
    testing_support::launch(registry(), spec, problem, operands, threads);
  }

  void check(const KernelSpec& spec, const Problem& problem, int threads) {
    SCOPED_TRACE(fmt::format("seed {}: {} on '{}', {} threads", seed_, name_of(spec),
                             to_string(problem), threads));
    family_.validate(problem);
    ASSERT_EQ(family_.supports(spec, problem, target_named(spec.target)).reason, "");
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    testing_support::launch_at_edges(registry(), spec, problem, owned, threads);
    testing_support::expect_verified(problem, owned);
  }

  NormProblem problem_for(const KernelSpec& spec, std::int64_t rows, std::int64_t columns) {
    const Problem problem = family_.samples(spec, target_named(spec.target)).front();
    auto p = std::get<NormProblem>(problem);
    p.rows = rows;
    p.columns = columns;
    return p;
  }

  void draw_strides(NormProblem& p) {
    for (std::int64_t* ld : {&p.ld_in, &p.ld_residual, &p.ld_out, &p.ld_sum}) {
      if (draw(0, 1) == 0) *ld = p.columns + draw(0, 40);
    }
    if (is_gated(p.kind) && p.ld_in != kPacked) p.ld_in += p.columns;
    const bool has_epsilon = p.kind == NormKind::rmsnorm || p.kind == NormKind::layernorm;
    if (has_epsilon && draw(0, 1) == 0) p.epsilon = 0.125F;
  }
};

TEST_F(NormKernels, EssentialOnesAreCorrectOnOddShapes) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (const std::string& set : family_.preselected_names()) {
      for (const KernelSpec& spec : family_.preselected(set, target)) {
        for (const Problem& problem : family_.samples(spec, target)) {
          check(spec, problem, static_cast<int>(draw(1, 4)));
        }
        NormProblem p = problem_for(spec, draw(1, 20), draw(1, 9000));
        draw_strides(p);
        check(spec, p, static_cast<int>(draw(1, 4)));
      }
    }
  }
}

// Any legal signature and algorithm.
TEST_F(NormKernels, RandomOnesAreCorrectOnRandomProblems) {
  fmt::print("seed {}\n", seed_);
  constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 8; ++i) {
      NormProblem p;
      p.kind = static_cast<NormKind>(draw(0, 2));
      p.in = p.weight = kTypes[draw(0, 2)];
      p.out = kTypes[draw(0, 2)];
      if (p.kind != NormKind::softmax) {
        for (bool* flag : {&p.scale, &p.shift, &p.residual}) *flag = draw(0, 1) == 1;
      }
      if (p.scale || p.shift) p.weight = kTypes[draw(0, 2)];
      p.rows = draw(1, 9);
      p.columns = draw(1, draw(0, 1) == 0 ? 300 : 70000);
      draw_strides(p);
      const auto specs = family_.candidates(p, target);
      check(specs[random_() % specs.size()], p, static_cast<int>(draw(1, 5)));
      check(family_.general(p, target), p, 2);
    }
  }
}

// Given and written scales, rows of one chunk and of several, last blocks that are short.
TEST_F(NormKernels, QuantisedOutputsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 6; ++i) {
      NormProblem p;
      p.kind = draw(0, 1) == 0 ? NormKind::rmsnorm : NormKind::layernorm;
      p.in = p.weight = kTypes[draw(0, 2)];
      p.out = draw(0, 1) == 0 ? DType::fp8 : DType::bf8;
      for (bool* flag : {&p.scale, &p.shift, &p.residual}) *flag = draw(0, 1) == 1;
      p.quant = static_cast<NormQuant>(1 + i % 3);
      p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 0;
      p.rows = draw(1, 9);
      p.columns = draw(1, draw(0, 1) == 0 ? 300 : 20000);
      draw_strides(p);
      const auto specs = family_.candidates(p, target);
      std::vector<KernelSpec> legal;
      for (const KernelSpec& spec : specs) {
        if (family_.is_legal(spec, target)) legal.push_back(spec);
      }
      ASSERT_FALSE(legal.empty());
      check(legal[random_() % legal.size()], p, static_cast<int>(draw(1, 3)));
    }
  }
}

// Gates in halves and pairs, and copies: whole and odd widths, every output, rows of one chunk and
// of several.
TEST_F(NormKernels, ElementwiseRowsAreCorrect) {
  fmt::print("seed {}\n", seed_);
  constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
  for (const Target& target : targets_of_run(seed_)) {
    for (int i = 0; i < 8; ++i) {
      NormProblem p;
      p.kind = static_cast<NormKind>(draw(3, 6));
      p.in = p.weight = kTypes[draw(0, 2)];
      p.quant = static_cast<NormQuant>(i % 4);
      p.out = kTypes[draw(0, 2)];
      if (p.quant != NormQuant::none) p.out = draw(0, 1) == 0 ? DType::fp8 : DType::bf8;
      p.scales_by_column = p.quant == NormQuant::block && draw(0, 1) == 0;
      p.interleaved = is_gated(p.kind) && draw(0, 1) == 0;
      p.rows = draw(1, 9);
      p.columns = draw(1, draw(0, 1) == 0 ? 300 : 20000);
      draw_strides(p);
      std::vector<KernelSpec> legal;
      for (const KernelSpec& spec : family_.candidates(p, target)) {
        if (family_.is_legal(spec, target)) legal.push_back(spec);
      }
      ASSERT_FALSE(legal.empty());
      check(legal[random_() % legal.size()], p, static_cast<int>(draw(1, 3)));
    }
  }
}

// Floats of any bits, results, the middles between two of them, and the floats beside these.
std::vector<float> floats_to_round(DType out, std::size_t count, std::mt19937_64& random) {
  std::vector<float> all(count);
  for (float& x : all) {
    const auto drawn = static_cast<std::uint32_t>(random());
    std::memcpy(&x, &drawn, sizeof(x));
    if (drawn % 4 != 0) {
      const std::uint8_t codes[2] = {static_cast<std::uint8_t>(drawn >> 8 & 0x7a),
                                     static_cast<std::uint8_t>((drawn >> 8 & 0x7a) + 1)};
      const double low = load_element(out, codes, 0), high = load_element(out, codes, 1);
      x = static_cast<float>(drawn % 4 == 1 ? high : (low + high) / 2);
      x = std::nextafter(x, x + static_cast<float>(static_cast<int>(drawn >> 16 & 3) - 1));
      x = drawn >> 31 == 0 ? x : -x;
    }
    if (std::isnan(x)) x = 0;
  }
  return all;
}

// The silu of 64 is 64, by which the scale divides again.
TEST_F(NormKernels, EightBitsAreRoundedToNearestEvenAndSaturated) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_here()) {
    for (const DType out : {DType::fp8, DType::bf8}) {
      NormProblem p = {.kind = NormKind::silu_mul, .in = DType::fp32, .out = out, .rows = 16};
      p.columns = 1000, p.quant = NormQuant::tensor;
      measure::OwnedOperands owned = measure::random_operands(p, random_());
      const auto& o = std::get<NormOperands>(owned.operands);
      const std::vector<float> x = floats_to_round(out, 16000, random_);
      auto* const in = static_cast<float*>(const_cast<void*>(o.in));
      for (std::int64_t i = 0; i < 16000; ++i) {
        in[i / 1000 * 2000 + i % 1000] = 64;
        in[i / 1000 * 2000 + 1000 + i % 1000] = x[static_cast<std::size_t>(i)];
      }
      *static_cast<float*>(const_cast<void*>(static_cast<const void*>(o.out_scale))) = 64;
      launch(family_.general(p, target), p, owned.operands, 1);
      const double largest = out == DType::fp8 ? 448 : 57344;
      const auto* const codes = static_cast<const std::uint8_t*>(o.out);
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::uint8_t expected = 0;
        store_element(out, &expected, 0, std::clamp<double>(x[i], -largest, largest));
        ASSERT_EQ(codes[i], expected) << target.name << " " << to_string(out) << " " << x[i];
      }
    }
  }
}

// Rows of zeros and of NaN have the scale 1, and a scale is of its own block alone.
TEST_F(NormKernels, ScalesAreOfTheGreatestMagnitude) {
  const Target target = targets_here().front();
  NormProblem p = {.kind = NormKind::rmsnorm, .out = DType::fp8, .rows = 3, .columns = 300};
  p.quant = NormQuant::block;
  p.scales_by_column = true;
  p.epsilon = 0;
  const KernelSpec spec = family_.general(p, target);
  SCOPED_TRACE(fmt::format("seed {}: {}", seed_, name_of(spec)));
  measure::OwnedOperands owned = measure::random_operands(p, random_());
  const auto& o = std::get<NormOperands>(owned.operands);
  auto* const in = static_cast<float*>(const_cast<void*>(o.in));
  for (int c = 0; c < 300; ++c) {
    in[c] = c < 128 ? 2.0F : c < 256 ? 0.0F : -4.0F;
    in[300 + c] = std::numeric_limits<float>::quiet_NaN();
  }
  std::fill(in + 600, in + 900, 1.0F);
  launch(spec, p, owned.operands, 1);
  const auto* const scales = static_cast<const float*>(o.out_scales);
  const double root = std::sqrt((128 * 4.0 + 44 * 16.0) / 300);
  const double expected[3][3] = {
      {2 / root / 448, 1, 4 / root / 448}, {1, 1, 1}, {1 / 448.0, 1 / 448.0, 1 / 448.0}};
  for (int row = 0; row < 3; ++row) {
    for (int block = 0; block < 3; ++block) {
      EXPECT_NEAR(scales[block * 3 + row], expected[row][block], 1e-5 * expected[row][block])
          << row << " " << block;
    }
  }
  const auto at = [&](int row, int c) { return load_element(DType::fp8, o.out, row * 300 + c); };
  EXPECT_EQ(at(0, 0), 448);
  EXPECT_EQ(at(0, 200), 0);
  EXPECT_EQ(at(0, 299), -448);
  EXPECT_TRUE(std::isnan(at(1, 0)) && std::isnan(at(1, 299)));
  EXPECT_EQ(at(2, 299), 448);
}

TEST_F(NormKernels, SlicesGiveTheSameBitsOnAnyNumberOfThreads) {
  const Target target = targets_here().front();
  for (const char* kind : {"softmax", "rmsnorm_rows_1x1024x1_0x1x1_1x1x1_scale",
                           "layernorm_rows_1x1024x1_0x1x1_1x1x1_scale_shift_residual"}) {
    std::string name = fmt::format("norm_fp32_{}", kind);
    if (std::string_view(kind) == "softmax") name += "_rows_1x1024x1_0x1x1_1x1x1";
    const KernelSpec spec = parse_name(name + "_slices8_" + target.name);
    const Problem problem = problem_for(spec, 3, 50001);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed_, name));
    measure::OwnedOperands owned = measure::random_operands(problem, random_());
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 7}) {
      measure::reset_outputs(owned);
      launch(spec, problem, owned.operands, threads);
      const runtime::AlignedBuffer& output = owned.storage.at(owned.outputs.front());
      const auto* bytes = static_cast<const std::byte*>(output.data());
      std::vector<std::byte> now(bytes, bytes + output.size());
      if (first.empty()) first = now;
      EXPECT_EQ(now, first) << threads << " threads";
    }
    const Mismatch mismatch = family_.verify(problem, owned.operands);
    EXPECT_TRUE(mismatch.ok) << mismatch.message;
  }
}

// The residual is handed on where it was, and the output lies where the input was.
TEST_F(NormKernels, InPlace) {
  const Target target = targets_here().front();
  for (const char* end : {"", "_slices8"}) {
    const KernelSpec spec = parse_name(fmt::format(
        "norm_bf16_rmsnorm_rows_1x1024x1_0x1x1_1x1x1_scale_residual{}_{}", end, target.name));
    const Problem problem = problem_for(spec, 4, 3001);
    measure::OwnedOperands apart = measure::random_operands(problem, 11);
    measure::OwnedOperands place = measure::random_operands(problem, 11);
    auto& o = std::get<NormOperands>(place.operands);
    o.out = const_cast<void*>(o.in);
    o.sum = const_cast<void*>(o.residual);
    launch(spec, problem, apart.operands, 2);
    launch(spec, problem, place.operands, 2);
    const auto& wanted = std::get<NormOperands>(apart.operands);
    EXPECT_EQ(std::memcmp(wanted.out, o.out, 4 * 3001 * 2), 0) << end;
    EXPECT_EQ(std::memcmp(wanted.sum, o.sum, 4 * 3001 * 2), 0) << end;
  }
}

// NaN, infinities, masked rows, subnormal and large values, wherever they stand in a row.
TEST_F(NormKernels, SpecialValues) {
  fmt::print("seed {}\n", seed_);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {
      kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 3e38F, -3e38F, 1e-42F, 0.0F, 60000.0F};
  for (const Target& target : targets_of_run(seed_)) {
    for (const char* kind : {"softmax", "rmsnorm", "layernorm"}) {
      for (const char* end : {"", "_slices8"}) {
        const KernelSpec spec = parse_name(
            fmt::format("norm_fp32_{}_rows_1x1024x1_0x1x1_1x1x1{}_{}", kind, end, target.name));
        for (const std::int64_t columns : {5, 1024, 5000}) {
          const NormProblem p = problem_for(spec, 24, columns);
          SCOPED_TRACE(fmt::format("seed {}: {} columns={}", seed_, name_of(spec), columns));
          measure::OwnedOperands owned = measure::random_operands(p, random_());
          auto* in =
              static_cast<float*>(const_cast<void*>(std::get<NormOperands>(owned.operands).in));
          for (std::int64_t row = 0; row < p.rows; ++row) {
            const float special = specials[row % 8];
            const bool everywhere = row >= 16;
            const std::int64_t at = draw(0, columns - 1);
            for (std::int64_t c = 0; c < columns; ++c) {
              const bool is_masked = row >= 8 && c < at;  // a run from the row's start
              if (everywhere || is_masked || c == at) in[row * columns + c] = special;
            }
          }
          launch(spec, p, owned.operands, 2);
          const Mismatch mismatch = family_.verify(p, owned.operands);
          EXPECT_TRUE(mismatch.ok) << mismatch.message;
        }
      }
    }
  }
}

// In fp32 the squares of large rows overflow and the squares of small rows vanish. Usual rows lie
// beside them, and rows of which one slice alone is large or small.
TEST_F(NormKernels, RowsWhoseSquaresFp32Lacks) {
  fmt::print("seed {}\n", seed_);
  for (const Target& target : targets_of_run(seed_)) {
    for (const char* kernel : {"fp32_rmsnorm_rows_1x1024x1_0x1x1_1x1x1",
                               "fp32_rmsnorm_rows_1x1024x1_0x1x1_1x1x1_slices8",
                               "fp32_layernorm_rows_1x1024x1_0x1x1_1x1x1",
                               "fp32_layernorm_rows_1x1024x1_0x1x1_1x1x1_slices8",
                               "bf16_layernorm_rows_1x1024x1_0x1x1_1x1x1_scale_shift_residual"}) {
      const KernelSpec spec = parse_name(fmt::format("norm_{}_{}", kernel, target.name));
      for (const std::int64_t columns : {5, 1024, 5000}) {
        NormProblem p = problem_for(spec, 36, columns);
        if (draw(0, 1) == 0) p.epsilon = 0;
        SCOPED_TRACE(fmt::format("seed {}: {} columns={}", seed_, name_of(spec), columns));
        measure::OwnedOperands owned = measure::random_operands(p, random_());
        testing_support::scale_rows(p, owned.operands, draw(0, columns - 1));
        launch(spec, p, owned.operands, 2);
        testing_support::expect_verified(p, owned);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
