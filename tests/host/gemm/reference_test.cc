#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/spec/numeric.h"

namespace tessera::gemm {
namespace {

using enum DType;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Operands in memory of their own, and a plain kernel in the precision that kernels work in.
class VerifyCase {
 public:
  explicit VerifyCase(const GemmProblem& given) : problem(given), p(with_strides(given)) {
    if (p.out == tf32) p.out = fp32;  // as kernels store it
    a.resize(bytes(p.a, p.batch_stride_a));
    b.resize(bytes(p.b, p.batch_stride_b));
    c.resize(bytes(p.out, p.batch_stride_c));
    out.resize(bytes(p.out, p.batch_stride_out));
    for (std::size_t i = 0; i < d.size(); ++i) d[i].resize(bytes(p.d, p.batch_stride_d[i]));
  }

  GemmOperands operands() {
    GemmOperands o = {.a = a.data(), .b = b.data(), .c = c.data(), .out = out.data()};
    for (std::size_t i = 0; i < d.size(); ++i) o.d[i] = d[i].data();
    return o;
  }

  void randomise(std::mt19937& random) {
    fill(a, p.a, random);
    fill(b, p.b, random);
    fill(c, p.out, random);
    for (auto& tensor : d) fill(tensor, p.d, random);
  }

  void run() {
    for (std::int64_t s = 0; s < p.batch; ++s) {
      for (std::int64_t i = 0; i < p.m; ++i) {
        for (std::int64_t j = 0; j < p.n; ++j) store(s, i, j, element(s, i, j));
      }
    }
  }

  void store(std::int64_t s, std::int64_t i, std::int64_t j, double value) {
    store_element(p.out, out.data(), at(s, i, j), value);
  }
  double load(std::int64_t i, std::int64_t j) const {
    return load_element(p.out, out.data(), at(0, i, j));
  }

  Mismatch check() { return verify(problem, operands()); }

  GemmProblem problem;
  GemmProblem p;  // with strides
  std::vector<std::byte> a, b, c, out;
  std::array<std::vector<std::byte>, kMaxD> d;

 private:
  std::size_t bytes(DType dtype, std::int64_t batch_stride) const {
    const auto elements =
        static_cast<std::size_t>(batch_stride * std::max<std::int64_t>(p.batch, 1));
    return (elements + 64) * static_cast<std::size_t>(size_of(dtype));
  }

  static void fill(std::vector<std::byte>& data, DType dtype, std::mt19937& random) {
    std::uniform_real_distribution<double> real(-2, 2);
    std::uniform_int_distribution<int> whole(-128, 127);
    const auto count = static_cast<std::int64_t>(data.size()) / size_of(dtype);
    for (std::int64_t i = 0; i < count; ++i) {
      store_element(dtype, data.data(), i, is_integer(dtype) ? whole(random) : real(random));
    }
  }

  std::int64_t at(std::int64_t s, std::int64_t i, std::int64_t j) const {
    return s * p.batch_stride_out + i * p.ld_out + j;
  }

  double element(std::int64_t s, std::int64_t i, std::int64_t j) const {
    const bool a_rows = a_is_row_major(p.layout);
    const bool b_rows = b_is_row_major(p.layout);
    float sum = 0;
    std::uint32_t whole = 0;
    for (std::int64_t k = 0; k < p.k; ++k) {
      const std::int64_t at_a = a_rows ? i * p.ld_a + k : k * p.ld_a + i;
      const std::int64_t at_b = b_rows ? k * p.ld_b + j : j * p.ld_b + k;
      const double x = load_element(p.a, a.data(), s * p.batch_stride_a + at_a);
      const double y = load_element(p.b, b.data(), s * p.batch_stride_b + at_b);
      if (p.acc == int32) {
        whole += static_cast<std::uint32_t>(static_cast<int>(x) * static_cast<int>(y));
      } else {
        sum += static_cast<float>(x) * static_cast<float>(y);
      }
    }
    const double old = load_element(p.out, c.data(), s * p.batch_stride_c + i * p.ld_c + j);
    if (p.out == int32) {
      const auto scale = [](float f) { return static_cast<std::uint32_t>(static_cast<int>(f)); };
      whole = whole * scale(p.alpha) +
              static_cast<std::uint32_t>(static_cast<std::int64_t>(old)) * scale(p.beta);
      return static_cast<std::int32_t>(whole);
    }
    if (p.acc == int32) sum = static_cast<float>(static_cast<std::int32_t>(whole));
    float x = sum * p.alpha;
    if (p.beta != 0) x += static_cast<float>(old) * p.beta;
    return epilogue(x, s, i, j);
  }

