#include <gtest/gtest.h>

#include <cmath>

#include "bench.h"
#include "cdna_emulator/tables.h"
#include "wmma_layouts.h"

namespace tessera::cdna_emulator {
namespace {

constexpr int kA = 64, kB = 128, kSums = 8, kSide = 16, kWave = 32;

// The bits of a small whole number, as each type has it.
u32 bits_of_number(MatrixType type, int x, const Target& target) {
  const auto value = static_cast<float>(x);
  switch (type) {
    case MatrixType::half:
      return float_to_half(value);
    case MatrixType::bfloat:
      return float_to_bf16(value);
    case MatrixType::fp8:
      return float_to_fp8(value, target.fp8, false);
    case MatrixType::bf8:
      return float_to_fp8(value, target.bf8, false);
    default:
      return static_cast<u32>(x) & 0xffU;
  }
}
int bits_of_element(MatrixType type) {
  return type == MatrixType::half || type == MatrixType::bfloat ? 16 : 8;
}

// gfx1100 holds 16 values in a lane, gfx1201 8.
int sources_of(const MfmaRow& row, const Target& target) {
  return (target.rdna == 11 ? 16 : 8) * bits_of_element(row.a) / 32;
}
std::string line_of(const MfmaRow& row, const Target& target) {
  const auto range = [](int first, int count) {
    return "v[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
  };
  const int sources = sources_of(row, target);
  return std::string(row.name) + " " + range(0, kSums) + ", " + range(kA, sources) + ", " +
         range(kB, sources) + ", " + range(0, kSums) +
         (row.a == MatrixType::int8 ? " neg_lo:[1,1,0]" : "");
}
void set_number(Bench& b, int reg, int lane, int bit, MatrixType type, int x) {
  const Target& target = *b.group.target;
  const u32 value = bits_of_number(type, x, target) << bit;
  b.wave->vector(reg)[lane] |= value;
  if (target.rdna == 11) b.wave->vector(reg)[lane ^ 16] |= value;
}
float sum_at(Bench& b, const MfmaRow& row, int reg, int lane) {
  const u32 bits = b.wave->vector(reg)[lane];
  return row.a == MatrixType::int8 ? static_cast<float>(as_signed(bits)) : as_float(bits);
}
// Ones everywhere in a source, or in one line of it: a row of A, a column of B.
void fill(Bench& b, const MfmaRow& row, int reg, MatrixType type, int line = -1) {
  const int sources = sources_of(row, *b.group.target), bits = bits_of_element(type);
  for (int r = 0; r < sources; ++r) {
    for (int l = 0; l < kWave; ++l) {
      if (line >= 0 && l % kSide != line) continue;
      for (int at = 0; at < 32; at += bits) {
        b.wave->vector(reg + r)[l] |= bits_of_number(type, 1, *b.group.target) << at;
      }
    }
  }
}

TEST(Wmma, HasTheLayoutsOfAmdsCalculator) {
  for (const WmmaPlace& p : kWmmaPlaces) {
    SCOPED_TRACE(std::string(p.target) + " " + std::string(p.instruction) + " " + p.matrix);
    const MfmaRow* row = find_mfma_row(p.instruction);
    ASSERT_NE(row, nullptr);
    const auto b = make_bench(p.target);
    if (p.matrix == 'D') {  // only this sum is not zero
      fill(*b, *row, kA, row->a, p.i);
      fill(*b, *row, kB, row->b, p.j);
    } else {
      const bool is_a = p.matrix == 'A';
      set_number(*b, (is_a ? kA : kB) + p.reg, p.lane, p.bit, is_a ? row->a : row->b, 1);
      // One k of the other source is 1: the place has this k, or all sums are zero.
      fill(*b, *row, is_a ? kB : kA, is_a ? row->b : row->a);
    }
    run_line(*b, line_of(*row, *b->group.target));
    int found = 0;
    for (int r = 0; r < kSums; ++r) {
      for (int l = 0; l < kWave; ++l) {
        const float sum = sum_at(*b, *row, r, l);
        if (p.matrix == 'D') {
          ASSERT_EQ(sum, r == p.reg && l == p.lane ? 16.0F : 0.0F) << r << " " << l;
        } else if (p.matrix == 'B') {
          ASSERT_EQ(sum, l % kSide == p.j ? 1.0F : 0.0F) << r << " " << l;
        } else {
          found += sum == 1.0F ? 1 : 0;
        }
      }
    }
    EXPECT_EQ(found, p.matrix == 'A' ? kSide : 0);
  }
}

// The place of element k of a row of A or a column of B, and of a sum, in AMD's words: "Matrix
// fragments" of the RDNA 3 and RDNA 4 instruction set documents.
struct At {
  int reg, lane, bit;
};
At source_at(int line, int k, int bits, bool is_rdna3) {
  if (is_rdna3) return {k * bits / 32, line, k * bits % 32};
  const int each = bits == 16 ? 4 : 8;  // neighbours along k in a half of the wave
  const int value = k / (2 * each) * each + k % each;
  return {value * bits / 32, line + k / each % 2 * 16, value * bits % 32};
}
At sum_of(int i, int j, bool is_rdna3) {
  return is_rdna3 ? At{i / 2, j + i % 2 * 16, 0} : At{i % 8, j + i / 8 * 16, 0};
}

TEST(Wmma, MultipliesRandomMatrices) {
  auto random = fresh_random();
  for (const char* name : {"gfx1100", "gfx1201"}) {
    for (const MfmaRow& row : wmma_rows()) {
      const bool is_rdna3 = std::string_view(name) == "gfx1100";
      const bool is_8_bit_float = row.a == MatrixType::fp8 || row.a == MatrixType::bf8;
      if (is_rdna3 && is_8_bit_float) continue;
      SCOPED_TRACE(std::string(name) + " " + std::string(row.name));
      const auto b = make_bench(name);
      int x[kSide][kSide], y[kSide][kSide], c[kSide][kSide];
      const int bits = bits_of_element(row.a);
      for (int i = 0; i < kSide; ++i) {
        for (int k = 0; k < kSide; ++k) {
          x[i][k] = static_cast<int>(random() % 7) - 3;
          y[i][k] = static_cast<int>(random() % 7) - 3;
          c[i][k] = static_cast<int>(random() % 99) - 49;
          const At at = source_at(i, k, bits, is_rdna3), sum = sum_of(i, k, is_rdna3);
          set_number(*b, kA + at.reg, at.lane, at.bit, row.a, x[i][k]);
          set_number(*b, kB + at.reg, at.lane, at.bit, row.b, y[i][k]);
          b->wave->vector(sum.reg)[sum.lane] = row.a == MatrixType::int8
                                                   ? static_cast<u32>(c[i][k])
                                                   : as_bits(static_cast<float>(c[i][k]));
        }
      }
      run_line(*b, line_of(row, *b->group.target));
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) {
          int sum = c[i][j];
          for (int k = 0; k < kSide; ++k) sum += x[i][k] * y[j][k];
          const At at = sum_of(i, j, is_rdna3);
          ASSERT_EQ(sum_at(*b, row, at.reg, at.lane), static_cast<float>(sum)) << i << " " << j;
        }
      }
    }
  }
}

TEST(Wmma, BytesWithoutASignAreLarge) {
  const auto b = make_bench("gfx1201");
  for (int l = 0; l < kWave; ++l) {
    for (int r = 0; r < 2; ++r) b->wave->vector(kA + r)[l] = b->wave->vector(kB + r)[l] = ~0U;
  }
  run_line(*b, "v_wmma_i32_16x16x16_iu8 v[0:7], v[64:65], v[128:129], 0 neg_lo:[0,1,0]");
  EXPECT_EQ(as_signed(b->wave->vector(3)[21]), 16 * 255 * -1);
}

TEST(Wmma, Rdna3NeedsACopyOfItsOperands) {
  const auto b = make_bench("gfx1100");
  b->wave->vector(kA)[3] = 0x3c00;
  const std::string line = "v_wmma_f32_16x16x16_f16 v[0:7], v[64:71], v[128:135], v[0:7]";
  EXPECT_EQ(finding_of(*b, line),
            "Lanes 16 to 31 hold no copy of an operand of lanes 0 to 15: '" + line + "'.");
  b->wave->vector(kA)[19] = 0x3c00;
  EXPECT_EQ(finding_of(*b, line), "");
}

}  // namespace
}  // namespace tessera::cdna_emulator
