#include <gtest/gtest.h>

#include "bench.h"

namespace tessera::cdna_emulator {
namespace {

const std::string kEarly = "A register was used before its load was waited for: ";

// A bench whose s[0:1] point to 256 bytes, whose v0 counts bytes of lanes, 4 each.
struct WithMemory {
  std::unique_ptr<Bench> bench;
  std::vector<u32> words = std::vector<u32>(64);
};
std::unique_ptr<WithMemory> make_memory(std::size_t lds_bytes = 4096) {
  auto m = std::make_unique<WithMemory>();
  m->bench = make_bench("gfx942", lds_bytes);
  m->bench->memory.add(reinterpret_cast<u64>(m->words.data()), 256);
  for (const auto& w : m->bench->group.waves) {
    w->set_pair(0, reinterpret_cast<u64>(m->words.data()));
    for (u32 l = 0; l < kLanes; ++l) w->vector(0)[l] = 4 * l;
  }
  return m;
}

TEST(Waits, ARegisterIsFreeWhenItsLoadWasWaitedFor) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  m->words[5] = 77;
  run_line(b, "global_load_dword v1, v0, s[0:1]");
  run_line(b, "global_load_dword v2, v0, s[0:1]");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v1"), kEarly + "'v_mov_b32_e32 v3, v1'.");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v1, 0"), kEarly + "'v_mov_b32_e32 v1, 0'.");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v1"), kEarly + "'v_mov_b32_e32 v3, v1'.");
  run_line(b, "s_waitcnt vmcnt(1)");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v1"), "");
  EXPECT_EQ(b.wave->vector(3)[5], 77U);
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v2"), kEarly + "'v_mov_b32_e32 v3, v2'.");
}

TEST(Waits, StoresCountToo) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  run_line(b, "global_load_dword v1, v0, s[0:1]");
  run_line(b, "global_store_dword v0, v0, s[0:1]");
  run_line(b, "s_waitcnt vmcnt(1)");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v1"), "");
}

TEST(Waits, LoadsOfOneKindMayFollowEachOther) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  m->words[0] = 0x22221111;
  run_line(b, "global_load_short_d16 v1, v0, s[0:1]");
  EXPECT_EQ(finding_of(b, "global_load_short_d16_hi v1, v0, s[0:1] offset:2"), "");
  run_line(b, "ds_read_b32 v2, v0");
  EXPECT_EQ(finding_of(b, "global_load_dword v2, v0, s[0:1]"),
            kEarly + "'global_load_dword v2, v0, s[0:1]'.");
  run_line(b, "s_waitcnt vmcnt(0)");
  run_line(b, "v_mov_b32_e32 v3, v1");
  EXPECT_EQ(b.wave->vector(3)[0], 0x22221111U);
}

TEST(Waits, SignedBytesFillHalfOfARegister) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  m->words[0] = 0x221190f0;
  run_line(b, "global_load_sbyte_d16 v1, v0, s[0:1]");
  EXPECT_EQ(finding_of(b, "global_load_sbyte_d16_hi v1, v0, s[0:1] offset:2"), "");
  run_line(b, "global_load_sbyte_d16_hi v2, v0, s[0:1] offset:1");
  run_line(b, "s_waitcnt vmcnt(0)");
  run_line(b, "v_mov_b32_e32 v3, v1");
  run_line(b, "v_mov_b32_e32 v4, v2");
  EXPECT_EQ(b.wave->vector(3)[0], 0x0011fff0U);
  EXPECT_EQ(b.wave->vector(4)[0] >> 16, 0xff90U);
}

TEST(Waits, ScalarLoadsNeedAWaitForAll) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  m->words[1] = 9;
  run_line(b, "s_load_dword s4, s[0:1], 0x4");
  run_line(b, "ds_read_b32 v1, v0");
  run_line(b, "s_waitcnt lgkmcnt(1)");  // either of them has ended
  EXPECT_EQ(finding_of(b, "s_mov_b32 s5, s4"), kEarly + "'s_mov_b32 s5, s4'.");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v3, v1"), kEarly + "'v_mov_b32_e32 v3, v1'.");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  run_line(b, "s_mov_b32 s5, s4");
  EXPECT_EQ(b.wave->scalar(5), 9U);
}