  float epilogue(float x, std::int64_t s, std::int64_t i, std::int64_t j) const {
    std::size_t used = 0;
    const auto at = [&](std::int64_t in_batch) {
      const std::int64_t place = s * p.batch_stride_d[used] + in_batch;
      const double value = load_element(p.d, d[used].data(), place);
      ++used;
      return static_cast<float>(value);
    };
    const auto next = [&](bool is_vector) { return at(is_vector ? j : i * p.ld_d[used] + j); };
    for (const EpilogueOp op : p.epilogue.ops) {
      switch (op) {
        case EpilogueOp::pass_through:
          break;
        case EpilogueOp::bias:
          x += next(true);
          break;
        case EpilogueOp::add:
          x += next(false);
          break;
        case EpilogueOp::multiply:
          x *= next(false);
          break;
        case EpilogueOp::row_scale:
          x *= at(i);
          break;
        case EpilogueOp::col_scale:
          x *= at(j);
          break;
        case EpilogueOp::multi_d_add:
          while (used < p.epilogue.num_d) x += next(false);
          break;
        case EpilogueOp::multi_d_multiply:
          while (used < p.epilogue.num_d) x *= next(false);
          break;
        case EpilogueOp::relu:
          x = x <= 0 ? 0 : x;
          break;
        case EpilogueOp::gelu:
          x = 0.5F * x * std::erfc(-x * 0.70710678F);
          break;
        case EpilogueOp::gelu_tanh:
          x = 0.5F * x * (1 + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
          break;
        case EpilogueOp::silu:
          x = x / (1 + std::exp(-x));
          break;
        case EpilogueOp::sigmoid:
          x = 1 / (1 + std::exp(-x));
          break;
        case EpilogueOp::tanh:
          x = std::tanh(x);
          break;
        case EpilogueOp::clamp:
          x = x < p.clamp_lo ? p.clamp_lo : x > p.clamp_hi ? p.clamp_hi : x;
      }
    }
    return x;
  }
};

// ---- correct results are accepted, wrong ones are not ----

struct ReferenceTypes {
  DType a, b, acc, out, d;
};
class GemmReference : public testing::TestWithParam<ReferenceTypes> {
 protected:
  GemmProblem problem(GemmLayout layout, std::int64_t m, std::int64_t n, std::int64_t k) const {
    const ReferenceTypes& t = GetParam();
    GemmProblem p = gemm_problem(t.a, layout, m, n, k);
    p.b = t.b;
    p.acc = t.acc;
    p.out = t.out;
    p.d = t.d;
    return p;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Types, GemmReference,
    testing::Values(
        ReferenceTypes{fp32, fp32, fp32, fp32, fp32}, ReferenceTypes{tf32, tf32, fp32, tf32, fp32},
        ReferenceTypes{fp16, fp16, fp32, fp16, fp16}, ReferenceTypes{fp16, fp16, fp32, fp32, fp32},
        ReferenceTypes{bf16, bf16, fp32, bf16, fp32}, ReferenceTypes{bf16, bf16, fp32, fp32, fp32},
        ReferenceTypes{fp8, fp8, fp32, fp16, fp16}, ReferenceTypes{fp8, bf8, fp32, bf16, bf16},
        ReferenceTypes{bf8, bf8, fp32, fp32, fp32}, ReferenceTypes{int8, int8, int32, int32, int32},
        ReferenceTypes{int8, int8, int32, fp32, fp32},
        ReferenceTypes{int8, int8, int32, bf16, fp32},
        ReferenceTypes{int8, int8, int32, int8, fp32}),
    [](const auto& row) {
      return std::string(to_string(row.param.a)) + "_" + std::string(to_string(row.param.b)) + "_" +
             std::string(to_string(row.param.out));
    });

TEST_P(GemmReference, AcceptsAPlainLoop) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const GemmLayout layout :
       {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr, GemmLayout::ccr}) {
    for (const auto& [m, n, k] : {std::array{1, 1, 1}, {7, 17, 65}, {4, 16, 300}, {5, 3, 0}}) {
      for (const char* epilogue : {"none", "bias+gelu", "add+multiply+silu", "multi_d_add3+relu",
                                   "multi_d_multiply2+gelu_tanh", "sigmoid+tanh", "clamp"}) {
        GemmProblem p = problem(layout, m, n, k);
        if (p.out == int32 && std::strcmp(epilogue, "none") != 0) continue;
        p.epilogue = parse_epilogue(epilogue);
        p.batch = 2;
        p.ld_a = 70 + k + m;
        p.ld_out = n + 3;
        p.alpha = p.out == int32 ? 3.0F : p.out == int8 ? 0.001F : 0.25F;
        p.beta = p.out == int32 ? -2.0F : 0.5F;
        p.clamp_lo = -1;
        p.clamp_hi = 6;
        VerifyCase c(p);
        c.randomise(random);
        c.run();
        const Mismatch result = c.check();
        EXPECT_TRUE(result.ok) << to_string(Problem{p}) << "\n" << result.message;
        EXPECT_EQ(result.checked, 2 * m * n);
        EXPECT_EQ(result.bad, 0);
        EXPECT_EQ(result.message, "");
      }
    }
  }
}

TEST_P(GemmReference, FindsOneWrongElement) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  GemmProblem p = problem(GemmLayout::rcr, 17, 19, 200);
  if (p.out == int8) p.alpha = 0.001F;
  VerifyCase c(p);
  c.randomise(random);
  c.run();
  ASSERT_TRUE(c.check().ok);
  const auto row = static_cast<std::int64_t>(random() % 17);
  const auto column = static_cast<std::int64_t>(random() % 19);
  const double right = c.load(row, column);
  const double further = right * 1.1 + std::copysign(0.5, right);
  c.store(0, row, column, is_integer(p.out) ? right + (right > 100 ? -2 : 2) : further);
  const Mismatch result = c.check();
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.bad, 1);
  EXPECT_GT(result.worst_ratio, 1);
  EXPECT_NE(result.message.find("out[" + std::to_string(row) + ", " + std::to_string(column) + "]"),
            std::string::npos)
      << result.message;
}

