// Vector instructions on integers of 32 bits and less.
#include <algorithm>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

i32 signed24(u32 x) { return as_signed(x << 8) >> 8; }
u32 reverse_bits(u32 a) {
  u32 r = 0;
  for (int n = 0; n < 32; ++n) r |= (a >> n & 1U) << (31 - n);
  return r;
}
u32 field(u32 a, u32 shift, u32 width) {
  return width == 0 ? 0 : a >> shift & (~0U >> (32U - width));
}
u32 signed_field(u32 a, u32 shift, u32 width) {
  if (width == 0) return 0;
  const u32 up = shift + width < 32 ? 32 - shift - width : 0;
  return static_cast<u32>(as_signed(a << up) >> (up + shift));
}
// One byte of v_perm_b32's result.
u32 chosen_byte(u64 both, u32 choice) {
  if (choice <= 7) return static_cast<u32>(both >> (8 * choice)) & 0xffU;
  if (choice <= 11) return (both >> (16 * (choice - 8) + 15) & 1U) != 0 ? 0xffU : 0U;
  return choice == 12 ? 0U : 0xffU;
}
u32 permute_bytes(u32 a, u32 b, u32 c) {
  const u64 both = join(b, a);
  u32 r = 0;
  for (int n = 0; n < 4; ++n) r |= chosen_byte(both, c >> (8 * n) & 0xffU) << (8 * n);
  return r;
}
u32 byte_products(u32 a, u32 b) {
  i32 sum = 0;
  for (int n = 0; n < 4; ++n) {
    sum += static_cast<i32>(static_cast<i8>(a >> (8 * n))) * static_cast<i8>(b >> (8 * n));
  }
  return static_cast<u32>(sum);
}
// v_dot4c_i32_i8: its third source is the result's register.
void add_byte_products(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* d = w.vector(register_of(i, 0));
  for (int l = 0; l < kLanes; ++l) out[l] = d[l] + byte_products(a[l], b[l]);
  write_lanes(w, i, register_of(i, 0), out);
}
u32 low(u32 x) { return x & 0xffffU; }
i32 low_signed(u32 x) { return static_cast<i16>(x); }
u32 limited16(i32 x) { return low(static_cast<u32>(std::clamp(x, -32768, 32767))); }

template <u32 kResult>
void bit_operation(Wave& w, const Instruction& i) {
  Room ra, rb, rc, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* c = source(w, i, 3, rc);
  for (u32& x : out) x = 0;
  for (u32 n = 0; n < 8; ++n) {  // the rows of the truth table that give 1
    if ((i.immediate >> n & 1U) == 0) continue;
    const u32 fa = (n & 4U) != 0 ? 0U : ~0U, fb = (n & 2U) != 0 ? 0U : ~0U,
              fc = (n & 1U) != 0 ? 0U : ~0U;
    for (int l = 0; l < kLanes; ++l) out[l] |= (a[l] ^ fa) & (b[l] ^ fb) & (c[l] ^ fc);
  }
  for (u32& x : out) x &= kResult;
  write_lanes(w, i, register_of(i, 0), out);
}

// d, carry out, a, b and a carry in, of which there is one where the instruction has one.
template <class F>
constexpr Run carry(F) {
  return [](Wave& w, const Instruction& i) {
    Room ra, rb, out;
    const u32* a = source(w, i, 2, ra);
    const u32* b = source(w, i, 3, rb);
    const u64 in = i.num_operands > 4 ? scalar64(w, i, 4) : 0;
    u64 carries = 0;
    for (int l = 0; l < kLanes; ++l) {
      bool c = (in >> l & 1U) != 0;
      out[l] = F{}(a[l], b[l], c);
      carries |= u64{c} << l;
    }
    write_lanes(w, i, register_of(i, 0), out);
    set_mask(w, i, 1, carries & w.exec());
  };
}
u32 add_carry(u32 a, u32 b, bool& c) {
  const u64 r = u64{a} + b + (c ? 1U : 0U);
  c = r >> 32 != 0;
  return static_cast<u32>(r);
}
u32 subtract_carry(u32 a, u32 b, bool& c) {
  const u64 taken = u64{b} + (c ? 1U : 0U);
  c = taken > a;
  return static_cast<u32>(a - taken);
}
constexpr auto kAddCarry = [](u32 a, u32 b, bool& c) { return add_carry(a, b, c); };
constexpr auto kSubtractCarry = [](u32 a, u32 b, bool& c) { return subtract_carry(a, b, c); };
constexpr auto kReverseCarry = [](u32 a, u32 b, bool& c) { return subtract_carry(b, a, c); };

