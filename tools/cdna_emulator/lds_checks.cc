// Who touches LDS when, and how many cycles that takes.
#include <algorithm>
#include <cstring>

#include "machine.h"

namespace tessera::cdna_emulator {

namespace {

template <class F>
void each_dword(const LdsLanes& lanes, F f) {
  for (int l = 0; l < kLanes; ++l) {
    if ((lanes.lanes >> l & 1U) == 0) continue;
    const u32 first = lanes.address[static_cast<std::size_t>(l)];
    for (u32 d = first / 4; d <= (first + lanes.bytes - 1) / 4; ++d) f(d);
  }
}

void report_race(Wave& w, u32 dword, int other, const Instruction& i) {
  if (w.group->races++ != 0) return;
  w.group->first_race = "Waves " + std::to_string(other) + " and " + std::to_string(w.id) +
                        " use bytes " + std::to_string(4 * dword) + " to " +
                        std::to_string(4 * dword + 3) +
                        " of LDS without a barrier between them, and one writes: '" + i.text + "'.";
}

// Lanes whose wide reads are served together, as others have measured them on gfx90a and gfx942,
// and on gfx950, of each half of the wave.
constexpr u8 kOrder[32] = {0, 1, 2,  3,  20, 21, 22, 23, 4,  5,  6,  7,  16, 17, 18, 19,
                           8, 9, 10, 11, 28, 29, 30, 31, 12, 13, 14, 15, 24, 25, 26, 27};
constexpr u8 kWideOrder[32] = {0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27,
                               4, 5, 6, 7, 8,  9,  10, 11, 16, 17, 18, 19, 28, 29, 30, 31};

// The most different words that one bank has to give to these lanes. A bit a bank says whether it
// gives any, so that nothing is cleared for the next lanes.
struct Banks {
  static constexpr u32 kMost = 64;
  u32 words[kMost][kMost];
  u8 counts[kMost];
  u64 used = 0;
  u32 worst = 0;
};
void add_word(Banks& banks, u32 bank, u32 word) {
  const u64 bit = u64{1} << bank;
  u32* const words = banks.words[bank];
  if ((banks.used & bit) == 0) {
    banks.used |= bit;
    words[0] = word;
    banks.counts[bank] = 1;
    banks.worst = std::max(banks.worst, 1U);
    return;
  }
  u8& count = banks.counts[bank];
  for (u8 n = 0; n < count; ++n) {
    if (words[n] == word) return;
  }
  words[count++] = word;
  banks.worst = std::max<u32>(banks.worst, count);
}

}  // namespace

void touch(Wave& w, const LdsLanes& lanes, const Instruction& i) {
  Workgroup& g = *w.group;
  const u32 me = 1U << w.id;
  each_dword(lanes, [&](u32 d) {
    Touch& t = g.touches[d];
    if (t.landing != 0) {
      throw Finding{Finding::Kind::early_use,
                    "LDS was used before the load to it was waited for: '" + i.text + "'."};
    }
    const bool written = t.write_epoch == g.epoch && t.writer != w.id;
    if (written && !(t.atomic && lanes.atomic)) report_race(w, d, t.writer, i);
    const bool read = t.read_epoch == g.epoch;
    if (lanes.write) {
      const u32 others = t.readers & ~me;
      if (read && others != 0) report_race(w, d, std::countr_zero(others), i);
      t.write_epoch = g.epoch;
      t.writer = static_cast<u8>(w.id);
      t.atomic = lanes.atomic;
    } else {
      t.readers = read ? t.readers | me : me;
      t.read_epoch = g.epoch;
    }
  });
}

void mark_landing(Wave& w, const LdsLanes& lanes, const Instruction& i) {
  touch(w, lanes, i);
  each_dword(lanes, [&](u32 d) { w.group->touches[d].landing = static_cast<u8>(w.id + 1); });
}

void land(Wave& w, const LdsLanes& lanes, const Instruction& i) {
  each_dword(lanes, [&](u32 d) { w.group->touches[d].landing = 0; });
  touch(w, lanes, i);
  for (std::size_t l = 0; l < kLanes; ++l) {
    if ((lanes.lanes >> l & 1U) == 0) continue;
    std::memcpy(&w.group->lds[lanes.address[l]], &lanes.data[4 * l], lanes.bytes);
  }
}

// As many consecutive lanes as move 128 bytes are served together (256 for reads by 64 banks, as on
// gfx950), but for wide reads, whose lanes the tables name. A bank gives one word a cycle.
void count_cycles(Wave& w, const LdsLanes& lanes) {
  Workgroup& g = *w.group;
  const bool has_64 = g.read_banks == 0 ? g.target->wide_reads : g.read_banks == 64;
  const bool wide = has_64 && !lanes.write && lanes.bytes != 12;
  const u32 num_banks = wide ? 64 : 32;
  const int group =
      lanes.bytes == 12
          ? 8
          : static_cast<int>(std::min<u32>(kLanes, num_banks * 4 / std::max(lanes.bytes, 4U)));
  const u8* order = lanes.bytes < 12 || lanes.write ? nullptr : wide ? kWideOrder : kOrder;
  static thread_local Banks banks;
  ++g.statistics.lds_accesses;
  for (int first = 0; first < kLanes; first += group) {
    banks.used = 0;
    banks.worst = 0;
    for (int n = first; n < first + group; ++n) {
      const int lane = order != nullptr ? (n & 32) + order[n & 31] : n;
      if ((lanes.lanes >> lane & 1U) == 0) continue;
      const u32 begin = lanes.address[static_cast<std::size_t>(lane)];
      for (u32 at = 0; at < lanes.bytes; at += 4) {
        add_word(banks, (begin + at) / 4 & (num_banks - 1), (begin + at) / 4);
      }
    }
    g.statistics.lds_cycles += banks.worst;
    g.statistics.lds_ideal_cycles += banks.worst != 0 ? 1 : 0;
  }
}

}  // namespace tessera::cdna_emulator
