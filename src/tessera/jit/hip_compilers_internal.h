// What the row of AMD's compilers needs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/jit/toolchain.h"

namespace tessera::jit {

inline constexpr const char* kCodeObject = "kernel.hsaco";
inline constexpr unsigned kAmdGpuMachine = 224;

std::vector<std::string> hip_command(const Toolchain& compiler, const Target& target,
                                     const Source& source);

// The numbers that the notes of a code object state about the kernel `name`: registers of a lane
// (accumulation registers among them), spilled registers, bytes of stack and LDS. Empty when there
// is no such kernel.
std::map<std::string, std::int64_t> code_object_facts(std::string_view binary,
                                                      std::string_view name);

}  // namespace tessera::jit