TEST_P(GemmReference, FindsAMissingLastProduct) {
  GemmProblem p = problem(GemmLayout::rrr, 8, 8, 64);
  const double last = p.a == int8 ? 100 : 2;
  if (p.out == int8) p.alpha = 0.0005F;
  VerifyCase c(p);
  std::mt19937 random(1);
  c.randomise(random);
  for (std::int64_t j = 0; j < 8; ++j) store_element(p.b, c.b.data(), 63 * 8 + j, last);
  for (std::int64_t i = 0; i < 8; ++i) store_element(p.a, c.a.data(), i * 64 + 63, last);
  c.p.k = 63;
  c.run();
  const Mismatch result = c.check();
  EXPECT_EQ(result.bad, 64);
  EXPECT_EQ(result.checked, 64);
}

// ---- exact sentences ----

VerifyCase ones(std::int64_t m, std::int64_t n, std::int64_t k) {
  VerifyCase c(gemm_problem(fp32, GemmLayout::rcr, m, n, k));
  for (std::int64_t i = 0; i < m * k; ++i) store_element(fp32, c.a.data(), i, 1);
  for (std::int64_t i = 0; i < n * k; ++i) store_element(fp32, c.b.data(), i, 1);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) c.store(0, i, j, static_cast<double>(k));
  }
  return c;
}

TEST(GemmVerify, SaysWhichElementAndHowFar) {
  VerifyCase c = ones(3, 2, 4);
  c.store(0, 2, 1, 4.5);
  // 4 x (4 + 8) x 2^-24 for the sum, 4 x 1.0625 x 2^-23 for alpha, 2 x 2^-23 for the store.
  EXPECT_EQ(c.check().message,
            "gemm: out[2, 1] is 4.5, the reference is 4 with tolerance 3.61e-06 (1 of 6 elements "
            "checked is outside)");
  c.store(0, 0, 0, 5);
  EXPECT_EQ(c.check().message,
            "gemm: out[0, 0] is 5, the reference is 4 with tolerance 3.61e-06 (2 of 6 elements "
            "checked are outside)");
}

