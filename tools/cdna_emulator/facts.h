// What a code object says of a kernel, and what its runs counted, for people and as JSON.
#pragma once

#include <map>
#include <string>

#include "program.h"

namespace tessera::cdna_emulator {

// Instructions by what runs them. Powers of two count apart from other vector instructions, because
// they take four times as long.
struct Kinds {
  u64 mfma = 0, vector = 0, exp = 0, scalar = 0, lds = 0, memory = 0;
};
void count(Kinds& kinds, std::string_view name, u64 times);

// A loop that multiplies by MFMA and holds no other such loop, as it stands in the code: what is
// seldom executed counts like the rest.
struct Loop {
  Kinds kinds;
  std::vector<i32> vm_left;  // what each wait for loads leaves under way
};

struct Facts {
  std::string name, target;
  u32 vgprs = 0, agprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
  u32 lds_bytes = 0, scratch_bytes = 0, argument_bytes = 0, max_threads = 0;
  u64 code_bytes = 0, instructions = 0, uncovered = 0;
  std::map<std::string, u64> mfmas;  // in the code, by name
  std::vector<Loop> loops;
};
Facts facts_of(const Program& program, const Kernel& kernel);
// The kernel's part of the disassembly, a line an instruction.
std::string listing_of(const Program& program, const Kernel& kernel);

std::string to_text(const Facts& facts);
// With `listing` where that is not empty.
std::string to_json(const Facts& facts, const std::string& listing = "");
// MFMAs by name and the other counts; `findings` is how many launches had one.
std::string to_json(const Statistics& statistics, u64 findings);

}  // namespace tessera::cdna_emulator
