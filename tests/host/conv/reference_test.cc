// The reference against the definition, against itself in the other directions, and what it
// notices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "host/conv/conv_problems.h"
#include "host/conv/plain_conv.h"
#include "tessera/base/error.h"
#include "tessera/families/conv/reference_internal.h"

namespace tessera::conv {
namespace {

using enum DType;
using enum ConvDirection;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The types of the two operands, of sums, of the result and of D.
struct Types {
  DType a, b, acc, out, d;
};
constexpr Types kTypes[] = {
    {fp32, fp32, fp32, fp32, fp32},   {tf32, tf32, fp32, tf32, fp32},
    {fp16, fp16, fp32, fp16, fp16},   {bf16, bf16, fp32, bf16, bf16},
    {bf16, bf16, fp32, fp32, fp32},   {fp16, fp16, fp32, fp32, fp32},
    {fp8, bf8, fp32, bf16, fp32},     {bf8, bf8, fp32, fp16, fp16},
    {int8, int8, int32, int32, fp32}, {int8, int8, int32, int8, fp32},
    {int8, int8, int32, fp32, fp32},
};

bool has_gradients(const Types& t) { return size_of(t.a) > 1; }

void set_types(ConvProblem& p, const Types& t) {
  p.acc = t.acc;
  p.d = p.direction == forward ? t.d : t.out;
  if (p.direction == forward) p.in = t.a, p.weight = t.b, p.out = t.out;
  if (p.direction == backward_data) p.out = t.a, p.weight = t.b, p.in = t.out;
  if (p.direction == backward_weight) p.out = t.a, p.in = t.b, p.weight = t.out;
}

bool is_exact(const Types& t) { return t.out == int32 || (t.a == fp32 && t.out == fp32); }

// ---- the definition ----

ConvProblem random_case(RandomConvs& random, ConvDirection direction, const Types& types) {
  ConvProblem p = random.problem();
  p.direction = direction;
  random.share_places(p);
  set_types(p, types);
  if (random.coin()) p.alpha = types.out == int32 ? -3.0F : 0.5F;
  if (random.coin()) p.beta = 2;
  if (direction != forward || types.out == int32) return p;
  constexpr std::string_view kChains[] = {"none",     "bias+relu",      "add",
                                          "bias+add", "col_scale+bias", "add+bias+multiply+clamp"};
  p.epilogue = parse_epilogue(kChains[random.integer(0, 5)]);
  p.clamp_lo = -20, p.clamp_hi = 30;
  return p;
}

// Elements are small whole numbers, so that every sum is exact and an error shows.
TEST(ConvReference, AgreesWithTheDefinition) {
  const std::uint64_t seed = std::random_device{}();
  RandomConvs random(seed);
  for (int i = 0; i < 300; ++i) {
    const Types& types = kTypes[static_cast<std::size_t>(i) % std::size(kTypes)];
    const ConvDirection direction = kDirections[random.integer(0, 2)];
    const ConvProblem p = random_case(random, direction, types);
    if (!has_gradients(types) && direction != forward) continue;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase c(p);
    c.fill_inputs([&] { return static_cast<double>(random.integer(-2, 2)); });
    c.run();
    const Mismatch good = verify(c.problem, c.operands);
    ASSERT_EQ(good.message, "");
    std::vector<std::int64_t> elements;
    c.each(c.out(), [&](std::int64_t at) { elements.push_back(at); });
    EXPECT_EQ(good.checked, std::ssize(elements));
    const std::int64_t wrong =
        elements[static_cast<std::size_t>(random.integer(0, std::ssize(elements) - 1))];
    const double value = c.load(c.out(), wrong);
    const double error = is_exact(types) ? 1 : 8 + std::abs(value) / 8;
    c.store(c.out(), wrong, value > 0 ? value - error : value + error);
    EXPECT_EQ(verify(c.problem, c.operands).bad, 1);
  }
}

// Lines and blocks of channels are longer than what is converted at a time.
TEST(ConvReference, AgreesOnLongSums) {
  const std::uint64_t seed = std::random_device{}();
  RandomConvs random(seed);
  const std::pair<ConvDirection, Types> cases[] = {
      {forward, {bf16, bf16, fp32, fp32, fp32}},
      {forward, {fp8, fp8, fp32, fp32, fp32}},
      {forward, {int8, int8, int32, int32, fp32}},
      {backward_data, {fp16, fp16, fp32, fp32, fp32}},
      {backward_weight, {fp32, fp32, fp32, fp32, fp32}},
  };
  for (const auto& [direction, types] : cases) {
    ConvProblem p;
    p.direction = direction;
    set_types(p, types);
    p.n = 2, p.c = 270, p.k = direction == backward_data ? 300 : 35;
    p.size = {1, 2, direction == backward_weight ? 140 : 4};
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase c(p);
    c.fill_inputs([&] { return static_cast<double>(random.integer(-2, 2)); });
    c.run();
    EXPECT_EQ(verify(c.problem, c.operands).message, "");
    c.store(c.out(), 0, c.load(c.out(), 0) + (size_of(types.a) == 1 ? 3 : 1));
    EXPECT_EQ(verify(c.problem, c.operands).bad, 1);
  }
}

// ---- gradients ----

struct Inner {
  double value = 0, magnitude = 0;
};

// The inner product, in fp64, of what a case should write with a tensor that lies as its result.
Inner inner_product(const PlainCase& c, const std::vector<std::byte>& other) {
  const Reference kept = reference(c.problem, c.operands, {});
  const auto& wanted = static_cast<const SampledElements*>(kept.elements.get())->wanted;
  Inner result;
  std::size_t i = 0;
  c.each(c.out(), [&](std::int64_t at) {
    const double product = wanted.at(i++).value * load_element(c.p.out, other.data(), at);
    result.value += product;
    result.magnitude += std::abs(product);
  });
  EXPECT_EQ(i, wanted.size());
  return result;
}

PlainCase directed(ConvProblem p, ConvDirection direction) {
  p.direction = direction;
  return PlainCase(p);
}

// <y, conv(x, w)> = <x, gradient by x> = <w, gradient by w>, for any x, w and y.
TEST(ConvReference, DirectionsAreAdjoint) {
  const std::uint64_t seed = std::random_device{}();
  RandomConvs random(seed);
  for (int i = 0; i < 200; ++i) {
    const ConvProblem p = random.problem();
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(Problem(p))));
    PlainCase y = directed(p, forward), x = directed(p, backward_data),
              w = directed(p, backward_weight);
    y.fill_inputs([&] { return random.real(); });                   // in, weight
    x.fill(x.index_of("grad_out"), [&] { return random.real(); });  // weight, grad_out
    x.memory[0].assign(y.memory[1].begin(), y.memory[1].end());
    w.memory[0].assign(y.memory[0].begin(), y.memory[0].end());  // in, grad_out
    w.memory[1].assign(x.memory[1].begin(), x.memory[1].end());
    const Inner by_y = inner_product(y, x.memory[1]);
    const Inner by_x = inner_product(x, y.memory[0]);
    const Inner by_w = inner_product(w, y.memory[1]);
    const double limit = 1e-12 * (by_y.magnitude + by_x.magnitude + by_w.magnitude);
    EXPECT_NEAR(by_y.value, by_x.value, limit);
    EXPECT_NEAR(by_y.value, by_w.value, limit);
  }
}

