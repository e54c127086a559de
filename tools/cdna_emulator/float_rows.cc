// Vector instructions on floats and doubles, and on pairs of floats.
#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// Given a number and a NaN, they return the number.
float greater(float a, float b) { return a > b || b != b ? a : b; }
float lesser(float a, float b) { return a < b || b != b ? a : b; }
float middle(float a, float b, float c) { return greater(lesser(a, b), lesser(greater(a, b), c)); }

constexpr auto kMad = [](float a, float b, float c) { return a * b + c; };  // rounded twice
constexpr auto kFma = [](float a, float b, float c) { return std::fma(a, b, c); };

// d = a * b + d, where d is in no list of sources.
template <class F>
void multiply_add_to(Wave& w, const Instruction& i) {
  alignas(64) Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* d = w.vector(register_of(i, 0));
  for (int l = 0; l < kLanes; ++l) {
    out[l] = as_bits(F{}(as_float(a[l]), as_float(b[l]), as_float(d[l])));
  }
  finish_floats(i, out);
  write_lanes(w, i, register_of(i, 0), out);
}
void scale_by_power(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  for (int l = 0; l < kLanes; ++l) {
    out[l] = as_bits(std::ldexp(as_float(a[l]), std::clamp(as_signed(b[l]), -512, 512)));
  }
  finish_floats(i, out);
  write_lanes(w, i, register_of(i, 0), out);
}
// A division is made of several instructions, of which the last, v_div_fixup, knows numerator and
// denominator. It divides here, so that the others need not scale.
void scale_for_division(Wave& w, const Instruction& i) {
  Room room;
  write_lanes(w, i, register_of(i, 0), source(w, i, 2, room));
  set_mask(w, i, 1, 0);
}

float fraction_of(float a) {
  int e = 0;
  return std::isfinite(a) ? std::frexp(a, &e) : a;
}
u32 exponent_of(float a) {
  int e = 0;
  if (std::isfinite(a)) std::frexp(a, &e);
  return static_cast<u32>(e);
}

// ---- pairs of floats in two registers; op_sel and op_sel_hi choose the halves ----
template <class F>
constexpr Run pair_operation(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) u32 out[2][kLanes];
    for (u32 half = 0; half < 2; ++half) {
      const float* x[3] = {};
      alignas(64) float values[3][kLanes];
      for (int n = 0; n + 1 < i.num_operands; ++n) {
        alignas(64) Room room;
        const bool high = ((half == 0 ? i.op_sel : i.op_sel_hi) >> n & 1U) != 0;
        const u32* bits = high ? source_high(w, i, n + 1, room) : source(w, i, n + 1, room);
        const u32 flip = ((half == 0 ? i.neg_lo : i.neg_hi) >> n & 1U) != 0 ? 0x80000000U : 0U;
        for (int l = 0; l < kLanes; ++l) values[n][l] = as_float(bits[l] ^ flip);
        x[n] = values[n];
      }
      if (i.num_operands < 4) x[2] = x[0];
      for (int l = 0; l < kLanes; ++l) out[half][l] = as_bits(F{}(x[0][l], x[1][l], x[2][l]));
      finish_floats(i, out[half]);
    }
    for (int half = 0; half < 2; ++half) write_lanes(w, i, register_of(i, 0) + half, out[half]);
  };
}
void move_pair(Wave& w, const Instruction& i) {
  alignas(64) u32 rooms[2][kLanes], out[2][kLanes];
  for (int n = 0; n < 2; ++n) {
    const bool high = (i.op_sel >> n & 1U) != 0;
    const u32* x = high ? source_high(w, i, n + 1, rooms[n]) : source(w, i, n + 1, rooms[n]);
    std::memcpy(out[n], x, sizeof out[n]);
  }
  for (int n = 0; n < 2; ++n) write_lanes(w, i, register_of(i, 0) + n, out[n]);
}

// ---- doubles ----
template <class F>
constexpr Run double_operation(F) {
  return [](Wave& w, const Instruction& i) {
    u64 x[3][kLanes] = {}, out[kLanes];
    for (int n = 0; n + 1 < i.num_operands; ++n) source64(w, i, n + 1, x[n]);
    for (int l = 0; l < kLanes; ++l) {
      out[l] = as_bits(
          static_cast<double>(F{}(as_double(x[0][l]), as_double(x[1][l]), as_double(x[2][l]))));
    }
    write_lanes64(w, i, out);
  };
}
template <class F>
constexpr Run to_double(F) {
  return [](Wave& w, const Instruction& i) {
    Room room;
    u64 out[kLanes];
    const u32* a = source(w, i, 1, room);
    for (int l = 0; l < kLanes; ++l) out[l] = as_bits(static_cast<double>(F{}(a[l])));
    write_lanes64(w, i, out);
  };
}
void double_to_float(Wave& w, const Instruction& i) {
  u64 a[kLanes];
  Room out;
  source64(w, i, 1, a);
  for (int l = 0; l < kLanes; ++l) out[l] = as_bits(static_cast<float>(as_double(a[l])));
  write_lanes(w, i, register_of(i, 0), out);
}

