// tessera matmul against a plain triple loop.
#include <fmt/format.h>

#include <random>

#include "host/cli/cli.h"

namespace tessera::cli_test {
namespace {

struct Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::vector<float> row_major;

  float at(std::int64_t i, std::int64_t j) const {
    return row_major[static_cast<std::size_t>(i * columns + j)];
  }
};

Matrix random_matrix(std::int64_t rows, std::int64_t columns, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix matrix{rows, columns, {}};
  for (std::int64_t i = 0; i < rows * columns; ++i) matrix.row_major.push_back(uniform(random));
  return matrix;
}

std::string npy_of(const Matrix& matrix, bool fortran) {
  std::vector<float> data = matrix.row_major;
  if (fortran) {
    data.clear();
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
      for (std::int64_t i = 0; i < matrix.rows; ++i) data.push_back(matrix.at(i, j));
    }
  }
  const std::string shape = fmt::format("({}, {})", matrix.rows, matrix.columns);
  return npy_text("<f4", shape, fortran, bytes_of(data));
}

using CliMatmul = CliTest;

// Every order of both operands. A sum of k products of |x| <= 1 is off by less than k * k * eps.
TEST_F(CliMatmul, EqualsTheTripleLoop) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const std::int64_t m = 19, n = 35, k = 41;
  const Matrix a = random_matrix(m, k, random);
  const Matrix b = random_matrix(k, n, random);
  for (const bool a_fortran : {false, true}) {
    for (const bool b_fortran : {false, true}) {
      write("a.npy", npy_of(a, a_fortran));
      write("b.npy", npy_of(b, b_fortran));
      const Json json = run_json("matmul a.npy b.npy --output c.npy --verify");
      EXPECT_EQ(json.at("shape"), Json({m, n}));
      std::string header;
      const std::vector<float> got = npy_data<float>(folder() / "c.npy", header);
      EXPECT_EQ(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (19, 35,), }");
      ASSERT_EQ(got.size(), static_cast<std::size_t>(m * n));
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::int64_t p = 0; p < k; ++p) sum += double{a.at(i, p)} * double{b.at(p, j)};
          ASSERT_NEAR(got[static_cast<std::size_t>(i * n + j)], sum, k * k * 0x1p-24)
              << i << " " << j;
        }
      }
    }
  }
}

// A stack times one matrix: integers, hence exact. The stack in Fortran order too.
TEST_F(CliMatmul, StacksAndIntegersAreExact) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> uniform(-128, 127);
  constexpr int kBatch = 3, kM = 5, kN = 7, kK = 9;
  std::vector<std::int8_t> a(kBatch * kM * kK), fortran(a.size()), b(kK * kN);
  for (std::int8_t& x : a) x = static_cast<std::int8_t>(uniform(random));
  for (std::int8_t& x : b) x = static_cast<std::int8_t>(uniform(random));
  for (int s = 0; s < kBatch; ++s) {
    for (int i = 0; i < kM; ++i) {
      for (int p = 0; p < kK; ++p) {
        fortran[static_cast<std::size_t>(s + kBatch * (i + kM * p))] =
            a[static_cast<std::size_t>((s * kM + i) * kK + p)];
      }
    }
  }
  std::vector<std::int32_t> expected(kBatch * kM * kN, 0);
  for (int r = 0; r < kBatch * kM; ++r) {
    for (int j = 0; j < kN; ++j) {
      for (int p = 0; p < kK; ++p) {
        expected[static_cast<std::size_t>(r * kN + j)] +=
            a[static_cast<std::size_t>(r * kK + p)] * b[static_cast<std::size_t>(p * kN + j)];
      }
    }
  }
  write("b.npy", npy_text("|i1", "(9, 7)", false, bytes_of(b)));
  for (const bool is_fortran : {false, true}) {
    write("a.npy", npy_text("|i1", "(3, 5, 9)", is_fortran, bytes_of(is_fortran ? fortran : a)));
    const Json json = run_json("matmul a.npy b.npy --output c.npy");
    EXPECT_EQ(json.at("dtype"), "int32");
    std::string header;
    EXPECT_EQ(npy_data<std::int32_t>(folder() / "c.npy", header), expected);
    EXPECT_EQ(header, "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 5, 7,), }");
  }
}

TEST_F(CliMatmul, EmptySums) {
  write("a.npy", npy_text("<f4", "(2, 0)", false, ""));
  write("b.npy", npy_text("<f4", "(0, 3)", false, ""));
  run_json("matmul a.npy b.npy --output c.npy");
  std::string header;
  EXPECT_EQ(npy_data<float>(folder() / "c.npy", header), std::vector<float>(6, 0.0F));
}

TEST_F(CliMatmul, UnwritableOutputLeavesNothing) {
  write("a.npy", npy_text("<f4", "(1, 1)", false, bytes_of(std::vector<float>{2})));
  fs::create_directory(folder() / "taken");
  expect_failure("matmul a.npy a.npy --output nope/c.npy",
                 "cannot write nope/c.npy: No such file or directory");
  expect_failure("matmul a.npy a.npy --output taken", "cannot write taken: Is a directory");
  EXPECT_TRUE(fs::is_empty(folder() / "taken"));
  expect_failure("matmul a.npy a.npy --output c.npy --out-dtype bf16",
                 "gemm: out must be fp32 for fp32 operands, got bf16");
  EXPECT_FALSE(fs::exists(folder() / "c.npy"));
}

}  // namespace
}  // namespace tessera::cli_test