TEST(GemmVerify, UnwrittenOutputIsFound) {
  VerifyCase c = ones(3, 2, 4);
  c.store(0, 1, 0, kNan);
  EXPECT_EQ(c.check().message,
            "gemm: out[1, 0] is nan, the reference is 4 with tolerance 3.61e-06 (1 of 6 elements "
            "checked is outside)");
}

TEST(GemmVerify, NamesTheBatch) {
  VerifyCase c(GemmProblem{.m = 1, .n = 1, .k = 0, .batch = 2});
  c.store(1, 0, 0, 1);
  EXPECT_EQ(c.check().message.substr(0, 51), "gemm: out[1, 0, 0] is 1, the reference is 0 with to");
}

// ---- NaN and infinity ----

TEST(GemmVerify, NanGoesWithNan) {
  VerifyCase c = ones(2, 2, 4);
  store_element(fp32, c.a.data(), 1, kNan);  // row 0
  EXPECT_EQ(c.check().bad, 2);
  c.store(0, 0, 0, kNan);
  c.store(0, 0, 1, kNan);
  EXPECT_TRUE(c.check().ok);
}

TEST(GemmVerify, InfinityGoesWithItself) {
  VerifyCase c = ones(2, 2, 4);
  store_element(fp32, c.a.data(), 1, -kInf);
  c.store(0, 0, 0, -kInf);
  c.store(0, 0, 1, kInf);
  const Mismatch result = c.check();
  EXPECT_EQ(result.bad, 1);
  EXPECT_EQ(result.message,
            "gemm: out[0, 1] is inf, the reference is -inf with tolerance inf (1 of 4 elements "
            "checked is outside)");
}

TEST(GemmVerify, NanInCIsNotReadWithoutBeta) {
  VerifyCase c = ones(1, 1, 4);
  store_element(fp32, c.c.data(), 0, kNan);
  EXPECT_TRUE(c.check().ok);
  c.problem.beta = 1;
  EXPECT_FALSE(c.check().ok);
}

TEST(GemmVerify, NanInAReachesTheOutputEvenWithAlphaZero) {
  VerifyCase c = ones(1, 1, 4);
  store_element(fp32, c.a.data(), 0, kNan);
  c.problem.alpha = 0;
  c.store(0, 0, 0, 0);
  EXPECT_FALSE(c.check().ok);
  c.store(0, 0, 0, kNan);
  EXPECT_TRUE(c.check().ok);
}

TEST(GemmVerify, ReluAndClampLetNanThrough) {
  VerifyCase c = ones(1, 1, 4);
  store_element(fp32, c.a.data(), 0, kNan);
  c.problem.epilogue = parse_epilogue("relu+clamp");
  c.problem.clamp_lo = 0;
  c.problem.clamp_hi = 6;
  EXPECT_FALSE(c.check().ok);
  c.store(0, 0, 0, kNan);
  EXPECT_TRUE(c.check().ok);
}

TEST(GemmVerify, GeluAndSiluOfMinusInfinityAreZero) {
  for (const char* epilogue : {"gelu", "gelu_tanh", "silu"}) {
    VerifyCase c = ones(1, 1, 4);
    store_element(fp32, c.a.data(), 0, -kInf);
    c.problem.epilogue = parse_epilogue(epilogue);
    c.store(0, 0, 0, 0);
    EXPECT_TRUE(c.check().ok) << epilogue;
    c.store(0, 0, 0, kNan);
    EXPECT_FALSE(c.check().ok) << epilogue;
  }
}

TEST(GemmVerify, OverflowBecomesInfinity) {
  GemmProblem p = gemm_problem(fp16, GemmLayout::rcr, 1, 1, 2);
  VerifyCase c(p);
  for (std::int64_t i = 0; i < 2; ++i) {
    store_element(fp16, c.a.data(), i, 256);
    store_element(fp16, c.b.data(), i, 256);
  }
  c.store(0, 0, 0, 65504);  // the largest fp16, far from 131072
  EXPECT_FALSE(c.check().ok);
  c.store(0, 0, 0, kInf);
  EXPECT_TRUE(c.check().ok);
  c.store(0, 0, 0, -kInf);
  EXPECT_FALSE(c.check().ok);
}

// ---- integers ----