// ---- small cases by hand ----

using Numbers = std::vector<double>;

void set(PlainCase& c, std::size_t tensor, const Numbers& values) {
  std::size_t i = 0;
  c.each(tensor, [&](std::int64_t at) { c.store(tensor, at, values.at(i++)); });
  EXPECT_EQ(i, values.size());
}

// Whether these numbers are the result, and a number next to each of them is not.
void expect_result(const ConvProblem& p, const Numbers& a, const Numbers& b, Numbers result) {
  SCOPED_TRACE(to_string(Problem(p)));
  PlainCase c(p);
  set(c, 0, a);
  set(c, 1, b);
  set(c, 2, result);
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
  for (double& value : result) {
    const double right = value;
    value += 1e-3 * std::max(1.0, std::abs(value));
    set(c, 2, result);
    EXPECT_EQ(verify(c.problem, c.operands).bad, 1) << value;
    value = right;
  }
}

TEST(ConvReference, ThreeTapsByHand) {
  ConvProblem p = line(4, 3);
  p.pad[2] = 1;
  expect_result(p, {1, 2, 3, 4}, {1, 10, 100}, {210, 321, 432, 43});
  p.direction = backward_data;  // weight, grad_out
  expect_result(p, {1, 10, 100}, {1, 2, 3, 4}, {12, 123, 234, 340});
  p.direction = backward_weight;  // in, grad_out
  expect_result(p, {1, 2, 3, 4}, {1, 2, 3, 4}, {20, 30, 20});
}

