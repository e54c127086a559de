// The contract between emitted CPU kernels and the program that calls them. Plain C layout; a
// change here raises the ABI number of every family (Family::abi).
#pragma once

#include "tessera/device/integers.h"

namespace tessera::device {

// One thread's place in the team that runs a kernel.
struct CpuThread {
  int index;
  int count;
  void* workspace;                 // shared by the team, workspace_bytes() long, 64-byte aligned
  void (*barrier)(void* context);  // waits for the whole team
  void* barrier_context;
};

// One entry of a kernel.
struct CpuEntry {
  // The bytes of workspace that the team needs for these arguments.
  i64 (*workspace_bytes)(const void* arguments, int threads);
  // Called by every thread of the team with the same arguments.
  void (*run)(const void* arguments, const CpuThread* thread);
};

// What a kernel exports under its own name: extern "C" const CpuKernel <name>. Entries are in the
// order of Source::entries; those that a kernel does not have are null.
inline constexpr int kMostCpuEntries = 2;
struct CpuKernel {
  int abi_version;  // the family's ABI number
  CpuEntry entries[kMostCpuEntries];
};

}  // namespace tessera::device
