// Runs a kernel over a grid.
#pragma once

#include <array>
#include <span>

#include "program.h"

namespace tessera::cdna_emulator {

// A code object's image in this process's memory, where kernels find their constants.
struct Image {
  std::vector<u8> bytes;
  u64 address = 0;
};
// Its segments become allocations of `memory`.
Image load_image(const CodeObject& object, Memory& memory);

struct Launch {
  std::array<u32, 3> grid{1, 1, 1};   // workgroups
  std::array<u32, 3> block{1, 1, 1};  // threads
  std::span<const u8> arguments;      // without the hidden ones
  u32 dynamic_lds_bytes = 0;
  u32 read_banks = 0;                    // that serve reads of LDS: 32, 64, or 0 as the target has
  unsigned threads = 0;                  // that run workgroups; 0: as many as there are processors
  u64 most_instructions = u64{1} << 33;  // of a workgroup, before it is said to run for ever
};

struct Outcome {
  Finding finding;  // the first one, by the number of the workgroup; `none` where all was right
  u64 races = 0;
  Statistics statistics;
};
// The result is the same however many threads there are. Workgroups of a program with atomics on
// global memory, which may wait for each other, run in turns on one thread.
Outcome run(const Program& program, const Image& image, const Kernel& kernel, const Memory& memory,
            const Launch& launch);

}  // namespace tessera::cdna_emulator