TEST(GemmVerify, Int32WrapsAround) {
  GemmProblem p = gemm_problem(int8, GemmLayout::rcr, 1, 1, 1);
  p.alpha = 1 << 20;
  VerifyCase c(p);
  store_element(int8, c.a.data(), 0, -128);
  store_element(int8, c.b.data(), 0, 127);
  c.store(0, 0, 0, static_cast<std::int32_t>(static_cast<std::uint32_t>(-128 * 127) << 20));
  EXPECT_TRUE(c.check().ok);
  c.store(0, 0, 0, std::numeric_limits<std::int32_t>::min());
  EXPECT_FALSE(c.check().ok);
}

TEST(GemmVerify, Int32IsExact) {
  GemmProblem p = gemm_problem(int8, GemmLayout::rcr, 1, 1, 1);
  p.alpha = (1 << 24) - 1;
  VerifyCase c(p);
  store_element(int8, c.a.data(), 0, 100);
  store_element(int8, c.b.data(), 0, 1);
  c.store(0, 0, 0, 1677721500);
  EXPECT_TRUE(c.check().ok);
  c.store(0, 0, 0, 1677721501);
  EXPECT_EQ(
      c.check().message,
      "gemm: out[0, 0] is 1.6777215e+09, the reference is 1.6777215e+09 with tolerance 0 (1 of "
      "1 elements checked is outside)");
}

TEST(GemmVerify, Int8Saturates) {
  GemmProblem p = gemm_problem(int8, GemmLayout::rcr, 1, 1, 1);
  p.out = int8;
  VerifyCase c(p);
  store_element(int8, c.a.data(), 0, -100);
  store_element(int8, c.b.data(), 0, 2);
  c.store(0, 0, 0, -128);
  EXPECT_TRUE(c.check().ok);
  c.store(0, 0, 0, 56);  // -200 modulo 256
  EXPECT_FALSE(c.check().ok);
}

// ---- large problems ----

TEST(GemmVerify, LargeOnesAreSampledWithTheirCorners) {
  const std::int64_t size = 1500;
  VerifyCase c = ones(size, size, size);
  const Mismatch clean = c.check();
  EXPECT_TRUE(clean.ok) << clean.message;
  EXPECT_GE(clean.checked, 4096);
  EXPECT_LT(clean.checked, size * size);
  for (const std::int64_t row : {std::int64_t{0}, size - 1}) {
    for (const std::int64_t column : {std::int64_t{0}, size - 1}) {
      c.store(0, row, column, 0);
      EXPECT_EQ(c.check().bad, 1) << row << ", " << column;
      c.store(0, row, column, static_cast<double>(size));
    }
  }
}

TEST(GemmVerify, SamplesMeetEveryTile) {
  const std::int64_t size = 1500;
  VerifyCase c = ones(size, size, size);
  for (std::int64_t i = 720; i < 736; ++i) {
    for (std::int64_t j = 960; j < 992; ++j) c.store(0, i, j, 0);
  }
  EXPECT_GT(c.check().bad, 0);
}

TEST(GemmVerify, NothingToCheckIsFine) {
  for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}}) {
    VerifyCase c(gemm_problem(fp32, GemmLayout::rcr, m, n, 3));
    const Mismatch result = c.check();
    EXPECT_TRUE(result.ok);
    EXPECT_EQ(result.checked, 0);
  }
}

// ---- batches by pointers ----

