// The multiply instruction of a warpgroup, whose operands lie in shared memory or in registers.
#pragma once

#include "tessera/device/cuda/types.h"

namespace tessera::device {

// Where an operand comes from: lines of shared memory along k, or along its rows (16-bit types
// only), or, P alone, registers.
enum class WgmmaFrom { k_lines, row_lines, registers };

// One instruction: 64 rows of P by kColumns of Q over 32 bytes of k. Inline assembly wants its
// operands written out with literal numbers, so that the emitted text specialises those that a
// kernel uses, each with
//   using Acc = ...;
//   static void multiply(Acc (&d)[kColumns / 2], p, u64 q, int accumulate);  // d (+)= p x q
// where q is a matrix descriptor. p is one, too, or const u32 (&)[4], a thread's part of P: thread
// t of a warp holds 4 bytes of row t / 4 from byte t % 4 * 4 of k, the same of row t / 4 + 8, and
// then both again 16 bytes further along k.
template <class P, class Q, int kColumns, WgmmaFrom kP, WgmmaFrom kQ>
struct Wgmma;

}  // namespace tessera::device
