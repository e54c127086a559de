// Loads, stores and atomics of memory: global, flat and buffer instructions.
#include <algorithm>
#include <cstring>

#include "lanes.h"
#include "program.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

// ---- atomics: workgroups may run side by side, so that memory is changed in one step ----
template <class T, class F>
void change(u8* at, const u32* data, u32* old, F f) {
  T operand, before, after;
  std::memcpy(&operand, data, sizeof operand);
  T* place = reinterpret_cast<T*>(at);
  before = __atomic_load_n(place, __ATOMIC_RELAXED);
  do {
    after = f(before, operand);
  } while (!__atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
  std::memcpy(old, &before, sizeof before);
}
template <class T, class F>
constexpr auto atomic_on(F) {
  return
      [](const Instruction&, u8* at, const u32* data, u32* old) { change<T>(at, data, old, F{}); };
}
template <class T>
void compare_and_swap(const Instruction&, u8* at, const u32* data, u32* old) {
  T wanted, expected;
  std::memcpy(&wanted, data, sizeof wanted);
  std::memcpy(&expected, reinterpret_cast<const u8*>(data) + sizeof wanted, sizeof expected);
  __atomic_compare_exchange_n(reinterpret_cast<T*>(at), &expected, wanted, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  std::memcpy(old, &expected, sizeof expected);
}
u32 add_halves(u32 a, u32 b) {
  const u32 low = float_to_half(half_to_float(a & 0xffffU) + half_to_float(b & 0xffffU));
  return low | float_to_half(half_to_float(a >> 16) + half_to_float(b >> 16)) << 16;
}
u32 add_bfloats(u32 a, u32 b) {
  const u32 low = float_to_bf16(bf16_to_float(a & 0xffffU) + bf16_to_float(b & 0xffffU));
  return low | float_to_bf16(bf16_to_float(a >> 16) + bf16_to_float(b >> 16)) << 16;
}
constexpr auto kAdd = [](auto a, auto b) { return a + b; };
constexpr auto kSubtract = [](auto a, auto b) { return a - b; };
constexpr auto kSwap = [](auto, auto b) { return b; };
constexpr auto kAnd = [](auto a, auto b) { return a & b; };
constexpr auto kOr = [](auto a, auto b) { return a | b; };
constexpr auto kXor = [](auto a, auto b) { return a ^ b; };
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };
constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
constexpr auto kIncrement = [](u32 a, u32 b) { return a >= b ? 0U : a + 1; };
constexpr auto kDecrement = [](u32 a, u32 b) { return a == 0 || a > b ? b : a - 1; };
constexpr auto kAddFloat = [](u32 a, u32 b) { return as_bits(as_float(a) + as_float(b)); };
constexpr auto kAddDouble = [](u64 a, u64 b) { return as_bits(as_double(a) + as_double(b)); };
constexpr auto kAddHalves = [](u32 a, u32 b) { return add_halves(a, b); };
constexpr auto kAddBfloats = [](u32 a, u32 b) { return add_bfloats(a, b); };

// By what follows "global_", "flat_" or "buffer_".
constexpr MemoryRow kMemoryRows[] = {
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_dword", 4},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_dwordx2", 8},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_dwordx3", 12},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_dwordx4", 16},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_ubyte", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign, "load_sbyte", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_ushort", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign, "load_sshort", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::low, "load_ubyte_d16", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::high, "load_ubyte_d16_hi", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign_low, "load_sbyte_d16", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign_high, "load_sbyte_d16_hi", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::low, "load_short_d16", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::high, "load_short_d16_hi", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_lds_dword", 4},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_lds_dwordx3", 12},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "load_lds_dwordx4", 16},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_byte", 1},
    {MemoryRow::Kind::store, MemoryRow::Extend::high, "store_byte_d16_hi", 1},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_short", 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::high, "store_short_d16_hi", 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_dword", 4},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_dwordx2", 8},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_dwordx3", 12},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "store_dwordx4", 16},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_swap", 4, 1, atomic_on<u32>(kSwap)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_cmpswap", 4, 1,
     compare_and_swap<u32>},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_add", 4, 1, atomic_on<u32>(kAdd)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_sub", 4, 1,
     atomic_on<u32>(kSubtract)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_smin", 4, 1, atomic_on<i32>(kMin)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_umin", 4, 1, atomic_on<u32>(kMin)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_smax", 4, 1, atomic_on<i32>(kMax)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_umax", 4, 1, atomic_on<u32>(kMax)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_and", 4, 1, atomic_on<u32>(kAnd)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_or", 4, 1, atomic_on<u32>(kOr)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_xor", 4, 1, atomic_on<u32>(kXor)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_inc", 4, 1,
     atomic_on<u32>(kIncrement)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_dec", 4, 1,
     atomic_on<u32>(kDecrement)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_add_f32", 4, 1,
     atomic_on<u32>(kAddFloat)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_pk_add_f16", 4, 1,
     atomic_on<u32>(kAddHalves)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_pk_add_bf16", 4, 1,
     atomic_on<u32>(kAddBfloats)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_add_f64", 8, 1,
     atomic_on<u64>(kAddDouble)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_swap_x2", 8, 1,
     atomic_on<u64>(kSwap)},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_cmpswap_x2", 8, 1,
     compare_and_swap<u64>},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "atomic_add_x2", 8, 1, atomic_on<u64>(kAdd)},
};

