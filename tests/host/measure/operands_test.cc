#include "tessera/measure/operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "host/measure/copying_place.h"
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

// The same values in the other encoding; gaps have its only NaN.
TEST(RandomOperands, FollowTheEncodingOfFp8) {
  const std::uint64_t seed = fresh_seed();
  for (const DType dtype : {DType::fp8, DType::bf8}) {
    SCOPED_TRACE(testing::Message() << to_string(dtype) << " seed " << seed);
    GemmProblem p = gemm_problem(dtype, GemmLayout::rcr, 40, 30, 50);
    p.ld_a = 53;
    const OwnedOperands ocp = random_operands(p, seed);
    const OwnedOperands fnuz = random_operands(p, seed, 1, Fp8Encoding::fnuz);
    EXPECT_EQ(fnuz.fp8, Fp8Encoding::fnuz);
    for (int i = 0; i < 39 * 53 + 50; ++i) {
      const double value = load_element(dtype, gemm(fnuz).a, i, Fp8Encoding::fnuz);
      const double other = load_element(dtype, gemm(ocp).a, i);
      ASSERT_TRUE(value == other || (i % 53 >= 50 && std::isnan(value) && std::isnan(other))) << i;
    }
  }
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

// Elements that lie in one place are filled once, also where heads share them.
TEST(RandomOperands, SharedElementsAreFilledOnce) {
  FmhaProblem p = fmha_problem(DType::bf16, 3, 4, 4, 5, 6, 8);
  p.bias = FmhaBias::elementwise;
  p.k_strides[0] = 0;             // one batch for all
  p.v_strides[1] = 4;             // heads that overlap
  p.bias_strides = {0, 0, 6, 1};  // one matrix for all
  const std::uint64_t seed = fresh_seed();
  const OwnedOperands owned = random_operands(p, seed);
  const OwnedOperands many = random_operands(p, seed, 5);
  const auto& a = std::get<FmhaOperands>(owned.operands);
  const auto& b = std::get<FmhaOperands>(many.operands);
  const std::pair<const void*, const void*> pairs[] = {
      {a.q, b.q}, {a.k, b.k}, {a.v, b.v}, {a.bias, b.bias}};
  for (std::size_t i = 0; i < std::size(pairs); ++i) {
    const std::size_t bytes = owned.tensors[i].bytes();
    EXPECT_EQ(std::memcmp(pairs[i].first, pairs[i].second, bytes), 0) << i << " seed " << seed;
    for (std::int64_t e = 0; e < owned.tensors[i].elements(); ++e) {
      const bool is_gap = std::isnan(load_element(DType::bf16, pairs[i].first, e));
      EXPECT_EQ(is_gap, false) << owned.tensors[i].name << " " << e;
    }
  }
  EXPECT_EQ(owned.storage[3].size(), 5 * 6 * 2 + 512U);
}

FmhaProblem with_lengths(FmhaLengths lengths) {
  FmhaProblem p = fmha_problem(DType::bf16, 200, 1, 1, 7, 1000, 1);
  p.lengths = lengths;
  return p;
}

TEST(RandomOperands, LengthsAreRandomUpToTheLongest) {
  const std::uint64_t seed = fresh_seed();
  const OwnedOperands owned = random_operands(with_lengths(FmhaLengths::padded), seed);
  const auto& o = std::get<FmhaOperands>(owned.operands);
  std::set<std::int32_t> of_q, of_k;
  for (int i = 0; i < 200; ++i) of_q.insert(o.seqlens_q[i]), of_k.insert(o.seqlens_k[i]);
  EXPECT_EQ(of_q, (std::set<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7})) << seed;
  EXPECT_EQ(*of_k.begin(), 0) << seed;
  EXPECT_EQ(*of_k.rbegin(), 1000) << seed;
  EXPECT_GT(of_k.size(), 50U) << seed;
  EXPECT_EQ(o.seqlens_q[200], 0x5a5a5a5a);
  EXPECT_EQ(o.seqlens_q[-1], 0x5a5a5a5a);
}

