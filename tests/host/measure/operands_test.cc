#include "tessera/measure/operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/spec/numeric.h"

namespace tessera::measure {
namespace {

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  return seed;
}

GemmProblem strided() {
  GemmProblem p = gemm_problem(DType::bf16, GemmLayout::rrr, 5, 7, 3);
  p.batch = 2;
  p.ld_a = 4;
  p.ld_out = 9;
  p.batch_stride_out = 50;
  p.beta = 0.5F;
  p.epilogue = parse_epilogue("bias+multiply");
  return p;
}

const GemmOperands& gemm(const OwnedOperands& owned) {
  return std::get<GemmOperands>(owned.operands);
}

TEST(RandomOperands, FillsEveryDtypeWithVariedNonZeroValues) {
  const std::uint64_t seed = fresh_seed();
  for (const DType dtype :
       {DType::fp32, DType::fp16, DType::bf16, DType::fp8, DType::bf8, DType::int8}) {
    SCOPED_TRACE(testing::Message() << to_string(dtype) << " seed " << seed);
    const OwnedOperands owned =
        random_operands(gemm_problem(dtype, GemmLayout::rcr, 40, 30, 50), seed);
    std::set<double> values;
    for (int i = 0; i < 40 * 50; ++i) {
      const double value = load_element(dtype, gemm(owned).a, i);
      EXPECT_NE(value, 0);
      EXPECT_LE(std::abs(value), dtype == DType::int8 ? 128 : 1);
      values.insert(value);
    }
    EXPECT_GT(values.size(), 25U);
  }
}

TEST(RandomOperands, SameSeedSameBytes) {
  const Problem problem = gemm_problem(DType::fp32, GemmLayout::rcr, 9, 8, 7);
  const OwnedOperands one = random_operands(problem, 5);
  const OwnedOperands two = random_operands(problem, 5);
  const OwnedOperands other = random_operands(problem, 6);
  EXPECT_EQ(std::memcmp(gemm(one).a, gemm(two).a, 9 * 7 * 4), 0);
  EXPECT_NE(std::memcmp(gemm(one).a, gemm(other).a, 9 * 7 * 4), 0);
  EXPECT_NE(std::memcmp(gemm(one).a, gemm(one).b, 8 * 7 * 4), 0);
}

TEST(RandomOperands, ThreadsDoNotMatter) {
  GemmProblem problem = gemm_problem(DType::bf16, GemmLayout::rcr, 70, 30, 50);
  problem.batch = 3;
  const std::uint64_t seed = fresh_seed();
  const OwnedOperands one = random_operands(problem, seed);
  for (const int threads : {2, 7}) {
    const OwnedOperands many = random_operands(problem, seed, threads);
    EXPECT_EQ(std::memcmp(gemm(one).a, gemm(many).a, 3 * 70 * 50 * 2), 0) << seed;
    EXPECT_EQ(std::memcmp(gemm(one).b, gemm(many).b, 3 * 30 * 50 * 2), 0) << seed;
  }
}

TEST(RandomOperands, PoisonsGapsAndOutput) {
  const OwnedOperands owned = random_operands(strided(), fresh_seed());
  for (int i = 0; i < 2 * 5 * 4 - 1; ++i) {  // A: rows of 3 elements, 4 apart
    EXPECT_EQ(std::isnan(load_element(DType::bf16, gemm(owned).a, i)), i % 4 == 3) << i;
  }
  for (int i = 0; i < 50 + 4 * 9 + 7; ++i) {
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, gemm(owned).out, i))) << i;
  }
  EXPECT_TRUE(std::isnan(load_element(DType::bf16, gemm(owned).a, -1)));
  EXPECT_TRUE(std::isnan(load_element(DType::bf16, gemm(owned).b, 2 * 3 * 7)));
}

TEST(RandomOperands, GivesWhatTheProblemReads) {
  GemmProblem p = strided();
  EXPECT_NE(gemm(random_operands(p, 1)).c, nullptr);
  EXPECT_NE(gemm(random_operands(p, 1)).d[1], nullptr);
  EXPECT_EQ(gemm(random_operands(p, 1)).d[2], nullptr);
  p.beta = 0;
  EXPECT_EQ(gemm(random_operands(p, 1)).c, nullptr);
}

