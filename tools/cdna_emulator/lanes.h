// Operations on 64 lanes, as templates over what one lane does. The tables of instructions name
// them.
#pragma once

#include <cmath>
#include <cstring>

#include "machine.h"

namespace tessera::cdna_emulator {

using Room = u32[kLanes];

inline const u32* source(Wave& w, const Instruction& i, int n, u32* room) {
  const Operand& o = i.operands[static_cast<std::size_t>(n)];
  return o.plain ? w.vector(o.reg) : prepare(w, i, o, room, 0);
}
// The upper half of a 64-bit source.
inline const u32* source_high(Wave& w, const Instruction& i, int n, u32* room) {
  const Operand& o = i.operands[static_cast<std::size_t>(n)];
  return o.plain ? w.vector(o.reg + 1) : prepare(w, i, o, room, 1);
}
inline u32 scalar32(Wave& w, const Instruction& i, int n) {
  const Operand& o = i.operands[static_cast<std::size_t>(n)];
  return o.kind == Operand::Kind::scalar ? w.scalar(o.reg) : static_cast<u32>(o.bits);
}
inline u64 scalar64(Wave& w, const Instruction& i, int n) {
  const Operand& o = i.operands[static_cast<std::size_t>(n)];
  if (o.kind != Operand::Kind::scalar) return o.bits;
  return o.count == 1 ? w.scalar(o.reg) : w.pair(o.reg);
}
// Writes a bit for each lane: to one register where the wave has 32 of them.
inline void set_mask(Wave& w, const Instruction& i, int n, u64 mask) {
  const Operand& o = i.operands[static_cast<std::size_t>(n)];
  w.scalar(o.reg) = static_cast<u32>(mask);
  if (o.count > 1) w.scalar(o.reg + 1) = static_cast<u32>(mask >> 32);
}
inline int register_of(const Instruction& i, int n) {
  return i.operands[static_cast<std::size_t>(n)].reg;
}
inline u64 join(u32 low, u32 high) { return u64{high} << 32 | low; }

// ---- scalar: f(a, b, scc), which may set scc ----
template <class F>
constexpr Run scalar1(F) {
  return [](Wave& w, const Instruction& i) {
    w.scalar(register_of(i, 0)) = static_cast<u32>(F{}(scalar32(w, i, 1), w.scc));
  };
}
template <class F>
constexpr Run scalar2(F) {
  return [](Wave& w, const Instruction& i) {
    w.scalar(register_of(i, 0)) =
        static_cast<u32>(F{}(scalar32(w, i, 1), scalar32(w, i, 2), w.scc));
  };
}
template <class F>
constexpr Run scalar1_64(F) {
  return [](Wave& w, const Instruction& i) {
    w.set_pair(register_of(i, 0), F{}(scalar64(w, i, 1), w.scc));
  };
}
template <class F>
constexpr Run scalar2_64(F) {
  return [](Wave& w, const Instruction& i) {
    w.set_pair(register_of(i, 0), F{}(scalar64(w, i, 1), scalar64(w, i, 2), w.scc));
  };
}
template <class T, class F>
constexpr Run scalar_compare(F) {
  return [](Wave& w, const Instruction& i) {
    if constexpr (sizeof(T) == 8) {
      w.scc = F{}(static_cast<T>(scalar64(w, i, 0)), static_cast<T>(scalar64(w, i, 1)));
    } else {
      w.scc = F{}(static_cast<T>(scalar32(w, i, 0)), static_cast<T>(scalar32(w, i, 1)));
    }
  };
}

// ---- 32 bits a lane ----
template <class F>
constexpr Run vector1(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, out;
    const u32* a = source(w, i, 1, ra);
    for (int l = 0; l < kLanes; ++l) out[l] = static_cast<u32>(F{}(a[l]));
    write_lanes(w, i, register_of(i, 0), out);
  };
}
template <class F>
constexpr Run vector2(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, rb, out;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    for (int l = 0; l < kLanes; ++l) out[l] = static_cast<u32>(F{}(a[l], b[l]));
    write_lanes(w, i, register_of(i, 0), out);
  };
}
template <class F>
constexpr Run vector3(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, rb, rc, out;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    const u32* c = source(w, i, 3, rc);
    for (int l = 0; l < kLanes; ++l) out[l] = static_cast<u32>(F{}(a[l], b[l], c[l]));
    write_lanes(w, i, register_of(i, 0), out);
  };
}

