// The multiply instruction of a warpgroup, whose operands lie in shared memory or in registers.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

// The source of an operand: lines of shared memory along k, lines along its rows (16-bit types
// only), or, for P only, registers.
enum class WgmmaFrom { k_lines, row_lines, registers };

// One instruction: 64 rows of P by kColumns of Q over 32 bytes of k. Inline assembly needs its
// operands written out with literal numbers. So the emitted text specialises the instructions that
// a kernel uses. Each specialisation has
//   using Acc = ...;
//   static void multiply(Acc (&d)[kColumns / 2], p, u64 q, int accumulate);  // d (+)= p x q
// where q is a matrix descriptor. p is a matrix descriptor or const u32 (&)[4], a thread's part of
// P. Thread t of a warp holds 4 bytes of row t / 4 from byte t % 4 * 4 of k on, the same bytes of
// row t / 4 + 8, and then both again 16 bytes further along k.
template <class P, class Q, int kColumns, WgmmaFrom kP, WgmmaFrom kQ>
struct Wgmma;

}  // namespace tessera::device