struct Accesses {
  u64 lanes = 0;
  std::array<u64, kLanes> address;
  std::array<u32, kLanes> inside;  // bytes from the begin that are inside of the buffer
};

// Looks up the allocation once where all lanes are in one, as they mostly are.
void check_lanes(Wave& w, const Instruction& i, const Accesses& a) {
  const bool write = i.memory->kind != MemoryRow::Kind::load;
  const Allocation* last = nullptr;
  for (std::size_t l = 0; l < kLanes; ++l) {
    if ((a.lanes >> l & 1U) == 0 || a.inside[l] == 0) continue;
    const u64 begin = a.address[l], end = begin + a.inside[l];
    if (last != nullptr && begin >= last->begin && end <= last->end) continue;
    check_memory(w, begin, a.inside[l], write, i);
    last = w.group->memory->find(begin);
  }
}

// Data and registers of one lane. Dwords outside of a buffer are read as zeros and not written.
void load(Wave& w, const Instruction& i, const Accesses& a, int reg) {
  const MemoryRow& row = *i.memory;
  for (std::size_t l = 0; l < kLanes; ++l) {
    if ((a.lanes >> l & 1U) == 0) continue;
    if (row.bytes >= 4 && a.inside[l] == row.bytes) {  // whole dwords, as nearly always
      const u8* const from = reinterpret_cast<const u8*>(a.address[l]);
      for (int r = 0; r < row.bytes / 4; ++r) std::memcpy(&w.vector(reg + r)[l], from + 4 * r, 4);
      continue;
    }
    u32 data[4] = {};
    std::memcpy(data, reinterpret_cast<const void*>(a.address[l]), a.inside[l]);
    for (int r = 0; r < (row.bytes + 3) / 4; ++r) {
      u32& d = w.vector(reg + r)[l];
      d = extended(d, data[r], row);
    }
  }
}
void store(Wave& w, const Instruction& i, const Accesses& a, int reg) {
  for (std::size_t l = 0; l < kLanes; ++l) {
    if ((a.lanes >> l & 1U) == 0) continue;
    u32 data[4] = {};
    for (int r = 0; r < (i.memory->bytes + 3) / 4; ++r) data[r] = w.vector(reg + r)[l];
    if (i.memory->extend == MemoryRow::Extend::high) data[0] >>= 16;
    std::memcpy(reinterpret_cast<void*>(a.address[l]), data, a.inside[l]);
  }
}
void update(Wave& w, const Instruction& i, const Accesses& a, const Operand& source, int to) {
  for (std::size_t l = 0; l < kLanes; ++l) {
    if ((a.lanes >> l & 1U) == 0 || a.inside[l] == 0) continue;
    u32 data[4] = {}, old[2] = {};
    for (int r = 0; r < std::min<int>(source.count, 4); ++r) data[r] = w.vector(source.reg + r)[l];
    i.memory->update(i, reinterpret_cast<u8*>(a.address[l]), data, old);
    if (!i.returns) continue;
    for (int r = 0; r < i.memory->bytes / 4; ++r) w.vector(to + r)[l] = old[r];
  }
}