TEST(ConvReference, StridesAndDilationsByHand) {
  ConvProblem p = line(5, 2);
  p.stride[2] = p.dilation[2] = 2;
  expect_result(p, {1, 2, 3, 4, 5}, {1, 10}, {31, 53});
  p.direction = backward_data;
  expect_result(p, {1, 10}, {1, 2}, {1, 0, 12, 0, 20});
  p.direction = backward_weight;
  expect_result(p, {1, 2, 3, 4, 5}, {1, 2}, {7, 13});
  p = line(3, 2);
  p.pad = {0, 0, 1}, p.pad_right = {0, 0, 0};
  p.stride[2] = 3;
  expect_result(p, {1, 2, 3}, {1, 10}, {10});
  p.direction = backward_data;
  expect_result(p, {1, 10}, {7}, {70, 0, 0});
}

TEST(ConvReference, GroupsByHand) {
  ConvProblem p = line(2, 1);
  p.g = 2, p.c = 2, p.k = 4;
  // in [w][g], weight [g][k], out [w][g][k]
  expect_result(p, {1, 10, 2, 20}, {1, 2, 3, 4}, {1, 2, 30, 40, 2, 4, 60, 80});
  p.layout = ConvLayout::nchw;  // in [g][w], out [g][k][w]
  expect_result(p, {1, 2, 10, 20}, {1, 2, 3, 4}, {1, 2, 2, 4, 30, 60, 40, 80});
}

TEST(ConvReference, BiasBelongsToChannelsOfAllGroups) {
  ConvProblem p = line(2, 1);
  p.g = 2, p.c = 2, p.k = 4;
  p.alpha = 2, p.beta = -1;
  p.epilogue = parse_epilogue("bias+relu+add");
  PlainCase c(p);
  set(c, c.index_of("in"), {1, 10, 2, 20});
  set(c, c.index_of("weight"), {1, 2, 3, 4});
  set(c, c.index_of("c"), {1, 0, 0, 0, 0, 0, 0, 0});
  set(c, c.index_of("d0"), {0.5, -100, 0, 1});
  set(c, c.index_of("d1"), {0, 0, 0, 0, 0, 0, 0, 7});
  set(c, c.out(), {1.5, 0, 60, 81, 4.5, 0, 120, 168});
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
}

// ---- what is not a number ----

// What one special value in an operand makes of ones.
struct SpecialValue {
  ConvDirection direction;
  std::size_t operand;
  std::int64_t at;
  double value;
  Numbers result;
};

