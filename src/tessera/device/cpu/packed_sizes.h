// Sizes of the blocked GEMM that its estimate also uses.
#pragma once

namespace tessera::device {

inline constexpr long long kPartialBytes = 8 << 20;  // the most bytes of a thread's partial sums
// B streams past products of at most so many rows. For 32 groups of 8 rows (N 1536, K 2048, bf16)
// that took 0.85 times as long as packing B, for 32 of 12 rows 1.1 times.
inline constexpr int kFewRows = 8;
inline constexpr int kGrainWords = 16;  // the least part of k that is worth a thread, in words

}  // namespace tessera::device
