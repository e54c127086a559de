// Host operands for a problem, filled at random, with an output that shows what was written.
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
  Operands operands;
  std::vector<runtime::AlignedBuffer> storage;
  std::size_t output = 0;  // storage[output] holds out, with guard bytes before and after it
  std::vector<std::size_t> arrays;  // with pointer_arrays: where storage holds pointers into others
};

// Allocates and fills what the problem reads: never zero, floating point between 1/16 and 1 in
// magnitude, int8 over its whole range; the same seed gives the same bytes,
// however many threads fill them. Gaps between rows and
// batches and the bytes around an operand hold NaN (integers: 0x5a bytes), and so does the output.
// C is null when beta is 0; B is not packed, also when the problem has preshuffled_b set: see
// pack_b(). With pointer_arrays the batches lie in an order of the seed's. Throws
// Error{unsupported} for operations other than GEMM.
OwnedOperands random_operands(const Problem& problem, std::uint64_t seed, int threads = 1);

// Fills the output, its gaps and its guard bytes with NaN (integers: 0x5a bytes).
void poison_output(const Problem& problem, OwnedOperands& owned);

// Empty when nothing outside the output's m x n windows changed since it was poisoned; else a
// sentence that says how much and where first.
std::string gaps_intact(const Problem& problem, const OwnedOperands& owned);

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
// The output with its guards, to the place and, once the stream's work is done, back.
void send_output(const OwnedOperands& owned, PlacedOperands& placed, const runtime::Place& place);
void fetch_output(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place);

// Some of the output's bytes, offsets counted from the operand itself, and the guards on both
// sides.
void fetch_runs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place,
                std::span<const Reference::Run> runs);
// Fills the placed output, its gaps and its guards as poison_output() fills the host's.
void poison_placed(const Problem& problem, PlacedOperands& placed, const OwnedOperands& owned,
                   const runtime::Place& place);
// Whether the output's rows or batches have bytes between them.
bool has_gaps(const Problem& problem);

// What the reference needs of a launch on the caller's operands.
struct SavedOperands {
  Operands operands;  // host pointers
  std::vector<runtime::AlignedBuffer> storage;
};
// Before the launch. Of operands in the host's memory only those of C and D are copied that the
// launch would write over; all of a device's are.
SavedOperands save_inputs(const Problem& problem, const Operands& operands,
                          const runtime::Place& place);
// After it: waits for the stream and brings the result to where `saved` has it.
void fetch_result(const Problem& problem, const Operands& operands, const runtime::Place& place,
                  SavedOperands& saved);

// The problem that the reference computes: the same with B as the user has it, not packed.
Problem unpacked(const Problem& problem);

}  // namespace tessera::measure
