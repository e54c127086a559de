// The instructions on tiles: on a machine with tiles the processor's, elsewhere the emulator's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "cpu/gemm/tile_emulator.h"
#include "tessera/targets/targets.h"

namespace tessera::tile_emulator {
namespace {

struct Shapes {
  std::uint8_t palette = 1, others[15] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Shapes kShapes;

// Every second row of 128 bytes.
struct Spread {
  std::array<std::array<std::uint32_t, 32>, 16> rows{};
  explicit Spread(const Tile& tile) {
    for (std::size_t i = 0; i < 16; ++i) std::copy_n(tile[i].data(), 16, rows[i].data());
  }
};

// sum + a x b by instructions, whose operands have addresses of several forms.
enum class Product { int8, bf16 };
Tile by_instructions(Product product, const Tile& sum, const Tile& a, const Tile& b) {
  Tile out;
  const Spread spread(b);
  asm volatile("ldtilecfg %0" ::"m"(kShapes));
  asm volatile("tilezero %%tmm7" ::);
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(&sum), "r"(64L) : "memory");
  asm volatile("tileloadd -1024(%0,%1,8), %%tmm4" ::"r"(a.data() + 16), "r"(8L) : "memory");
  asm volatile("tileloadd 64(%0,%1,2), %%tmm6" ::"r"(spread.rows.data()->data() - 16), "r"(64L)
               : "memory");
  if (product == Product::int8) {
    asm volatile("tdpbssd %%tmm6, %%tmm4, %%tmm0" ::);
  } else {
    asm volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0" ::);
  }
  asm volatile("tilestored %%tmm0, (%0,%1,4)" ::"r"(&out), "r"(16L) : "memory");
  asm volatile("tilerelease" ::);
  return out;
}

Tile by_function(Product product, Tile sum, const Tile& a, const Tile& b) {
  product == Product::int8 ? add_int8(sum, a, b) : add_bf16(sum, a, b);
  return sum;
}

// bf16 with exponent fields of a range, and subnormal ones. Fields of 54 to 74 give products around
// the smallest normal number, fields of 107 to 147 sums that lose most of their terms.
struct Fields {
  unsigned low, high;
};
constexpr Fields kFields[] = {{120, 127}, {54, 74}, {107, 147}};

class Tiles : public testing::Test {
 protected:
  void SetUp() override {
    const Target machine = host_target();
    if (machine.name != "avx512") GTEST_SKIP() << "this machine has no AVX-512";
    target(machine);
  }
  Tile words() {
    Tile tile;
    for (auto& row : tile) {
      for (std::uint32_t& word : row) word = random();
    }
    return tile;
  }
  std::uint32_t bf16(const Fields& fields) {
    const bool is_subnormal = random() % 16 == 0;
    const unsigned field = fields.low + random() % (fields.high - fields.low + 1);
    return (random() & 0x807fU) | (is_subnormal ? 0 : field) << 7;
  }
  Tile pairs(const Fields& fields) {
    Tile tile;
    for (auto& row : tile) {
      for (std::uint32_t& word : row) word = bf16(fields) | bf16(fields) << 16;
    }
    return tile;
  }
  Tile sums(const Fields& fields) {
    Tile tile;
    for (auto& row : tile) {
      for (std::uint32_t& word : row) word = bf16(fields) << 16 | (random() & 0xffffU);
    }
    return tile;
  }

  const unsigned seed = std::random_device{}();
  std::mt19937 random{seed};
};

// By a processor with tiles this checks the emulator; else it checks how instructions are read.
TEST_F(Tiles, InstructionsAndFunctionsAgreeBitByBit) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", seed, round));
    const Tile sum = words(), a = words(), b = words();
    ASSERT_EQ(by_instructions(Product::int8, sum, a, b), by_function(Product::int8, sum, a, b));
    const Fields& fields = kFields[round % 3];
    const Tile before = sums(fields), left = pairs(fields), right = pairs(fields);
    ASSERT_EQ(by_instructions(Product::bf16, before, left, right),
              by_function(Product::bf16, before, left, right));
  }
}

TEST_F(Tiles, BytesAreSignedAndSumsWrapAround) {
  const Tile sum = words(), a = words(), b = words();
  Tile expected = sum;
  const auto byte = [](std::uint32_t word, int i) {
    return static_cast<std::int8_t>(word >> (8 * i) & 255);
  };
  for (std::size_t m = 0; m < 16; ++m) {
    for (std::size_t n = 0; n < 16; ++n) {
      for (std::size_t k = 0; k < 64; ++k) {
        const int i = static_cast<int>(k % 4);
        const int product = byte(a[m][k / 4], i) * byte(b[k / 4][n], i);
        expected[m][n] += static_cast<std::uint32_t>(product);
      }
    }
  }
  EXPECT_EQ(by_function(Product::int8, sum, a, b), expected) << "seed " << seed;
}

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.F, x) : x; }

TEST_F(Tiles, SubnormalNumbersOfBf16AreZero) {
  for (const Fields& fields : kFields) {
    const Tile sum = sums(fields), a = pairs(fields), b = pairs(fields);
    Tile expected = sum;
    const auto value = [](std::uint32_t bits) { return flushed(std::bit_cast<float>(bits)); };
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (std::size_t k = 0; k < 16; ++k) {
          even = flushed(std::fma(value(a[m][k] << 16), value(b[k][n] << 16), even));
          odd = flushed(std::fma(value(a[m][k] & 0xffff0000U), value(b[k][n] & 0xffff0000U), odd));
        }
        const float total = flushed(value(sum[m][n]) + flushed(even + odd));
        expected[m][n] = std::bit_cast<std::uint32_t>(total);
      }
    }
    EXPECT_EQ(by_function(Product::bf16, sum, a, b), expected) << "seed " << seed;
  }
}

using TilesDeathTest = Tiles;
TEST_F(TilesDeathTest, UseBeforeConfiguration) {
  if (has_tiles()) GTEST_SKIP() << "a processor raises a signal of its own";
  EXPECT_DEATH(asm volatile("tilezero %%tmm0" ::), "used before they were configured");
}

}  // namespace
}  // namespace tessera::tile_emulator
