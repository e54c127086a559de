// One workgroup: its start, and its waves in turns.
#pragma once

#include <span>

#include "launch.h"

namespace tessera::cdna_emulator {

// All that the workgroups of a launch have in common.
struct Plan {
  const Program* program;
  const Kernel* kernel;
  const Launch* launch;
  const Memory* memory;
  u64 image;
  std::span<const u8> arguments;
};

void prepare_workgroup(Workgroup& group, const Plan& plan);
void start(Workgroup& group, const Plan& plan, const std::array<u32, 3>& id);
// Runs about so many instructions. True when the workgroup has ended. Throws Finding.
bool run_for(Workgroup& group, u64 budget);

}  // namespace tessera::cdna_emulator
