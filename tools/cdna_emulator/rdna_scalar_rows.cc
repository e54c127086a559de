// Scalar instructions that RDNA alone has: masks of 32 lanes, 64-bit sums, floats, waits, barriers.
#include <cmath>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace rdna_scalar {

void nothing(Wave&, const Instruction&) {}

template <class F>
constexpr Run save_exec(F) {
  return [](Wave& w, const Instruction& i) {
    const u32 exec = w.scalar(kExec), result = F{}(scalar32(w, i, 1), exec);
    w.scalar(register_of(i, 0)) = exec;
    w.scalar(kExec) = result;
    w.scc = result != 0;
  };
}
// The new exec goes to the register, too.
template <class F>
constexpr Run write_exec(F) {
  return [](Wave& w, const Instruction& i) {
    const u32 result = F{}(scalar32(w, i, 1), w.scalar(kExec));
    w.scalar(register_of(i, 0)) = w.scalar(kExec) = result;
    w.scc = result != 0;
  };
}

// ---- floats ----
float scalar_float(Wave& w, const Instruction& i, int n) { return as_float(scalar32(w, i, n)); }
template <class F>
constexpr Run real1(F) {
  return [](Wave& w, const Instruction& i) {
    w.scalar(register_of(i, 0)) = as_bits(static_cast<float>(F{}(scalar_float(w, i, 1))));
  };
}
template <class F>
constexpr Run real2(F) {
  return [](Wave& w, const Instruction& i) {
    w.scalar(register_of(i, 0)) = as_bits(F{}(scalar_float(w, i, 1), scalar_float(w, i, 2)));
  };
}
void fused(Wave& w, const Instruction& i) {
  w.scalar(register_of(i, 0)) =
      as_bits(std::fma(scalar_float(w, i, 1), scalar_float(w, i, 2), scalar_float(w, i, 3)));
}
void fused_to(Wave& w, const Instruction& i) {
  u32& d = w.scalar(register_of(i, 0));
  d = as_bits(std::fma(scalar_float(w, i, 1), scalar_float(w, i, 2), as_float(d)));
}
template <class F>
constexpr Run real_compare(F) {
  return [](Wave& w, const Instruction& i) {
    w.scc = F{}(scalar_float(w, i, 0), scalar_float(w, i, 1));
  };
}
// A function of a float in scalar registers, of which the sign may be changed.
template <class F>
constexpr Run transcendental(F) {
  return [](Wave& w, const Instruction& i) {
    Room room;
    w.scalar(register_of(i, 0)) = as_bits(F{}(as_float(source(w, i, 1, room)[0])));
  };
}
float greater(float a, float b) { return a > b || b != b ? a : b; }
float lesser(float a, float b) { return a < b || b != b ? a : b; }

// ---- waits: the number that may be left under way ----
template <Queue Wave::*kQueue>
void wait_one(Wave& w, const Instruction& i) {
  wait(w, w.*kQueue, static_cast<u32>(i.operands[0].bits));
}
void wait_loads_and_lds(Wave& w, const Instruction& i) {
  wait(w, w.vm, static_cast<u32>(i.operands[0].bits >> 8 & 63U));
  wait(w, w.lgkm, static_cast<u32>(i.operands[0].bits & 63U));
}
void wait_stores_and_lds(Wave& w, const Instruction& i) {
  wait(w, w.lgkm, static_cast<u32>(i.operands[0].bits & 63U));
}
void barrier(Wave& w, const Instruction&) { w.at_barrier = w.stop = true; }

