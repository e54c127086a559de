// Kernels for operands with scales of blocks, on a GPU, against sums in fp64 that this file makes
// by itself: random sizes, strides of operands and of scales, kinds of scales, batches and
// epilogues; long sums of scales that differ by 2^20; a short last block of k; NaN among the
// scales.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda/gpu_test.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/spec/numeric.h"

namespace tessera {
namespace {

// One of the operands' scales.
struct Scales {
  GemmScale kind;
  GemmScaleType type;
  bool quads;
  const void* data;
  std::int64_t stride_rows, stride_k, batch_stride;

  std::int64_t place(std::int64_t batch, std::int64_t row, std::int64_t k) const {
    const ScaleBlock block = block_of(kind);
    const std::int64_t i = k / block.k;
    const std::int64_t along_k = quads ? i / 4 * stride_k + i % 4 : i * stride_k;
    return batch * batch_stride + row / block.rows * stride_rows + along_k;
  }
  double at(std::int64_t batch, std::int64_t row, std::int64_t k) const {
    if (kind == GemmScale::none) return 1;
    const std::int64_t i = place(batch, row, k);
    if (type == GemmScaleType::fp32) return static_cast<const float*>(data)[i];
    const int byte = static_cast<const std::uint8_t*>(data)[i];
    return byte == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, byte - 127);
  }
};
Scales scales_of_a(const GemmProblem& p, const GemmOperands& o) {
  return {p.scale_a,          p.scale_type,       p.scale_quads,         o.scale_a,
          p.stride_scale_a_m, p.stride_scale_a_k, p.batch_stride_scale_a};
}
Scales scales_of_b(const GemmProblem& p, const GemmOperands& o) {
  return {p.scale_b,          p.scale_type,       p.scale_quads,         o.scale_b,
          p.stride_scale_b_n, p.stride_scale_b_k, p.batch_stride_scale_b};
}

// A[batch][row][k] or B[batch][column][k], multiplied by its scales.
double element(DType type, const void* data, const Scales& scales, std::int64_t batch,
               std::int64_t row, std::int64_t k, std::int64_t place) {
  return load_element(type, data, place) * scales.at(batch, row, k);
}

// Tensor cores keep about 13 bits of the sums of a few products of 8 bits.
constexpr double kOfProducts = 1.0 / (1 << 11);

class Expected {
 public:
  Expected(const GemmProblem& problem, const GemmOperands& operands)
      : p_(with_strides(problem)), o_(operands) {}

  tile::Bounded at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    const Scales a = scales_of_a(p_, o_), b = scales_of_b(p_, o_);
    double sum = 0, all = 0;
    for (std::int64_t k = 0; k < p_.k; ++k) {
      const std::int64_t at_a = a_is_row_major(p_.layout) ? row * p_.ld_a + k : k * p_.ld_a + row;
      const std::int64_t at_b =
          b_is_row_major(p_.layout) ? k * p_.ld_b + column : column * p_.ld_b + k;
      const double x = element(p_.a, o_.a, a, batch, row, k, batch * p_.batch_stride_a + at_a);
      const double y = element(p_.b, o_.b, b, batch, column, k, batch * p_.batch_stride_b + at_b);
      sum += x * y;
      all += std::abs(x * y);
    }
    tile::Bounded value = {p_.alpha * sum, std::abs(p_.alpha) * all * kOfProducts};
    if (p_.beta != 0) {
      const std::int64_t c = batch * p_.batch_stride_c + row * p_.ld_c + column;
      value.value += p_.beta * load_element(p_.out, o_.c, c);
    }
    return tile::apply_epilogue({p_.epilogue, p_.clamp_lo, p_.clamp_hi}, d_at(batch, row, column),
                                value);
  }

  double got(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return load_element(p_.out, o_.out, batch * p_.batch_stride_out + row * p_.ld_out + column);
  }

 private:
  tile::DValues d_at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    tile::DValues d{};
    if (p_.epilogue.num_d == 0) return d;
    const auto uses = d_uses(p_.epilogue);
    for (std::size_t i = 0; i < p_.epilogue.num_d; ++i) {
      const std::int64_t at = uses[i].shape == DShape::along_n   ? column
                              : uses[i].shape == DShape::along_m ? row
                                                                 : row * p_.ld_d[i] + column;
      d[i] = load_element(p_.d, o_.d[i], batch * p_.batch_stride_d[i] + at);
    }
    return d;
  }

  GemmProblem p_;
  const GemmOperands& o_;
};

