// Host operands for a problem, filled at random, with outputs that show what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/runtime/runtime.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/problem.h"

namespace tessera::measure {

// Operands and the memory they point into.
struct OwnedOperands {
  const Family* family = nullptr;
  Operands operands;
  Tensors tensors;
  // One for each tensor, with guard bytes before and after it, and one for each array of pointers.
  std::vector<runtime::AlignedBuffer> storage;
  std::vector<std::size_t> arrays;   // where storage holds pointers into others
  std::vector<std::size_t> outputs;  // the tensors that a launch writes
  // What storage holds of each output before a launch; empty where a launch does not read it.
  std::vector<runtime::AlignedBuffer> originals;
};

// Allocates and fills what the problem reads: never zero, floating point between 1/16 and 1 in
// magnitude, int8 over its whole range; the same seed gives the same bytes,
// however many threads fill them. Gaps between rows and
// batches and the bytes around an operand hold NaN (integers: 0x5a bytes), and so do outputs that
// are not read. Operands that the problem does not read or write are null; B is not packed, also
// when the problem has preshuffled_b set: see pack_b(). With pointer_arrays the batches lie in an
// order of the seed's.
OwnedOperands random_operands(const Problem& problem, std::uint64_t seed, int threads = 1);
OwnedOperands random_operands(const Family& family, const Problem& problem, std::uint64_t seed,
                              int threads = 1);

// Makes the outputs what they were before a launch: NaN (integers: 0x5a bytes), gaps and guard
// bytes included, and what a launch reads of them as it was.
void reset_outputs(OwnedOperands& owned);

// Empty when nothing outside the outputs' elements changed since they were reset; else a sentence
// that says how much and where first.
std::string gaps_intact(const OwnedOperands& owned);

// Packs B as the kernel wants it and lets `operands` point to the result, which the caller keeps.
// Does nothing (an empty buffer) unless the problem has preshuffled_b set.
runtime::DeviceBuffer pack_b(const runtime::LoadedKernel& kernel, const KernelSpec& spec,
                             const Problem& problem, Operands& operands,
                             const runtime::Place& place = runtime::host_place());

// Operands where the kernels of a place can reach them.
struct PlacedOperands {
  Operands operands;
  std::vector<runtime::DeviceBuffer> storage;  // empty where kernels take host pointers
};
// Copies what `owned` holds, guard bytes and poison included, unless the host's memory will do.
PlacedOperands place_operands(const OwnedOperands& owned, const runtime::Place& place);
// The outputs with their guards, to the place and, once the stream's work is done, back.
void send_outputs(const OwnedOperands& owned, PlacedOperands& placed, const runtime::Place& place);
void fetch_outputs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place);

// Some of the outputs' bytes, and the guards on both sides of each output.
void fetch_runs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place,
                std::span<const Reference::Run> runs);
// Makes the placed outputs what reset_outputs() makes the host's.
void reset_placed(PlacedOperands& placed, const OwnedOperands& owned, const runtime::Place& place);

// A caller's operands where the host can read them.
struct HostOperands {
  Tensors tensors;
  Operands operands;
  std::vector<runtime::AlignedBuffer> storage;  // empty where kernels take host pointers
};
// Before a launch: a copy of what it reads, and room for what it writes.
HostOperands fetch_inputs(const Family& family, const Problem& problem, const Operands& operands,
                          const runtime::Place& place);
// After it: waits for the stream and brings what it wrote to where `host` has it.
void fetch_results(const Family& family, const Operands& operands, const runtime::Place& place,
                   HostOperands& host);

// The problem that the reference computes: the same with B as the user has it, not packed.
Problem unpacked(const Problem& problem);

}  // namespace tessera::measure
