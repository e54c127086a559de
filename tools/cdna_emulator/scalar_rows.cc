// Scalar instructions.
#include <algorithm>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

u32 set_if_nonzero(u32 result, bool& scc) {
  scc = result != 0;
  return result;
}
u64 set_if_nonzero(u64 result, bool& scc) {
  scc = result != 0;
  return result;
}
u32 with_carry(u64 sum, bool& scc) {
  scc = sum >> 32 != 0;
  return static_cast<u32>(sum);
}
u32 with_overflow(i64 sum, bool& scc) {
  scc = sum != static_cast<i32>(sum);
  return static_cast<u32>(sum);
}
u32 choose(bool first, u32 a, u32 b, bool& scc) {
  scc = first;
  return first ? a : b;
}
// A field of a number: its first bit in bits 0 to 4 (or 5), its width in bits 16 to 22.
u64 bit_field(u64 a, u32 b, int bits, bool sign) {
  const int shift = static_cast<int>(b & static_cast<u32>(bits - 1));
  const int width = std::min(static_cast<int>(b >> 16 & 127U), bits - shift);
  if (width == 0) return 0;
  const u64 cut = a << (64 - width - shift);
  return sign ? static_cast<u64>(static_cast<i64>(cut) >> (64 - width)) : cut >> (64 - width);
}
u32 reversed(u32 a) {
  u32 r = 0;
  for (int n = 0; n < 32; ++n) r |= (a >> n & 1U) << (31 - n);
  return r;
}
template <class T>
u32 first_or_none(T a, int first) {
  return a != 0 ? static_cast<u32>(first) : ~0U;
}
i64 wide(u32 a) { return as_signed(a); }

template <class F>
constexpr Run save_exec(F) {
  return [](Wave& w, const Instruction& i) {
    const u64 exec = w.exec(), result = F{}(scalar64(w, i, 1), exec);
    w.set_pair(register_of(i, 0), exec);
    w.set_pair(kExec, result);
    w.scc = result != 0;
  };
}
// An operation with a 16-bit number on the register that it writes.
template <class F>
constexpr Run with_number(F) {
  return [](Wave& w, const Instruction& i) {
    u32& d = w.scalar(register_of(i, 0));
    d = static_cast<u32>(F{}(d, static_cast<i32>(static_cast<i16>(scalar32(w, i, 1))), w.scc));
  };
}
template <bool kSigned, class F>
constexpr Run compare_number(F) {
  return [](Wave& w, const Instruction& i) {
    const u32 a = w.scalar(register_of(i, 0)), b = scalar32(w, i, 1) & 0xffffU;
    w.scc = kSigned ? F{}(wide(a), i64{static_cast<i16>(b)}) : F{}(i64{a}, i64{b});
  };
}
void conditional_move(Wave& w, const Instruction& i) {
  if (w.scc) w.scalar(register_of(i, 0)) = scalar32(w, i, 1);
}
void conditional_move_64(Wave& w, const Instruction& i) {
  if (w.scc) w.set_pair(register_of(i, 0), scalar64(w, i, 1));
}
void bit_field_64(Wave& w, const Instruction& i) {
  const bool sign = i.name == "s_bfe_i64";
  const u64 r = bit_field(scalar64(w, i, 1), scalar32(w, i, 2), 64, sign);
  w.set_pair(register_of(i, 0), set_if_nonzero(r, w.scc));
}
template <class F>
constexpr Run shift_64(F) {
  return [](Wave& w, const Instruction& i) {
    const u64 r = F{}(scalar64(w, i, 1), scalar32(w, i, 2) & 63U);
    w.set_pair(register_of(i, 0), set_if_nonzero(r, w.scc));
  };
}
template <class F>
constexpr Run count_64(F) {
  return [](Wave& w, const Instruction& i) {
    w.scalar(register_of(i, 0)) = static_cast<u32>(F{}(scalar64(w, i, 1), w.scc));
  };
}
template <bool kValue>
void scalar_bit(Wave& w, const Instruction& i) {
  const u32 bit = 1U << (scalar32(w, i, 1) & 31U);
  u32& d = w.scalar(register_of(i, 0));
  d = kValue ? d | bit : d & ~bit;
}
template <bool kWanted>
void bit_compare(Wave& w, const Instruction& i) {
  w.scc = (scalar32(w, i, 0) >> (scalar32(w, i, 1) & 31U) & 1U) == (kWanted ? 1U : 0U);
}

constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kDiffer = [](auto a, auto b) { return a != b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kAtMost = [](auto a, auto b) { return a <= b; };
constexpr auto kMore = [](auto a, auto b) { return a > b; };
constexpr auto kAtLeast = [](auto a, auto b) { return a >= b; };

using Scc = bool&;
constexpr Row kScalarRows[] = {
    {"s_mov_b32", "xs", scalar1([](u32 a, Scc) { return a; })},
    {"s_mov_b64", "XS", scalar1_64([](u64 a, Scc) { return a; })},
    {"s_movk_i32", "xk", with_number([](u32, i32 b, Scc) { return b; })},
    {"s_cmov_b32", "xs", conditional_move},
    {"s_cmov_b64", "XS", conditional_move_64},
    {"s_addk_i32", "xk",
     with_number([](u32 a, i32 b, Scc c) { return with_overflow(wide(a) + b, c); })},
    {"s_mulk_i32", "xk", with_number([](u32 a, i32 b, Scc) { return a * static_cast<u32>(b); })},
    {"s_add_i32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_overflow(wide(a) + wide(b), c); })},
    {"s_sub_i32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_overflow(wide(a) - wide(b), c); })},
    {"s_add_u32", "xss", scalar2([](u32 a, u32 b, Scc c) { return with_carry(u64{a} + b, c); })},
    {"s_addc_u32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_carry(u64{a} + b + (c ? 1U : 0U), c); })},
    {"s_sub_u32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       c = b > a;
       return a - b;
     })},
    {"s_subb_u32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       const u64 r = u64{b} + (c ? 1U : 0U);
       c = r > a;
       return static_cast<u32>(a - r);
     })},
    {"s_mul_i32", "xss", scalar2([](u32 a, u32 b, Scc) { return a * b; })},
    {"s_mul_hi_u32", "xss", scalar2([](u32 a, u32 b, Scc) { return u64{a} * b >> 32; })},
    {"s_mul_hi_i32", "xss", scalar2([](u32 a, u32 b, Scc) { return wide(a) * wide(b) >> 32; })},
    {"s_min_i32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return choose(wide(a) < wide(b), a, b, c); })},
    {"s_max_i32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return choose(wide(a) > wide(b), a, b, c); })},
    {"s_min_u32", "xss", scalar2([](u32 a, u32 b, Scc c) { return choose(a < b, a, b, c); })},
    {"s_max_u32", "xss", scalar2([](u32 a, u32 b, Scc c) { return choose(a > b, a, b, c); })},
    {"s_and_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a & b, c); })},
    {"s_or_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a | b, c); })},
    {"s_xor_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a ^ b, c); })},
    {"s_andn2_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a & ~b, c); })},
    {"s_orn2_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a | ~b, c); })},
    {"s_nand_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(~(a & b), c); })},
    {"s_nor_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(~(a | b), c); })},
    {"s_xnor_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(~(a ^ b), c); })},
    {"s_and_b64", "XSS", scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(a & b, c); })},
    {"s_or_b64", "XSS", scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(a | b, c); })},
    {"s_xor_b64", "XSS", scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(a ^ b, c); })},
    {"s_andn2_b64", "XSS",
     scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(a & ~b, c); })},
    {"s_orn2_b64", "XSS",
     scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(a | ~b, c); })},
    {"s_nand_b64", "XSS",
     scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(~(a & b), c); })},
    {"s_nor_b64", "XSS",
     scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(~(a | b), c); })},
    {"s_xnor_b64", "XSS",
     scalar2_64([](u64 a, u64 b, Scc c) { return set_if_nonzero(~(a ^ b), c); })},
    {"s_not_b32", "xs", scalar1([](u32 a, Scc c) { return set_if_nonzero(~a, c); })},
    {"s_not_b64", "XS", scalar1_64([](u64 a, Scc c) { return set_if_nonzero(~a, c); })},
    {"s_lshl_b32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a << (b & 31U), c); })},
    {"s_lshr_b32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return set_if_nonzero(a >> (b & 31U), c); })},
    {"s_ashr_i32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       return set_if_nonzero(static_cast<u32>(as_signed(a) >> (b & 31U)), c);
     })},
    {"s_lshl_b64", "XSs", shift_64([](u64 a, u32 b) { return a << b; })},
    {"s_lshr_b64", "XSs", shift_64([](u64 a, u32 b) { return a >> b; })},
    {"s_ashr_i64", "XSs",
     shift_64([](u64 a, u32 b) { return static_cast<u64>(static_cast<i64>(a) >> b); })},
    {"s_lshl1_add_u32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_carry((u64{a} << 1) + b, c); })},
    {"s_lshl2_add_u32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_carry((u64{a} << 2) + b, c); })},
    {"s_lshl3_add_u32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_carry((u64{a} << 3) + b, c); })},
    {"s_lshl4_add_u32", "xss",
     scalar2([](u32 a, u32 b, Scc c) { return with_carry((u64{a} << 4) + b, c); })},
    {"s_bfe_u32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       return set_if_nonzero(static_cast<u32>(bit_field(a, b, 32, false)), c);
     })},
    {"s_bfe_i32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       return set_if_nonzero(static_cast<u32>(bit_field(a, b, 32, true)), c);
     })},
    {"s_bfe_u64", "XSs", bit_field_64},
    {"s_bfe_i64", "XSs", bit_field_64},
    {"s_bfm_b32", "xss",
     scalar2([](u32 a, u32 b, Scc) { return ((1U << (a & 31U)) - 1U) << (b & 31U); })},
    {"s_pack_ll_b32_b16", "xss",
     scalar2([](u32 a, u32 b, Scc) { return (a & 0xffffU) | b << 16; })},
    {"s_pack_lh_b32_b16", "xss",
     scalar2([](u32 a, u32 b, Scc) { return (a & 0xffffU) | (b & 0xffff0000U); })},
    {"s_pack_hh_b32_b16", "xss",
     scalar2([](u32 a, u32 b, Scc) { return a >> 16 | (b & 0xffff0000U); })},
    {"s_cselect_b32", "xss", scalar2([](u32 a, u32 b, Scc c) { return c ? a : b; })},
    {"s_cselect_b64", "XSS", scalar2_64([](u64 a, u64 b, Scc c) { return c ? a : b; })},
    {"s_abs_i32", "xs",
     scalar1([](u32 a, Scc c) { return set_if_nonzero(as_signed(a) < 0 ? 0U - a : a, c); })},
    {"s_absdiff_i32", "xss", scalar2([](u32 a, u32 b, Scc c) {
       const u32 r = a - b;
       return set_if_nonzero(as_signed(r) < 0 ? 0U - r : r, c);
     })},
    {"s_brev_b32", "xs", scalar1([](u32 a, Scc) { return reversed(a); })},
    {"s_brev_b64", "XS", scalar1_64([](u64 a, Scc) {
       return join(reversed(static_cast<u32>(a >> 32)), reversed(static_cast<u32>(a)));
     })},
    {"s_sext_i32_i16", "xs", scalar1([](u32 a, Scc) { return static_cast<i16>(a); })},
    {"s_sext_i32_i8", "xs", scalar1([](u32 a, Scc) { return static_cast<i8>(a); })},
    {"s_ff1_i32_b32", "xs",
     scalar1([](u32 a, Scc) { return first_or_none(a, std::countr_zero(a)); })},
    {"s_ff1_i32_b64", "xS",
     count_64([](u64 a, Scc) { return first_or_none(a, std::countr_zero(a)); })},
    {"s_flbit_i32_b32", "xs",
     scalar1([](u32 a, Scc) { return first_or_none(a, std::countl_zero(a)); })},
    {"s_flbit_i32_b64", "xS",
     count_64([](u64 a, Scc) { return first_or_none(a, std::countl_zero(a)); })},
    {"s_flbit_i32", "xs", scalar1([](u32 a, Scc) {
       const u32 b = as_signed(a) < 0 ? ~a : a;
       return first_or_none(b, std::countl_zero(b));
     })},
    {"s_bcnt0_i32_b32", "xs",
     scalar1([](u32 a, Scc c) { return set_if_nonzero(static_cast<u32>(std::popcount(~a)), c); })},
    {"s_bcnt1_i32_b32", "xs",
     scalar1([](u32 a, Scc c) { return set_if_nonzero(static_cast<u32>(std::popcount(a)), c); })},
    {"s_bcnt1_i32_b64", "xS",
     count_64([](u64 a, Scc c) { return set_if_nonzero(static_cast<u32>(std::popcount(a)), c); })},
    {"s_bitset0_b32", "xs", scalar_bit<false>},
    {"s_bitset1_b32", "xs", scalar_bit<true>},
    {"s_bitcmp0_b32", "ss", bit_compare<false>},
    {"s_bitcmp1_b32", "ss", bit_compare<true>},
    {"s_cmp_eq_u32", "ss", scalar_compare<u32>(kEqual)},
    {"s_cmp_lg_u32", "ss", scalar_compare<u32>(kDiffer)},
    {"s_cmp_lt_u32", "ss", scalar_compare<u32>(kLess)},
    {"s_cmp_le_u32", "ss", scalar_compare<u32>(kAtMost)},
    {"s_cmp_gt_u32", "ss", scalar_compare<u32>(kMore)},
    {"s_cmp_ge_u32", "ss", scalar_compare<u32>(kAtLeast)},
    {"s_cmp_eq_i32", "ss", scalar_compare<i32>(kEqual)},
    {"s_cmp_lg_i32", "ss", scalar_compare<i32>(kDiffer)},
    {"s_cmp_lt_i32", "ss", scalar_compare<i32>(kLess)},
    {"s_cmp_le_i32", "ss", scalar_compare<i32>(kAtMost)},
    {"s_cmp_gt_i32", "ss", scalar_compare<i32>(kMore)},
    {"s_cmp_ge_i32", "ss", scalar_compare<i32>(kAtLeast)},
    {"s_cmp_eq_u64", "SS", scalar_compare<u64>(kEqual)},
    {"s_cmp_lg_u64", "SS", scalar_compare<u64>(kDiffer)},
    {"s_cmpk_eq_u32", "sk", compare_number<false>(kEqual)},
    {"s_cmpk_lg_u32", "sk", compare_number<false>(kDiffer)},
    {"s_cmpk_lt_u32", "sk", compare_number<false>(kLess)},
    {"s_cmpk_le_u32", "sk", compare_number<false>(kAtMost)},
    {"s_cmpk_gt_u32", "sk", compare_number<false>(kMore)},
    {"s_cmpk_ge_u32", "sk", compare_number<false>(kAtLeast)},
    {"s_cmpk_eq_i32", "sk", compare_number<true>(kEqual)},
    {"s_cmpk_lg_i32", "sk", compare_number<true>(kDiffer)},
    {"s_cmpk_lt_i32", "sk", compare_number<true>(kLess)},
    {"s_cmpk_le_i32", "sk", compare_number<true>(kAtMost)},
    {"s_cmpk_gt_i32", "sk", compare_number<true>(kMore)},
    {"s_cmpk_ge_i32", "sk", compare_number<true>(kAtLeast)},
    {"s_and_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return a & e; })},
    {"s_or_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return a | e; })},
    {"s_xor_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return a ^ e; })},
    {"s_andn2_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return a & ~e; })},
    {"s_orn2_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return a | ~e; })},
    {"s_andn1_saveexec_b64", "XS", save_exec([](u64 a, u64 e) { return ~a & e; })},
};

}  // namespace

std::span<const Row> scalar_rows() { return kScalarRows; }

}  // namespace tessera::cdna_emulator