class GpuScaled : public GpuTest {
 protected:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }

  // Some rows and columns of large outputs, each element of small ones.
  static void expect_scaled(const Problem& problem, const measure::OwnedOperands& owned) {
    const auto& p = std::get<GemmProblem>(problem);
    const Expected expected(p, std::get<GemmOperands>(owned.operands));
    const double work = static_cast<double>(p.m) * static_cast<double>(p.n) *
                        static_cast<double>(p.batch) * static_cast<double>(p.k + 1);
    const auto step = static_cast<std::int64_t>(1 + work / 3e6);
    int wrong = 0;
    for (std::int64_t i = 0; i < p.batch * p.m * p.n && wrong < 5; i += step) {
      const std::int64_t batch = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
      const tile::Bounded want = expected.at(batch, row, column);
      const double got = expected.got(batch, row, column);
      if (tile::within_tolerance(p.out, got, want)) continue;
      ++wrong;
      ADD_FAILURE() << fmt::format("out[{}][{}][{}] is {}, want {} +- {}", batch, row, column, got,
                                   want.value, want.error);
    }
  }

  // Distances of scales: rows side by side, or columns, with a gap or without one.
  void draw_strides(std::int64_t rows, std::int64_t blocks, bool quads, std::int64_t& stride_rows,
                    std::int64_t& stride_k) {
    const std::int64_t width = quads ? 4 : 1;
    const std::int64_t steps = quads ? (blocks + 3) / 4 : blocks;
    const std::int64_t kind = below(3);
    if (kind == 0) return;  // packed
    if (kind == 1) {
      stride_rows = width;
      stride_k = (rows + below(5)) * width;
    } else {
      stride_k = width;
      stride_rows = (steps + below(3)) * width;
    }
  }

  GemmProblem draw(const KernelSpec& spec, std::int64_t unit) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    const std::int64_t least_k = spec.algorithm.slices > 1 ? 128 * spec.algorithm.slices : 0;
    const std::int64_t lengths[] = {below(40) * 16, below(9) * 128, 16 * (8 + below(3) - 1), 2064};
    const std::int64_t m = 1 + below(below(3) == 0 ? 700 : 140);
    const std::int64_t n = 1 + below(below(3) == 0 ? 700 : 300);
    const std::int64_t k = std::max(lengths[below(4)] + (unit == 1 ? below(16) : 0), least_k);
    GemmProblem p = gemm::problem_of(s, m, n, k);
    p.batch = below(3) == 0 ? 1 + below(3) : 1;
    const auto up = [unit](std::int64_t size) { return (size + unit - 1) / unit * unit; };
    p.ld_a = up(a_is_row_major(p.layout) ? k : m) + unit * below(3);
    p.ld_b = up(b_is_row_major(p.layout) ? n : k) + unit * below(3);
    if (below(2) == 0) p.ld_out = p.n + below(9);
    p.alpha = below(3) == 0 ? 0.5F : 1;
    p.beta = below(4) == 0 ? 2 : 0;
    p.scale_quads = p.scale_type == GemmScaleType::e8m0 && below(2) == 0;
    if (p.scale_a != GemmScale::none) {
      const ScaleBlock blocks = scale_blocks(p.scale_a, p.m, p.k);
      draw_strides(blocks.rows, blocks.k, p.scale_quads, p.stride_scale_a_m, p.stride_scale_a_k);
    }
    if (p.scale_b != GemmScale::none) {
      const ScaleBlock blocks = scale_blocks(p.scale_b, p.n, p.k);
      draw_strides(blocks.rows, blocks.k, p.scale_quads, p.stride_scale_b_n, p.stride_scale_b_k);
    }
    if (p.batch > 1) spread_batches(p);
    return p;
  }

  // Scales of rows side by side make the packed distance of batches too short.
  static void spread_batches(GemmProblem& p) {
    const auto room = [&](GemmScale kind, std::int64_t rows, std::int64_t a, std::int64_t b) {
      const ScaleBlock blocks = scale_blocks(kind, rows, p.k);
      return blocks.rows * std::max<std::int64_t>(a, 1) +
             (blocks.k + 4) * std::max<std::int64_t>(b, 1);
    };
    if (p.scale_a != GemmScale::none && p.stride_scale_a_m != kPacked) {
      p.batch_stride_scale_a = room(p.scale_a, p.m, p.stride_scale_a_m, p.stride_scale_a_k);
    }
    if (p.scale_b != GemmScale::none && p.stride_scale_b_n != kPacked) {
      p.batch_stride_scale_b = room(p.scale_b, p.n, p.stride_scale_b_n, p.stride_scale_b_k);
    }
  }

  void check_all(const std::vector<std::string>& names, int problems, std::int64_t unit) {
    std::vector<KernelSpec> specs;
    for (const std::string& name : names) specs.push_back(parse_name(name));
    ASSERT_NO_FATAL_FAILURE(build(specs));
    for (const KernelSpec& spec : specs) {
      ASSERT_EQ(family_of(spec).is_legal(spec, target_).reason, "") << name_of(spec);
      for (int i = 0; i < problems; ++i) {
        const Problem problem = draw(spec, unit);
        if (!family_of(spec).supports(spec, problem, target_)) continue;
        check_twice(name_of(spec), problem, expect_scaled);
        if (HasFailure()) return;
      }
    }
  }

  // Runs the kernel once on operands whose scales of A `change` made; then compares.
  template <class Change>
  measure::OwnedOperands run_changed(const std::string& name, const GemmProblem& p,
                                     const Change& change) {
    measure::OwnedOperands owned = measure::random_operands(p, random_(), usable_processors());
    const auto& o = std::get<GemmOperands>(owned.operands);
    change(scales_of_a(with_strides(p), o), static_cast<float*>(const_cast<void*>(o.scale_a)));
    run_at(Edge::last, name, p, owned);
    EXPECT_EQ(measure::gaps_intact(owned), "");
    return owned;
  }
};

