// Which elements of a large result the reference looks at.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <new>
#include <set>

#include "host/conv/conv_problems.h"
#include "host/conv/plain_conv.h"

namespace tessera::conv {
namespace {

// All elements of the result that lie at an end of each dimension.
std::vector<std::int64_t> corners_of(const Tensor& t) {
  std::vector<std::int64_t> corners = {0};
  const auto add = [&](std::int64_t size, std::int64_t stride) {
    const std::size_t before = corners.size();
    for (std::size_t i = 0; size > 1 && i < before; ++i) {
      corners.push_back(corners[i] + (size - 1) * stride);
    }
  };
  for (std::size_t i = 0; i < t.rank; ++i) add(t.sizes[i], t.strides[i]);
  add(t.batches, t.batch_stride);
  return corners;
}

// Zeros times anything are zeros: the result is known without computing it.
PlainCase zeros(ConvProblem p) {
  PlainCase c(p);
  for (auto& memory : c.memory) std::fill(memory.begin(), memory.end(), std::byte{0});
  return c;
}

TEST(ConvSample, HoldsEveryCorner) {
  for (const ConvDirection direction : kDirections) {
    for (const ConvLayout layout : {ConvLayout::nhwgc, ConvLayout::nchw}) {
      ConvProblem p = small_problem(direction, layout);
      p.c = p.k = 48;
      p.size = {1, 20, 21};
      SCOPED_TRACE(to_string(Problem(p)));
      PlainCase c = zeros(p);
      const ReferenceLimits limits = {.multiplications = 1e6, .seed = std::random_device{}()};
      const Reference kept = reference(c.problem, c.operands, limits);
      const Mismatch clean = compare(c.problem, c.operands, kept);
      EXPECT_EQ(clean.message, "");
      EXPECT_GE(clean.checked, 32);
      EXPECT_LT(clean.checked, c.list[c.out()].elements() / 2);
      for (const std::int64_t corner : corners_of(c.list[c.out()])) {
        c.store(c.out(), corner, 1);
        EXPECT_EQ(compare(c.problem, c.operands, kept).bad, 1) << corner;
        c.store(c.out(), corner, 0);
      }
    }
  }
}

TEST(ConvSample, MeetsEveryGroup) {
  ConvProblem p = small_problem(ConvDirection::forward, ConvLayout::nhwgc);
  p.g = 16, p.c = p.k = 64;
  p.size = {1, 20, 21};
  PlainCase c = zeros(p);
  const Reference kept = reference(c.problem, c.operands, {.multiplications = 1e6});
  const ConvStrides& y = c.p.out_strides;
  for (std::int64_t g = 0; g < p.g; ++g) {
    for (std::int64_t pixel = 0; pixel < 2 * 20 * 21; ++pixel) {
      for (std::int64_t k = 0; k < 4; ++k) c.store(c.out(), pixel * y[5] + g * y[1] + k, 1);
    }
    const std::int64_t bad = compare(c.problem, c.operands, kept).bad;
    EXPECT_GT(bad, 0) << g;
    c.fill(c.out(), [] { return 0; });
  }
}

TEST(ConvSample, FewRowsAreTheFirstTheLastAndOthersBySeed) {
  ConvProblem p = small_problem(ConvDirection::forward, ConvLayout::nhwgc);
  p.g = 1;
  PlainCase c = zeros(p);
  std::set<std::vector<std::int64_t>> drawn;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Reference kept = reference(c.problem, c.operands, {.rows = 8, .seed = seed});
    std::vector<std::int64_t> rows;
    for (const Reference::Run& run : kept.runs) {
      EXPECT_EQ(run.tensor, c.out());
      EXPECT_EQ(run.offset % (9 * 4), 0);
      EXPECT_EQ(run.bytes, 9 * 4);
      rows.push_back(run.offset / (9 * 4));
    }
    EXPECT_LE(rows.size(), 8U);
    EXPECT_GE(rows.size(), 6U);
    EXPECT_EQ(rows.front(), 0);
    EXPECT_EQ(rows.back(), 2 * 7 * 8 - 1);
    drawn.insert(rows);
  }
  EXPECT_EQ(drawn.size(), 3U);
  EXPECT_EQ(reference(c.problem, c.operands, {}).runs.size(), 2U * 7 * 8);
}

// Nothing outside of the runs is compared, and runs hold all that is.
TEST(ConvSample, OnlyRunsAreCompared) {
  RandomConvs random(std::random_device{}());
  for (int i = 0; i < 30; ++i) {
    ConvProblem p = random.problem();
    p.direction = kDirections[i % 3];
    random.share_places(p);
    SCOPED_TRACE(to_string(Problem(p)));
    PlainCase c = zeros(p);
    const Reference kept = reference(c.problem, c.operands, {.elements = 100, .rows = 5});
    std::vector<std::byte> result(c.memory[c.out()].size(), std::byte{0xff});
    std::swap(result, c.memory[c.out()]);
    family().set_pointer(c.operands, c.list[c.out()].operand, c.memory[c.out()].data());
    for (const Reference::Run& run : kept.runs) {
      std::copy_n(result.begin() + run.offset, run.bytes, c.memory[c.out()].begin() + run.offset);
    }
    EXPECT_EQ(compare(c.problem, c.operands, kept).message, "");
  }
}

// Memory that exists where it is touched.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() { munmap(data_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  float* data() const { return static_cast<float*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(ConvSample, FollowsStridesBeyondTwoToThe31) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 32) + 5;
  ConvProblem p = line(3, 2);
  p.n = 2;
  p.in_strides[0] = kFar, p.out_strides[0] = kFar;
  const Sparse x(static_cast<std::size_t>(kFar + 3) * 4), y(static_cast<std::size_t>(kFar + 2) * 4);
  float w[] = {1, 10};
  for (int i = 0; i < 3; ++i) x.data()[kFar + i] = static_cast<float>(i + 1);
  y.data()[kFar] = 21, y.data()[kFar + 1] = 32;
  const ConvOperands o = {.in = x.data(), .weight = w, .out = y.data()};
  EXPECT_EQ(verify(p, o).message, "");
  y.data()[kFar] = 22;
  EXPECT_EQ(verify(p, o).bad, 1);
}

TEST(ConvSample, ThreadsComputeTheSame) {
  RandomConvs random(std::random_device{}());
  PlainCase c(small_problem(ConvDirection::backward_data, ConvLayout::nhwgc));
  c.fill_inputs([&] { return random.real(); });
  c.run();
  const Reference one = reference(c.problem, c.operands, {});
  const Reference five = reference(c.problem, c.operands, {.threads = 5});
  const Mismatch first = compare(c.problem, c.operands, one);
  const Mismatch second = compare(c.problem, c.operands, five);
  EXPECT_EQ(first.message, "");
  EXPECT_EQ(first.worst_ratio, second.worst_ratio);
  EXPECT_GT(first.worst_ratio, 0);
}

}  // namespace
}  // namespace tessera::conv
