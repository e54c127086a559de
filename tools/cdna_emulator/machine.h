// The state of a launch: memory, a workgroup with its LDS, and its waves with their registers and
// their loads under way.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "instruction.h"

namespace tessera::cdna_emulator {

// Why a kernel cannot go on, or what makes its result worthless. Thrown.
struct Finding {
  enum class Kind {
    none,
    race,
    early_use,
    outside,
    uncovered,
    endless,
    trap,
    object
  } kind = Kind::none;
  std::string text;  // a sentence
};

// Memory that kernels may touch. Kept in order of addresses.
struct Allocation {
  u64 begin = 0, end = 0;
  bool writable = true;
};
struct Memory {
  std::vector<Allocation> allocations;
  void add(u64 begin, u64 bytes, bool writable = true);
  void remove(u64 begin);
  // The allocation that holds an address, or null.
  const Allocation* find(u64 address) const;
};

// What a target differs in.
struct Target {
  std::string_view name;
  u32 machine;      // in the flags of a code object's ELF header
  Fp8 fp8, bf8;     // encodings of 8-bit floats
  u32 lds_bytes;    // that a workgroup can have
  u32 m0_mask;      // the part of m0 that is an address in LDS
  bool wide_reads;  // 64 banks serve reads of LDS
  u32 lanes = 64;   // of a wave
  // RDNA's generation, 11 or 12. Stores have a counter of their own there; from 12 on scalar loads
  // have one, too, and the place in the grid comes in registers of traps.
  int rdna = 0;
};
const Target* find_target(std::string_view name);
const Target* find_target(u32 machine);

struct Statistics {
  u64 launches = 0, workgroups = 0, instructions = 0, mfmas = 0;
  u64 lds_accesses = 0, lds_cycles = 0, lds_ideal_cycles = 0;
  std::map<std::string, u64> executed;  // instructions of waves, by name
  std::map<i32, u64> vm_waits;          // waits for loads, by how many they leave under way
  void add(const Statistics& other);
};

// The addresses of an access to LDS, and what a load brings there.
struct LdsLanes {
  u64 lanes = 0;
  u32 bytes = 0;  // a lane
  bool write = false, atomic = false, used = false;
  std::array<u32, kLanes> address;
  std::array<u32, kLanes * 4> data;
};

// A memory operation under way.
struct Pending {
  i16 first = 0;
  u8 count = 0;           // registers to come
  bool scalar = false;    // they are scalar ones
  bool lands = false;     // it writes LDS when it is waited for
  i16 lds[2] = {-1, -1};  // of Wave::lds_lanes
  const Instruction* from = nullptr;
};
// Operations end in their order, but for scalar loads.
struct Queue {
  static constexpr u32 kSize = 64;
  std::array<Pending, kSize> items;
  u32 begin = 0, count = 0;
  Pending& at(u32 n) { return items[(begin + n) % kSize]; }
};

struct Workgroup;
struct Wave {
  alignas(64) std::array<std::array<u32, kLanes>, kVectors> v;
  std::array<u32, kScalars> s;
  alignas(64) std::array<u32, kLanes> lane_mask;  // of exec, as of `masked`
  u64 masked = 0, every_lane = ~u64{0};
  Workgroup* group = nullptr;
  int id = 0;
  bool scc = false, done = false, at_barrier = false, stop = false;
  bool saturate_fp8 = false;  // MODE.FP16_OVFL
  i32 pc = 0, next = 0;
  Queue vm, lgkm, km;  // km: scalar loads, where they have a counter of their own
  std::array<u8, kVectors> awaited;
  std::array<u8, kScalars> awaited_scalar;
  u32 num_awaited = 0;
  u64 budget = 0;  // instructions until other waves have their turn
  std::vector<LdsLanes> lds_lanes;

  u32* vector(int reg) { return v[static_cast<std::size_t>(reg)].data(); }
  u32& scalar(int reg) { return s[static_cast<std::size_t>(reg)]; }
  u64 pair(int reg) { return scalar(reg) | u64{scalar(reg + 1)} << 32; }
  void set_pair(int reg, u64 x) {
    scalar(reg) = static_cast<u32>(x);
    scalar(reg + 1) = static_cast<u32>(x >> 32);
  }
  u64 exec() { return pair(kExec); }
  bool all_lanes() { return exec() == every_lane; }
};

// Who touched a dword of LDS since the last barrier.
struct Touch {
  u32 write_epoch = 0, read_epoch = 0;
  u32 readers = 0;
  u8 writer = 0;
  bool atomic = false;  // the write was
  u8 landing = 0;       // 1 + the wave whose load is to land here
};

struct Program;
struct Workgroup {
  const Program* program = nullptr;
  const Target* target = nullptr;
  u32 read_banks = 0;  // of LDS, 32 or 64; 0: as the target has
  const Memory* memory = nullptr;
  u64 image = 0;  // the address of the code object's image
  std::array<u32, 3> id{};
  std::vector<u8> lds;
  std::vector<Touch> touches;
  u32 epoch = 1;
  u64 races = 0;
  std::string first_race;
  u64 instructions = 0;
  std::vector<std::unique_ptr<Wave>> waves;
  std::size_t num_waves = 0;
  std::vector<u64> executed;  // by the instruction's index
  Statistics statistics;      // without `executed`
};

// ---- lanes.cc: sources and results of 64 lanes ----
// Expands a mask to all ones or zeros a lane.
void expand_mask(u64 mask, u32* lanes);
const u32* lane_mask(Wave& wave);
// A source that is not a plain vector register, written to `room`.
const u32* prepare(Wave& wave, const Instruction& instruction, const Operand& operand, u32* room,
                   int half);
void write_lanes(Wave& wave, const Instruction& instruction, int reg, const u32* lanes);

// ---- waits.cc: loads under way ----
void await(Wave& wave, Queue& queue, const Pending& pending);
void wait(Wave& wave, Queue& queue, u32 left);
void check_awaited(Wave& wave, const Instruction& instruction);
// A free record for addresses in LDS, as an index of Wave::lds_lanes.
i16 take_lds_lanes(Wave& wave);

// ---- lds_checks.cc ----
void touch(Wave& wave, const LdsLanes& lanes, const Instruction& instruction);
void mark_landing(Wave& wave, const LdsLanes& lanes, const Instruction& instruction);
void land(Wave& wave, const LdsLanes& lanes, const Instruction& instruction);
void count_cycles(Wave& wave, const LdsLanes& lanes);
// Accesses that a wave did not wait for before a barrier count after it, too.
void touch_again(Wave& wave);

}  // namespace tessera::cdna_emulator