TEST(RandomOperands, AlignsTo64Bytes) {
  const OwnedOperands owned = random_operands(strided(), 1);
  for (const void* data : {gemm(owned).a, gemm(owned).b, gemm(owned).c, gemm(owned).d[0],
                           static_cast<const void*>(gemm(owned).out)}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
  }
}

TEST(RandomOperands, SharedBatchesAreFilledOnce) {
  GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 4, 4, 4);
  p.batch = 3;
  p.batch_stride_a = 0;
  const OwnedOperands owned = random_operands(p, 1);
  EXPECT_EQ(owned.storage.front().size(), 4 * 4 * 4 + 512U);
}

GemmProblem in_arrays() {
  GemmProblem p = strided();
  p.batch = 9;
  p.batch_stride_out = kPacked;
  p.pointer_arrays = true;
  return p;
}

// Every batch of the strided operand has one pointer, in an order that is another for each operand.
TEST(RandomOperands, PointersToBatchesAreShuffled) {
  const std::uint64_t seed = fresh_seed();
  const GemmProblem p = in_arrays();
  GemmProblem plain = p;
  plain.pointer_arrays = false;
  const OwnedOperands owned = random_operands(p, seed);
  const OwnedOperands same = random_operands(plain, seed);
  EXPECT_TRUE(same.arrays.empty());
  ASSERT_EQ(owned.arrays.size(), 6U);  // A, B, C, D0, D1, out
  const GemmProblem with = with_strides(p);
  const auto order_of = [&](const void* array, const void* base, const void* model, DType dtype,
                            std::int64_t stride) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < p.batch; ++i) {
      const auto* const at = static_cast<const std::byte* const*>(array)[i];
      const std::int64_t bytes = at - static_cast<const std::byte*>(base);
      EXPECT_EQ(bytes % (stride * size_of(dtype)), 0) << seed;
      EXPECT_EQ(std::memcmp(at, static_cast<const std::byte*>(model) + bytes, 4), 0) << seed;
      order.push_back(bytes / (stride * size_of(dtype)));
    }
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 9U) << seed;
    EXPECT_EQ(*std::max_element(order.begin(), order.end()), 8) << seed;
    return order;
  };
  const auto first = [](const runtime::AlignedBuffer& buffer) {
    return static_cast<const std::byte*>(buffer.data()) + 256;
  };
  std::set<std::vector<std::int64_t>> orders = {
      order_of(gemm(owned).a, first(owned.storage[0]), gemm(same).a, p.a, with.batch_stride_a),
      order_of(gemm(owned).b, first(owned.storage[1]), gemm(same).b, p.b, with.batch_stride_b),
      order_of(gemm(owned).out, first(owned.storage[owned.output]), gemm(same).out, p.out,
               with.batch_stride_out)};
  EXPECT_EQ(orders.size(), 3U) << seed << " (one seed in 60000 makes two of them equal)";
}

// Writes one element at an offset from the output's first and returns what is found.
std::string after_writing_at(std::int64_t element) {
  const GemmProblem p = strided();
  OwnedOperands owned = random_operands(p, 1);
  poison_output(p, owned);
  store_element(p.out, gemm(owned).out, element, 1.0);
  return gaps_intact(p, owned);
}

TEST(GapsIntact, AllowsTheWholeWindow) {
  for (const std::int64_t element : {0, 6, 9, 4 * 9 + 6, 50, 50 + 4 * 9 + 6}) {
    EXPECT_EQ(after_writing_at(element), "") << element;
  }
}

TEST(GapsIntact, NamesTheFirstStrayByte) {
  struct Row {
    std::int64_t element;
    const char* message;
  };
  const Row rows[] = {
      {-1,
       "output: 2 bytes outside the 5 x 7 window were written, the first at byte -2 of an "
       "output of 186 bytes"},
      {7,
       "output: 2 bytes outside the 5 x 7 window were written, the first at byte 14 of an "
       "output of 186 bytes"},
      {49,
       "output: 2 bytes outside the 5 x 7 window were written, the first at byte 98 of an "
       "output of 186 bytes"},
      {93,
       "output: 2 bytes outside the 5 x 7 window were written, the first at byte 186 of an "
       "output of 186 bytes"},
  };
  for (const Row& row : rows) EXPECT_EQ(after_writing_at(row.element), row.message);
}

