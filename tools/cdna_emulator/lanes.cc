#include "lanes.h"

namespace tessera::cdna_emulator {

namespace {

constexpr int kKept = -1, kZero = -2;

int row_source(const Dpp& dpp, int lane) {
  const int at = lane & 15, outside = dpp.zeros ? kZero : kKept;
  switch (dpp.kind) {
    case Dpp::Kind::row_shl:
      return at + dpp.count < 16 ? lane + dpp.count : outside;
    case Dpp::Kind::row_shr:
      return at - dpp.count >= 0 ? lane - dpp.count : outside;
    case Dpp::Kind::row_ror:
      return (lane & ~15) + ((at - dpp.count) & 15);
    case Dpp::Kind::wave_shl:
      return lane + 1 < kLanes ? lane + 1 : outside;
    default:  // wave_shr
      return lane > 0 ? lane - 1 : outside;
  }
}

// The lane that a lane reads from: kKept when it keeps its value, kZero when it reads 0.
int dpp_source(const Dpp& dpp, int lane) {
  if ((dpp.row_mask >> (lane / 16) & 1) == 0 || (dpp.bank_mask >> (lane % 16 / 4) & 1) == 0) {
    return kKept;
  }
  const int row = lane & ~15;
  switch (dpp.kind) {
    case Dpp::Kind::none:
      return lane;
    case Dpp::Kind::quad_perm:
      return (lane & ~3) + dpp.quad[static_cast<std::size_t>(lane & 3)];
    case Dpp::Kind::row_mirror:
      return row + 15 - (lane & 15);
    case Dpp::Kind::row_half_mirror:
      return (lane & ~7) + 7 - (lane & 7);
    case Dpp::Kind::row_bcast15:
      return row == 0 ? kKept : row - 1;
    case Dpp::Kind::row_bcast31:
      return lane < 32 ? kKept : 31;
    case Dpp::Kind::row_newbcast:
      return row + dpp.count;
    default:
      return row_source(dpp, lane);
  }
}

// Lanes that a result with DPP goes to: those whose source is there.
u64 dpp_lanes(Wave& w, const Dpp& dpp) {
  u64 lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int from = dpp_source(dpp, lane);
    const bool off = from >= 0 && (w.exec() >> from & 1) == 0;
    if (from != kKept && (!off || dpp.zeros)) lanes |= u64{1} << lane;
  }
  return lanes;
}

void move_lanes(Wave& w, const Dpp& dpp, const u32* from, u32* to) {
  Room moved;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int other = dpp_source(dpp, lane);
    moved[lane] = other >= 0 && (w.exec() >> other & 1) != 0 ? from[other] : 0;
  }
  std::memcpy(to, moved, sizeof moved);
}

u32 part_of(u32 x, const Part& part) {
  const u32 cut = x << (32 - part.width - part.shift);
  const int down = 32 - part.width;
  return part.sign ? static_cast<u32>(as_signed(cut) >> down) : cut >> down;
}

// Puts a result where SDWA or op_sel say.
u32 place(u32 old, u32 result, const Instruction& i) {
  if (i.to.width == 32) return result;
  const u32 mask = ((1U << i.to.width) - 1) << i.to.shift;
  const u32 value = result << i.to.shift & mask;
  if (i.rest == Instruction::Rest::kept) return (old & ~mask) | value;
  if (i.rest == Instruction::Rest::zeros) return value;
  const int up = 32 - i.to.width - i.to.shift;
  return static_cast<u32>(as_signed(value << up) >> up);
}

}  // namespace

void expand_mask(u64 mask, u32* lanes) {
  const u32 low = static_cast<u32>(mask), high = static_cast<u32>(mask >> 32);
  for (int l = 0; l < 32; ++l) {
    lanes[l] = (low & 1U << l) != 0 ? ~0U : 0U;
    lanes[l + 32] = (high & 1U << l) != 0 ? ~0U : 0U;
  }
}

const u32* lane_mask(Wave& w) {
  if (w.masked != w.exec()) {
    w.masked = w.exec();
    expand_mask(w.masked, w.lane_mask.data());
  }
  return w.lane_mask.data();
}

const u32* prepare(Wave& w, const Instruction& i, const Operand& o, u32* room, int half) {
  if (o.kind == Operand::Kind::vector) {
    std::memcpy(room, w.vector(o.reg + half), sizeof(Room));
    if (o.moved) move_lanes(w, i.dpp, room, room);
  } else {
    u32 x = static_cast<u32>(o.bits >> (32 * half));
    if (o.kind == Operand::Kind::scalar) x = w.scalar(o.reg + half);
    for (int l = 0; l < kLanes; ++l) room[l] = x;
  }
  if (o.part.width != 32) {
    for (int l = 0; l < kLanes; ++l) room[l] = part_of(room[l], o.part);
  }
  // The sign of a 64-bit number is in its upper half, which alone has the masks there.
  if (half == 1 || o.count == 1) {
    for (int l = 0; l < kLanes; ++l) room[l] = (room[l] & o.keep) ^ o.flip;
  }
  return room;
}

void write_lanes(Wave& w, const Instruction& i, int reg, const u32* lanes) {
  u32* to = w.vector(reg);
  if (!i.special && w.all_lanes()) {
    std::memcpy(to, lanes, sizeof(Room));
    return;
  }
  const u32* mask = lane_mask(w);
  if (!i.special) {
    for (int l = 0; l < kLanes; ++l) to[l] = (to[l] & ~mask[l]) | (lanes[l] & mask[l]);
    return;
  }
  Room some;
  expand_mask(dpp_lanes(w, i.dpp), some);
  for (int l = 0; l < kLanes; ++l) {
    const u32 m = mask[l] & some[l];
    to[l] = (to[l] & ~m) | (place(to[l], lanes[l], i) & m);
  }
}

void finish_floats(const Instruction& i, u32* lanes) {
  if (i.scale != 0) {
    const float factor = std::ldexp(1.0F, i.scale);
    for (int l = 0; l < kLanes; ++l) lanes[l] = as_bits(as_float(lanes[l]) * factor);
  }
  if (!i.clamp) return;
  for (int l = 0; l < kLanes; ++l) {
    const float x = as_float(lanes[l]);
    lanes[l] = as_bits(x > 0 ? (x < 1 ? x : 1.0F) : 0.0F);
  }
}

}  // namespace tessera::cdna_emulator
