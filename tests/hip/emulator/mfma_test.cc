#include <gtest/gtest.h>

#include <cmath>

#include "bench.h"
#include "cdna_emulator/tables.h"
#include "mfma_layouts.h"

namespace tessera::cdna_emulator {
namespace {

constexpr int kRegisterA = 64, kRegisterB = 128;

int element_bits(MatrixType type) {
  if (type == MatrixType::single || type == MatrixType::xf32) return 32;
  return type == MatrixType::half || type == MatrixType::bfloat ? 16 : 8;
}
u32 one(MatrixType type, const Target& target) {
  switch (type) {
    case MatrixType::half:
      return 0x3c00;
    case MatrixType::bfloat:
      return 0x3f80;
    case MatrixType::int8:
      return 1;
    case MatrixType::fp8:
      return float_to_fp8(1.0F, target.fp8, false);
    case MatrixType::bf8:
      return float_to_fp8(1.0F, target.bf8, false);
    default:
      return as_bits(1.0F);
  }
}

std::string_view target_of(std::string_view name) {
  if (name.find('_', 11) == std::string_view::npos || name.ends_with("_1k")) return "gfx90a";
  return name.ends_with("xf32") ? "gfx942" : "gfx950";
}

std::string line_of(const MfmaRow& row) {
  const auto range = [](int first, int count) {
    return "v[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
  };
  const int sums = row.side * row.side / kLanes;
  const int sources = row.k * row.side / kLanes * element_bits(row.a) / 32;
  return std::string(row.name) + " " + range(0, sums) + ", " + range(kRegisterA, sources) + ", " +
         range(kRegisterB, sources) + ", 0";
}

void set_element(Bench& b, int reg, int lane, int bit, u32 value) {
  b.wave->vector(reg)[lane] |= value << bit;
}
int registers_of(const MfmaRow& row) {
  return row.k * row.side / kLanes * element_bits(row.a) / 32;
}

// A whole row of A times one column of B is told apart from others by its sum's place.
TEST(Mfma, HasTheLayoutsOfAmdsCalculator) {
  for (const Place& p : kPlaces) {
    const MfmaRow* row = find_mfma_row(p.instruction);
    ASSERT_NE(row, nullptr) << p.instruction;
    const auto b = make_bench(target_of(p.instruction));
    const Target& target = *b->group.target;
    // The matrix under test has a 1 at the place, the other is full of ones: then the sums of one
    // row (for A) or column (for B) are 1.
    if (p.matrix != 'D') {
      const int here = p.matrix == 'A' ? kRegisterA : kRegisterB;
      const MatrixType other = p.matrix == 'A' ? row->b : row->a;
      const int bits = element_bits(other);
      for (int r = 0; r < registers_of(*row); ++r) {
        for (int l = 0; l < kLanes; ++l) {
          for (int at = 0; at < 32; at += bits) {
            set_element(*b, kRegisterA + kRegisterB - here + r, l, at, one(other, target));
          }
        }
      }
      set_element(*b, here + p.reg, p.lane, p.bit, one(p.matrix == 'A' ? row->a : row->b, target));
      run_line(*b, line_of(*row));
      const u32 expected = row->a == MatrixType::int8 ? 1U : as_bits(1.0F);
      for (int r = 0; r < row->side * row->side / kLanes; ++r) {
        for (int l = 0; l < kLanes; ++l) {
          const int i = row->side == 32 ? 8 * (r / 4) + 4 * (l / 32) + r % 4 : 4 * (l / 16) + r;
          const bool hit = p.matrix == 'A' ? i == p.i : l % row->side == p.j;
          ASSERT_EQ(b->wave->vector(r)[l], hit ? expected : 0U)
              << p.instruction << " " << p.matrix << " register " << r << " lane " << l;
        }
      }
      continue;
    }
    // Row i of A and column j of B are ones: only sum (i, j) is k.
    for (int r = 0; r < registers_of(*row); ++r) {
      for (int l = 0; l < kLanes; ++l) {
        for (int at = 0; at < 32; at += element_bits(row->a)) {
          if (l % row->side == p.i) set_element(*b, kRegisterA + r, l, at, one(row->a, target));
          if (l % row->side == p.j) set_element(*b, kRegisterB + r, l, at, one(row->b, target));
        }
      }
    }
    run_line(*b, line_of(*row));
    const u32 sum =
        row->a == MatrixType::int8 ? static_cast<u32>(row->k) : as_bits(static_cast<float>(row->k));
    for (int r = 0; r < row->side * row->side / kLanes; ++r) {
      for (int l = 0; l < kLanes; ++l) {
        ASSERT_EQ(b->wave->vector(r)[l], r == p.reg && l == p.lane ? sum : 0U)
            << p.instruction << " register " << r << " lane " << l;
      }
    }
  }
}

TEST(Mfma, PairsTheSameKOfBothSources) {
  for (const MfmaRow& row : mfma_rows()) {
    if (row.scaled) continue;  // which take more sources
    const auto b = make_bench(target_of(row.name));
    const int each = row.k * row.side / kLanes, bits = element_bits(row.a);
    for (int k_a = 0; k_a < row.k; ++k_a) {
      for (const int k_b : {k_a, (k_a + 1) % row.k}) {
        for (int r = 0; r < registers_of(row); ++r) {
          std::fill_n(b->wave->vector(kRegisterA + r), kLanes, 0U);
          std::fill_n(b->wave->vector(kRegisterB + r), kLanes, 0U);
        }
        const auto set = [&](int first, int line, int k, MatrixType type) {
          const int bit = k % each * bits;
          set_element(*b, first + bit / 32, line + k / each * row.side, bit % 32,
                      one(type, *b->group.target));
        };
        set(kRegisterA, 3, k_a, row.a);
        set(kRegisterB, 5, k_b, row.b);
        run_line(*b, line_of(row));
        u32 any = 0;
        for (int r = 0; r < row.side * row.side / kLanes; ++r) {
          for (int l = 0; l < kLanes; ++l) any |= b->wave->vector(r)[l];
        }
        ASSERT_EQ(any != 0, k_a == k_b) << row.name << " k " << k_a << " and " << k_b;
      }
    }
  }
}

TEST(Mfma, AddsUpRandomFloatsInDouble) {
  auto random = fresh_random();
  std::normal_distribution<float> normal;
  const auto b = make_bench("gfx942");
  float x[32][2], y[32][2], c[32][32];
  for (int l = 0; l < kLanes; ++l) {
    x[l % 32][l / 32] = normal(random);
    y[l % 32][l / 32] = normal(random);
    b->wave->vector(kRegisterA)[l] = as_bits(x[l % 32][l / 32]);
    b->wave->vector(kRegisterB)[l] = as_bits(y[l % 32][l / 32]);
    for (int r = 0; r < 16; ++r) {
      float& sum = c[8 * (r / 4) + 4 * (l / 32) + r % 4][l % 32];
      sum = normal(random);
      b->wave->vector(r)[l] = as_bits(sum);
    }
  }
  run_line(*b, "v_mfma_f32_32x32x2_f32 v[16:31], v64, v128, v[0:15]");
  for (int l = 0; l < kLanes; ++l) {
    for (int r = 0; r < 16; ++r) {
      const int i = 8 * (r / 4) + 4 * (l / 32) + r % 4, j = l % 32;
      double sum = static_cast<double>(c[i][j]);
      for (int k = 0; k < 2; ++k) {
        sum += static_cast<double>(x[i][k]) * static_cast<double>(y[j][k]);
      }
      ASSERT_EQ(as_float(b->wave->vector(16 + r)[l]), static_cast<float>(sum));
    }
  }
}

TEST(Mfma, WritesLanesThatAreOff) {
  const auto b = make_bench("gfx942");
  for (int l = 0; l < kLanes; ++l) {
    b->wave->vector(kRegisterA)[l] = b->wave->vector(kRegisterB)[l] = as_bits(2.0F);
  }
  b->wave->set_pair(kExec, 1);
  run_line(*b, "v_mfma_f32_16x16x4_f32 v[0:3], v64, v128, 1.0");
  for (int l = 0; l < kLanes; ++l) EXPECT_EQ(as_float(b->wave->vector(0)[l]), 17.0F);
}

TEST(Mfma, KnowsTwoFormatsOfF8f6f4) {
  const auto b = make_bench("gfx950");
  const std::string line = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[64:71], v[128:135], 0";
  for (int r = 0; r < 8; ++r) {
    for (int l = 0; l < kLanes; ++l) {
      b->wave->vector(kRegisterA + r)[l] = 0x38383838;  // ones of E4M3
      b->wave->vector(kRegisterB + r)[l] = 0x3c3c3c3c;  // ones of E5M2
    }
  }
  run_line(*b, line + " blgp:1");
  EXPECT_EQ(as_float(b->wave->vector(3)[63]), 128.0F);
  EXPECT_EQ(
      finding_of(*b, line + " cbsz:4"),
      "The emulator knows the formats 0 and 1 of this instruction, not 4: '" + line + " cbsz:4'.");
}

// Which lane's scale multiplies a value of a lane: the first 16 and the last 16 values of the lanes
// with l / side = group, for row 0. A GPU answered so to test/mx_mfma_op of AMD's Composable Kernel
// (scale_mapping_16x16x128.txt and scale_mapping_32x32x64.txt).
struct ScaledRuns {
  std::string_view instruction;
  int side, group, first, last;
};
constexpr ScaledRuns kScaledRuns[] = {{"v_mfma_scale_f32_16x16x128_f8f6f4", 16, 0, 0, 32},
                                      {"v_mfma_scale_f32_16x16x128_f8f6f4", 16, 1, 0, 32},
                                      {"v_mfma_scale_f32_16x16x128_f8f6f4", 16, 2, 16, 48},
                                      {"v_mfma_scale_f32_16x16x128_f8f6f4", 16, 3, 16, 48},
                                      {"v_mfma_scale_f32_32x32x64_f8f6f4", 32, 0, 0, 32},
                                      {"v_mfma_scale_f32_32x32x64_f8f6f4", 32, 1, 0, 32}};

constexpr int kScaleA = 200, kScaleB = 201;
std::string scaled_line(const ScaledRuns& runs, const std::string& selects) {
  const std::string sums = runs.side == 16 ? "v[0:3]" : "v[0:15]";
  return std::string(runs.instruction) + " " + sums + ", v[64:71], v[128:135], 0, v200, v201 " +
         selects;
}
void fill(Bench& b, int first, u32 word) {
  for (int r = 0; r < 8; ++r) std::fill_n(b.wave->vector(first + r), kLanes, word);
}

TEST(Mfma, ScalesValuesAsAGpuDoes) {
  for (const ScaledRuns& runs : kScaledRuns) {
    for (const bool of_a : {true, false}) {
      for (int value = 0; value < 32; ++value) {
        const auto b = make_bench("gfx950");
        const int own = of_a ? kRegisterA : kRegisterB, other = kRegisterA + kRegisterB - own;
        fill(*b, own, 0);
        fill(*b, other, 0x38383838);  // ones of E4M3
        set_element(*b, own + value / 4, runs.group * runs.side, value % 4 * 8, 0x38);
        for (int l = 0; l < kLanes; ++l) {  // of byte 2; the others would be far off
          b->wave->vector(of_a ? kScaleA : kScaleB)[l] = 0x01000101U | u32(127 + l) << 16;
          b->wave->vector(of_a ? kScaleB : kScaleA)[l] = 0x7f017f7fU;
        }
        run_line(*b, scaled_line(runs, of_a ? "op_sel_hi:[1,0,0]" : "op_sel_hi:[0,1,0]"));
        const int lane = value < 16 ? runs.first : runs.last;
        EXPECT_EQ(as_float(b->wave->vector(0)[0]), std::ldexp(1.0F, lane))
            << runs.instruction << " group " << runs.group << " value " << value;
      }
    }
  }
}

// 255 is NaN, and a scale of 0 is 2^-127.
TEST(Mfma, ScalesByEveryPowerOfTwo) {
  for (const u32 scale : {0U, 1U, 127U, 254U, 255U}) {
    const auto b = make_bench("gfx950");
    fill(*b, kRegisterA, 0x38383838);
    fill(*b, kRegisterB, 0x38383838);
    for (int l = 0; l < kLanes; ++l) {
      b->wave->vector(kScaleA)[l] = scale;
      b->wave->vector(kScaleB)[l] = 120;
    }
    run_line(*b, scaled_line(kScaledRuns[0], "op_sel_hi:[0,0,0]"));
    const float got = as_float(b->wave->vector(2)[5]);
    if (scale == 255) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      EXPECT_EQ(got, static_cast<float>(std::ldexp(128.0, static_cast<int>(scale) - 127 - 7)));
    }
  }
}

}  // namespace
}  // namespace tessera::cdna_emulator
