#include "tessera/spec/dtype.h"

#include "host/spec/expect_error.h"

namespace tessera {
namespace {

TEST(DType, NamesRoundTrip) {
  std::string all;
  for (const DType dtype : all_dtypes()) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    all += std::string(to_string(dtype)) + " ";
  }
  EXPECT_EQ(all, "fp32 tf32 fp16 bf16 fp8 bf8 int8 int32 ");
}

TEST(DType, SuggestsTheNearestName) {
  expect_error(ErrorCode::parse_error, "unknown dtype 'bf1', did you mean 'bf16'?",
               [] { parse_dtype("bf1"); });
  expect_error(ErrorCode::parse_error, "unknown dtype 'int_8', did you mean 'int8'?",
               [] { parse_dtype("int_8"); });
  expect_error(ErrorCode::parse_error,
               "unknown dtype 'half': it must be one of fp32, tf32, fp16, bf16, fp8, bf8, int8, "
               "int32",
               [] { parse_dtype("half"); });
}

TEST(DType, FactsOfEachType) {
  struct Row {
    DType dtype;
    int bytes;
    bool integer;
    DType accumulator;
    DType output;
    double epsilon;
    double max_finite;
    double min_normal;
  };
  constexpr double kFp32Max = 3.4028234663852886e38;
  constexpr double kFp32Min = 1.1754943508222875e-38;
  const Row rows[] = {
      {DType::fp32, 4, false, DType::fp32, DType::fp32, 1.0 / (1 << 23), kFp32Max, kFp32Min},
      {DType::tf32, 4, false, DType::fp32, DType::tf32, 1.0 / 1024, 3.4011621342146535e38,
       kFp32Min},
      {DType::fp16, 2, false, DType::fp32, DType::fp16, 1.0 / 1024, 65504, 1.0 / 16384},
      {DType::bf16, 2, false, DType::fp32, DType::bf16, 1.0 / 128, 3.3895313892515355e38, kFp32Min},
      {DType::fp8, 1, false, DType::fp32, DType::fp16, 1.0 / 8, 448, 1.0 / 64},
      {DType::bf8, 1, false, DType::fp32, DType::fp16, 1.0 / 4, 57344, 1.0 / 16384},
      {DType::int8, 1, true, DType::int32, DType::int32, 0, 127, 1},
      {DType::int32, 4, true, DType::int32, DType::int32, 0, 2147483647, 1},
  };
  ASSERT_EQ(std::size(rows), all_dtypes().size());
  for (const Row& row : rows) {
    SCOPED_TRACE(to_string(row.dtype));
    EXPECT_EQ(size_of(row.dtype), row.bytes);
    EXPECT_EQ(is_integer(row.dtype), row.integer);
    EXPECT_EQ(default_accumulator(row.dtype), row.accumulator);
    EXPECT_EQ(default_output(row.dtype), row.output);
    EXPECT_EQ(epsilon(row.dtype), row.epsilon);
    EXPECT_EQ(max_finite(row.dtype), row.max_finite);
    EXPECT_EQ(min_normal(row.dtype), row.min_normal);
  }
}

}  // namespace
}  // namespace tessera