// ---- floats ----
void finish_floats(const Instruction& instruction, u32* lanes);  // omod and clamp

template <class F>
constexpr Run float1(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, out;
    const u32* a = source(w, i, 1, ra);
    for (int l = 0; l < kLanes; ++l) out[l] = as_bits(static_cast<float>(F{}(as_float(a[l]))));
    finish_floats(i, out);
    write_lanes(w, i, register_of(i, 0), out);
  };
}
template <class F>
constexpr Run float2(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, rb, out;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    for (int l = 0; l < kLanes; ++l) out[l] = as_bits(F{}(as_float(a[l]), as_float(b[l])));
    finish_floats(i, out);
    write_lanes(w, i, register_of(i, 0), out);
  };
}
template <class F>
constexpr Run float3(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, rb, rc, out;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    const u32* c = source(w, i, 3, rc);
    for (int l = 0; l < kLanes; ++l) {
      out[l] = as_bits(F{}(as_float(a[l]), as_float(b[l]), as_float(c[l])));
    }
    finish_floats(i, out);
    write_lanes(w, i, register_of(i, 0), out);
  };
}

// ---- comparisons: a mask of lanes, zero for lanes that are off ----
template <class T, class F>
constexpr Run compare(F) {
  return [](Wave& w, const Instruction& i) {
    alignas(64) Room ra, rb;
    const u32* a = source(w, i, 1, ra);
    const u32* b = source(w, i, 2, rb);
    u64 mask = 0;
    for (int l = 0; l < kLanes; ++l) {
      bool yes = false;
      if constexpr (std::is_same_v<T, float>) {
        yes = F{}(as_float(a[l]), as_float(b[l]));
      } else {
        yes = F{}(static_cast<T>(a[l]), static_cast<T>(b[l]));
      }
      mask |= u64{yes} << l;
    }
    set_mask(w, i, 0, mask & w.exec());
  };
}
template <class T, class F>
constexpr Run compare64(F) {
  return [](Wave& w, const Instruction& i) {
    Room al, ah, bl, bh;
    const u32* low_a = source(w, i, 1, al);
    const u32* high_a = source_high(w, i, 1, ah);
    const u32* low_b = source(w, i, 2, bl);
    const u32* high_b = source_high(w, i, 2, bh);
    u64 mask = 0;
    for (int l = 0; l < kLanes; ++l) {
      const u64 a = join(low_a[l], high_a[l]), b = join(low_b[l], high_b[l]);
      mask |= u64{F{}(std::bit_cast<T>(a), std::bit_cast<T>(b))} << l;
    }
    set_mask(w, i, 0, mask & w.exec());
  };
}

// ---- 64 bits a lane ----
inline void write_lanes64(Wave& w, const Instruction& i, const u64* out) {
  Room half;
  for (int part = 0; part < 2; ++part) {
    for (int l = 0; l < kLanes; ++l) half[l] = static_cast<u32>(out[l] >> (32 * part));
    write_lanes(w, i, register_of(i, 0) + part, half);
  }
}
// The 64-bit source n of every lane.
inline void source64(Wave& w, const Instruction& i, int n, u64* out) {
  Room low, high;
  const u32* a = source(w, i, n, low);
  const u32* b = source_high(w, i, n, high);
  for (int l = 0; l < kLanes; ++l) out[l] = join(a[l], b[l]);
}

}  // namespace tessera::cdna_emulator