TEST(Waits, ALoadToLdsLandsWhenWaitedFor) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  m->words[3] = 1234;
  b.wave->scalar(kM0) = 512;
  run_line(b, "global_load_lds_dword v0, s[0:1]");
  EXPECT_EQ(finding_of(b, "ds_read_b32 v1, v0 offset:512"),
            "LDS was used before the load to it was waited for: 'ds_read_b32 v1, v0 offset:512'.");
  run_line(b, "s_waitcnt vmcnt(0)");
  run_line(b, "ds_read_b32 v1, v0 offset:512");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  run_line(b, "v_mov_b32_e32 v2, v1");
  EXPECT_EQ(b.wave->vector(2)[3], 1234U);
}

// 16 lanes read 4 rows of 16 elements, and lane n gets element n of each row.
TEST(Lds, AReadOfGfx950TransposesSixteenLanes) {
  const auto bench = make_bench("gfx950", 4096);
  Bench& b = *bench;
  const auto element = [](u32 group, u32 row, u32 column) {
    return static_cast<u16>(group * 1000 + row * 100 + column);
  };
  for (u32 l = 0; l < kLanes; ++l) {
    const u32 group = l / 16, row = l % 16 / 4, column = l % 4 * 4;
    const u32 at = 128 + group * 512 + row * 96 + column * 2;  // rows lie apart
    b.wave->vector(0)[l] = at - 128;
    for (u32 e = 0; e < 4; ++e) {
      const u16 value = element(group, row, column + e);
      std::memcpy(&b.group.lds[at + 2 * e], &value, 2);
    }
  }
  run_line(b, "ds_read_b64_tr_b16 v[2:3], v0 offset:128");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v4, v2"), kEarly + "'v_mov_b32_e32 v4, v2'.");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  for (u32 l = 0; l < kLanes; ++l) {
    for (u32 row = 0; row < 4; ++row) {
      EXPECT_EQ(b.wave->vector(2 + static_cast<int>(row / 2))[l] >> (16 * (row % 2)) & 0xffffU,
                element(l / 16, row, l % 16));
    }
  }
  b.wave->set_pair(kExec, 1);
  EXPECT_NE(finding_of(b, "ds_read_b64_tr_b16 v[2:3], v0").find("64 lanes that are on"),
            std::string::npos);
}

// The same of bytes: 8 rows, of which a lane reads a half. Lane, group and row of a byte follow
// from where it is to go: lane n of a group has column n of all rows, row after row.
TEST(Lds, AReadOfGfx950TransposesBytes) {
  auto random = fresh_random();
  const auto bench = make_bench("gfx950", 8192);
  Bench& b = *bench;
  for (u8& byte : b.group.lds) byte = static_cast<u8>(random());
  u32 rows[4][8];
  for (auto& group : rows) {
    for (u32& row : group) row = static_cast<u32>(random() % 500) * 16;
  }
  for (u32 l = 0; l < kLanes; ++l) b.wave->vector(0)[l] = rows[l >> 4][l >> 1 & 7] + (l & 1) * 8;
  run_line(b, "ds_read_b64_tr_b8 v[2:3], v0 offset:64");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  for (u32 l = 0; l < kLanes; ++l) {
    for (u32 row = 0; row < 8; ++row) {
      const u32 word = b.wave->vector(row < 4 ? 2 : 3)[l];
      EXPECT_EQ(word >> (row & 3) * 8 & 0xffU, b.group.lds[64 + rows[l >> 4][row] + (l & 15)]);
    }
  }
}

