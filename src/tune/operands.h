// Host operands for a problem, filled at random, with an output that shows what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/runtime/runtime.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/problem.h"

namespace tessera::tune {

// Operands and the memory they point into.
struct OwnedOperands {
  Operands operands;
  std::vector<runtime::AlignedBuffer> storage;
  std::size_t output = 0;  // storage[output] holds out, with guard bytes before and after it
};

// Allocates and fills what the problem reads: never zero, floating point between 1/16 and 1 in
// magnitude, int8 over its whole range; the same seed gives the same bytes. Gaps between rows and
// batches and the bytes around an operand hold NaN (integers: 0x5a bytes), and so does the output.
// C is null when beta is 0; B is not packed, also when the problem has preshuffled_b set: see
// pack_b(). Throws Error{unsupported} for operations other than GEMM.
OwnedOperands random_operands(const Problem& problem, std::uint64_t seed);

// Fills the output, its gaps and its guard bytes with NaN (integers: 0x5a bytes).
void poison_output(const Problem& problem, OwnedOperands& owned);

// Empty when nothing outside the output's m x n windows changed since it was poisoned; else a
// sentence that says how much and where first.
std::string gaps_intact(const Problem& problem, const OwnedOperands& owned);

// Packs B as the kernel wants it and lets `operands` point to the result, which the caller keeps.
// Does nothing (an empty buffer) unless the problem has preshuffled_b set.
runtime::AlignedBuffer pack_b(const runtime::LoadedKernel& kernel, const KernelSpec& spec,
                              const Problem& problem, Operands& operands);

// Copies those of C and D that the launch would write over and lets `operands` point to the copies,
// which the caller keeps.
std::vector<runtime::AlignedBuffer> save_overwritten(const Problem& problem, Operands& operands);

// The problem that the reference computes: the same with B as the user has it, not packed.
Problem unpacked(const Problem& problem);

}  // namespace tessera::tune
