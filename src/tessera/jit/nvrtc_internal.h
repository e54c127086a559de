// The numbers that the assembler states about a cubin.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera::jit {

// Registers, stack, spills, barriers and static shared memory of the kernel `name`, from the log of
// a compilation with --ptxas-options=-v. Empty when the log says nothing about it.
std::map<std::string, std::int64_t> cubin_facts(std::string_view log, std::string_view name);

}  // namespace tessera::jit
