// Kernels with the tiles of Intel AMX on machines without them: the processor's "illegal
// instruction" is answered by doing what the instruction does, so that tests run the machine code
// that a machine with tiles runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tessera/spec/target.h"

namespace tessera::tile_emulator {

// A tile: 16 rows of 16 words of 32 bits.
using Tile = std::array<std::array<std::uint32_t, 16>, 16>;

// TDPBSSD and TDPBF16PS of Intel 64 and IA-32 SDM vol. 2: sum += a x b. The second needs FMA.
void add_int8(Tile& sum, const Tile& a, const Tile& b);
void add_bf16(Tile& sum, const Tile& a, const Tile& b);

// Whether the processor has tiles and this process may use them; then nothing is emulated.
bool has_tiles();

// `machine`, an AVX-512 machine, with the shipped row's instructions on tiles and with the pipeline
// `amx` alone. From then on this process emulates tiles unless the machine has them.
inline constexpr std::string_view kName = "emulatedtiles";
Target target(const Target& machine);

}  // namespace tessera::tile_emulator
