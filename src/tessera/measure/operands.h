// Random operands for a problem in host memory, with outputs that show every byte that was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/families/family.h"
#include "tessera/runtime/runtime.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/problem.h"

namespace tessera::measure {

// Operands and the memory they point into.
struct OwnedOperands {
  const Family* family = nullptr;
  Operands operands;
  Tensors tensors;
  Fp8Encoding fp8 = Fp8Encoding::ocp;
  // One buffer for each tensor, with guard bytes on both sides, and one for each array of pointers.
  std::vector<runtime::AlignedBuffer> storage;
  std::vector<std::size_t> arrays;   // the buffers of `storage` that hold pointers to others
  std::vector<std::size_t> outputs;  // the tensors that a launch writes
  // The content of each output before a launch; empty when a launch does not read the output.
  std::vector<runtime::AlignedBuffer> originals;
};

// Allocates the operands and fills those that the problem reads. No element is zero; floating-point
// magnitudes lie between 1/16 and 1, int8 covers its whole range; Fill says what the others hold,
// and some lengths are 0. The same seed gives the same bytes with any number of threads. Gaps
// between rows and batches, the bytes around an operand, and outputs that are not read hold NaN
// (integers: 0x5a bytes). Operands that the problem neither reads nor writes are null. B is never
// packed, even when the problem has preshuffled_b set, see pack_b(). With pointer_arrays, the seed
// decides the order in which batches lie in memory. `fp8` is the encoding of the target that will
// read them.
OwnedOperands random_operands(const Problem& problem, std::uint64_t seed, int threads = 1,
                              Fp8Encoding fp8 = Fp8Encoding::ocp);
OwnedOperands random_operands(const Family& family, const Problem& problem, std::uint64_t seed,
                              int threads = 1, Fp8Encoding fp8 = Fp8Encoding::ocp);

// Restores the outputs to their content before a launch: NaN (integers: 0x5a bytes), with gaps and
// guard bytes, or the original elements where a launch reads them.
void reset_outputs(OwnedOperands& owned);

// Empty when no byte outside of the outputs' elements has changed since they were reset. Otherwise
// a sentence that says how many bytes changed and where the first one lies.
std::string gaps_intact(const OwnedOperands& owned);

// Packs an operand as the kernel wants it and lets `operands` point to the result, which the caller
// keeps. Does nothing (an empty buffer) unless the kernel reads an operand that is packed ahead.
runtime::DeviceBuffer pack_operand(const runtime::LoadedKernel& kernel, const KernelSpec& spec,
                                   const Problem& problem, const Target& target, Operands& operands,
                                   const runtime::Place& place = runtime::host_place());

// Operands where the kernels of a place can reach them.
struct PlacedOperands {
  Operands operands;
  std::vector<runtime::DeviceBuffer> storage;  // empty when kernels take host pointers
};
// Copies the operands, with guard bytes and NaN, to the place, unless its kernels use host memory.
PlacedOperands place_operands(const OwnedOperands& owned, const runtime::Place& place);
// Copy the outputs with their guard bytes to the place, and back once the stream's work is done.
void send_outputs(const OwnedOperands& owned, PlacedOperands& placed, const runtime::Place& place);
void fetch_outputs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place);

// Copies some bytes of the outputs back, and the guard bytes of each output.
void fetch_runs(OwnedOperands& owned, const PlacedOperands& placed, const runtime::Place& place,
                std::span<const Reference::Run> runs);
// Does to the placed outputs what reset_outputs() does to the host's.
void reset_placed(PlacedOperands& placed, const OwnedOperands& owned, const runtime::Place& place);

// A caller's operands in memory that the host can read.
struct HostOperands {
  Tensors tensors;
  Operands operands;
  std::vector<runtime::AlignedBuffer> storage;  // empty when kernels take host pointers
  // For each tensor in an array, the bytes of each batch that were copied; see Family::batch_bytes.
  std::vector<std::vector<std::size_t>> batch_bytes;
};
// Before a launch: copies the operands that it reads, and allocates room for those that it writes.
HostOperands fetch_inputs(const Family& family, const Problem& problem, const Operands& operands,
                          const runtime::Place& place);
// After the launch: waits for the stream and copies the outputs to `host`.
void fetch_results(const Family& family, const Operands& operands, const runtime::Place& place,
                   HostOperands& host);

// The same where the caller's memory may change before it is read: copies in any case. The results
// lie beside the inputs, which stay as they were.
HostOperands copy_inputs(const Family& family, const Problem& problem, const Operands& operands,
                         const runtime::Place& place);
HostOperands copy_results(const Family& family, const Operands& operands,
                          const runtime::Place& place, const HostOperands& inputs);

}  // namespace tessera::measure
