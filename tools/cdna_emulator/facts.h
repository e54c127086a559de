// What a code object says of a kernel, and what its runs counted, for people and as JSON.
#pragma once

#include <map>
#include <string>

#include "program.h"

namespace tessera::cdna_emulator {

struct Facts {
  std::string name, target;
  u32 vgprs = 0, agprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
  u32 lds_bytes = 0, scratch_bytes = 0, argument_bytes = 0, max_threads = 0;
  u64 code_bytes = 0, instructions = 0, uncovered = 0;
  std::map<std::string, u64> mfmas;  // in the code, by name
};
Facts facts_of(const Program& program, const Kernel& kernel);
// The kernel's part of the disassembly, a line an instruction.
std::string listing_of(const Program& program, const Kernel& kernel);

std::string to_text(const Facts& facts);
std::string to_json(const Facts& facts);
// MFMAs by name and the other counts; `findings` is how many launches had one.
std::string to_json(const Statistics& statistics, u64 findings);

}  // namespace tessera::cdna_emulator
