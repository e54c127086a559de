#include "workgroup.h"

#include <algorithm>
#include <cstring>

namespace tessera::cdna_emulator {

namespace {

constexpr u32 kNobodyWrote = 0x7fc0dead;  // a NaN

// The scalar registers as the kernel's descriptor asks for them: pointers, then the workgroup's
// place in the grid.
void set_scalars(Wave& w, const Plan& plan, const std::array<u32, 3>& id) {
  constexpr int kSizes[] = {4, 2, 2, 2, 2, 2, 1};  // by the bits of the properties
  constexpr int kArgumentsBit = 3;
  const Kernel& k = *plan.kernel;
  int r = 0;
  for (int bit = 0; bit < 7; ++bit) {
    if ((k.properties >> bit & 1U) == 0) continue;
    if (bit == kArgumentsBit) w.set_pair(r, reinterpret_cast<u64>(plan.arguments.data()));
    r += kSizes[bit];
  }
  const u32 preloaded = k.preload & 127U, from = k.preload >> 7 & 511U;  // dwords of arguments
  for (u32 n = 0; n < preloaded; ++n) {
    const std::size_t at = 4 * (std::size_t{from} + n);
    if (at + 4 <= plan.arguments.size()) {
      std::memcpy(&w.scalar(r + static_cast<int>(n)), plan.arguments.data() + at, 4);
    }
  }
  if (w.group->target->rdna >= 12) {
    w.scalar(kTrap + 9) = id[0];
    w.scalar(kTrap + 7) = id[1] | id[2] << 16;
    return;
  }
  r = static_cast<int>(k.rsrc2 >> 1 & 31U);
  for (std::size_t d = 0; d < 3; ++d) {
    if ((k.rsrc2 >> (7 + d) & 1U) != 0) w.scalar(r++) = id[d];
  }
}

void set_threads(Wave& w, const Launch& launch, u32 first, u32 lanes) {
  for (u32 lane = 0; lane < lanes; ++lane) {
    const u32 t = first + lane;
    w.vector(0)[lane] = t % launch.block[0] | t / launch.block[0] % launch.block[1] << 10 |
                        t / launch.block[0] / launch.block[1] << 20;
  }
}

void start_wave(Wave& w, Workgroup& g, int n) {
  for (auto& lanes : w.v) lanes.fill(kNobodyWrote);
  w.s.fill(kNobodyWrote);
  w.awaited.fill(0);
  w.awaited_scalar.fill(0);
  w.group = &g;
  w.id = n;
  w.scc = w.done = w.at_barrier = w.stop = w.saturate_fp8 = false;
  w.vm.count = w.lgkm.count = w.km.count = w.num_awaited = 0;
  w.masked = 0;
  w.lane_mask.fill(0);
  for (LdsLanes& lanes : w.lds_lanes) lanes.used = false;
}

void run_wave(Wave& w, Workgroup& g, u64 budget) {
  const Instruction* const program = g.program->instructions.data();
  w.stop = false;
  w.budget = budget;
  u64 count = 0;
  while (!w.stop && w.budget > 0) {
    const Instruction& i = program[w.pc];
    if (w.num_awaited != 0) check_awaited(w, i);
    ++g.executed[static_cast<std::size_t>(w.pc)];
    w.next = w.pc + 1;
    --w.budget;
    ++count;
    i.run(w, i);
    w.pc = w.next;
    if (w.pc < 0 || static_cast<std::size_t>(w.pc) >= g.program->instructions.size()) {
      throw Finding{Finding::Kind::outside,
                    "A branch goes to a place without code: '" + i.text + "'."};
    }
  }
  g.instructions += count;
}

// Loads that nobody waited for end with their wave.
void end_wave(Wave& w) {
  wait(w, w.vm, 0);
  wait(w, w.lgkm, 0);
  wait(w, w.km, 0);
}

void pass_barrier(Workgroup& g) {
  ++g.epoch;
  for (std::size_t n = 0; n < g.num_waves; ++n) {
    Wave& w = *g.waves[n];
    if (w.done) continue;
    w.at_barrier = false;
    touch_again(w);
  }
}

}  // namespace

void prepare_workgroup(Workgroup& g, const Plan& plan) {
  const u32 threads = plan.launch->block[0] * plan.launch->block[1] * plan.launch->block[2];
  g.program = plan.program;
  g.target = plan.program->object.target;
  g.read_banks = plan.launch->read_banks;
  g.memory = plan.memory;
  g.image = plan.image;
  g.lds.resize(plan.kernel->lds_bytes + plan.launch->dynamic_lds_bytes);
  g.touches.assign((g.lds.size() + 3) / 4, {});
  g.executed.assign(plan.program->instructions.size(), 0);
  g.num_waves = (threads + g.target->lanes - 1) / g.target->lanes;
  while (g.waves.size() < g.num_waves) g.waves.push_back(std::make_unique<Wave>());
}

void start(Workgroup& g, const Plan& plan, const std::array<u32, 3>& id) {
  constexpr u64 kPreloadedEntry = 256;  // bytes that load what hardware without preloading lacks
  const u32 threads = plan.launch->block[0] * plan.launch->block[1] * plan.launch->block[2];
  std::fill(g.lds.begin(), g.lds.end(), u8{0xff});  // NaNs
  std::fill(g.touches.begin(), g.touches.end(), Touch{});
  g.epoch = 1;
  g.races = 0;
  g.instructions = 0;
  g.id = id;
  ++g.statistics.workgroups;
  const u64 entry = plan.kernel->entry + ((plan.kernel->preload & 127U) != 0 ? kPreloadedEntry : 0);
  for (std::size_t n = 0; n < g.num_waves; ++n) {
    Wave& w = *g.waves[n];
    start_wave(w, g, static_cast<int>(n));
    w.pc = find_instruction(*plan.program, entry);
    const u32 first = static_cast<u32>(n) * g.target->lanes;
    const u32 lanes = std::min<u32>(g.target->lanes, threads - first);
    w.every_lane = ~u64{0} >> (kLanes - g.target->lanes);
    w.set_pair(kExec, ~u64{0} >> (kLanes - lanes));
    set_scalars(w, plan, id);
    set_threads(w, *plan.launch, first, lanes);
  }
}

bool run_for(Workgroup& g, u64 budget) {
  // A wave that waits for another wave of its workgroup, but not at a barrier, has to stop, too.
  constexpr u64 kTurn = 1'000'000;
  const u64 end = g.instructions + budget;
  u64 sleeps = 0;
  while (g.instructions + sleeps < end) {
    bool all_done = true, all_wait = true;
    for (std::size_t n = 0; n < g.num_waves; ++n) {
      Wave& w = *g.waves[n];
      if (w.done) continue;
      all_done = false;
      if (!w.at_barrier) run_wave(w, g, std::min(kTurn, budget));
      if (w.done) {
        end_wave(w);
      } else if (!w.at_barrier) {
        all_wait = false;
        sleeps += w.stop ? kTurn / 100 : 0;  // time in which others could go on
      }
    }
    if (all_done) return true;
    if (all_wait) pass_barrier(g);
  }
  g.instructions += sleeps;
  return false;
}

}  // namespace tessera::cdna_emulator
