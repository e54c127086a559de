// LDS: its instructions, races between waves, and the cycles that an access takes.
#include <algorithm>
#include <cstring>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

template <class F>
constexpr auto update_with(F) {
  return [](const Instruction&, u8* at, const u32* data, u32* old) {
    std::memcpy(old, at, 4);
    const u32 changed = F{}(*old, *data);
    std::memcpy(at, &changed, 4);
  };
}
constexpr auto kLdsAdd = update_with([](u32 a, u32 b) { return a + b; });
constexpr auto kLdsAddFloat =
    update_with([](u32 a, u32 b) { return as_bits(as_float(a) + as_float(b)); });
constexpr auto kMaxSigned =
    update_with([](u32 a, u32 b) { return as_signed(a) > as_signed(b) ? a : b; });
constexpr auto kMaxUnsigned = update_with([](u32 a, u32 b) { return a > b ? a : b; });
constexpr auto kLdsOr = update_with([](u32 a, u32 b) { return a | b; });

constexpr MemoryRow kLdsRows[] = {
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b32", 4},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b64", 8},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b96", 12},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b128", 16},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read2_b32", 4, 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read2_b64", 8, 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read2st64_b32", 4, 64},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read2st64_b64", 8, 64},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b64_tr_b16", 8, 1, nullptr, 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_b64_tr_b8", 8, 1, nullptr, 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_u8", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign, "ds_read_i8", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::none, "ds_read_u16", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign, "ds_read_i16", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::low, "ds_read_u8_d16", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::high, "ds_read_u8_d16_hi", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign_low, "ds_read_i8_d16", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::sign_high, "ds_read_i8_d16_hi", 1},
    {MemoryRow::Kind::load, MemoryRow::Extend::low, "ds_read_u16_d16", 2},
    {MemoryRow::Kind::load, MemoryRow::Extend::high, "ds_read_u16_d16_hi", 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b8", 1},
    {MemoryRow::Kind::store, MemoryRow::Extend::high, "ds_write_b8_d16_hi", 1},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b16", 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::high, "ds_write_b16_d16_hi", 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b32", 4},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b64", 8},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b96", 12},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write_b128", 16},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write2_b32", 4, 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write2_b64", 8, 2},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write2st64_b32", 4, 64},
    {MemoryRow::Kind::store, MemoryRow::Extend::none, "ds_write2st64_b64", 8, 64},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_add_u32", 4, 1, kLdsAdd},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_add_f32", 4, 1, kLdsAddFloat},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_max_i32", 4, 1, kMaxSigned},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_max_u32", 4, 1, kMaxUnsigned},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_or_b32", 4, 1, kLdsOr},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_add_rtn_u32", 4, 1, kLdsAdd},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_add_rtn_f32", 4, 1, kLdsAddFloat},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_max_rtn_i32", 4, 1, kMaxSigned},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_max_rtn_u32", 4, 1, kMaxUnsigned},
    {MemoryRow::Kind::atomic, MemoryRow::Extend::none, "ds_or_rtn_b32", 4, 1, kLdsOr},
};

void check_range(Wave& w, u32 address, u32 bytes, const Instruction& i) {
  const std::size_t size = w.group->lds.size();
  if (u64{address} + bytes > size) {
    throw Finding{Finding::Kind::outside,
                  "An access to LDS ends at byte " + std::to_string(u64{address} + bytes) +
                      ", but the workgroup has " + std::to_string(size) + ": '" + i.text + "'."};
  }
  const u32 alignment = bytes == 16 ? 16 : bytes >= 4 ? 4 : bytes;
  if (address % alignment != 0) {
    throw Finding{Finding::Kind::outside, "An access to LDS at byte " + std::to_string(address) +
                                              " is not a multiple of " + std::to_string(alignment) +
                                              ": '" + i.text + "'."};
  }
}

void fill_addresses(Wave& w, const Instruction& i, const u32* base, u32 offset, LdsLanes& lanes) {
  lanes.lanes = w.exec();
  lanes.bytes = i.memory->bytes;
  lanes.write = i.memory->kind != MemoryRow::Kind::load;
  lanes.atomic = i.memory->kind == MemoryRow::Kind::atomic;
  for (int l = 0; l < kLanes; ++l) lanes.address[static_cast<std::size_t>(l)] = base[l] + offset;
  for (int l = 0; l < kLanes; ++l) {
    if ((lanes.lanes >> l & 1U) != 0) {
      check_range(w, lanes.address[static_cast<std::size_t>(l)], lanes.bytes, i);
    }
  }
}