TEST(Lds, TellsARaceOfTwoWaves) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  Wave* other = b.group.waves[1].get();
  run_line(b, "ds_write_b32 v0, v0");
  run_line(b, "ds_read_b32 v1, v0");
  EXPECT_EQ(b.group.races, 0U);
  run_line(b, "ds_read_b32 v1, v0", other);
  EXPECT_EQ(b.group.races, 64U);
  EXPECT_EQ(b.group.first_race,
            "Waves 0 and 1 use bytes 0 to 3 of LDS without a barrier between them, and one writes: "
            "'ds_read_b32 v1, v0'.");
}

TEST(Lds, TellsAWriteAfterAnothersRead) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  run_line(b, "ds_read_b32 v1, v0");
  run_line(b, "ds_write_b8 v0, v0", b.group.waves[1].get());
  EXPECT_EQ(b.group.races, 64U);
}

TEST(Lds, ReadsAndAtomicsOfSeveralWavesAreNoRace) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  Wave* other = b.group.waves[1].get();
  run_line(b, "ds_read_b64 v[2:3], v0 offset:1024");
  run_line(b, "ds_read_b64 v[2:3], v0 offset:1024", other);
  run_line(b, "ds_add_u32 v0, v0");
  run_line(b, "ds_add_u32 v0, v0", other);
  EXPECT_EQ(b.group.races, 0U);
  u32 sum = 0;
  std::memcpy(&sum, &b.group.lds[4 * 9], 4);
  EXPECT_EQ(sum, 2 * 4 * 9U);
}

TEST(Lds, TwoReadsHaveTheAddressesFromBefore) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  run_line(b, "v_add_u32_e32 v2, 4, v0");
  run_line(b, "ds_write_b32 v0, v2");
  run_line(b, "ds_read2_b32 v[0:1], v0 offset1:1");
  run_line(b, "s_waitcnt lgkmcnt(0)");
  for (unsigned lane = 0; lane < 63; ++lane) {
    EXPECT_EQ(b.wave->vector(0)[lane], 4 * lane + 4);
    EXPECT_EQ(b.wave->vector(1)[lane], 4 * lane + 8);
  }
}

TEST(Lds, AWriteThatWasNotWaitedForCountsAfterTheBarrier) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  for (const bool waits : {true, false}) {
    run_line(b, "ds_write_b32 v0, v0");
    if (waits) run_line(b, "s_waitcnt lgkmcnt(0)");
    ++b.group.epoch;
    touch_again(*b.wave);
    run_line(b, "ds_read_b32 v1, v0", b.group.waves[1].get());
    EXPECT_EQ(b.group.races, waits ? 0U : 64U);
    ++b.group.epoch;
  }
}

TEST(Lds, TellsAccessesOutside) {
  const auto m = make_memory(256);
  EXPECT_EQ(finding_of(*m->bench, "ds_read_b32 v1, v0 offset:4"),
            "An access to LDS ends at byte 260, but the workgroup has 256: 'ds_read_b32 v1, v0 "
            "offset:4'.");
  EXPECT_EQ(finding_of(*m->bench, "ds_read_b32 v1, v0 offset:2"),
            "An access to LDS at byte 2 is not a multiple of 4: 'ds_read_b32 v1, v0 offset:2'.");
}

TEST(Memory, TellsAccessesOutside) {
  const auto m = make_memory();
  const std::string line = "global_load_dword v1, v0, s[0:1] offset:4";
  const std::string got = finding_of(*m->bench, line);
  EXPECT_EQ(got.substr(0, 20), "A read of 4 bytes at");
  EXPECT_NE(got.find("is outside of all allocations, 260 bytes after the begin of the 256 bytes"),
            std::string::npos)
      << got;
  m->bench->wave->set_pair(kExec, ~u64{0} >> 1);  // the lane that is outside is off
  EXPECT_EQ(finding_of(*m->bench, line), "");
}

TEST(Memory, TellsAWriteToWhatIsOnlyRead) {
  const auto m = make_memory();
  m->bench->memory.allocations[0].writable = false;
  EXPECT_NE(finding_of(*m->bench, "global_store_dword v0, v0, s[0:1]")
                .find("goes to memory that is only read"),
            std::string::npos);
}