TEST(RandomOperands, PrefixSumsAreThoseOfLengths) {
  const std::uint64_t seed = fresh_seed();
  FmhaProblem p = with_lengths(FmhaLengths::packed);
  for (const std::int64_t tokens : {200000, 50000, 3, 0}) {
    p.tokens_k = tokens;
    const OwnedOperands owned = random_operands(p, seed);
    const auto& o = std::get<FmhaOperands>(owned.operands);
    EXPECT_EQ(o.seqlens_k[0], 0);
    std::set<std::int32_t> lengths;
    for (int i = 0; i < 200; ++i) {
      const std::int32_t length = o.seqlens_k[i + 1] - o.seqlens_k[i];
      EXPECT_GE(length, 0) << seed;
      EXPECT_LE(length, 1000) << seed;
      lengths.insert(length);
    }
    EXPECT_LE(o.seqlens_k[200], tokens) << seed;
    EXPECT_TRUE(lengths.contains(0)) << seed;
    EXPECT_EQ(lengths.contains(1000), tokens > 40000) << seed;
    EXPECT_EQ(o.seqlens_k[201], 0x5a5a5a5a);
  }
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
      order_of(gemm(owned).out, first(owned.storage[owned.outputs.front()]), gemm(same).out, p.out,
               with.batch_stride_out)};
  EXPECT_EQ(orders.size(), 3U) << seed << " (one seed in 60000 makes two of them equal)";
}

// Writes one element at an offset from the output's first and returns what is found.
std::string after_writing_at(std::int64_t element) {
  const GemmProblem p = strided();
  OwnedOperands owned = random_operands(p, 1);
  reset_outputs(owned);
  store_element(p.out, gemm(owned).out, element, 1.0);
  return gaps_intact(owned);
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
  EXPECT_EQ(gaps_intact(owned), "");
  store_element(p.out, gemm(owned).out, 0, 1.0);
  EXPECT_EQ(gaps_intact(owned),
            "output: 4 bytes outside the 0 x 4 window were written, the first at byte 0 of an "
            "output of 0 bytes");
}

// ---- operands of an operation that is made up ----

// Reads x (three dimensions, columns apart), adds to sum, writes dq and, by an array of pointers,
// dk. It borrows GEMM's struct of pointers and all else.
Tensors made_up_tensors(const Problem&) {
  Tensors all;
  all.push({.name = "x",
            .operand = 0,
            .dtype = DType::fp16,
            .rank = 3,
            .sizes = {3, 2, 2},
            .strides = {2, 7, 20},
            .batches = 2,
            .batch_stride = 50});
  all.push({.name = "sum",
            .operand = 2,
            .access = Access::update,
            .dtype = DType::fp32,
            .sizes = {4},
            .strides = {2}});
  all.push({.name = "dq",
            .operand = 3,
            .access = Access::write,
            .dtype = DType::bf16,
            .rank = 2,
            .sizes = {4, 3},
            .strides = {1, 5}});
  all.push({.name = "dk",
            .operand = 7,
            .access = Access::write,
            .dtype = DType::int8,
            .sizes = {6},
            .strides = {1},
            .batches = 3,
            .batch_stride = 8,
            .in_array = true});
  return all;
}

const Family& made_up() {
  static const Family kMadeUp = [] {
    Family family = family_of(Op::gemm);
    family.tensors = made_up_tensors;
    return family;
  }();
  return kMadeUp;
}

OwnedOperands made_up_operands(std::uint64_t seed) {
  return random_operands(made_up(), GemmProblem{}, seed);
}

TEST(MadeUpOperands, ElementsAreFilledAndGapsPoisoned) {
  const OwnedOperands owned = made_up_operands(fresh_seed());
  const void* const x = gemm(owned).a;
  std::set<int> elements;
  for (const int batch : {0, 50}) {
    for (const int plane : {0, 20}) {
      for (const int row : {0, 7}) {
        for (const int column : {0, 2, 4}) elements.insert(batch + plane + row + column);
      }
    }
  }
  for (int i = -1; i <= 50 + 20 + 7 + 4 + 1; ++i) {
    EXPECT_EQ(std::isnan(load_element(DType::fp16, x, i)), elements.count(i) == 0) << i;
  }
  for (int i = 0; i < 8; ++i) {  // an update is read
    EXPECT_EQ(std::isnan(load_element(DType::fp32, gemm(owned).c, i)), i % 2 == 1) << i;
  }
  for (int i = 0; i < 14; ++i)
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, gemm(owned).d[0], i)));
}