// Four pixels, three taps, a pad of 1. Padding is never multiplied: see README.md.
TEST(ConvReference, SpecialValuesReachTheirElements) {
  const SpecialValue rows[] = {
      {forward, 0, 0, kNan, {kNan, kNan, 3, 2}},
      {forward, 0, 2, kInf, {2, kInf, kInf, kInf}},
      {forward, 1, 0, kInf, {2, kInf, kInf, kInf}},
      {forward, 1, 1, kNan, {kNan, kNan, kNan, kNan}},
      {forward, 1, 2, -kInf, {-kInf, -kInf, -kInf, 2}},
      {backward_data, 0, 0, kNan, {kNan, kNan, kNan, 2}},
      {backward_data, 0, 2, kInf, {2, kInf, kInf, kInf}},
      {backward_data, 1, 0, kNan, {kNan, kNan, 3, 2}},
      {backward_weight, 0, 0, kNan, {kNan, kNan, 3}},
      {backward_weight, 1, 0, kInf, {3, kInf, kInf}},
      {backward_weight, 1, 3, kNan, {kNan, kNan, 3}},
  };
  for (const SpecialValue& row : rows) {
    ConvProblem p = line(4, 3);
    p.pad[2] = 1;
    p.direction = row.direction;
    SCOPED_TRACE(fmt::format("{} of operand {} at {}", row.value, row.operand, row.at));
    PlainCase c(p);
    c.fill_inputs([] { return 1; });
    c.store(row.operand, row.at, row.value);
    set(c, 2, row.result);
    EXPECT_EQ(verify(c.problem, c.operands).message, "");
    Numbers other = row.result;
    for (double& value : other) value = std::isfinite(value) ? kNan : 3;
    set(c, 2, other);
    EXPECT_EQ(verify(c.problem, c.operands).bad, std::ssize(other));
  }
}

TEST(ConvReference, ThePixelsBetweenStridesMeetNothing) {
  ConvProblem p = line(5, 1);
  p.stride[2] = 2;
  p.direction = backward_data;
  expect_result(p, {2}, {1, 2, 3}, {2, 0, 4, 0, 6});
  PlainCase c(p);
  set(c, 0, {kNan});
  set(c, 1, {1, 1, 1});
  set(c, 2, {kNan, 0, kNan, 0, kNan});
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
}

TEST(ConvReference, CIsReadForBetaAlone) {
  ConvProblem p = line(2, 1);
  PlainCase without(p);
  set(without, 0, {1, 2});
  set(without, 1, {3});
  set(without, without.out(), {3, 6});
  EXPECT_EQ(std::get<ConvOperands>(without.operands).c, nullptr);
  EXPECT_EQ(verify(without.problem, without.operands).message, "");
  p.beta = 1;
  PlainCase with(p);
  set(with, 0, {1, 2});
  set(with, 1, {3});
  set(with, with.index_of("c"), {kNan, 1});
  set(with, with.out(), {kNan, 7});
  EXPECT_EQ(verify(with.problem, with.operands).message, "");
}

// ---- integers ----

TEST(ConvReference, Int32IsExactAndWrapsAround) {
  ConvProblem p = line(2, 1);
  p.c = 2;
  set_types(p, {int8, int8, int32, int32, int32});
  p.alpha = 1 << 24;
  p.beta = 3;
  PlainCase c(p);
  set(c, 0, {127, 1, -128, 0});
  set(c, 1, {2, 1});
  set(c, c.index_of("c"), {5, -7});
  set(c, c.out(), {-16777216 + 15, -21});  // 255 x 2^24 is -2^24 modulo 2^32; -256 x 2^24 is 0
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
  set(c, c.out(), {-16777216 + 16, -21});
  EXPECT_EQ(verify(c.problem, c.operands).message,
            "conv: out[n=0, g=0, k=0, w=0] is -16777200, the reference is -16777201 with "
            "tolerance 0 (1 of 2 elements checked is outside)");
}

TEST(ConvReference, Int8RoundsAndSaturates) {
  ConvProblem p = line(4, 1);
  set_types(p, {int8, int8, int32, int8, fp32});
  p.alpha = 0.25F;
  PlainCase c(p);
  set(c, 0, {10, 11, 127, -127});
  set(c, 1, {5});
  set(c, 2, {12, 14, 127, -128});  // 12.5, 13.75, 158.75, -158.75
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
  set(c, 2, {12, 13, -98, 98});
  EXPECT_EQ(verify(c.problem, c.operands).bad, 3);
}

// ---- errors that kernels make ----

