// The emulator of AMD's GPUs in place of HIP, in this process.
#pragma once

#include <string>

#include "tessera/spec/target.h"

namespace tessera::runtime {

// Makes the emulator of this target's GPU the process's HIP, before anything uses HIP. Does nothing
// when it is that already. Throws Error{unsupported} for a target that is not AMD's, when this
// build has no emulator, and when the process uses HIP or the emulator of another target.
void use_emulator(const Target& target);

// What the emulated GPU has done so far, as JSON: launches, workgroups, instructions, mfmas by
// name, lds_accesses, lds_cycles, lds_ideal_cycles and findings. Only after use_emulator().
std::string emulator_report();

// What a code object holds, as JSON: "kernels", of each its facts and "listing", the text of its
// instructions. Throws Error{unsupported} when it cannot be read. Only after use_emulator().
std::string describe_code_object(const std::string& bytes);

}  // namespace tessera::runtime
