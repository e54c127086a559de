// Matrix instructions of RDNA 3 and RDNA 4 for waves of 32 lanes: 16x16 sums over 16 values of k.
//
// RDNA 3: lane l has all k of row (of A) or column (of B) l % 16, the lanes from 16 on the same
// ones again. A lane has sums of column l % 16; its register r has row 2 r + l / 16. RDNA 4: lanes
// l and l + 16 share row or column l % 16. With 16 bits, a lane's values e are k 8 (e / 4) + 4 (l /
// 16) + e % 4, of 8 bits they are k 8 (l / 16) + e. Register r has row r + 8 (l / 16).
#include <cstring>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace wmma_of_rdna {

using enum MatrixType;
constexpr MfmaRow wmma(std::string_view name, MatrixType a, MatrixType b) {
  return {name, 16, 16, a, b, false, true};
}
constexpr MfmaRow kWmmaRows[] = {
    wmma("v_wmma_f32_16x16x16_f16", half, half),
    wmma("v_wmma_f32_16x16x16_bf16", bfloat, bfloat),
    wmma("v_wmma_i32_16x16x16_iu8", int8, int8),
    // gfx1201
    wmma("v_wmma_f32_16x16x16_fp8_fp8", fp8, fp8),
    wmma("v_wmma_f32_16x16x16_fp8_bf8", fp8, bf8),
    wmma("v_wmma_f32_16x16x16_bf8_fp8", bf8, fp8),
    wmma("v_wmma_f32_16x16x16_bf8_bf8", bf8, bf8),
};

constexpr int kSide = 16;

// Where value k of a row lies: the upper or lower half of the wave, and which of the lane's values.
struct Place {
  int half, value;
};
Place place_of(int k, int bytes, int rdna) {
  if (rdna == 11) return {0, k};
  if (bytes == 2) return {k / 4 % 2, k / 8 * 4 + k % 4};
  return {k / 8, k % 8};
}
int row_of_sum(int reg, int lane, int rdna) {
  return rdna == 11 ? 2 * reg + lane / 16 : reg + lane / 16 * 8;
}

template <class T>
T value_of(u32 bits, MatrixType type, const Target& target, bool sign) {
  switch (type) {
    case half:
      return static_cast<T>(half_to_float(bits));
    case bfloat:
      return static_cast<T>(bf16_to_float(bits));
    case fp8:
      return static_cast<T>(fp8_values(target.fp8)[bits]);
    case bf8:
      return static_cast<T>(fp8_values(target.bf8)[bits]);
    default:
      return sign ? static_cast<T>(static_cast<i8>(bits)) : static_cast<T>(bits);
  }
}

// Source n as values [k][row or column].
template <class T>
void unpack(Wave& w, const Instruction& i, int n, MatrixType type, T (*to)[kSide]) {
  const Target& target = *w.group->target;
  const int bytes = type == half || type == bfloat ? 2 : 1, in_word = 4 / bytes;
  const bool sign = (i.neg_lo >> (n - 1) & 1U) != 0;  // of 8-bit integers
  const u32 mask = bytes == 2 ? 0xffffU : 0xffU;
  for (int k = 0; k < kSide; ++k) {
    const Place place = place_of(k, bytes, target.rdna);
    const u32* words = w.vector(register_of(i, n) + place.value / in_word) + place.half * kSide;
    const int shift = place.value % in_word * 8 * bytes;
    for (int r = 0; r < kSide; ++r)
      to[k][r] = value_of<T>(words[r] >> shift & mask, type, target, sign);
  }
}

// The hardware reads the copy in lanes 16 to 31 where it likes: it has to be the same.
void check_copies(Wave& w, const Instruction& i) {
  if (w.group->target->rdna != 11) return;
  for (int n = 1; n <= 2; ++n) {
    for (int r = 0; r < i.operands[static_cast<std::size_t>(n)].count; ++r) {
      const u32* words = w.vector(register_of(i, n) + r);
      if (std::memcmp(words, words + kSide, kSide * sizeof *words) == 0) continue;
      throw Finding{
          Finding::Kind::uncovered,
          "Lanes 16 to 31 hold no copy of an operand of lanes 0 to 15: '" + i.text + "'."};
    }
  }
}

template <class T>
u32 bits_of(T sum) {
  if constexpr (std::is_same_v<T, u32>) return sum;
  return as_bits(static_cast<float>(sum));
}

template <class T>
void run_type(Wave& w, const Instruction& i) {
  static thread_local T a[kSide][kSide], b[kSide][kSide], sums[kSide][kSide];
  const int rdna = w.group->target->rdna;
  unpack<T>(w, i, 1, i.mfma->a, a);
  unpack<T>(w, i, 2, i.mfma->b, b);
  constexpr int kLanesHere = 32, kRegisters = kSide * kSide / kLanesHere;
  const Operand& c = i.operands[3];
  for (int r = 0; r < kRegisters; ++r) {
    alignas(64) Room room;
    const u32* from = c.kind == Operand::Kind::vector ? w.vector(c.reg + r) : source(w, i, 3, room);
    for (int l = 0; l < kLanesHere; ++l) {
      T& sum = sums[row_of_sum(r, l, rdna)][l % kSide];
      if constexpr (std::is_same_v<T, u32>) {
        sum = from[l];
      } else {
        sum = as_float(from[l]);
      }
    }
  }
  for (int m = 0; m < kSide; ++m) {
    for (int k = 0; k < kSide; ++k) {
      for (int n = 0; n < kSide; ++n) sums[m][n] += a[k][m] * b[k][n];
    }
  }
  for (int r = 0; r < kRegisters; ++r) {
    u32* to = w.vector(register_of(i, 0) + r);
    for (int l = 0; l < kLanesHere; ++l) to[l] = bits_of(sums[row_of_sum(r, l, rdna)][l % kSide]);
  }
}

}  // namespace wmma_of_rdna

std::span<const MfmaRow> wmma_rows() { return wmma_of_rdna::kWmmaRows; }

void run_wmma(Wave& w, const Instruction& i) {
  wmma_of_rdna::check_copies(w, i);
  if (!w.all_lanes()) {
    throw Finding{
        Finding::Kind::uncovered,
        "The emulator knows this instruction for 32 lanes that are on: '" + i.text + "'."};
  }
  if (i.mfma->a == MatrixType::int8) {
    wmma_of_rdna::run_type<u32>(w, i);
  } else {
    wmma_of_rdna::run_type<float>(w, i);
  }
  ++w.group->statistics.mfmas;
}

}  // namespace tessera::cdna_emulator
