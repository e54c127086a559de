// The one device of an emulated HIP: its memory, its modules, and what its launches found.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cdna_emulator/launch.h"

namespace tessera::cdna_emulator {

// A part of memory with room around it that nothing is in, so that accesses outside are found.
struct Region {
  u64 mapped = 0, mapped_bytes = 0;
};

struct LoadedModule;
struct LoadedKernel {
  LoadedModule* module = nullptr;
  const Kernel* kernel = nullptr;
};
struct LoadedModule {
  Program program;
  Image image;
  std::map<std::string, LoadedKernel> kernels;
};

struct World {
  std::mutex mutex;
  const Target* target = nullptr;  // null: TESSERA_EMULATED_TARGET names none
  Memory memory;
  std::map<u64, Region> regions;  // by their first address
  std::map<LoadedModule*, std::unique_ptr<LoadedModule>> modules;
  Statistics statistics;
  u64 findings = 0;
  std::string finding;  // the last one
};
World& world();

// 0 where there is no memory.
u64 allocate(World& world, u64 bytes);
bool release(World& world, u64 address);
// Whether the device has these bytes.
bool holds(const World& world, u64 address, u64 bytes);
// Throws Finding for what is no code object of the device's target. The image is as long as its ELF
// header says.
LoadedModule* load(World& world, const void* image);

}  // namespace tessera::cdna_emulator