TEST(GapsIntact, WatchesAnEmptyOutput) {
  const GemmProblem p = gemm_problem(DType::int8, GemmLayout::rcr, 0, 4, 4);
  OwnedOperands owned = random_operands(p, 1);
  EXPECT_EQ(gaps_intact(p, owned), "");
  store_element(p.out, gemm(owned).out, 0, 1.0);
  EXPECT_EQ(gaps_intact(p, owned),
            "output: 4 bytes outside the 0 x 4 window were written, the first at byte 0 of an "
            "output of 0 bytes");
}

TEST(SaveInputs, CopiesWhatLiesOverTheOutput) {
  const GemmProblem p = strided();
  OwnedOperands owned = random_operands(p, 1);
  Operands operands = owned.operands;
  EXPECT_TRUE(save_inputs(p, operands, runtime::host_place()).storage.empty());
  auto& g = std::get<GemmOperands>(operands);
  g.c = g.out;
  g.d[1] = g.out;
  const SavedOperands saved = save_inputs(p, operands, runtime::host_place());
  const auto& seen = std::get<GemmOperands>(saved.operands);
  ASSERT_EQ(saved.storage.size(), 2U);
  EXPECT_EQ(seen.c, saved.storage[0].data());
  EXPECT_EQ(seen.d[1], saved.storage[1].data());
  EXPECT_EQ(seen.d[0], gemm(owned).d[0]);
  EXPECT_EQ(seen.out, g.out);
}

// In place: out's matrices are C's too. What the kernel writes over is copied, batch by batch.
TEST(SaveInputs, CopiesTheMatricesThatArraysName) {
  const GemmProblem p = in_arrays();
  OwnedOperands owned = random_operands(p, fresh_seed());
  Operands operands = owned.operands;
  auto& g = std::get<GemmOperands>(operands);
  g.c = g.out;
  const auto matrix = [](const void* array, int batch) {
    return static_cast<const void* const*>(array)[batch];
  };
  for (int i = 0; i < 9; ++i) store_element(p.out, const_cast<void*>(matrix(g.out, i)), 10, i);
  const SavedOperands saved = save_inputs(p, operands, runtime::host_place());
  for (int i = 0; i < 9; ++i) store_element(p.out, const_cast<void*>(matrix(g.out, i)), 10, -1);
  const auto& seen = std::get<GemmOperands>(saved.operands);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(load_element(p.out, matrix(seen.c, i), 10), i);
  EXPECT_EQ(seen.a, g.a);
  EXPECT_EQ(seen.out, g.out);
  EXPECT_EQ(std::memcmp(matrix(seen.d[1], 8), matrix(g.d[1], 8), 5 * 7 * 2), 0);
}

// A run of a batch is fetched from where the array says that the batch is.
TEST(FetchRuns, FollowTheArrayOfOutputs) {
  const GemmProblem p = in_arrays();
  OwnedOperands owned = random_operands(p, fresh_seed());
  const runtime::Place place = runtime::host_place();
  PlacedOperands placed;  // as on a device
  for (const runtime::AlignedBuffer& buffer : owned.storage) {
    placed.storage.emplace_back(place, buffer.size());
  }
  auto* const bytes = static_cast<unsigned char*>(placed.storage[owned.output].data());
  const std::size_t size = owned.storage[owned.output].size();
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7);
  const std::vector<Reference::Run> runs = {{.batch = 4, .offset = 18, .bytes = 6}};
  poison_output(p, owned);
  fetch_runs(owned, placed, place, runs);
  const auto* const host = static_cast<const unsigned char*>(owned.storage[owned.output].data());
  const void* const matrix = static_cast<void* const*>(gemm(owned).out)[4];
  const auto first =
      static_cast<std::size_t>(static_cast<const unsigned char*>(matrix) - host) + 18;
  for (std::size_t i = 256; i < size - 256; ++i) {
    const bool is_fetched = i >= first && i < first + 6;
    EXPECT_EQ(host[i], is_fetched ? static_cast<unsigned char>(i * 7) : 0xff) << i;
  }
}

TEST(Unpacked, ClearsPreshuffledOnly) {
  GemmProblem p = strided();
  const Problem plain = p;
  p.preshuffled_b = true;
  EXPECT_EQ(unpacked(p), plain);
}

}  // namespace
}  // namespace tessera::measure
