// Sizes of the blocked GEMM that its estimate also uses.
#pragma once

namespace tessera::device {

inline constexpr long long kPartialBytes = 8 << 20;  // the most bytes of a thread's partial sums
inline constexpr int kGrainWords = 16;  // the least part of k that is worth a thread, in words

}  // namespace tessera::device