constexpr Row kIntegerRows[] = {
    {"v_mov_b32", "du", vector1([](u32 a) { return a; })},
    {"v_accvgpr_read_b32", "du", vector1([](u32 a) { return a; })},
    {"v_accvgpr_write_b32", "du", vector1([](u32 a) { return a; })},
    {"v_accvgpr_mov_b32", "du", vector1([](u32 a) { return a; })},
    {"v_not_b32", "du", vector1([](u32 a) { return ~a; })},
    {"v_bfrev_b32", "du", vector1([](u32 a) { return reverse_bits(a); })},
    {"v_ffbh_u32", "du",
     vector1([](u32 a) { return a != 0 ? static_cast<u32>(std::countl_zero(a)) : ~0U; })},
    {"v_ffbh_i32", "du", vector1([](u32 a) {
       const u32 b = as_signed(a) < 0 ? ~a : a;
       return b != 0 ? static_cast<u32>(std::countl_zero(b)) : ~0U;
     })},
    {"v_ffbl_b32", "du",
     vector1([](u32 a) { return a != 0 ? static_cast<u32>(std::countr_zero(a)) : ~0U; })},
    {"v_bcnt_u32_b32", "duu",
     vector2([](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; })},
    {"v_add_u32", "duu", vector2([](u32 a, u32 b) { return a + b; })},
    {"v_sub_u32", "duu", vector2([](u32 a, u32 b) { return a - b; })},
    {"v_subrev_u32", "duu", vector2([](u32 a, u32 b) { return b - a; })},
    {"v_add_i32", "duu", vector2([](u32 a, u32 b) { return a + b; })},
    {"v_sub_i32", "duu", vector2([](u32 a, u32 b) { return a - b; })},
    {"v_and_b32", "duu", vector2([](u32 a, u32 b) { return a & b; })},
    {"v_or_b32", "duu", vector2([](u32 a, u32 b) { return a | b; })},
    {"v_xor_b32", "duu", vector2([](u32 a, u32 b) { return a ^ b; })},
    {"v_xnor_b32", "duu", vector2([](u32 a, u32 b) { return ~(a ^ b); })},
    {"v_lshlrev_b32", "duu", vector2([](u32 a, u32 b) { return b << (a & 31U); })},
    {"v_lshrrev_b32", "duu", vector2([](u32 a, u32 b) { return b >> (a & 31U); })},
    {"v_ashrrev_i32", "duu", vector2([](u32 a, u32 b) { return as_signed(b) >> (a & 31U); })},
    {"v_bfm_b32", "duu",
     vector2([](u32 a, u32 b) { return ((1U << (a & 31U)) - 1U) << (b & 31U); })},
    {"v_mul_lo_u32", "duu", vector2([](u32 a, u32 b) { return a * b; })},
    {"v_mul_hi_u32", "duu", vector2([](u32 a, u32 b) { return u64{a} * b >> 32; })},
    {"v_mul_hi_i32", "duu",
     vector2([](u32 a, u32 b) { return i64{as_signed(a)} * as_signed(b) >> 32; })},
    {"v_mul_u32_u24", "duu",
     vector2([](u32 a, u32 b) { return (a & 0xffffffU) * (b & 0xffffffU); })},
    {"v_mul_i32_i24", "duu", vector2([](u32 a, u32 b) {
       return static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b));
     })},
    {"v_mul_hi_u32_u24", "duu",
     vector2([](u32 a, u32 b) { return u64{a & 0xffffffU} * (b & 0xffffffU) >> 32; })},
    {"v_min_u32", "duu", vector2([](u32 a, u32 b) { return std::min(a, b); })},
    {"v_max_u32", "duu", vector2([](u32 a, u32 b) { return std::max(a, b); })},
    {"v_min_i32", "duu",
     vector2([](u32 a, u32 b) { return std::min(as_signed(a), as_signed(b)); })},
    {"v_max_i32", "duu",
     vector2([](u32 a, u32 b) { return std::max(as_signed(a), as_signed(b)); })},
    {"v_lshl_add_u32", "duuu", vector3([](u32 a, u32 b, u32 c) { return (a << (b & 31U)) + c; })},
    {"v_add_lshl_u32", "duuu", vector3([](u32 a, u32 b, u32 c) { return (a + b) << (c & 31U); })},
    {"v_lshl_or_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return a << (b & 31U) | c; })},
    {"v_and_or_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return (a & b) | c; })},
    {"v_or3_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return a | b | c; })},
    {"v_add3_u32", "duuu", vector3([](u32 a, u32 b, u32 c) { return a + b + c; })},
    {"v_xad_u32", "duuu", vector3([](u32 a, u32 b, u32 c) { return (a ^ b) + c; })},
    {"v_bfi_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); })},
    {"v_bfe_u32", "duuu", vector3([](u32 a, u32 b, u32 c) { return field(a, b & 31U, c & 31U); })},
    {"v_bfe_i32", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return signed_field(a, b & 31U, c & 31U); })},
    {"v_alignbit_b32", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return join(b, a) >> (c & 31U); })},
    {"v_alignbyte_b32", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return join(b, a) >> (8U * (c & 3U)); })},
    {"v_mad_u32_u24", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return (a & 0xffffffU) * (b & 0xffffffU) + c; })},
    {"v_mad_i32_i24", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b)) + c;
     })},
    {"v_perm_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return permute_bytes(a, b, c); })},
    {"v_min3_u32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::min({a, b, c});
     })},
    {"v_max3_u32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::max({a, b, c});
     })},
    {"v_min3_i32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::min({as_signed(a), as_signed(b), as_signed(c)});
     })},
    {"v_max3_i32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::max({as_signed(a), as_signed(b), as_signed(c)});
     })},
    {"v_med3_u32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::max(std::min(a, b), std::min(std::max(a, b), c));
     })},
    {"v_med3_i32", "duuu", vector3([](u32 x, u32 y, u32 z) {
       const i32 a = as_signed(x), b = as_signed(y), c = as_signed(z);
       return std::max(std::min(a, b), std::min(std::max(a, b), c));
     })},
    {"v_dot4_i32_i8", "duuu", vector3([](u32 a, u32 b, u32 c) { return byte_products(a, b) + c; })},
    {"v_dot4c_i32_i8", "duu", add_byte_products},
    {"v_bitop3_b32", "duuu", bit_operation<~0U>},
    {"v_add_co_u32", "dXuu", carry(kAddCarry)},
    {"v_addc_co_u32", "dXuuS", carry(kAddCarry)},
    {"v_sub_co_u32", "dXuu", carry(kSubtractCarry)},
    {"v_subb_co_u32", "dXuuS", carry(kSubtractCarry)},
    {"v_subrev_co_u32", "dXuu", carry(kReverseCarry)},
    {"v_subbrev_co_u32", "dXuuS", carry(kReverseCarry)},
    // 16 bits: the upper half of the result is zero.
    {"v_bitop3_b16", "duuu", bit_operation<0xffffU>},
    {"v_add_u16", "duu", vector2([](u32 a, u32 b) { return low(a + b); })},
    {"v_sub_u16", "duu", vector2([](u32 a, u32 b) { return low(a - b); })},
    {"v_subrev_u16", "duu", vector2([](u32 a, u32 b) { return low(b - a); })},
    {"v_mul_lo_u16", "duu", vector2([](u32 a, u32 b) { return low(a * b); })},
    {"v_lshlrev_b16", "duu", vector2([](u32 a, u32 b) { return low(b << (a & 15U)); })},
    {"v_lshrrev_b16", "duu", vector2([](u32 a, u32 b) { return low(b) >> (a & 15U); })},
    {"v_ashrrev_i16", "duu",
     vector2([](u32 a, u32 b) { return low(static_cast<u32>(low_signed(b) >> (a & 15U))); })},
    {"v_min_u16", "duu", vector2([](u32 a, u32 b) { return std::min(low(a), low(b)); })},
    {"v_max_u16", "duu", vector2([](u32 a, u32 b) { return std::max(low(a), low(b)); })},
    {"v_min_i16", "duu", vector2([](u32 a, u32 b) {
       return low(static_cast<u32>(std::min(low_signed(a), low_signed(b))));
     })},
    {"v_max_i16", "duu", vector2([](u32 a, u32 b) {
       return low(static_cast<u32>(std::max(low_signed(a), low_signed(b))));
     })},
    {"v_med3_i16", "duuu", vector3([](u32 x, u32 y, u32 z) {
       const i32 a = low_signed(x), b = low_signed(y), c = low_signed(z);
       return low(static_cast<u32>(std::max(std::min(a, b), std::min(std::max(a, b), c))));
     })},
    {"v_cvt_pk_i16_i32", "duu",
     vector2([](u32 a, u32 b) { return limited16(as_signed(a)) | limited16(as_signed(b)) << 16; })},
    {"v_cvt_pk_u16_u32", "duu",
     vector2([](u32 a, u32 b) { return std::min(a, 0xffffU) | std::min(b, 0xffffU) << 16; })},
};

}  // namespace

std::span<const Row> integer_rows() { return kIntegerRows; }

}  // namespace tessera::cdna_emulator