using Scc = bool&;
constexpr Row kRdnaScalarRows[] = {
    {"s_and_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return a & e; })},
    {"s_or_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return a | e; })},
    {"s_xor_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return a ^ e; })},
    {"s_and_not1_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return a & ~e; })},
    {"s_or_not1_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return a | ~e; })},
    {"s_and_not0_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return ~a & e; })},
    {"s_or_not0_saveexec_b32", "xs", save_exec([](u32 a, u32 e) { return ~a | e; })},
    {"s_and_not1_wrexec_b32", "xs", write_exec([](u32 a, u32 e) { return a & ~e; })},
    {"s_and_not0_wrexec_b32", "xs", write_exec([](u32 a, u32 e) { return ~a & e; })},
    {"s_add_nc_u64", "XSS", scalar2_64([](u64 a, u64 b, Scc) { return a + b; })},
    {"s_sub_nc_u64", "XSS", scalar2_64([](u64 a, u64 b, Scc) { return a - b; })},
    {"s_mul_u64", "XSS", scalar2_64([](u64 a, u64 b, Scc) { return a * b; })},
    {"s_pack_hl_b32_b16", "xss", scalar2([](u32 a, u32 b, Scc) { return a >> 16 | b << 16; })},
    {"s_add_f32", "xss", real2([](float a, float b) { return a + b; })},
    {"s_sub_f32", "xss", real2([](float a, float b) { return a - b; })},
    {"s_mul_f32", "xss", real2([](float a, float b) { return a * b; })},
    {"s_max_num_f32", "xss", real2([](float a, float b) { return greater(a, b); })},
    {"s_min_num_f32", "xss", real2([](float a, float b) { return lesser(a, b); })},
    {"s_fmaak_f32", "xsss", fused},
    {"s_fmamk_f32", "xsss", fused},
    {"s_fmac_f32", "xss", fused_to},
    {"s_ceil_f32", "xs", real1([](float a) { return std::ceil(a); })},
    {"s_floor_f32", "xs", real1([](float a) { return std::floor(a); })},
    {"s_trunc_f32", "xs", real1([](float a) { return std::trunc(a); })},
    {"s_rndne_f32", "xs", real1([](float a) { return std::nearbyint(a); })},
    {"s_cvt_f32_i32", "xs",
     scalar1([](u32 a, Scc) { return as_bits(static_cast<float>(as_signed(a))); })},
    {"s_cvt_f32_u32", "xs", scalar1([](u32 a, Scc) { return as_bits(static_cast<float>(a)); })},
    {"s_cvt_i32_f32", "xs", scalar1([](u32 a, Scc) { return to_signed(as_float(a)); })},
    {"s_cvt_u32_f32", "xs", scalar1([](u32 a, Scc) { return to_unsigned(as_float(a)); })},
    {"s_cvt_f16_f32", "xs", scalar1([](u32 a, Scc) { return float_to_half(as_float(a)); })},
    {"s_cvt_f32_f16", "xs",
     scalar1([](u32 a, Scc) { return as_bits(half_to_float(a & 0xffffU)); })},
    {"s_cmp_lt_f32", "ss", real_compare([](float a, float b) { return a < b; })},
    {"s_cmp_eq_f32", "ss", real_compare([](float a, float b) { return a == b; })},
    {"s_cmp_le_f32", "ss", real_compare([](float a, float b) { return a <= b; })},
    {"s_cmp_gt_f32", "ss", real_compare([](float a, float b) { return a > b; })},
    {"s_cmp_lg_f32", "ss", real_compare([](float a, float b) { return a < b || a > b; })},
    {"s_cmp_ge_f32", "ss", real_compare([](float a, float b) { return a >= b; })},
    {"s_cmp_o_f32", "ss", real_compare([](float a, float b) { return a == a && b == b; })},
    {"s_cmp_u_f32", "ss", real_compare([](float a, float b) { return a != a || b != b; })},
    {"s_cmp_nge_f32", "ss", real_compare([](float a, float b) { return !(a >= b); })},
    {"s_cmp_nlg_f32", "ss", real_compare([](float a, float b) { return !(a < b || a > b); })},
    {"s_cmp_ngt_f32", "ss", real_compare([](float a, float b) { return !(a > b); })},
    {"s_cmp_nle_f32", "ss", real_compare([](float a, float b) { return !(a <= b); })},
    {"s_cmp_neq_f32", "ss", real_compare([](float a, float b) { return !(a == b); })},
    {"s_cmp_nlt_f32", "ss", real_compare([](float a, float b) { return !(a < b); })},
    {"v_s_exp_f32", "xf", transcendental([](float a) { return std::exp2(a); })},
    {"v_s_log_f32", "xf", transcendental([](float a) { return std::log2(a); })},
    {"v_s_rcp_f32", "xf", transcendental([](float a) { return 1.0F / a; })},
    {"v_s_rsq_f32", "xf", transcendental([](float a) { return 1.0F / std::sqrt(a); })},
    {"v_s_sqrt_f32", "xf", transcendental([](float a) { return std::sqrt(a); })},
    {"s_wait_loadcnt", "s", wait_one<&Wave::vm>},
    {"s_wait_dscnt", "s", wait_one<&Wave::lgkm>},
    {"s_wait_kmcnt", "s", wait_one<&Wave::km>},
    {"s_wait_loadcnt_dscnt", "s", wait_loads_and_lds},
    {"s_wait_storecnt_dscnt", "s", wait_stores_and_lds},
    // A wave waits in s_barrier_wait for the signals of all others.
    {"s_barrier_signal", "*", nothing},
    {"s_barrier_wait", "*", barrier},
    // What changes no value: waits for stores, hazards that the compiler names, hints and caches.
    {"s_waitcnt_vscnt", "*", nothing},
    {"s_waitcnt_depctr", "*", nothing},
    {"s_wait_storecnt", "*", nothing},
    {"s_wait_samplecnt", "*", nothing},
    {"s_wait_bvhcnt", "*", nothing},
    {"s_wait_expcnt", "*", nothing},
    {"s_wait_alu", "*", nothing},
    {"s_wait_idle", "*", nothing},
    {"s_delay_alu", "*", nothing},
    {"s_clause", "*", nothing},
    {"s_set_inst_prefetch_distance", "*", nothing},
    {"s_denorm_mode", "*", nothing},
    {"buffer_gl0_inv", "*", nothing},
    {"buffer_gl1_inv", "*", nothing},
    {"global_inv", "*", nothing},
    {"global_wb", "*", nothing},
    {"global_wbinv", "*", nothing},
};

}  // namespace rdna_scalar

std::span<const Row> rdna_scalar_rows() { return rdna_scalar::kRdnaScalarRows; }

}  // namespace tessera::cdna_emulator