TEST(Memory, BuffersReadZerosPastTheirEnd) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  std::fill(m->words.begin(), m->words.end(), 5U);
  b.wave->set_pair(4, reinterpret_cast<u64>(m->words.data()));
  b.wave->scalar(6) = 100;  // bytes
  run_line(b, "buffer_load_dwordx2 v[2:3], v0, s[4:7], 0 offen");
  run_line(b, "s_waitcnt vmcnt(0)");
  for (int l = 0; l < kLanes; ++l) {
    EXPECT_EQ(b.wave->vector(2)[l], l < 25 ? 5U : 0U);
    EXPECT_EQ(b.wave->vector(3)[l], l < 24 ? 5U : 0U);
  }
  run_line(b, "v_mov_b32_e32 v1, 8");
  run_line(b, "buffer_store_dword v1, v0, s[4:7], 0 offen");
  EXPECT_EQ(m->words[24], 8U);
  EXPECT_EQ(m->words[25], 5U);
}

TEST(Memory, AtomicsGiveWhatWasThere) {
  const auto m = make_memory();
  Bench& b = *m->bench;
  run_line(b, "v_mov_b32_e32 v2, 0");
  run_line(b, "v_mov_b32_e32 v3, 3");
  run_line(b, "global_atomic_add v1, v2, v3, s[0:1] sc0");
  EXPECT_EQ(finding_of(b, "v_mov_b32_e32 v4, v1"), kEarly + "'v_mov_b32_e32 v4, v1'.");
  run_line(b, "s_waitcnt vmcnt(0)");
  for (u32 l = 0; l < kLanes; ++l) EXPECT_EQ(b.wave->vector(1)[l], 3 * l);
  EXPECT_EQ(m->words[0], 3U * 64);
}

struct Cycles {
  const char* what;
  const char* target;
  const char* line;
  u32 stride;  // bytes between lanes
  u64 cycles, ideal;
  u32 read_banks = 0;  // 0: those of the target
};
TEST(Lds, CountsCycles) {
  const Cycles cases[] = {
      {"neighbours", "gfx942", "ds_read_b32 v1, v0", 4, 2, 2},
      {"two words a bank", "gfx942", "ds_read_b32 v1, v0", 8, 4, 2},
      {"one bank", "gfx942", "ds_read_b32 v1, v0", 128, 64, 2},
      {"one word", "gfx942", "ds_read_b32 v1, v0", 0, 2, 2},
      {"64 banks", "gfx950", "ds_read_b32 v1, v0", 8, 2, 1},
      {"writes have 32 banks", "gfx950", "ds_write_b32 v0, v1", 8, 4, 2},
      {"wide neighbours", "gfx942", "ds_write_b128 v0, v[4:7]", 16, 8, 8},
      {"rows of 64 bytes", "gfx942", "ds_read_b128 v[4:7], v0", 64, 32, 8},
      {"32 banks instead", "gfx950", "ds_read_b32 v1, v0", 8, 4, 2, 32},
      {"64 banks instead", "gfx942", "ds_read_b32 v1, v0", 8, 2, 1, 64},
      {"wide reads of 32 banks", "gfx950", "ds_read_b128 v[4:7], v0", 16, 8, 8, 32},
      {"wide reads of 64 banks", "gfx950", "ds_read_b128 v[4:7], v0", 16, 4, 4},
  };
  for (const Cycles& c : cases) {
    const auto b = make_bench(c.target, 65536);
    b->group.read_banks = c.read_banks;
    for (u32 l = 0; l < kLanes; ++l) b->wave->vector(0)[l] = c.stride * l;
    run_line(*b, c.line);
    EXPECT_EQ(b->group.statistics.lds_cycles, c.cycles) << c.what;
    EXPECT_EQ(b->group.statistics.lds_ideal_cycles, c.ideal) << c.what;
  }
}

}  // namespace
}  // namespace tessera::cdna_emulator
