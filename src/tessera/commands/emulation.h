// What the emulator of AMD's GPUs says, as text, and the assembly of a kernel for them.
#pragma once

#include "tessera/commands/console.h"
#include "tessera/tools.hpp"

namespace tessera::commands {

// The totals of runtime::emulator_report().
std::string emulation_text(const Json& report);

// Prints a kernel's instructions with their counts, its registers and spills, and the cycles of LDS
// when the emulator runs it on the first problem that verify tries. 1 when that run fails. Throws
// Error{unsupported} for a target that is not AMD's.
int show_assembly(const KernelSpec& spec, const Target& target, const Console& console);

}  // namespace tessera::commands