constexpr const char* kBlocks = "scalea1x128_scaleb128x128";

std::vector<std::string> by_tmaws(const char* scales) {
  std::vector<std::string> names;
  for (const char* shape :
       {"128x128x128_2x1x1_64x128x32", "128x96x128_2x1x1_64x96x32", "128x112x128_2x1x1_64x112x32",
        "64x64x128_1x1x1_64x64x32", "256x64x128_2x1x1_64x64x32", "64x16x128_1x1x1_64x16x32"}) {
    names.push_back(fmt::format("gemm_fp8_rcr_tmaws_{}_{}_cooperative_s4_sm90a", shape, scales));
  }
  for (const char* rest : {"cooperative_s4_c2x1", "cooperative_s5_c1x2"}) {
    names.push_back(
        fmt::format("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_{}_{}_sm90a", scales, rest));
  }
  for (const char* shape : {"128x32x128_2x1x1_64x32x32", "64x8x128_1x1x1_64x8x32",
                            "64x64x128_1x1x1_64x64x32", "128x128x128_2x1x1_64x128x32"}) {
    names.push_back(
        fmt::format("gemm_fp8_rcr_tmaws_{}_{}_cooperative_s4_swap_sm90a", shape, scales));
  }
  names.push_back(fmt::format(
      "gemm_fp8_rcr_tmaws_64x16x128_1x1x1_64x16x32_{}_cooperative_splitordered1_slices4_s4_swap_"
      "sm90a",
      scales));
  names.push_back(fmt::format(
      "gemm_fp8_rcr_tmaws_128x64x128_2x1x1_64x64x32_{}_cooperative_splitordered1_slices2_s4_"
      "sm90a",
      scales));
  return names;
}

TEST_F(GpuScaled, TmawsKernelsAreCorrect) {
  check_all(by_tmaws(kBlocks), 12, 16);
  check_all(by_tmaws("scalea1x128_scaleb1x128"), 6, 16);
}

TEST_F(GpuScaled, TypesAndEpiloguesOfTmawsAreCorrect) {
  std::vector<std::string> names;
  for (const char* chain : {"bias_relu", "multidadd2", "bias_gelu", "rowscale_colscale"}) {
    names.push_back(
        fmt::format("gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_{}_{}_cooperative_s4_sm90a",
                    kBlocks, chain));
  }
  names.push_back(fmt::format(
      "gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_outfp32_{}_cooperative_s4_sm90a", kBlocks));
  names.push_back(fmt::format(
      "gemm_bf8_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_{}_cooperative_s4_sm90a", kBlocks));
  check_all(names, 8, 16);
}

