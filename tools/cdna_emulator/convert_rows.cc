// Vector instructions that convert numbers.
#include <algorithm>
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

template <u32 kByte>
constexpr Run from_byte() {
  return vector1([](u32 a) { return as_bits(static_cast<float>(a >> (8 * kByte) & 0xffU)); });
}
u32 to_unsigned16(float x) { return std::min(to_unsigned(x), 0xffffU); }
u32 to_signed16(float x) {
  return static_cast<u32>(std::clamp(as_signed(to_signed(x)), -32768, 32767)) & 0xffffU;
}
u32 to_rounded(float x) { return to_signed(std::floor(x + 0.5F)); }
u32 to_floor(float x) { return to_signed(std::floor(x)); }

void to_half(Wave& w, const Instruction& i) {
  Room room, out;
  const u32* a = source(w, i, 1, room);
  for (int l = 0; l < kLanes; ++l) out[l] = float_to_half(as_float(a[l]));
  write_lanes(w, i, register_of(i, 0), out);
}
void pack_halves(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  for (int l = 0; l < kLanes; ++l) out[l] = (a[l] & 0xffffU) | b[l] << 16;
  write_lanes(w, i, register_of(i, 0), out);
}

// Two floats to two 8-bit ones, in the half of the register that op_sel's last bit names.
template <bool kBf8>
void pack_fp8(Wave& w, const Instruction& i) {
  const Fp8 encoding = kBf8 ? w.group->target->bf8 : w.group->target->fp8;
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  const u32* d = w.vector(register_of(i, 0));
  const int shift = (i.op_sel & 4U) != 0 ? 16 : 0;
  for (int l = 0; l < kLanes; ++l) {
    const u32 both = float_to_fp8(as_float(a[l]), encoding, w.saturate_fp8) |
                     float_to_fp8(as_float(b[l]), encoding, w.saturate_fp8) << 8;
    out[l] = (d[l] & ~(0xffffU << shift)) | both << shift;
  }
  write_lanes(w, i, register_of(i, 0), out);
}
template <bool kBf8, int kCount>
void unpack_fp8(Wave& w, const Instruction& i) {
  const float* values = fp8_values(kBf8 ? w.group->target->bf8 : w.group->target->fp8);
  Room ra, out[kCount];
  const u32* a = source(w, i, 1, ra);
  for (int n = 0; n < kCount; ++n) {
    for (int l = 0; l < kLanes; ++l) out[n][l] = as_bits(values[a[l] >> (8 * n) & 0xffU]);
  }
  for (int n = 0; n < kCount; ++n) write_lanes(w, i, register_of(i, 0) + n, out[n]);
}

template <class F>
constexpr Run from_float(F) {
  return vector1([](u32 a) { return F{}(as_float(a)); });
}
template <class F>
constexpr Run from_half(F) {
  return vector1([](u32 a) { return F{}(half_to_float(a & 0xffffU)); });
}

constexpr Row kConvertRows[] = {
    {"v_cvt_f32_u32", "du", vector1([](u32 a) { return as_bits(static_cast<float>(a)); })},
    {"v_cvt_f32_i32", "du",
     vector1([](u32 a) { return as_bits(static_cast<float>(as_signed(a))); })},
    {"v_cvt_f32_ubyte0", "du", from_byte<0>()},
    {"v_cvt_f32_ubyte1", "du", from_byte<1>()},
    {"v_cvt_f32_ubyte2", "du", from_byte<2>()},
    {"v_cvt_f32_ubyte3", "du", from_byte<3>()},
    {"v_cvt_f32_f16", "dh", from_half([](float x) { return as_bits(x); })},
    {"v_cvt_f32_bf16", "du", vector1([](u32 a) { return a << 16; })},
    {"v_cvt_f16_f32", "df", to_half},
    {"v_cvt_f16_u16", "du",
     vector1([](u32 a) { return float_to_half(static_cast<float>(a & 0xffffU)); })},
    {"v_cvt_f16_i16", "du",
     vector1([](u32 a) { return float_to_half(static_cast<float>(static_cast<i16>(a))); })},
    {"v_cvt_u16_f16", "dh", from_half([](float x) { return to_unsigned16(x); })},
    {"v_cvt_i16_f16", "dh", from_half([](float x) { return to_signed16(x); })},
    {"v_cvt_u32_f32", "df", from_float([](float x) { return to_unsigned(x); })},
    {"v_cvt_i32_f32", "df", from_float([](float x) { return to_signed(x); })},
    {"v_cvt_rpi_i32_f32", "df", from_float([](float x) { return to_rounded(x); })},
    {"v_cvt_flr_i32_f32", "df", from_float([](float x) { return to_floor(x); })},
    {"v_cvt_pkrtz_f16_f32", "dff", vector2([](u32 a, u32 b) {
       return float_to_half_truncated(as_float(a)) | float_to_half_truncated(as_float(b)) << 16;
     })},
    {"v_cvt_pk_f16_f32", "dff", vector2([](u32 a, u32 b) {
       return float_to_half(as_float(a)) | float_to_half(as_float(b)) << 16;
     })},
    {"v_cvt_pk_bf16_f32", "dff", vector2([](u32 a, u32 b) {
       return float_to_bf16(as_float(a)) | float_to_bf16(as_float(b)) << 16;
     })},
    {"v_pack_b32_f16", "dhh", pack_halves},
    {"v_cvt_pk_fp8_f32", "dff", pack_fp8<false>},
    {"v_cvt_pk_bf8_f32", "dff", pack_fp8<true>},
    {"v_cvt_f32_fp8", "du", unpack_fp8<false, 1>},
    {"v_cvt_f32_bf8", "du", unpack_fp8<true, 1>},
    {"v_cvt_pk_f32_fp8", "Du", unpack_fp8<false, 2>},
    {"v_cvt_pk_f32_bf8", "Du", unpack_fp8<true, 2>},
};

}  // namespace

std::span<const Row> convert_rows() { return kConvertRows; }

}  // namespace tessera::cdna_emulator
