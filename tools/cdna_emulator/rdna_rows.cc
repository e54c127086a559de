// Vector instructions that RDNA alone has, and pairs of instructions.
#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace rdna_vector {

u32 low(u32 x) { return x & 0xffffU; }
u32 signed_low(u32 x) { return static_cast<u32>(static_cast<i32>(static_cast<i16>(x))); }
float greater(float a, float b) { return a > b || b != b ? a : b; }
float lesser(float a, float b) { return a < b || b != b ? a : b; }

// 16 bits of each lane by a mask.
void choose_halves(Wave& w, const Instruction& i) {
  Room ra, rb, mask, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  expand_mask(scalar64(w, i, 3), mask);
  for (int l = 0; l < kLanes; ++l) out[l] = low((a[l] & ~mask[l]) | (b[l] & mask[l]));
  write_lanes(w, i, register_of(i, 0), out);
}

// One of the other 16 lanes of 32, or of the own ones, for each lane by 4 bits of two scalars.
template <u32 kOther>
void permute_rows(Wave& w, const Instruction& i) {
  Room room, out;
  const u32* a = source(w, i, 1, room);
  const u64 choice = join(scalar32(w, i, 2), scalar32(w, i, 3));
  for (u32 l = 0; l < kLanes; ++l) {
    const u32 from = ((l & ~15U) ^ kOther) | static_cast<u32>(choice >> (4 * (l & 15U)) & 15U);
    out[l] = (w.exec() >> from & 1U) != 0 ? a[from] : 0;
  }
  write_lanes(w, i, register_of(i, 0), out);
}

// The products of 4 bytes, which neg_lo says to be signed.
void multiply_bytes(Wave& w, const Instruction& i) {
  Room ra, rb, rc, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* c = source(w, i, 3, rc);
  const auto byte = [&](u32 x, int n, int operand) {
    const u32 bits = x >> (8 * n) & 0xffU;
    const bool sign = (i.neg_lo >> operand & 1U) != 0;
    return sign ? static_cast<i32>(static_cast<i8>(bits)) : static_cast<i32>(bits);
  };
  for (int l = 0; l < kLanes; ++l) {
    u32 sum = c[l];
    for (int n = 0; n < 4; ++n) sum += static_cast<u32>(byte(a[l], n, 0) * byte(b[l], n, 1));
    out[l] = sum;
  }
  write_lanes(w, i, register_of(i, 0), out);
}

// v_dual_dot2acc_f32_f16 is v_dot2acc_f32_f16: a sum of two products onto the result's register.
void add_half_products(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* d = w.vector(register_of(i, 0));
  for (int l = 0; l < kLanes; ++l) {
    float sum = as_float(d[l]);
    for (int half = 0; half < 2; ++half) {
      sum += half_to_float(low(a[l] >> (16 * half))) * half_to_float(low(b[l] >> (16 * half)));
    }
    out[l] = as_bits(sum);
  }
  write_lanes(w, i, register_of(i, 0), out);
}

constexpr Row kRdnaRows[] = {
    {"v_mov_b16", "du", vector1([](u32 a) { return low(a); })},
    {"v_not_b16", "du", vector1([](u32 a) { return low(~a); })},
    {"v_and_b16", "duu", vector2([](u32 a, u32 b) { return low(a & b); })},
    {"v_or_b16", "duu", vector2([](u32 a, u32 b) { return low(a | b); })},
    {"v_xor_b16", "duu", vector2([](u32 a, u32 b) { return low(a ^ b); })},
    {"v_cndmask_b16", "duuS", choose_halves},
    {"v_mad_u16", "duuu", vector3([](u32 a, u32 b, u32 c) { return low(a * b + c); })},
    {"v_mad_u32_u16", "duuu", vector3([](u32 a, u32 b, u32 c) { return low(a) * low(b) + c; })},
    {"v_mad_i32_i16", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return signed_low(a) * signed_low(b) + c; })},
    {"v_cvt_i32_i16", "du", vector1([](u32 a) { return signed_low(a); })},
    {"v_cvt_u32_u16", "du", vector1([](u32 a) { return low(a); })},
    {"v_xor3_b32", "duuu", vector3([](u32 a, u32 b, u32 c) { return a ^ b ^ c; })},
    {"v_mul_dx9_zero_f32", "dff",
     float2([](float a, float b) { return a == 0 || b == 0 ? 0.0F : a * b; })},
    {"v_maxmin_f32", "dfff",
     float3([](float a, float b, float c) { return lesser(greater(a, b), c); })},
    {"v_minmax_f32", "dfff",
     float3([](float a, float b, float c) { return greater(lesser(a, b), c); })},
    {"v_maxmin_num_f32", "dfff",
     float3([](float a, float b, float c) { return lesser(greater(a, b), c); })},
    {"v_minmax_num_f32", "dfff",
     float3([](float a, float b, float c) { return greater(lesser(a, b), c); })},
    {"v_maxmin_u32", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); })},
    {"v_minmax_u32", "duuu",
     vector3([](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); })},
    {"v_maxmin_i32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::min(std::max(as_signed(a), as_signed(b)), as_signed(c));
     })},
    {"v_minmax_i32", "duuu", vector3([](u32 a, u32 b, u32 c) {
       return std::max(std::min(as_signed(a), as_signed(b)), as_signed(c));
     })},
    {"v_permlane16_b32", "duss", permute_rows<0>},
    {"v_permlanex16_b32", "duss", permute_rows<16>},
    {"v_dot4_i32_iu8", "duuu", multiply_bytes},
    {"v_dot2acc_f32_f16", "duu", add_half_products},
};

}  // namespace rdna_vector

std::span<const Row> rdna_rows() {
  static const std::deque<std::string>* const names = [] {
    auto* made = new std::deque<std::string>;
    for (const Row& row : compare_rows())
      made->push_back("v_cmpx_" + std::string(row.name.substr(6)));
    return made;
  }();
  static const std::vector<Row>* const rows = [] {
    auto* made =
        new std::vector<Row>(std::begin(rdna_vector::kRdnaRows), std::end(rdna_vector::kRdnaRows));
    // They write exec, which their text does not name; decode() adds it.
    for (std::size_t n = 0; n < names->size(); ++n) {
      made->push_back({(*names)[n], compare_rows()[n].operands, compare_rows()[n].run});
    }
    return made;
  }();
  return *rows;
}

// Both read before one writes, and they write different registers.
void run_both(Wave& w, const Instruction& pair) {
  const Instruction& first = (*pair.both)[0];
  const Instruction& second = (*pair.both)[1];
  if (w.num_awaited != 0) {
    check_awaited(w, first);
    check_awaited(w, second);
  }
  u32* const to = w.vector(first.operands[0].reg);
  Room before, after;
  std::memcpy(before, to, sizeof before);
  first.run(w, first);
  std::memcpy(after, to, sizeof after);
  std::memcpy(to, before, sizeof before);
  second.run(w, second);
  std::memcpy(to, after, sizeof after);
}

}  // namespace tessera::cdna_emulator