constexpr Row kFloatRows[] = {
    {"v_add_f32", "dff", float2([](float a, float b) { return a + b; })},
    {"v_sub_f32", "dff", float2([](float a, float b) { return a - b; })},
    {"v_subrev_f32", "dff", float2([](float a, float b) { return b - a; })},
    {"v_mul_f32", "dff", float2([](float a, float b) { return a * b; })},
    {"v_max_f32", "dff", float2([](float a, float b) { return greater(a, b); })},
    {"v_min_f32", "dff", float2([](float a, float b) { return lesser(a, b); })},
    {"v_fma_f32", "dfff", float3(kFma)},
    {"v_fmamk_f32", "dfff", float3(kFma)},
    {"v_fmaak_f32", "dfff", float3(kFma)},
    {"v_mad_f32", "dfff", float3(kMad)},
    {"v_madmk_f32", "dfff", float3(kMad)},
    {"v_madak_f32", "dfff", float3(kMad)},
    {"v_fmac_f32", "dff", multiply_add_to<decltype(kFma)>},
    {"v_mac_f32", "dff", multiply_add_to<decltype(kMad)>},
    {"v_max3_f32", "dfff",
     float3([](float a, float b, float c) { return greater(greater(a, b), c); })},
    {"v_min3_f32", "dfff",
     float3([](float a, float b, float c) { return lesser(lesser(a, b), c); })},
    {"v_med3_f32", "dfff", float3([](float a, float b, float c) { return middle(a, b, c); })},
    {"v_maximum3_f32", "dfff", float3([](float a, float b, float c) {
       return a != a ? a : b != b ? b : c != c ? c : greater(greater(a, b), c);
     })},
    {"v_minimum3_f32", "dfff", float3([](float a, float b, float c) {
       return a != a ? a : b != b ? b : c != c ? c : lesser(lesser(a, b), c);
     })},
    {"v_rcp_f32", "df", float1([](float a) { return 1.0F / a; })},
    {"v_rcp_iflag_f32", "df", float1([](float a) { return 1.0F / a; })},
    {"v_exp_f32", "df", float1([](float a) { return std::exp2(a); })},
    {"v_log_f32", "df", float1([](float a) { return std::log2(a); })},
    {"v_sqrt_f32", "df", float1([](float a) { return std::sqrt(a); })},
    {"v_rsq_f32", "df", float1([](float a) { return 1.0F / std::sqrt(a); })},
    {"v_floor_f32", "df", float1([](float a) { return std::floor(a); })},
    {"v_ceil_f32", "df", float1([](float a) { return std::ceil(a); })},
    {"v_trunc_f32", "df", float1([](float a) { return std::trunc(a); })},
    {"v_rndne_f32", "df", float1([](float a) { return std::nearbyint(a); })},
    {"v_fract_f32", "df", float1([](float a) { return a - std::floor(a); })},
    {"v_sin_f32", "df",
     float1([](float a) { return std::sin(6.283185307179586 * static_cast<double>(a)); })},
    {"v_cos_f32", "df",
     float1([](float a) { return std::cos(6.283185307179586 * static_cast<double>(a)); })},
    {"v_frexp_mant_f32", "df", float1([](float a) { return fraction_of(a); })},
    {"v_frexp_exp_i32_f32", "df", vector1([](u32 a) { return exponent_of(as_float(a)); })},
    {"v_ldexp_f32", "dfu", scale_by_power},
    {"v_div_scale_f32", "dXfff", scale_for_division},
    {"v_div_fmas_f32", "dfff", float3(kFma)},
    {"v_div_fixup_f32", "dfff", float3([](float, float b, float c) { return c / b; })},
    {"v_pk_add_f32", "DPP", pair_operation([](float a, float b, float) { return a + b; })},
    {"v_pk_mul_f32", "DPP", pair_operation([](float a, float b, float) { return a * b; })},
    {"v_pk_fma_f32", "DPPP", pair_operation(kFma)},
    {"v_pk_mov_b32", "DUU", move_pair},
    {"v_add_f64", "DFF", double_operation([](double a, double b, double) { return a + b; })},
    {"v_mul_f64", "DFF", double_operation([](double a, double b, double) { return a * b; })},
    {"v_fma_f64", "DFFF",
     double_operation([](double a, double b, double c) { return std::fma(a, b, c); })},
    {"v_max_f64", "DFF",
     double_operation([](double a, double b, double) { return std::fmax(a, b); })},
    {"v_min_f64", "DFF",
     double_operation([](double a, double b, double) { return std::fmin(a, b); })},
    {"v_cvt_f64_f32", "Df", to_double([](u32 a) { return as_float(a); })},
    {"v_cvt_f64_i32", "Du", to_double([](u32 a) { return as_signed(a); })},
    {"v_cvt_f64_u32", "Du", to_double([](u32 a) { return a; })},
    {"v_cvt_f32_f64", "dF", double_to_float},
};

}  // namespace

std::span<const Row> float_rows() { return kFloatRows; }

}  // namespace tessera::cdna_emulator
