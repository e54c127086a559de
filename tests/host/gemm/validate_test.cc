#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm.h"
#include "tessera/families/operands.h"

namespace tessera::gemm {
namespace {

using enum DType;

GemmProblem small() { return gemm_problem(fp32, GemmLayout::rcr, 128, 3072, 768); }

std::string refusal(const GemmProblem& problem) {
  try {
    validate(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

struct BadProblem {
  void (*change)(GemmProblem&);
  const char* message;
};

class GemmValidate : public testing::TestWithParam<BadProblem> {};

TEST_P(GemmValidate, RefusesWithBothNumbers) {
  GemmProblem problem = small();
  GetParam().change(problem);
  EXPECT_EQ(refusal(problem), GetParam().message);
}

const BadProblem kBadProblems[] = {
    {[](GemmProblem& p) { p.m = -1; }, "gemm: m must be at least 0, got -1"},
    {[](GemmProblem& p) { p.batch = -2; }, "gemm: batch must be at least 0, got -2"},
    {[](GemmProblem& p) { p.ld_a = -5; },
     "gemm: ld_a must be at least 768 (the row length of A for rcr), got -5"},
    {[](GemmProblem& p) { p.ld_b = 767; },
     "gemm: ld_b must be at least 768 (the row length of B for rcr), got 767"},
    {[](GemmProblem& p) {
       p.layout = GemmLayout::crr;
       p.ld_a = 127;
     },
     "gemm: ld_a must be at least 128 (the row length of A for crr), got 127"},
    {[](GemmProblem& p) { p.ld_out = 3071; }, "gemm: ld_out must be at least 3072 (n), got 3071"},
    {[](GemmProblem& p) {
       p.epilogue = parse_epilogue("add");
       p.ld_d[0] = 1;
     },
     "gemm: ld_d0 must be at least 3072 (n), got 1"},
    {[](GemmProblem& p) { p.batch_stride_b = -1; },
     "gemm: batch_stride_b must be at least 0, got -1"},
    {[](GemmProblem& p) {
       p.batch = 2;
       p.batch_stride_out = 393215;
     },
     "gemm: batch_stride_out must be at least 393216 so that batches do not overlap, got 393215"},
    {[](GemmProblem& p) { p.m = p.n = p.k = std::int64_t{1} << 21; },
     "gemm: m x n x k x batch x 4 bytes must be below 2^63, got 2097152 x 2097152 x 2097152 x 1 x "
     "4"},
    {[](GemmProblem& p) {
       p.k = 0;
       p.m = p.n = std::int64_t{1} << 31;
     },
     "gemm: m x n x k x batch x 4 bytes must be below 2^63, got 2147483648 x 2147483648 x 0 x 1 x "
     "4"},
    {[](GemmProblem& p) { p.ld_a = std::int64_t{1} << 60; },
     "gemm: the last byte of a must be below 2^63, got 128 rows 1152921504606846976 apart and 1 "
     "batches 9223372036854775807 apart"},
    {[](GemmProblem& p) { p.alpha = std::nanf(""); }, "gemm: alpha must be finite, got nan"},
    {[](GemmProblem& p) {
       p.clamp_lo = 6;
       p.clamp_hi = 0;
     },
     "gemm: clamp_lo must not be above clamp_hi, got 6 and 0"},
    {[](GemmProblem& p) { p.b = fp16; },
     "gemm: b must be fp32 when a is fp32, got fp16; convert one of them"},
    {[](GemmProblem& p) {
       p.a = fp8;
       p.b = int8;
     },
     "gemm: b must be fp8 or bf8 when a is fp8, got int8; convert one of them"},
    {[](GemmProblem& p) { p.a = int32; },
     "gemm: a must be fp32, tf32, fp16, bf16, fp8, bf8 or int8, got int32"},
    {[](GemmProblem& p) { p.acc = int32; }, "gemm: acc must be fp32 for fp32 operands, got int32"},
    {[](GemmProblem& p) {
       p.a = p.b = fp16;
       p.out = bf16;
     },
     "gemm: out must be fp16 or fp32 for fp16 operands, got bf16"},
    {[](GemmProblem& p) {
       p.a = p.b = int8;
       p.acc = int32;
       p.out = fp16;
     },
     "gemm: out must be int32, fp32, bf16 or int8 for int8 operands, got fp16"},
    {[](GemmProblem& p) { p.d = fp16; }, "gemm: d must be fp32 like out, got fp16"},
    {[](GemmProblem& p) {
       p = gemm_problem(bf16, GemmLayout::rcr, 1, 1, 1);
       p.d = fp16;
     },
     "gemm: d must be fp32 or bf16 like out, got fp16"},
    {[](GemmProblem& p) {
       p = gemm_problem(int8, GemmLayout::rcr, 1, 1, 1);
       p.alpha = 0.5F;
     },
     "gemm: alpha must be a whole number of at most 2^30 when out is int32, got 0.5; use out=fp32"},
    {[](GemmProblem& p) {
       p = gemm_problem(int8, GemmLayout::rcr, 1, 1, 1);
       p.epilogue = parse_epilogue("relu");
     },
     "gemm: out=int32 is exact and takes no epilogue, got relu; use out=fp32"},
    {[](GemmProblem& p) {
       p.pointer_arrays = true;
       p.batch_stride_b = 0;
     },
     "gemm: batch_stride_b must be left out with pointer_arrays, where each batch has a pointer of "
     "its own, got 0"},
    {[](GemmProblem& p) {
       p.pointer_arrays = true;
       p.batch_stride_d[3] = 7;
     },
     "gemm: batch_stride_d3 must be left out with pointer_arrays, where each batch has a pointer "
     "of its own, got 7"},
    {[](GemmProblem& p) { p.pointer_arrays = p.preshuffled_b = true; },
     "gemm: preshuffle and pointer_arrays do not go together: a packed B has one address; leave "
     "one of them out"},
    {[](GemmProblem& p) { p.epilogue.num_d = 3; },
     "gemm: epilogue: its steps take 0 D tensors, but num_d is 3"},
};
INSTANTIATE_TEST_SUITE_P(Table, GemmValidate, testing::ValuesIn(kBadProblems));

TEST(GemmValidate, AcceptsWhatIsAllowed) {
  EXPECT_EQ(refusal(small()), "");
  EXPECT_EQ(refusal(gemm_problem(bf16, GemmLayout::ccr, 0, 0, 0)), "");
  EXPECT_EQ(refusal(gemm_problem(tf32, GemmLayout::rrr, 3, 5, 0)), "");
  GemmProblem mixed = gemm_problem(fp8, GemmLayout::rcr, 4, 4, 4);
  mixed.b = bf8;
  EXPECT_EQ(refusal(mixed), "");
  GemmProblem broadcast = small();
  broadcast.batch = 7;
  broadcast.batch_stride_a = broadcast.batch_stride_b = 0;
  EXPECT_EQ(refusal(broadcast), "");
}

// Heads of an attention layer: batches side by side within each row of the output.
TEST(GemmValidate, AcceptsInterleavedBatches) {
  GemmProblem problem = gemm_problem(fp32, GemmLayout::rcr, 16, 8, 4);
  problem.batch = 3;
  problem.ld_out = 24;
  problem.batch_stride_out = 8;
  EXPECT_EQ(refusal(problem), "");
  problem.ld_out = 23;
  EXPECT_EQ(refusal(problem),
            "gemm: batch_stride_out must be at least 353 so that batches do not overlap, got 8");
}

// Distances between rows that no batch could follow at are no matter then.
TEST(GemmValidate, PointerArraysHaveNoDistances) {
  GemmProblem problem = small();
  problem.batch = 3;
  problem.ld_out = std::int64_t{1} << 53;
  EXPECT_EQ(
      refusal(problem),
      "gemm: the last byte of out must be below 2^63, got 128 rows 9007199254740992 apart and "
      "3 batches 1152921504606846976 apart");
  problem.pointer_arrays = true;
  EXPECT_EQ(refusal(problem), "");
}

// ---- operands ----

// One buffer from which operands are cut, so that distances between them are known.
class GemmOperandsTest : public testing::Test {
 protected:
  GemmOperandsTest() : memory_(1 << 16) {
    problem_ = gemm_problem(fp32, GemmLayout::rcr, 4, 8, 16);
    operands_.a = at(0);
    operands_.b = at(1024);
    operands_.c = at(2048);
    operands_.d = {at(3072), at(4096), at(5120), at(6144)};
    operands_.out = at(8192);
  }

  std::byte* at(std::size_t offset) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (64 - base % 64) % 64 + offset;
  }

  std::string refusal() {
    try {
      validate_operands(family(), problem_, operands_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }

  std::vector<std::byte> memory_;
  GemmProblem problem_;
  GemmOperands operands_;
};

TEST_F(GemmOperandsTest, Accepted) { EXPECT_EQ(refusal(), ""); }

TEST_F(GemmOperandsTest, NullA) {
  operands_.a = nullptr;
  EXPECT_EQ(refusal(), "gemm: a must not be null: 4 rows of 16 elements are needed");
}

TEST_F(GemmOperandsTest, NullOut) {
  operands_.out = nullptr;
  EXPECT_EQ(refusal(), "gemm: out must not be null: 4 rows of 8 elements are needed");
}

TEST_F(GemmOperandsTest, NullCOnlyMattersWithBeta) {
  operands_.c = nullptr;
  EXPECT_EQ(refusal(), "");
  problem_.beta = 1;
  EXPECT_EQ(refusal(), "gemm: c must not be null: 4 rows of 8 elements are needed");
}

TEST_F(GemmOperandsTest, NullDOnlyMattersWithAStepThatTakesIt) {
  operands_.d = {};
  EXPECT_EQ(refusal(), "");
  problem_.epilogue = parse_epilogue("bias");
  EXPECT_EQ(refusal(), "gemm: d0 must not be null: 1 rows of 8 elements are needed");
}

TEST_F(GemmOperandsTest, ScalesAreVectorsOfMAndOfN) {
  problem_.epilogue = parse_epilogue("row_scale+col_scale");
  operands_.d = {};
  EXPECT_EQ(refusal(), "gemm: d0 must not be null: 1 rows of 4 elements are needed");
  operands_.d[0] = at(4096);
  EXPECT_EQ(refusal(), "gemm: d1 must not be null: 1 rows of 8 elements are needed");
  operands_.d[1] = operands_.out;
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap d1, got out 0 bytes after the start of d1, which spans 32 "
            "bytes");
  operands_.d[0] = operands_.out;
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap d0, got out 0 bytes after the start of d0, which spans 16 "
            "bytes");
}

TEST_F(GemmOperandsTest, NothingIsNeededForAnEmptyOutput) {
  problem_.m = 0;
  operands_ = {};
  EXPECT_EQ(refusal(), "");
}

TEST_F(GemmOperandsTest, KZeroReadsNeitherANorB) {
  problem_.k = 0;
  operands_.a = operands_.b = nullptr;
  EXPECT_EQ(refusal(), "");
}

TEST_F(GemmOperandsTest, MisalignedB) {
  operands_.b = at(1026);
  EXPECT_EQ(
      refusal(),
      "gemm: b must be aligned to 4 bytes for fp32, got an address 2 past a multiple of that");
}

TEST_F(GemmOperandsTest, OutOverlapsA) {
  operands_.out = at(252);
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap a, got out 252 bytes after the start of a, which spans 256 "
            "bytes");
  operands_.out = at(256);
  EXPECT_EQ(refusal(), "");
}

TEST_F(GemmOperandsTest, OutOverlapsBFromBelow) {
  operands_.out = at(1020);
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap b, got out 4 bytes before the start of b, which spans 512 "
            "bytes");
}

TEST_F(GemmOperandsTest, CMayBeOutWithEqualStrides) {
  problem_.beta = 1;
  operands_.c = operands_.out;
  EXPECT_EQ(refusal(), "");
  problem_.ld_c = 9;
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap c unless it is the same matrix with equal strides, got out "
            "0 bytes after the start of c, which spans 140 bytes");
}

TEST_F(GemmOperandsTest, DMayBeOutUnlessItIsAVector) {
  problem_.epilogue = parse_epilogue("add");
  operands_.d[0] = operands_.out;
  EXPECT_EQ(refusal(), "");
  problem_.epilogue = parse_epilogue("bias");
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap d0, got out 0 bytes after the start of d0, which spans 32 "
            "bytes");
}

