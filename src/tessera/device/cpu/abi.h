// The contract between emitted CPU kernels and the program that calls them. Plain C layout; a
// change here raises kCpuAbiVersion, and kAbiVersion in src/tessera/jit/toolchain.h with it.
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// Written into every kernel and checked when it is loaded.
inline constexpr int kCpuAbiVersion = 4;

// One thread's place in the team that runs a kernel.
struct CpuThread {
  int index;
  int count;
  void* workspace;                 // shared by the team, workspace_bytes() long, 64-byte aligned
  void (*barrier)(void* context);  // waits for the whole team
  void* barrier_context;
};

// What a kernel exports under its own name: extern "C" const CpuKernel <name>.
struct CpuKernel {
  int abi_version;
  // Bytes that the team needs for these arguments.
  i64 (*workspace_bytes)(const void* arguments, int threads);
  // Called by every thread of the team with the same arguments.
  void (*run)(const void* arguments, const CpuThread* thread);
  // Preshuffle: size of the packed operand, and the packing itself. Null elsewhere.
  i64 (*packed_bytes)(const void* arguments);
  void (*pack)(const void* arguments, void* packed);
};

}  // namespace tessera::device
