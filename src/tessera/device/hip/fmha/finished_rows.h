// 32 finished rows of a wave on their way to memory. They go through LDS, so that lanes store 16
// bytes of neighbours each. A lane has the sums of one row: lanes l and l + 32 the ones of row l,
// as Mfma leaves them.
#pragma once

#include "tessera/device/hip/lds_tile.h"
#include "tessera/device/hip/types.h"

namespace tessera::device {

template <class Out, int kElements>
struct FinishedRows {
  static constexpr int kChunks = kElements / 8;
  using Staging = LdsTile<32, kChunks, 1>;
  static constexpr int kBytes = Staging::kBytes;
  using Sum = Vec<float, 16>;

  // The sums times `factor`, rounded.
  static __device__ __forceinline__ void put(Shared* staging, const Sum (&sums)[kElements / 32],
                                             float factor, int lane) {
    const int row = lane % 32;
    // The half of a chunk that the lane writes: rows whose chunks share banks differ in it.
    const int half = (lane / 32 ^ (row >> 3 & 1)) * 8;
#pragma unroll
    for (int d = 0; d < kElements / 32; ++d) {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const Sum& all = sums[d];
        const Float4 quad = {all[4 * s], all[4 * s + 1], all[4 * s + 2], all[4 * s + 3]};
        store_shared(staging + Staging::offset(row, 0, 0, d * 4 + s) + half,
                     round_quad<Out>(quad * factor));
      }
    }
  }

  // The first `rows` rows and `chunks` chunks to `out`, the first row's address.
  static __device__ __forceinline__ void store(const Shared* staging, Out* out, i64 pitch, int rows,
                                               int chunks, int lane) {
#pragma unroll 1
    for (int i = lane; i < 32 * kChunks; i += 64) {
      const int row = i / kChunks, chunk = i % kChunks;
      const Chunk both = load_shared<Chunk>(staging + Staging::place(row, chunk) * 16);
      const bool turned = (row >> 3 & 1) != 0;
      if (row < rows && chunk < chunks) {
        *reinterpret_cast<Chunk*>(out + row * pitch + chunk * 8) =
            turned ? Chunk{both[2], both[3], both[0], both[1]} : both;
      }
    }
  }
};

}  // namespace tessera::device