// A load whose data go to LDS: lane l's to m0 + offset + l times the bytes of a lane.
void load_to_lds(Wave& w, const Instruction& i, const Accesses& a, Pending& p) {
  const u32 bytes = i.memory->bytes;
  const u32 base = (w.scalar(kM0) & w.group->target->m0_mask) + static_cast<u32>(i.offset);
  p.lds[0] = take_lds_lanes(w);
  p.lands = true;
  LdsLanes& lanes = w.lds_lanes[static_cast<std::size_t>(p.lds[0])];
  lanes.lanes = a.lanes;
  lanes.bytes = bytes;
  lanes.write = true;
  lanes.atomic = false;
  for (std::size_t l = 0; l < kLanes; ++l) {
    lanes.address[l] = base + static_cast<u32>(l) * bytes;
    if ((a.lanes >> l & 1U) == 0) continue;
    if (u64{lanes.address[l]} + bytes > w.group->lds.size()) {
      throw Finding{Finding::Kind::outside,
                    "A load to LDS ends at byte " + std::to_string(lanes.address[l] + bytes) +
                        ", but the workgroup has " + std::to_string(w.group->lds.size()) + ": '" +
                        i.text + "'."};
    }
    std::memset(&lanes.data[4 * l], 0, 16);
    std::memcpy(&lanes.data[4 * l], reinterpret_cast<const void*>(a.address[l]), a.inside[l]);
  }
  mark_landing(w, lanes, i);
}

// What all of them do once the addresses are known: `first` is the operand of the data.
void access(Wave& w, const Instruction& i, const Accesses& a, int data_operand, bool flat) {
  check_lanes(w, i, a);
  Pending p{.from = &i};
  const Operand& data = i.operands[static_cast<std::size_t>(data_operand)];
  if (i.lds) {
    load_to_lds(w, i, a, p);
  } else if (i.memory->kind == MemoryRow::Kind::load) {
    load(w, i, a, data.reg);
  } else if (i.memory->kind == MemoryRow::Kind::store) {
    store(w, i, a, data.reg);
  } else {
    update(w, i, a, data, register_of(i, 0));
  }
  if (!i.lds && (i.memory->kind == MemoryRow::Kind::load || i.returns)) {
    p.first = i.operands[0].reg;
    p.count = i.operands[0].count;
  }
  // RDNA counts what returns nothing apart, and nobody waits for it to use a register.
  if (w.group->target->rdna != 0 && p.count == 0) return;
  await(w, w.vm, p);
  if (flat) await(w, w.lgkm, p);
}

}  // namespace

std::span<const MemoryRow> global_memory_rows() { return kMemoryRows; }

// Operands: [result,] address, [data,] and for global_ a scalar base or "off".
void run_global(Wave& w, const Instruction& i) {
  const bool flat = i.name[0] == 'f';
  const bool has_result = i.returns || (i.memory->kind == MemoryRow::Kind::load && !i.lds);
  const int address_operand = has_result ? 1 : 0;
  const bool has_data = i.memory->kind != MemoryRow::Kind::load;
  const Operand& base = i.operands[static_cast<std::size_t>(address_operand + (has_data ? 2 : 1))];
  const bool scalar_base = !flat && base.kind == Operand::Kind::scalar;
  const int v = register_of(i, address_operand);
  Accesses a;
  a.lanes = w.exec();
  const u64 start = scalar_base ? w.pair(base.reg) : 0;
  const u32* low = w.vector(v);
  const u32* high = w.vector(v + 1);
  for (std::size_t l = 0; l < kLanes; ++l) {
    const u64 own = scalar_base ? u64{low[l]} : join(low[l], high[l]);
    a.address[l] = start + own + static_cast<u64>(static_cast<i64>(i.offset));
    a.inside[l] = i.memory->bytes;
  }
  access(w, i, a, has_data ? address_operand + 1 : 0, flat);
}

// Operands: [result or data,] offset or "off", buffer, scalar offset. The range is checked a dword.
void run_buffer(Wave& w, const Instruction& i) {
  const int first = i.lds ? 0 : 1;
  const int buffer = register_of(i, first + 1);
  const u32 stride = w.scalar(buffer + 1) >> 16 & 0x3fffU;
  if (stride != 0 || i.idxen) {
    throw Finding{Finding::Kind::uncovered,
                  "The emulator knows no buffers with a stride: '" + i.text + "'."};
  }
  const u64 base = w.pair(buffer) & 0xffffffffffffU;
  const u64 records = w.scalar(buffer + 2);
  const u64 scalar = scalar32(w, i, first + 2);
  const u32 bytes = i.memory->bytes;
  const u32* v = w.vector(i.offen ? register_of(i, first) : 0);
  Accesses a;
  a.lanes = w.exec();
  for (std::size_t l = 0; l < kLanes; ++l) {
    const u64 offset = u64{i.offen ? v[l] : 0} + static_cast<u64>(i.offset) + scalar;
    a.address[l] = base + offset;
    const u64 room = offset < records ? records - offset : 0;
    a.inside[l] = room >= bytes ? bytes : bytes < 4 ? 0 : static_cast<u32>(room / 4 * 4);
  }
  access(w, i, a, 0, false);
}

}  // namespace tessera::cdna_emulator
