// The matrix instructions of the target, MFMA or WMMA, with the layout of their operands and sums.
//
// MatrixOp<First, Second, kSide>::step(part, first, second, sums) multiplies part `part` of kParts
// of what a lane holds. It has
//   Lane, kLaneChunks          chunks of 16 bytes along k that a lane holds of each operand
//   kGroups, group_of_k()      groups of lanes that hold different k, and the group of a lane
//   row_of_first()             the row of First that a lane holds; of Second it is lane % kSide
//   read(f)                    the lane's chunks, f(i) being the one i chunks after the group's
//   Sum                        a lane's sums; they are of row lane % kSide of Second
//   first_quad(), more_quads() where quads of them belong: quad s, counted in quads of columns of
//                              First, is number first_quad(lane) + more_quads(s); no bit is set in
//                              both
// k may come in any order when it is the same in both operands.
#pragma once

#if defined(__GFX11__) || defined(__GFX12__)
#include "tessera/device/hip/wmma.h"
#else
#include "tessera/device/hip/mfma.h"
#endif

namespace tessera::device {

#if defined(__GFX11__) || defined(__GFX12__)
template <class First, class Second, int kSide>
using MatrixOp = Wmma<First, Second, kSide>;
#else
template <class First, class Second, int kSide>
using MatrixOp = Mfma<First, Second, kSide>;
#endif

}  // namespace tessera::device
