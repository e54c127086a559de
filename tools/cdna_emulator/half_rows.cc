// Vector instructions on halves, and on two halves or 16-bit integers in one register.
#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// The result's upper half is zero, but for the fused ones, which keep what is there.
template <bool kKeeps, class F>
constexpr Run half_operation(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room out;
    alignas(64) float x[3][kLanes] = {};
    for (int n = 0; n + 1 < i.num_operands; ++n) {
      Room room;
      const u32* bits = source(w, i, n + 1, room);
      for (int l = 0; l < kLanes; ++l) x[n][l] = half_to_float(bits[l] & 0xffffU);
    }
    const u32* d = w.vector(register_of(i, 0));
    for (int l = 0; l < kLanes; ++l) {
      double r = static_cast<double>(F{}(x[0][l], x[1][l], x[2][l]));
      if (i.clamp) r = r > 0 ? (r < 1 ? r : 1.0) : 0.0;
      out[l] = double_to_half(r) | (kKeeps ? d[l] & 0xffff0000U : 0U);
    }
    write_lanes(w, i, register_of(i, 0), out);
  };
}

u32 half_of(u32 bits, u32 choice, int n) {
  return (choice >> n & 1U) != 0 ? bits >> 16 : bits & 0xffffU;
}

// Each half of the result from one half of every source, as op_sel and op_sel_hi say.
template <class F>
constexpr Run packed_integers(F) {
  return [](Wave& w, const Instruction& i) {
    Room rooms[3], out;
    const u32* x[3] = {};
    for (int n = 0; n + 1 < i.num_operands; ++n) x[n] = source(w, i, n + 1, rooms[n]);
    if (i.num_operands < 4) x[2] = x[1];
    for (int l = 0; l < kLanes; ++l) {
      u32 r = 0;
      for (u32 half = 0; half < 2; ++half) {
        const u32 choice = half == 0 ? i.op_sel : i.op_sel_hi;
        const u32 part = static_cast<u32>(F{}(
            half_of(x[0][l], choice, 0), half_of(x[1][l], choice, 1), half_of(x[2][l], choice, 2)));
        r |= (part & 0xffffU) << (16 * half);
      }
      out[l] = r;
    }
    write_lanes(w, i, register_of(i, 0), out);
  };
}

template <class F>
constexpr Run packed_halves(F) {
  return [](Wave& w, const Instruction& i) {
    Room rooms[3], out = {};
    for (int half = 0; half < 2; ++half) {
      float x[3][kLanes] = {};
      const u32 choice = half == 0 ? i.op_sel : i.op_sel_hi;
      const u32 negated = half == 0 ? i.neg_lo : i.neg_hi;
      for (int n = 0; n + 1 < i.num_operands; ++n) {
        const u32* bits = source(w, i, n + 1, rooms[n]);
        const u32 flip = (negated >> n & 1U) != 0 ? 0x8000U : 0U;
        for (int l = 0; l < kLanes; ++l) {
          x[n][l] = half_to_float(half_of(bits[l], choice, n) ^ flip);
        }
      }
      for (int l = 0; l < kLanes; ++l) {
        double r = static_cast<double>(F{}(x[0][l], x[1][l], x[2][l]));
        if (i.clamp) r = r > 0 ? (r < 1 ? r : 1.0) : 0.0;
        out[l] |= double_to_half(r) << (16 * half);
      }
    }
    write_lanes(w, i, register_of(i, 0), out);
  };
}

// A source of v_fma_mix: a float, or one half of a register.
void mixed_source(Wave& w, const Instruction& i, int n, float* x) {
  Room room;
  const u32* bits = source(w, i, n + 1, room);
  const bool half = (i.op_sel_hi >> n & 1U) != 0;
  for (int l = 0; l < kLanes; ++l) {
    x[l] = half ? half_to_float(half_of(bits[l], i.op_sel, n)) : as_float(bits[l]);
    if ((i.neg_hi >> n & 1U) != 0) x[l] = std::fabs(x[l]);
    if ((i.neg_lo >> n & 1U) != 0) x[l] = -x[l];
  }
}
enum class MixTo { whole, low, high };
template <MixTo kTo>
void mix(Wave& w, const Instruction& i) {
  float x[3][kLanes];
  for (int n = 0; n < 3; ++n) mixed_source(w, i, n, x[n]);
  const u32* d = w.vector(register_of(i, 0));
  Room out;
  for (int l = 0; l < kLanes; ++l) {
    double r =
        static_cast<double>(x[0][l]) * static_cast<double>(x[1][l]) + static_cast<double>(x[2][l]);
    if (i.clamp) r = r > 0 ? (r < 1 ? r : 1.0) : 0.0;
    if (kTo == MixTo::whole) out[l] = as_bits(static_cast<float>(r));
    if (kTo == MixTo::low) out[l] = (d[l] & 0xffff0000U) | double_to_half(r);
    if (kTo == MixTo::high) out[l] = (d[l] & 0xffffU) | double_to_half(r) << 16;
  }
  write_lanes(w, i, register_of(i, 0), out);
}

// v_fmac_f16: its third source is the result's register.
void multiply_add_to_half(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* d = w.vector(register_of(i, 0));
  for (int l = 0; l < kLanes; ++l) {
    const double product = static_cast<double>(half_to_float(a[l] & 0xffffU)) *
                           static_cast<double>(half_to_float(b[l] & 0xffffU));
    out[l] = double_to_half(product + static_cast<double>(half_to_float(d[l] & 0xffffU)));
  }
  write_lanes(w, i, register_of(i, 0), out);
}