// Moves the filters of each group to the group before.
void rotate_groups(PlainCase& c, std::size_t filters) {
  std::vector<std::byte>& memory = c.memory[filters];
  const std::size_t group = memory.size() / static_cast<std::size_t>(c.p.g);
  std::rotate(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(group), memory.end());
}

// A kernel that does something else.
struct Mistake {
  std::string_view name;
  void (*run)(PlainCase& c);
};
constexpr Mistake kMistakes[] = {
    {"no pad above",
     [](PlainCase& c) {
       c.p.pad[1] = 0, c.p.pad_right[1] = 2;
       c.run();
     }},
    {"no pad on the left",
     [](PlainCase& c) {
       c.p.pad[2] = 0, c.p.pad_right[2] = 2;
       c.run();
     }},
    {"the filter's rows as its columns",
     [](PlainCase& c) {
       std::swap(c.p.weight_strides[4], c.p.weight_strides[5]);
       c.run();
     }},
    {"the filters of the next group",
     [](PlainCase& c) {
       if (c.p.direction != backward_weight) rotate_groups(c, c.index_of("weight"));
       c.run();
       if (c.p.direction == backward_weight) rotate_groups(c, c.out());
     }},
    {"the last image is left out",
     [](PlainCase& c) {
       c.p.n = 1;
       c.run();
     }},
    {"alpha twice",
     [](PlainCase& c) {
       c.p.alpha = 4;
       c.run();
     }},
};

TEST(ConvReference, NoticesMistakes) {
  RandomConvs random(std::random_device{}());
  for (const ConvDirection direction : kDirections) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      ConvProblem p = small_problem(direction, layout);
      p.alpha = 2;
      PlainCase c(p);
      c.fill_inputs([&] { return random.real(); });
      c.run();
      ASSERT_EQ(verify(c.problem, c.operands).message, "");
      for (const Mistake& mistake : kMistakes) {
        PlainCase other(p);
        other.memory = c.memory;
        mistake.run(other);
        std::copy_n(other.memory[c.out()].begin(), c.memory[c.out()].size(),
                    c.memory[c.out()].begin());
        EXPECT_GT(verify(c.problem, c.operands).bad, 0)
            << mistake.name << " in " << to_string(Problem(p));
      }
    }
  }
}

TEST(ConvReference, UnwrittenElementsAreFound) {
  PlainCase c(small_problem(forward, ConvLayout::nchw));
  c.fill_inputs([] { return 1; });
  EXPECT_EQ(verify(c.problem, c.operands).bad, 2 * 9 * 7 * 8);
}

// ---- ends ----

TEST(ConvReference, WithoutImagesTheGradientByFiltersIsBetaTimesC) {
  ConvProblem p = line(4, 3);
  p.n = 0;
  PlainCase images(p);
  EXPECT_EQ(verify(images.problem, images.operands).checked, 0);
  p.direction = backward_weight;
  p.beta = 2;
  PlainCase c(p);
  ConvOperands& o = std::get<ConvOperands>(c.operands);
  o.in = o.grad_out = nullptr;
  set(c, c.index_of("c"), {1, 2, -3});
  set(c, c.out(), {2, 4, -6});
  EXPECT_EQ(verify(c.problem, c.operands).message, "");
}

TEST(ConvReference, OverflowMayBecomeInfinity) {
  ConvProblem p = line(1, 1);
  p.c = 2;
  PlainCase c(p);
  set(c, 0, {3e38, -3e38});
  set(c, 1, {1, 1});
  for (const double value : {0.0, double{kInf}}) {
    set(c, 2, {value});
    EXPECT_EQ(verify(c.problem, c.operands).message, "") << value;
  }
}

TEST(ConvReference, NeedsItsInputs) {
  ConvProblem p = line(2, 1);
  p.beta = 1;
  PlainCase c(p);
  std::get<ConvOperands>(c.operands).c = std::get<ConvOperands>(c.operands).out;
  try {
    verify(c.problem, c.operands);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "conv: verify needs c as it was before the kernel ran, but c is out; pass a copy");
  }
}

}  // namespace
}  // namespace tessera::conv