// What an array holds is not read: it may be a device's.
TEST_F(GemmOperandsTest, ArraysOfPointersNeedAnAddress) {
  problem_.pointer_arrays = true;
  problem_.batch = 5;
  problem_.epilogue = parse_epilogue("add");
  operands_.out = at(0);
  EXPECT_EQ(refusal(), "");
  operands_.d[0] = nullptr;
  EXPECT_EQ(refusal(),
            "gemm: d0 must not be null: with pointer_arrays it is an array of 5 pointers");
  operands_.d[0] = at(8);
  operands_.b = at(4);
  EXPECT_EQ(refusal(),
            "gemm: b must be aligned to 8 bytes, an array of pointers, got an address 4 past a "
            "multiple of that");
  problem_.k = 0;
  operands_.a = nullptr;
  EXPECT_EQ(refusal(), "");
  problem_.beta = 1;
  operands_.c = nullptr;
  EXPECT_EQ(refusal(),
            "gemm: c must not be null: with pointer_arrays it is an array of 5 pointers");
  problem_.batch = 0;
  EXPECT_EQ(refusal(), "");
}

// A and out as columns of one wide matrix: their ranges meet, their elements do not.
TEST_F(GemmOperandsTest, ColumnsOfOneMatrixDoNotOverlap) {
  problem_.ld_a = problem_.ld_out = 24;
  operands_.a = at(8192);
  operands_.out = at(8192 + 16 * 4);
  EXPECT_EQ(refusal(), "");
  operands_.out = at(8192 + 15 * 4);
  EXPECT_EQ(refusal(),
            "gemm: out must not overlap a, got out 60 bytes after the start of a, which spans 352 "
            "bytes");
}

}  // namespace
}  // namespace tessera::gemm
