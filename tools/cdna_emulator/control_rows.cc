// Branches, barriers, waits, registers of the hardware, and scalar loads.
#include <cstring>

#include "lanes.h"
#include "program.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

template <class F>
constexpr Run branch(F) {
  return [](Wave& w, const Instruction& i) {
    if (F{}(w)) w.next = i.target;
  };
}
u64 vcc_of(Wave& w) { return w.group->target->lanes == 32 ? w.scalar(kVcc) : w.pair(kVcc); }
Queue& scalar_loads(Wave& w) { return w.group->target->rdna >= 12 ? w.km : w.lgkm; }
void nothing(Wave&, const Instruction&) {}
void end_program(Wave& w, const Instruction&) { w.done = w.stop = true; }
void barrier(Wave& w, const Instruction&) { w.at_barrier = w.stop = true; }
void trap(Wave&, const Instruction& i) {
  throw Finding{Finding::Kind::trap, "The kernel stopped itself by '" + i.text + "'."};
}
void wait_count(Wave& w, const Instruction& i) {
  if (i.vm_left >= 0) wait(w, w.vm, static_cast<u32>(i.vm_left));
  if (i.lgkm_left >= 0) wait(w, w.lgkm, static_cast<u32>(i.lgkm_left));
}
// A wave that sleeps waits for others: it gives its turn away.
void sleep(Wave& w, const Instruction&) {
  w.budget = 0;
  w.stop = true;
}
// The only mode that is followed is what 8-bit conversions do with large numbers. The others
// (rounding, denormals, exceptions) stay as kernels start with them.
void set_mode(Wave& w, const Instruction& i) {
  constexpr u32 kMode = 1, kOverflowBit = 23;
  const u32 first = i.immediate >> 6 & 31U, bits = (i.immediate >> 11 & 31U) + 1;
  const u32 value = scalar32(w, i, 0);
  if ((i.immediate & 63U) == kMode && first == kOverflowBit && bits == 1) {
    w.saturate_fp8 = (value & 1U) != 0;
    return;
  }
  throw Finding{
      Finding::Kind::uncovered,
      "The emulator follows no change of the mode but that of FP16_OVFL: '" + i.text + "'."};
}
u64 address_after(Wave& w, const Instruction& i) {
  return w.group->image +
         w.group->program->instructions[static_cast<std::size_t>(i.target)].address;
}
void jump(Wave& w, const Instruction& i, u64 address) {
  w.next = find_instruction(*w.group->program, address - w.group->image);
  if (w.next < 0) {
    throw Finding{Finding::Kind::outside, "A jump goes to a place without code: '" + i.text + "'."};
  }
}
void get_pc(Wave& w, const Instruction& i) { w.set_pair(register_of(i, 0), address_after(w, i)); }
void set_pc(Wave& w, const Instruction& i) { jump(w, i, scalar64(w, i, 0)); }
void swap_pc(Wave& w, const Instruction& i) {
  const u64 to = scalar64(w, i, 1);
  w.set_pair(register_of(i, 0), address_after(w, i));
  jump(w, i, to);
}
void time_now(Wave& w, const Instruction& i) {
  w.set_pair(register_of(i, 0), w.group->instructions);
  await(w, w.lgkm, {.first = static_cast<i16>(register_of(i, 0)), .count = 2, .scalar = true});
}

void load_scalars(Wave& w, const Instruction& i, u64 base, u64 limit) {
  const int d = register_of(i, 0), count = i.operands[0].count;
  const u64 offset = scalar32(w, i, 2) + static_cast<u64>(static_cast<i64>(i.offset));
  const u64 address = (base + offset) & ~u64{3};
  for (int r = 0; r < count; ++r) {
    const u64 at = address + static_cast<u64>(4 * r);
    if (at + 4 > base + limit && limit != 0) {
      w.scalar(d + r) = 0;
      continue;
    }
    check_memory(w, at, 4, false, i);
    std::memcpy(&w.scalar(d + r), reinterpret_cast<const void*>(at), 4);
  }
  await(
      w, scalar_loads(w),
      {.first = static_cast<i16>(d), .count = static_cast<u8>(count), .scalar = true, .from = &i});
}
void scalar_load(Wave& w, const Instruction& i) { load_scalars(w, i, scalar64(w, i, 1), 0); }
void scalar_buffer_load(Wave& w, const Instruction& i) {
  const int r = register_of(i, 1);
  load_scalars(w, i, w.pair(r) & 0xffffffffffffU, w.scalar(r + 2));
}

constexpr Row kControlRows[] = {
    {"s_branch", "b", branch([](Wave&) { return true; })},
    {"s_cbranch_scc0", "b", branch([](Wave& w) { return !w.scc; })},
    {"s_cbranch_scc1", "b", branch([](Wave& w) { return w.scc; })},
    {"s_cbranch_vccz", "b", branch([](Wave& w) { return vcc_of(w) == 0; })},
    {"s_cbranch_vccnz", "b", branch([](Wave& w) { return vcc_of(w) != 0; })},
    {"s_cbranch_execz", "b", branch([](Wave& w) { return w.exec() == 0; })},
    {"s_cbranch_execnz", "b", branch([](Wave& w) { return w.exec() != 0; })},
    {"s_endpgm", "", end_program},
    {"s_barrier", "", barrier},
    {"s_waitcnt", "*", wait_count},
    {"s_sleep", "*", sleep},
    {"s_trap", "*", trap},
    {"s_setreg_imm32_b32", "s", set_mode},
    {"s_setreg_b32", "s", set_mode},
    {"s_getpc_b64", "X", get_pc},
    {"s_setpc_b64", "S", set_pc},
    {"s_swappc_b64", "XS", swap_pc},
    {"s_memtime", "X", time_now},
    {"s_memrealtime", "X", time_now},
    {"s_load_dword", "xSs", scalar_load},
    {"s_load_dwordx2", "xSs", scalar_load},
    {"s_load_dwordx4", "xSs", scalar_load},
    {"s_load_dwordx8", "xSs", scalar_load},
    {"s_load_dwordx16", "xSs", scalar_load},
    {"s_buffer_load_dword", "xSs", scalar_buffer_load},
    {"s_buffer_load_dwordx2", "xSs", scalar_buffer_load},
    {"s_buffer_load_dwordx4", "xSs", scalar_buffer_load},
    {"s_buffer_load_dwordx8", "xSs", scalar_buffer_load},
    {"s_buffer_load_dwordx16", "xSs", scalar_buffer_load},
    // What changes no value: hints, caches, and the waits for hardware that the compiler counts.
    {"s_nop", "*", nothing},
    {"s_setprio", "*", nothing},
    {"s_sched_barrier", "*", nothing},
    {"s_icache_inv", "*", nothing},
    {"s_dcache_inv", "*", nothing},
    {"s_dcache_wb", "*", nothing},
    {"s_sendmsg", "*", nothing},
    {"s_set_gpr_idx_off", "*", nothing},
    {"s_code_end", "*", nothing},
    {"buffer_wbl2", "*", nothing},
    {"buffer_inv", "*", nothing},
    {"buffer_invl2", "*", nothing},
    {"buffer_wbinvl1", "*", nothing},
    {"buffer_wbinvl1_vol", "*", nothing},
    {"v_nop", "*", nothing},
};

}  // namespace

std::span<const Row> control_rows() { return kControlRows; }

}  // namespace tessera::cdna_emulator