// a.low * b.low + a.high * b.high + c, in float.
void dot2(Wave& w, const Instruction& i) {
  Room ra, rb, rc, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* c = source(w, i, 3, rc);
  for (int l = 0; l < kLanes; ++l) {
    float sum = as_float(c[l]);
    for (int half = 0; half < 2; ++half) {
      sum += half_to_float(a[l] >> (16 * half) & 0xffffU) *
             half_to_float(b[l] >> (16 * half) & 0xffffU);
    }
    out[l] = as_bits(sum);
  }
  write_lanes(w, i, register_of(i, 0), out);
}

float larger(float a, float b) { return a > b || b != b ? a : b; }
float smaller(float a, float b) { return a < b || b != b ? a : b; }
i32 signed16(u32 x) { return static_cast<i16>(x); }

// A fused product and sum is exact in double: halves have 11 bits.
constexpr auto kFused = [](float a, float b, float c) {
  return static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
};
constexpr Row kHalfRows[] = {
    {"v_add_f16", "dhh", half_operation<false>([](float a, float b, float) { return a + b; })},
    {"v_sub_f16", "dhh", half_operation<false>([](float a, float b, float) { return a - b; })},
    {"v_subrev_f16", "dhh", half_operation<false>([](float a, float b, float) { return b - a; })},
    {"v_mul_f16", "dhh", half_operation<false>([](float a, float b, float) { return a * b; })},
    {"v_max_f16", "dhh",
     half_operation<false>([](float a, float b, float) { return larger(a, b); })},
    {"v_min_f16", "dhh",
     half_operation<false>([](float a, float b, float) { return smaller(a, b); })},
    {"v_rcp_f16", "dh", half_operation<false>([](float a, float, float) { return 1.0F / a; })},
    {"v_sqrt_f16", "dh", half_operation<false>([](float a, float, float) { return std::sqrt(a); })},
    {"v_exp_f16", "dh", half_operation<false>([](float a, float, float) { return std::exp2(a); })},
    {"v_log_f16", "dh", half_operation<false>([](float a, float, float) { return std::log2(a); })},
    {"v_floor_f16", "dh",
     half_operation<false>([](float a, float, float) { return std::floor(a); })},
    {"v_trunc_f16", "dh",
     half_operation<false>([](float a, float, float) { return std::trunc(a); })},
    {"v_rndne_f16", "dh",
     half_operation<false>([](float a, float, float) { return std::nearbyint(a); })},
    {"v_fma_f16", "dhhh", half_operation<true>(kFused)},
    {"v_fmac_f16", "dhh", multiply_add_to_half},
    {"v_max3_f16", "dhhh",
     half_operation<true>([](float a, float b, float c) { return larger(larger(a, b), c); })},
    {"v_min3_f16", "dhhh",
     half_operation<true>([](float a, float b, float c) { return smaller(smaller(a, b), c); })},
    {"v_med3_f16", "dhhh", half_operation<true>([](float a, float b, float c) {
       return larger(smaller(a, b), smaller(larger(a, b), c));
     })},
    {"v_pk_add_f16", "dhh", packed_halves([](float a, float b, float) { return a + b; })},
    {"v_pk_mul_f16", "dhh", packed_halves([](float a, float b, float) { return a * b; })},
    {"v_pk_max_f16", "dhh", packed_halves([](float a, float b, float) { return larger(a, b); })},
    {"v_pk_min_f16", "dhh", packed_halves([](float a, float b, float) { return smaller(a, b); })},
    {"v_pk_fma_f16", "dhhh", packed_halves(kFused)},
    {"v_pk_add_u16", "duu", packed_integers([](u32 a, u32 b, u32) { return a + b; })},
    {"v_pk_add_i16", "duu", packed_integers([](u32 a, u32 b, u32) { return a + b; })},
    {"v_pk_sub_u16", "duu", packed_integers([](u32 a, u32 b, u32) { return a - b; })},
    {"v_pk_sub_i16", "duu", packed_integers([](u32 a, u32 b, u32) { return a - b; })},
    {"v_pk_mul_lo_u16", "duu", packed_integers([](u32 a, u32 b, u32) { return a * b; })},
    {"v_pk_mad_u16", "duuu", packed_integers([](u32 a, u32 b, u32 c) { return a * b + c; })},
    {"v_pk_mad_i16", "duuu", packed_integers([](u32 a, u32 b, u32 c) { return a * b + c; })},
    {"v_pk_lshlrev_b16", "duu", packed_integers([](u32 a, u32 b, u32) { return b << (a & 15U); })},
    {"v_pk_lshrrev_b16", "duu", packed_integers([](u32 a, u32 b, u32) { return b >> (a & 15U); })},
    {"v_pk_ashrrev_i16", "duu",
     packed_integers([](u32 a, u32 b, u32) { return signed16(b) >> (a & 15U); })},
    {"v_pk_max_i16", "duu",
     packed_integers([](u32 a, u32 b, u32) { return std::max(signed16(a), signed16(b)); })},
    {"v_pk_min_i16", "duu",
     packed_integers([](u32 a, u32 b, u32) { return std::min(signed16(a), signed16(b)); })},
    {"v_pk_max_u16", "duu", packed_integers([](u32 a, u32 b, u32) { return std::max(a, b); })},
    {"v_pk_min_u16", "duu", packed_integers([](u32 a, u32 b, u32) { return std::min(a, b); })},
    {"v_fma_mix_f32", "dmmm", mix<MixTo::whole>},
    {"v_fma_mixlo_f16", "dmmm", mix<MixTo::low>},
    {"v_fma_mixhi_f16", "dmmm", mix<MixTo::high>},
    {"v_dot2_f32_f16", "duuf", dot2},
};

}  // namespace

std::span<const Row> half_rows() { return kHalfRows; }

}  // namespace tessera::cdna_emulator