std::string refusal(const GemmProblem& problem, const GemmOperands& operands) {
  try {
    verify(problem, operands);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

// The same matrices through arrays in another order, some of them twice.
TEST(GemmVerify, FollowsPointerArrays) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  GemmProblem p = gemm_problem(bf16, GemmLayout::crr, 7, 9, 33);
  p.batch = 3;
  p.beta = 0.5F;
  p.epilogue = parse_epilogue("bias+multiply");
  VerifyCase c(p);
  c.randomise(random);
  c.run();
  constexpr std::size_t kOrder[] = {2, 0, 1, 0};
  const auto array = [&](std::vector<std::byte>& data, DType dtype, std::int64_t stride) {
    std::vector<void*> pointers;
    for (const std::size_t batch : kOrder) {
      pointers.push_back(data.data() + batch * static_cast<std::size_t>(stride * size_of(dtype)));
    }
    return pointers;
  };
  auto a = array(c.a, p.a, c.p.batch_stride_a);
  auto b = array(c.b, p.b, c.p.batch_stride_b);
  auto old = array(c.c, p.out, c.p.batch_stride_c);
  auto d0 = array(c.d[0], p.d, c.p.batch_stride_d[0]);
  auto d1 = array(c.d[1], p.d, c.p.batch_stride_d[1]);
  auto out = array(c.out, p.out, c.p.batch_stride_out);
  GemmOperands o = {.a = a.data(),
                    .b = b.data(),
                    .c = old.data(),
                    .d = {d0.data(), d1.data()},
                    .out = out.data()};
  p.pointer_arrays = true;
  p.batch = 4;
  EXPECT_EQ(verify(p, o).message, "");
  EXPECT_EQ(verify(p, o).checked, 4 * 7 * 9);
  for (const Reference::Run& run : reference(p, o, {}).runs) {
    EXPECT_LT(run.offset + run.bytes, 7 * 9 * 2 + 1) << "from the batch's own matrix";
  }
  std::swap(b[1], b[2]);
  EXPECT_FALSE(verify(p, o).ok);
  std::swap(b[1], b[2]);
  old[2] = out[2];
  EXPECT_EQ(refusal(p, o),
            "gemm: verify needs C as it was before the kernel ran, but c is out; pass a copy");
}

// ---- what it refuses to compare ----

TEST(GemmVerify, RefusesOperandsThatTheKernelChanged) {
  VerifyCase c = ones(2, 2, 4);
  c.problem.preshuffled_b = true;
  EXPECT_EQ(refusal(c.problem, c.operands()),
            "gemm: verify reads B as it was before packing; pass the problem with preshuffle=0 and "
            "that B");
  c.problem.preshuffled_b = false;
  c.problem.beta = 1;
  GemmOperands o = c.operands();
  o.c = o.out;
  EXPECT_EQ(refusal(c.problem, o),
            "gemm: verify needs C as it was before the kernel ran, but c is out; pass a copy");
  c.problem.beta = 0;
  c.problem.epilogue = parse_epilogue("add");
  o = c.operands();
  o.d[0] = o.out;
  EXPECT_EQ(refusal(c.problem, o),
            "gemm: verify needs D0 as it was before the kernel ran, but d0 is out; pass a copy");
}

// ---- a reference that is kept ----

TEST(KeptReference, ServesManyOutputsWithoutReadingOne) {
  std::mt19937 random(std::random_device{}());
  VerifyCase c(gemm_problem(fp32, GemmLayout::rcr, 40, 30, 20));
  c.randomise(random);
  const Reference kept = reference(c.problem, c.operands(), {.threads = 3});
  EXPECT_FALSE(compare(c.problem, c.operands(), kept).ok);  // nothing was computed yet
  c.run();
  const Mismatch good = compare(c.problem, c.operands(), kept);
  EXPECT_TRUE(good.ok) << good.message;
  EXPECT_EQ(good.checked, 40 * 30);
  const Mismatch whole = c.check();
  EXPECT_EQ(good.worst_ratio, whole.worst_ratio);  // however many threads computed it
  c.store(0, 39, 29, 1e6);
  EXPECT_EQ(compare(c.problem, c.operands(), kept).message, c.check().message);
}

TEST(KeptReference, FewRowsAreTheFirstTheLastAndOthersBySeed) {
  const GemmProblem problem = gemm_problem(bf16, GemmLayout::rrr, 1000, 700, 8);
  VerifyCase c(problem);
  std::set<std::vector<std::int64_t>> drawn;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Reference kept =
        reference(c.problem, c.operands(), {.elements = 4096, .rows = 8, .seed = seed});
    ASSERT_EQ(kept.runs.size(), 8U);
    std::vector<std::int64_t> rows;
    const std::int64_t row_bytes = 700 * size_of(c.p.out);
    for (const Reference::Run& run : kept.runs) {
      EXPECT_EQ(run.offset % row_bytes, 0);
      EXPECT_EQ(run.bytes, row_bytes);
      rows.push_back(run.offset / row_bytes);
    }
    EXPECT_EQ(rows.front(), 0);
    EXPECT_EQ(rows.back(), 999);
    drawn.insert(rows);
    EXPECT_GE(compare(c.problem, c.operands(), kept).checked, 4096);
  }
  EXPECT_EQ(drawn.size(), 3U);
}

}  // namespace
}  // namespace tessera::gemm