TEST(MadeUpOperands, OutputsAreAllThatIsWritten) {
  const OwnedOperands owned = made_up_operands(1);
  EXPECT_EQ(owned.outputs, (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(owned.arrays, (std::vector<std::size_t>{4}));
  EXPECT_EQ(owned.storage.size(), 5U);
  EXPECT_EQ(gemm(owned).b, nullptr);
}

TEST(MadeUpOperands, ResetRestoresAnUpdateAndPoisonsTheRest) {
  OwnedOperands owned = made_up_operands(fresh_seed());
  std::vector<std::vector<char>> before;
  for (const runtime::AlignedBuffer& buffer : owned.storage) {
    const auto* const bytes = static_cast<const char*>(buffer.data());
    before.emplace_back(bytes, bytes + buffer.size());
  }
  for (const std::size_t i : owned.outputs) {
    std::memset(owned.storage[i].data(), 1, owned.storage[i].size());
  }
  reset_outputs(owned);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(std::memcmp(owned.storage[i].data(), before[i].data(), before[i].size()), 0) << i;
  }
}

TEST(MadeUpOperands, TheOutputThatWasOverrunIsNamed) {
  OwnedOperands owned = made_up_operands(1);
  EXPECT_EQ(gaps_intact(owned), "");
  for (const int element : {0, 3, 5, 13}) {
    store_element(DType::bf16, const_cast<void*>(gemm(owned).d[0]), element, 1);
  }
  for (const int element : {0, 2, 4, 6}) {
    store_element(DType::fp32, const_cast<void*>(gemm(owned).c), element, 1);
  }
  EXPECT_EQ(gaps_intact(owned), "");
  void* const last = static_cast<void* const*>(gemm(owned).out)[0];
  store_element(DType::int8, last, 6, 1);
  EXPECT_EQ(gaps_intact(owned).substr(0, 67),
            "output dk: 1 bytes outside the 6 window were written, the first at ");
  store_element(DType::bf16, const_cast<void*>(gemm(owned).d[0]), 4, 1);
  EXPECT_EQ(gaps_intact(owned),
            "output dq: 2 bytes outside the 3 x 4 window were written, the first at byte 8 of an "
            "output of 28 bytes");
  store_element(DType::fp32, const_cast<void*>(gemm(owned).c), 1, 1);
  EXPECT_EQ(gaps_intact(owned),
            "output sum: 4 bytes outside the 4 window were written, the first at byte 4 of an "
            "output of 28 bytes");
}

TEST(MadeUpOperands, PlacedAndBackAreTheSame) {
  OwnedOperands owned = made_up_operands(fresh_seed());
  const runtime::Place place = copying_place();
  PlacedOperands placed = place_operands(owned, place);
  const auto& there = std::get<GemmOperands>(placed.operands);
  EXPECT_EQ(there.b, nullptr);
  EXPECT_NE(there.a, gemm(owned).a);
  EXPECT_EQ(std::memcmp(there.a, gemm(owned).a, owned.tensors[0].bytes()), 0);
  for (std::size_t i = 0; i < 3; ++i) {  // the array holds the device's addresses
    const auto* const here = static_cast<const std::byte*>(
        static_cast<const void* const*>(static_cast<const void*>(gemm(owned).out))[i]);
    const auto* const moved =
        static_cast<const std::byte*>(static_cast<void* const*>(there.out)[i]);
    EXPECT_EQ(moved - static_cast<const std::byte*>(placed.storage[3].data()),
              here - static_cast<const std::byte*>(owned.storage[3].data()));
  }
  store_element(DType::fp32, const_cast<void*>(there.c), 0, 77);
  store_element(DType::bf16, const_cast<void*>(there.d[0]), 0, 78);
  store_element(DType::int8, static_cast<void* const*>(there.out)[2], 5, 79);
  fetch_outputs(owned, placed, place);
  EXPECT_EQ(load_element(DType::fp32, gemm(owned).c, 0), 77);
  EXPECT_EQ(load_element(DType::bf16, gemm(owned).d[0], 0), 78);
  EXPECT_EQ(load_element(DType::int8, static_cast<void* const*>(gemm(owned).out)[2], 5), 79);

  reset_placed(placed, owned, place);
  reset_outputs(owned);
  for (const std::size_t i : owned.outputs) {
    EXPECT_EQ(
        std::memcmp(placed.storage[i].data(), owned.storage[i].data(), owned.storage[i].size()), 0)
        << i;
  }
}

TEST(MadeUpOperands, RunsOfSeveralOutputsAreFetched) {
  OwnedOperands owned = made_up_operands(fresh_seed());
  const runtime::Place place = copying_place();
  PlacedOperands placed = place_operands(owned, place);
  const auto& there = std::get<GemmOperands>(placed.operands);
  for (int i = 0; i < 14; ++i) store_element(DType::bf16, const_cast<void*>(there.d[0]), i, i + 1);
  for (int i = 0; i < 6; ++i) {
    store_element(DType::int8, static_cast<void* const*>(there.out)[1], i, i + 1);
  }
  const std::vector<Reference::Run> runs = {{.tensor = 2, .offset = 10, .bytes = 8},
                                            {.tensor = 3, .batch = 1, .offset = 2, .bytes = 3}};
  fetch_runs(owned, placed, place, runs);
  for (int i = 0; i < 14; ++i) {
    const double value = load_element(DType::bf16, gemm(owned).d[0], i);
    const bool is_fetched = i >= 5 && i < 9;
    EXPECT_EQ(std::isnan(value) ? 0 : value, is_fetched ? i + 1 : 0) << i;
  }
  for (int i = 0; i < 6; ++i) {
    const bool is_fetched = i >= 2 && i < 5;
    EXPECT_EQ(load_element(DType::int8, static_cast<void* const*>(gemm(owned).out)[1], i),
              is_fetched ? i + 1 : 0x5a)
        << i;
  }
}

// ---- a caller's operands ----

TEST(FetchInputs, LeavesTheHostsWhereTheyAre) {
  const OwnedOperands owned = made_up_operands(1);
  HostOperands host = fetch_inputs(made_up(), GemmProblem{}, owned.operands, runtime::host_place());
  EXPECT_TRUE(host.storage.empty());
  fetch_results(made_up(), owned.operands, runtime::host_place(), host);
  EXPECT_EQ(std::get<GemmOperands>(host.operands).a, gemm(owned).a);
  EXPECT_EQ(std::get<GemmOperands>(host.operands).out, gemm(owned).out);
}

TEST(FetchInputs, BringsWhatIsReadThenWhatWasWritten) {
  const OwnedOperands owned = made_up_operands(fresh_seed());
  const runtime::Place place = copying_place();
  HostOperands host = fetch_inputs(made_up(), GemmProblem{}, owned.operands, place);
  const auto& seen = std::get<GemmOperands>(host.operands);
  EXPECT_NE(seen.a, gemm(owned).a);
  EXPECT_EQ(std::memcmp(seen.a, gemm(owned).a, owned.tensors[0].bytes()), 0);
  EXPECT_EQ(std::memcmp(seen.c, gemm(owned).c, owned.tensors[1].bytes()), 0);
  store_element(DType::fp32, const_cast<void*>(gemm(owned).c), 2, 11);
  store_element(DType::bf16, const_cast<void*>(gemm(owned).d[0]), 6, 12);
  for (int i = 0; i < 3; ++i) {
    store_element(DType::int8, static_cast<void* const*>(gemm(owned).out)[i], 5, 13 + i);
  }
  EXPECT_NE(load_element(DType::fp32, seen.c, 2), 11);  // as it was before the launch
  fetch_results(made_up(), owned.operands, place, host);
  EXPECT_EQ(load_element(DType::fp32, seen.c, 2), 11);
  EXPECT_EQ(load_element(DType::bf16, seen.d[0], 6), 12);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(load_element(DType::int8, static_cast<void* const*>(seen.out)[i], 5), 13 + i);
  }
}

TEST(FetchInputs, ReadsNoPointerOfAnEmptyOutput) {
  const GemmProblem p = gemm_problem(DType::fp32, GemmLayout::rcr, 5, 0, 3);
  GemmOperands operands;
  operands.a = &p;
  HostOperands host = fetch_inputs(family_of(Op::gemm), p, operands, copying_place());
  EXPECT_TRUE(host.storage.empty());
  fetch_results(family_of(Op::gemm), operands, copying_place(), host);
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
  auto* const bytes = static_cast<unsigned char*>(placed.storage[owned.outputs.front()].data());
  const std::size_t size = owned.storage[owned.outputs.front()].size();
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 7);
  const std::vector<Reference::Run> runs = {
      {.tensor = owned.outputs.front(), .batch = 4, .offset = 18, .bytes = 6}};
  reset_outputs(owned);
  fetch_runs(owned, placed, place, runs);
  const auto* const host =
      static_cast<const unsigned char*>(owned.storage[owned.outputs.front()].data());
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
  EXPECT_EQ(family_of(plain).unpacked(p), plain);
  EXPECT_EQ(family_of(plain).unpacked(plain), plain);
}

}  // namespace
}  // namespace tessera::measure
