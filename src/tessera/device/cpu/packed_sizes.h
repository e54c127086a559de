// The sizes of the blocked GEMM that its estimate knows too.
#pragma once

namespace tessera::device {

inline constexpr long long kPartialBytes = 8 << 20;  // of a thread's partial sums
inline constexpr int kGrainWords = 16;               // of k, the least that is worth a thread

}  // namespace tessera::device
