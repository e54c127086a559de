// Vector instructions that choose between values or move them from lane to lane, and those whose
// results have 64 bits.
#include <algorithm>
#include <utility>

#include "lanes.h"
#include "tables.h"

namespace tessera::cdna_emulator {

namespace {

void choose_by_mask(Wave& w, const Instruction& i) {
  alignas(64) Room ra, rb, mask, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  expand_mask(scalar64(w, i, 3), mask);
  for (int l = 0; l < kLanes; ++l) out[l] = (a[l] & ~mask[l]) | (b[l] & mask[l]);
  write_lanes(w, i, register_of(i, 0), out);
}
void read_first_lane(Wave& w, const Instruction& i) {
  Room room;
  const int lane = w.exec() != 0 ? std::countr_zero(w.exec()) : 0;
  w.scalar(register_of(i, 0)) = source(w, i, 1, room)[lane];
}
void read_lane(Wave& w, const Instruction& i) {
  Room room;
  w.scalar(register_of(i, 0)) =
      source(w, i, 1, room)[scalar32(w, i, 2) & (w.group->target->lanes - 1)];
}
void write_lane(Wave& w, const Instruction& i) {
  w.vector(register_of(i, 0))[scalar32(w, i, 2) & (w.group->target->lanes - 1)] = scalar32(w, i, 1);
}
// How many of the lanes below this one a mask has, of the lower or upper 32 lanes.
template <int kFirst>
void count_below(Wave& w, const Instruction& i) {
  Room ra, rb, out;
  const u32* a = source(w, i, 1, ra);
  const u32* b = source(w, i, 2, rb);
  for (int l = 0; l < kLanes; ++l) {
    const int below = std::clamp(l - kFirst, 0, 32);
    const u32 mask = static_cast<u32>((u64{1} << below) - 1);
    out[l] = static_cast<u32>(std::popcount(a[l] & mask)) + b[l];
  }
  write_lanes(w, i, register_of(i, 0), out);
}
void swap(Wave& w, const Instruction& i) {
  u32* a = w.vector(register_of(i, 0));
  u32* b = w.vector(register_of(i, 1));
  for (int l = 0; l < kLanes; ++l) {
    if ((w.exec() >> l & 1U) != 0) std::swap(a[l], b[l]);
  }
}
// The second half of each group of lanes of one register, with the first half of another.
template <int kGroup>
void swap_groups(Wave& w, const Instruction& i) {
  u32* a = w.vector(register_of(i, 0));
  u32* b = w.vector(register_of(i, 1));
  for (int l = 0; l < kLanes; ++l) {
    if (l % (2 * kGroup) < kGroup) std::swap(a[l + kGroup], b[l]);
  }
}

// ---- through the LDS unit, which takes time, but not through LDS ----
void wait_for_lanes(Wave& w, const Instruction& i) {
  await(w, w.lgkm, {.first = static_cast<i16>(register_of(i, 0)), .count = 1, .from = &i});
}
void pull(Wave& w, const Instruction& i) {  // each lane from the lane that it names
  const u32* from = w.vector(register_of(i, 1));
  const u32* data = w.vector(register_of(i, 2));
  Room out;
  for (int l = 0; l < kLanes; ++l) {
    const u32 lane = (from[l] + static_cast<u32>(i.offset)) / 4 % w.group->target->lanes;
    out[l] = (w.exec() >> lane & 1U) != 0 ? data[lane] : 0;
  }
  write_lanes(w, i, register_of(i, 0), out);
  wait_for_lanes(w, i);
}
void push(Wave& w, const Instruction& i) {  // each lane to the lane that it names
  const u32* to = w.vector(register_of(i, 1));
  const u32* data = w.vector(register_of(i, 2));
  Room out = {};
  for (int l = 0; l < kLanes; ++l) {
    const u32 lane = (to[l] + static_cast<u32>(i.offset)) / 4 % w.group->target->lanes;
    if ((w.exec() >> l & 1U) != 0) out[lane] = data[l];
  }
  write_lanes(w, i, register_of(i, 0), out);
  wait_for_lanes(w, i);
}
// swizzle(BITMASK_PERM, ...) of 32 lanes and swizzle(QUAD_PERM, ...), by their encoding.
void swizzle(Wave& w, const Instruction& i) {
  const u32* data = w.vector(register_of(i, 1));
  const u32 how = static_cast<u32>(i.offset);
  Room out;
  for (u32 l = 0; l < kLanes; ++l) {
    u32 lane = (l & ~31U) | ((((l & 31U) & (how & 31U)) | (how >> 5 & 31U)) ^ (how >> 10 & 31U));
    if ((how & 0x8000U) != 0) lane = (l & ~3U) | (how >> (2 * (l & 3U)) & 3U);
    out[l] = (w.exec() >> lane & 1U) != 0 ? data[lane] : 0;
  }
  write_lanes(w, i, register_of(i, 0), out);
  wait_for_lanes(w, i);
}

// ---- results of 64 bits ----
template <class F>
constexpr Run shift_wide(F) {
  return [](Wave& w, const Instruction& i) {
    Room room;
    u64 b[kLanes], out[kLanes];
    const u32* a = source(w, i, 1, room);
    source64(w, i, 2, b);
    for (int l = 0; l < kLanes; ++l) out[l] = static_cast<u64>(F{}(b[l], a[l] & 63U));
    write_lanes64(w, i, out);
  };
}
void move_wide(Wave& w, const Instruction& i) {
  u64 a[kLanes];
  source64(w, i, 1, a);
  write_lanes64(w, i, a);
}
void shift_add_wide(Wave& w, const Instruction& i) {
  Room room;
  u64 a[kLanes], c[kLanes];
  source64(w, i, 1, a);
  const u32* b = source(w, i, 2, room);
  source64(w, i, 3, c);
  for (int l = 0; l < kLanes; ++l) a[l] = (a[l] << (b[l] & 63U)) + c[l];
  write_lanes64(w, i, a);
}
template <bool kSigned>
void multiply_add_wide(Wave& w, const Instruction& i) {  // d, carry out, a, b, c
  Room ra, rb;
  u64 c[kLanes];
  const u32* a = source(w, i, 2, ra);
  const u32* b = source(w, i, 3, rb);
  source64(w, i, 4, c);
  u64 carries = 0;
  for (int l = 0; l < kLanes; ++l) {
    const u64 product =
        kSigned ? static_cast<u64>(i64{as_signed(a[l])} * as_signed(b[l])) : u64{a[l]} * b[l];
    c[l] += product;
    carries |= u64{c[l] < product} << l;
  }
  write_lanes64(w, i, c);
  set_mask(w, i, 1, carries & w.exec());
}

constexpr Row kLaneRows[] = {
    {"v_cndmask_b32", "dffS", choose_by_mask},
    {"v_readfirstlane_b32", "xu", read_first_lane},
    {"v_readlane_b32", "xus", read_lane},
    {"v_writelane_b32", "dss", write_lane},
    {"v_mbcnt_lo_u32_b32", "duu", count_below<0>},
    {"v_mbcnt_hi_u32_b32", "duu", count_below<32>},
    {"v_swap_b32", "dd", swap},
    {"v_permlane32_swap_b32", "dd", swap_groups<32>},
    {"v_permlane16_swap_b32", "dd", swap_groups<16>},
    {"ds_bpermute_b32", "duu", pull},
    {"ds_permute_b32", "duu", push},
    {"ds_swizzle_b32", "du", swizzle},
};
constexpr Row kWideRows[] = {
    {"v_mov_b64", "DU", move_wide},
    {"v_lshlrev_b64", "DuU", shift_wide([](u64 b, u32 a) { return b << a; })},
    {"v_lshrrev_b64", "DuU", shift_wide([](u64 b, u32 a) { return b >> a; })},
    {"v_ashrrev_i64", "DuU", shift_wide([](u64 b, u32 a) { return static_cast<i64>(b) >> a; })},
    {"v_lshl_add_u64", "DUuU", shift_add_wide},
    {"v_mad_u64_u32", "DXuuU", multiply_add_wide<false>},
    {"v_mad_i64_i32", "DXuuU", multiply_add_wide<true>},
};

}  // namespace

std::span<const Row> lane_rows() { return kLaneRows; }
std::span<const Row> wide_rows() { return kWideRows; }

}  // namespace tessera::cdna_emulator