TEST_F(GpuScaled, CpasyncKernelsAreCorrectForEveryKindOfScale) {
  std::vector<std::string> names;
  for (const char* scales :
       {"scalea1x128_scaleb128x128", "scalea1x128_scaleb1x128", "scalea1x32_scaleb1x32_bye8m0",
        "scalea128x128_scaleb1x32", "scaleb128x128", "scalea1x128_bye8m0",
        "scalea1x32_scaleb128x128_bye8m0"}) {
    names.push_back(
        fmt::format("gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_{}_s3_sm90a", scales));
  }
  for (const char* layout : {"rrr", "crr", "ccr"}) {
    names.push_back(fmt::format(
        "gemm_fp8_bf8_{}_cpasync_64x64x64_2x2x1_16x8x16_scalea1x32_scaleb128x128_s3_sm90a",
        layout));
    names.push_back(fmt::format(
        "gemm_bf8_{}_cpasync_64x64x64_2x2x1_16x8x16_scalea1x128_scaleb1x32_bye8m0_bias_relu_s3_"
        "sm90a",
        layout));
  }
  check_all(names, 10, 1);
}

const std::vector<std::string>& both() {
  static const std::vector<std::string> kBoth = {
      "gemm_fp8_rcr_tmaws_128x128x128_2x1x1_64x128x32_scalea1x128_scaleb128x128_cooperative_s4_"
      "sm90a",
      "gemm_fp8_rcr_tmaws_64x32x128_1x1x1_64x32x32_scalea1x128_scaleb128x128_cooperative_s4_swap_"
      "sm90a",
      "gemm_fp8_rcr_cpasync_128x128x64_2x4x1_16x8x16_scalea1x128_scaleb128x128_s3_sm90a"};
  return kBoth;
}

GemmProblem blocks_of_128(std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem p = gemm_problem(DType::fp8, GemmLayout::rcr, m, n, k);
  p.scale_a = GemmScale::by_1x128, p.scale_b = GemmScale::by_128x128;
  return p;
}

// The order in which a kernel adds does not matter within the tolerance, but a kernel that scales
// the sum of several blocks at once is far off.
TEST_F(GpuScaled, LongSumsOfScalesThatDifferByAMillionAreCorrect) {
  for (const std::string& name : both()) {
    ASSERT_NO_FATAL_FAILURE(build({parse_name(name)}));
    const GemmProblem p = blocks_of_128(70, 136, 16384);
    const auto change = [&](const Scales& scales, float* data) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        for (std::int64_t k = 0; k < p.k; k += 128) {
          data[scales.place(0, row, k)] = std::ldexp(1.0F, static_cast<int>(below(21)) - 10);
        }
      }
    };
    SCOPED_TRACE(name);
    expect_scaled(p, run_changed(name, p, change));
  }
}

// A NaN spoils the row whose block it scales, and nothing else.
TEST_F(GpuScaled, ANanAmongTheScalesStaysInItsRow) {
  for (const std::string& name : both()) {
    ASSERT_NO_FATAL_FAILURE(build({parse_name(name)}));
    const GemmProblem p = blocks_of_128(90, 200, 144 + 128);
    const std::int64_t bad = below(p.m);
    const auto change = [&](const Scales& scales, float* data) {
      data[scales.place(0, bad, p.k - 1)] = std::numeric_limits<float>::quiet_NaN();
    };
    SCOPED_TRACE(fmt::format("{}, row {}", name, bad));
    const measure::OwnedOperands owned = run_changed(name, p, change);
    expect_scaled(p, owned);
    const Expected expected(p, std::get<GemmOperands>(owned.operands));
    for (std::int64_t i = 0; i < p.m * p.n; ++i) {
      EXPECT_EQ(std::isnan(expected.got(0, i / p.n, i % p.n)), i / p.n == bad) << i;
    }
  }
}

// What a dispatcher chooses for layers of a language model.
TEST_F(GpuScaled, ChosenKernelsAreCorrect) {
  for (const auto& [m, n, k] :
       {std::array{1, 2112, 7168}, std::array{17, 7168, 2048}, std::array{64, 4096, 7168},
        std::array{300, 2112, 7168}, std::array{4096, 7168, 2048}}) {
    const GemmProblem p = blocks_of_128(m, n, k);
    const ReadyKernel& ready = dispatcher_->kernel_for(p);
    EXPECT_EQ(ready.spec.algorithm.pipeline, Pipeline::tmaws) << ready.name;
    check_twice(name_of(ready.spec), p, expect_scaled);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera
