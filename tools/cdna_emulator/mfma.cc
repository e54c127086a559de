// Matrix instructions with one block of 32x32 or 16x16 sums.
//
// Sources: lane l has row (of A) or column (of B) l % side, and the k that begin at l / side times
// the number of values a lane holds. Sums: a lane has column l % side; its register r has row
// 8 (r / 4) + 4 (l / 32) + r % 4 of 32, or 4 (l / 16) + r of 16.
//
// Products of types up to xf32 are exact in float and are added to a float in the order of k;
// products of floats, and of scaled values, are added up in double. Rounding inside of the hardware
// is not followed.
#include <cmath>
#include <cstring>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

using enum MatrixType;
constexpr MfmaRow kMfmaRows[] = {
    // gfx90a
    {"v_mfma_f32_32x32x2f32", 32, 2, single, single},
    {"v_mfma_f32_16x16x4f32", 16, 4, single, single},
    {"v_mfma_f32_32x32x8f16", 32, 8, half, half},
    {"v_mfma_f32_16x16x16f16", 16, 16, half, half},
    {"v_mfma_f32_32x32x4bf16", 32, 4, bfloat, bfloat},
    {"v_mfma_f32_16x16x8bf16", 16, 8, bfloat, bfloat},
    {"v_mfma_f32_32x32x8bf16_1k", 32, 8, bfloat, bfloat},
    {"v_mfma_f32_16x16x16bf16_1k", 16, 16, bfloat, bfloat},
    {"v_mfma_i32_32x32x8i8", 32, 8, int8, int8},
    {"v_mfma_i32_16x16x16i8", 16, 16, int8, int8},
    // gfx942 and gfx950
    {"v_mfma_f32_32x32x2_f32", 32, 2, single, single},
    {"v_mfma_f32_16x16x4_f32", 16, 4, single, single},
    {"v_mfma_f32_32x32x8_f16", 32, 8, half, half},
    {"v_mfma_f32_16x16x16_f16", 16, 16, half, half},
    {"v_mfma_f32_32x32x8_bf16", 32, 8, bfloat, bfloat},
    {"v_mfma_f32_16x16x16_bf16", 16, 16, bfloat, bfloat},
    {"v_mfma_i32_32x32x16_i8", 32, 16, int8, int8},
    {"v_mfma_i32_16x16x32_i8", 16, 32, int8, int8},
    {"v_mfma_f32_32x32x16_fp8_fp8", 32, 16, fp8, fp8},
    {"v_mfma_f32_32x32x16_fp8_bf8", 32, 16, fp8, bf8},
    {"v_mfma_f32_32x32x16_bf8_fp8", 32, 16, bf8, fp8},
    {"v_mfma_f32_32x32x16_bf8_bf8", 32, 16, bf8, bf8},
    {"v_mfma_f32_16x16x32_fp8_fp8", 16, 32, fp8, fp8},
    {"v_mfma_f32_16x16x32_fp8_bf8", 16, 32, fp8, bf8},
    {"v_mfma_f32_16x16x32_bf8_fp8", 16, 32, bf8, fp8},
    {"v_mfma_f32_16x16x32_bf8_bf8", 16, 32, bf8, bf8},
    // gfx942
    {"v_mfma_f32_32x32x4_xf32", 32, 4, xf32, xf32},
    {"v_mfma_f32_16x16x8_xf32", 16, 8, xf32, xf32},
    // gfx950
    {"v_mfma_f32_32x32x16_f16", 32, 16, half, half},
    {"v_mfma_f32_16x16x32_f16", 16, 32, half, half},
    {"v_mfma_f32_32x32x16_bf16", 32, 16, bfloat, bfloat},
    {"v_mfma_f32_16x16x32_bf16", 16, 32, bfloat, bfloat},
    {"v_mfma_i32_32x32x32_i8", 32, 32, int8, int8},
    {"v_mfma_i32_16x16x64_i8", 16, 64, int8, int8},
    {"v_mfma_f32_32x32x64_f8f6f4", 32, 64, fp8, fp8, true},
    {"v_mfma_f32_16x16x128_f8f6f4", 16, 128, fp8, fp8, true},
    {"v_mfma_scale_f32_32x32x64_f8f6f4", 32, 64, fp8, fp8, true, false, true},
    {"v_mfma_scale_f32_16x16x128_f8f6f4", 16, 128, fp8, fp8, true, false, true},
};

// cbsz and blgp of v_mfma_*_f8f6f4: 0 is fp8, 1 is bf8; the others are not followed.
MatrixType format(const Instruction& i, int number) {
  if (number == 0) return fp8;
  if (number == 1) return bf8;
  throw Finding{Finding::Kind::uncovered,
                "The emulator knows the formats 0 and 1 of this instruction, not " +
                    std::to_string(number) + ": '" + i.text + "'."};
}

constexpr int kMostK = 128;
// Values of a source by k, then row or column: the values of a k lie side by side.
template <class T>
using Values = T[kMostK * 32];

template <int kValues, class T, class F>
void unpack_words(const u32* words, int stride, T* to, int side, F convert) {
  for (int e = 0; e < kValues; ++e) {
    for (int l = 0; l < side; ++l) to[e * stride + l] = convert(words[l], e);
  }
}

// One register of 64 lanes, whose values are k `first` and on of each group of lanes.
template <class T>
void unpack_register(const u32* words, MatrixType type, int side, int each, int first,
                     const float* table, T* to) {
  for (int group = 0; group < kLanes / side; ++group) {
    const u32* from = words + group * side;
    T* at = to + (group * each + first) * side;
    switch (type) {
      case half:
        unpack_words<2>(from, side, at, side, [](u32 x, int e) {
          return static_cast<T>(half_to_float(x >> (16 * e) & 0xffffU));
        });
        break;
      case bfloat:
        unpack_words<2>(from, side, at, side, [](u32 x, int e) {
          return static_cast<T>(bf16_to_float(x >> (16 * e) & 0xffffU));
        });
        break;
      case single:
        unpack_words<1>(from, side, at, side,
                        [](u32 x, int) { return static_cast<T>(as_float(x)); });
        break;
      case xf32:
        unpack_words<1>(from, side, at, side,
                        [](u32 x, int) { return static_cast<T>(to_xf32(as_float(x))); });
        break;
      case int8:
        unpack_words<4>(from, side, at, side,
                        [](u32 x, int e) { return static_cast<T>(static_cast<i8>(x >> (8 * e))); });
        break;
      default:
        unpack_words<4>(from, side, at, side,
                        [&](u32 x, int e) { return static_cast<T>(table[x >> (8 * e) & 0xffU]); });
    }
  }
}

int values_a_register(MatrixType type) {
  if (type == half || type == bfloat) return 2;
  return type == single || type == xf32 ? 1 : 4;
}

template <class T>
void unpack(Wave& w, const Instruction& i, int operand, MatrixType type, T* to) {
  const MfmaRow& row = *i.mfma;
  const int each = row.k * row.side / kLanes, values = values_a_register(type);
  const float* table = nullptr;
  if (type == fp8) table = fp8_values(w.group->target->fp8);
  if (type == bf8) table = fp8_values(w.group->target->bf8);
  const Operand& o = i.operands[static_cast<std::size_t>(operand)];
  for (int first = 0; first < each; first += values) {
    alignas(64) Room room;
    const u32* words = w.vector(o.reg + first / values);
    if (o.kind != Operand::Kind::vector) words = source(w, i, operand, room);
    unpack_register(words, type, row.side, each, first, table, to);
  }
}

// ---- scales of v_mfma_scale_* ----

constexpr int kScaled = 32;  // values along k that share a scale

// The number of the 32 along k that value `at` of a group of lanes belongs to: a lane has 16 values
// of the first half of k, and 16 of the second.
int block_of_value(const MfmaRow& row, int group, int at) {
  constexpr int kRun = 16;
  return (at / kRun * (row.k / 2) + group * kRun + at % kRun) / kScaled;
}

// Multiplies the values of a source by the bytes of its scales, which lane l has for row or column
// l % side and the 32 along k with number l / side.
template <class T>
void scale_values(Wave& w, const Instruction& i, int source, T* values) {
  const MfmaRow& row = *i.mfma;
  const Operand& o = i.operands[static_cast<std::size_t>(3 + source)];
  if (o.kind != Operand::Kind::vector) {
    throw Finding{Finding::Kind::uncovered,
                  "The emulator reads scales of matrices from vector registers: '" + i.text + "'."};
  }
  const int bit = source - 1;
  const u32 byte = (i.op_sel >> bit & 1U) | (i.op_sel_hi >> bit & 1U) << 1;
  T factors[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    const u32 scale = w.vector(o.reg)[l] >> (8 * byte) & 0xffU;
    factors[l] =
        scale == 255 ? static_cast<T>(NAN) : std::ldexp(T{1}, static_cast<int>(scale) - 127);
  }
  for (int k = 0; k < row.k; ++k) {
    const int block = block_of_value(row, k / kScaled, k % kScaled);
    for (int l = 0; l < row.side; ++l) values[k * row.side + l] *= factors[block * row.side + l];
  }
}

int row_of(int side, int r, int lane) {
  return side == 32 ? 8 * (r / 4) + 4 * (lane / 32) + r % 4 : 4 * (lane / 16) + r;
}

template <class Sum>
Sum sum_of(u32 bits) {
  if constexpr (std::is_same_v<Sum, u32>) return bits;
  return static_cast<Sum>(as_float(bits));
}
template <class Sum>
u32 bits_of_sum(Sum sum) {
  if constexpr (std::is_same_v<Sum, u32>) return sum;
  return as_bits(static_cast<float>(sum));
}

template <class T, int kSide>
[[gnu::always_inline]] inline void multiply_lanes(const T* a, const T* b, int depth,
                                                  T (*sums)[kSide]) {
  for (int r = 0; r < kSide; ++r) {
    T s[kSide];
    for (int c = 0; c < kSide; ++c) s[c] = sums[r][c];
    for (int k = 0; k < depth; ++k) {
      const T x = a[k * kSide + r];
      for (int c = 0; c < kSide; ++c) s[c] += x * b[k * kSide + c];
    }
    for (int c = 0; c < kSide; ++c) sums[r][c] = s[c];
  }
}
// The same numbers in the same order, eight a step where this machine can: products and sums are
// rounded one by one.
template <class T, int kSide>
void multiply_anywhere(const T* a, const T* b, int depth, T (*sums)[kSide]) {
  multiply_lanes<T, kSide>(a, b, depth, sums);
}
#if defined(__x86_64__)
template <class T, int kSide>
[[gnu::target("avx2")]] void multiply_by_avx2(const T* a, const T* b, int depth, T (*sums)[kSide]) {
  multiply_lanes<T, kSide>(a, b, depth, sums);
}
template <class T, int kSide>
void multiply(const T* a, const T* b, int depth, T (*sums)[kSide]) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) {
    multiply_by_avx2<T, kSide>(a, b, depth, sums);
  } else {
    multiply_anywhere<T, kSide>(a, b, depth, sums);
  }
}
#else
template <class T, int kSide>
void multiply(const T* a, const T* b, int depth, T (*sums)[kSide]) {
  multiply_anywhere<T, kSide>(a, b, depth, sums);
}
#endif

template <class T, int kSide>
void run_block(Wave& w, const Instruction& i, MatrixType type_a, MatrixType type_b) {
  static thread_local Values<T> a, b;
  alignas(64) T sums[kSide][kSide];
  unpack(w, i, 1, type_a, a);
  unpack(w, i, 2, type_b, b);
  if constexpr (std::is_same_v<T, double>) {
    if (i.mfma->scaled) scale_values(w, i, 1, a), scale_values(w, i, 2, b);
  }
  constexpr int kRegisters = kSide * kSide / kLanes;
  const Operand& c = i.operands[3];
  for (int r = 0; r < kRegisters; ++r) {
    alignas(64) Room room;
    const u32* from = w.vector(c.reg + r);
    if (c.kind != Operand::Kind::vector) from = source(w, i, 3, room);
    for (int l = 0; l < kLanes; ++l) sums[row_of(kSide, r, l)][l % kSide] = sum_of<T>(from[l]);
  }
  multiply<T, kSide>(a, b, i.mfma->k, sums);
  for (int r = 0; r < kRegisters; ++r) {
    u32* to = w.vector(register_of(i, 0) + r);  // MFMA writes lanes that are off, too
    for (int l = 0; l < kLanes; ++l) to[l] = bits_of_sum(sums[row_of(kSide, r, l)][l % kSide]);
  }
}

template <class T>
void run_side(Wave& w, const Instruction& i, MatrixType a, MatrixType b) {
  if (i.mfma->side == 32) {
    run_block<T, 32>(w, i, a, b);
  } else {
    run_block<T, 16>(w, i, a, b);
  }
}

}  // namespace

std::span<const MfmaRow> mfma_rows() { return kMfmaRows; }

void run_mfma(Wave& w, const Instruction& i) {
  const MfmaRow& row = *i.mfma;
  const MatrixType a = row.formats ? format(i, i.cbsz) : row.a;
  const MatrixType b = row.formats ? format(i, i.blgp) : row.b;
  if (a == int8) {
    run_side<u32>(w, i, a, b);
  } else if (a == single || row.scaled) {
    run_side<double>(w, i, a, b);
  } else {
    run_side<float>(w, i, a, b);
  }
  ++w.group->statistics.mfmas;
}

}  // namespace tessera::cdna_emulator