// Whole dwords of a lane, as nearly all loads have them.
void load_dwords(Wave& w, int reg, int count, int lane, const u8* from) {
  for (int r = 0; r < count; ++r) std::memcpy(&w.vector(reg + r)[lane], from + 4 * r, 4);
}
void load_lane(Wave& w, const Instruction& i, int reg, int lane, const u8* from) {
  if (i.memory->bytes >= 4) {
    load_dwords(w, reg, i.memory->bytes / 4, lane, from);
    return;
  }
  u32 data[4] = {};
  std::memcpy(data, from, i.memory->bytes);
  for (int r = 0; r < (i.memory->bytes + 3) / 4; ++r) {
    u32& d = w.vector(reg + r)[lane];
    d = extended(d, data[r], *i.memory);
  }
}
void store_lane(Wave& w, const Instruction& i, int reg, int lane, u8* to) {
  if (i.memory->bytes >= 4) {
    for (int r = 0; r < i.memory->bytes / 4; ++r) {
      std::memcpy(to + 4 * r, &w.vector(reg + r)[lane], 4);
    }
    return;
  }
  u32 data[4] = {};
  for (int r = 0; r < (i.memory->bytes + 3) / 4; ++r) data[r] = w.vector(reg + r)[lane];
  if (i.memory->extend == MemoryRow::Extend::high) data[0] >>= 16;
  std::memcpy(to, data, i.memory->bytes);
}

// 16 lanes have read 8 bytes each: rows of 16 elements, which 4 lanes share where elements have 16
// bits, and 2 lanes where they have 8. Lane n gets element n of each row.
void transpose_lanes(Wave& w, const Instruction& i, int reg, const LdsLanes& lanes) {
  if (lanes.lanes != ~u64{0}) {
    throw Finding{
        Finding::Kind::uncovered,
        "The emulator knows this instruction for 64 lanes that are on: '" + i.text + "'."};
  }
  const std::size_t size = i.memory->transposed, each = 8 / size;  // elements of a lane
  for (std::size_t l = 0; l < kLanes; ++l) {
    u32 words[2];
    for (std::size_t row = 0; row < each; ++row) {
      const u32 at = lanes.address[l / 16 * 16 + row * (16 / each) + l % 16 / each];
      std::memcpy(reinterpret_cast<u8*>(words) + row * size, &w.group->lds[at + l % each * size],
                  size);
    }
    for (int half = 0; half < 2; ++half) w.vector(reg + half)[l] = words[half];
  }
}

// One of the accesses of an instruction: `data` is the register to load to or to store from.
i16 access(Wave& w, const Instruction& i, const u32* base, int data, u32 offset) {
  const i16 record = take_lds_lanes(w);
  LdsLanes& lanes = w.lds_lanes[static_cast<std::size_t>(record)];
  fill_addresses(w, i, base, offset, lanes);
  touch(w, lanes, i);
  count_cycles(w, lanes);
  if (i.memory->transposed != 0) {
    transpose_lanes(w, i, data, lanes);
    return record;
  }
  for (int l = 0; l < kLanes; ++l) {
    if ((lanes.lanes >> l & 1U) == 0) continue;
    u8* at = &w.group->lds[lanes.address[static_cast<std::size_t>(l)]];
    if (i.memory->kind == MemoryRow::Kind::load) {
      load_lane(w, i, data, l, at);
    } else if (i.memory->kind == MemoryRow::Kind::store) {
      store_lane(w, i, data, l, at);
    } else {
      u32 old = 0;
      i.memory->update(i, at, &w.vector(data)[l], &old);
      if (i.returns) w.vector(register_of(i, 0))[l] = old;
    }
  }
  return record;
}

}  // namespace

std::span<const MemoryRow> lds_rows() { return kLdsRows; }

void run_lds(Wave& w, const Instruction& i) {
  const MemoryRow& row = *i.memory;
  const bool load = row.kind == MemoryRow::Kind::load;
  // The first of two accesses may load to the register that holds the addresses of both.
  u32 addresses[kLanes];
  std::copy_n(w.vector(register_of(i, load || i.returns ? 1 : 0)), kLanes, addresses);
  Pending p{.from = &i};
  if (row.parts == 1) {
    const int data = load ? register_of(i, 0) : register_of(i, i.returns ? 2 : 1);
    p.lds[0] = access(w, i, addresses, data, static_cast<u32>(i.offset));
  } else {
    const u32 unit = row.bytes * (row.parts == 64 ? 64U : 1U);
    for (int n = 0; n < 2; ++n) {
      const int data = load ? register_of(i, 0) + n * (row.bytes / 4) : register_of(i, 1 + n);
      p.lds[n] =
          access(w, i, addresses, data, static_cast<u32>(n == 0 ? i.offset0 : i.offset1) * unit);
    }
  }
  if (load || i.returns) {
    p.first = static_cast<i16>(register_of(i, 0));
    p.count = i.operands[0].count;
  }
  await(w, w.lgkm, p);
}

}  // namespace tessera::cdna_emulator
