// Sums of grouped kernels by w that several blocks have parts of. The blocks leave them in the
// workspace, meet at a counter, and each adds up a share of all parts.
#pragma once

#include "tessera/device/cuda/conv/grouped_exact.h"
#include "tessera/device/cuda/slice_meeting.h"

namespace tessera::device {

// Sums lie as warps have them, in the workspace as [part][block][vector][lane][4]. A vector are the
// sums of a warp for 16 rows and 8 columns, as mma leaves them. `kThreads` threads of a block meet.
template <class C, int kThreads, int kBlockVectors>
struct GroupedParts {
  using PartMeeting = Meeting<kThreads, 8>;
  static constexpr int kBytes = kBlockVectors * 32 * 16;

  const GroupedArguments& g;
  int own_block;  // counts the blocks of a part
  int part;
  int thread;

  __device__ __forceinline__ i64 blocks() const {
    return i64{g.unit_blocks} * g.product_blocks * g.column_parts;
  }
  __device__ __forceinline__ char* sums_of(int of_part) const {
    return static_cast<char*>(g.workspace) + g.partial_sums +
           (of_part * blocks() + own_block) * kBytes + thread % 32 * 16;
  }
  __device__ __forceinline__ void leave(int vector, const float (&sums)[4]) const {
    store_global(sums_of(part) + vector * 512, sums);
  }

  // Finishes an element of a product's filter, if it exists.
  static __device__ __forceinline__ void finish(const GroupedArguments& g, int product, int tap,
                                                int row, int column, float sum) {
    const i64* const stride = g.conv.w_stride;
    int of_c = 0, of_k = 0;
    if (g.together > 1) {
      of_c = row / static_cast<int>(g.conv.c);
      of_k = column / static_cast<int>(g.conv.k);
    }
    const int group = product * g.together + of_c;
    const i64 k = column - of_k * g.conv.k;
    const i64 c = row - of_c * g.conv.c;
    if (of_c != of_k || group >= static_cast<int>(g.conv.groups)) return;
    if (sum != sum) sum = GroupedExact<C>{g.conv}.filter_sum(group, k, c, tap);
    const ConvResultArguments arguments = conv_result_arguments(g.conv);
    ConvResult<C>(arguments, 0)
        .store(group * stride[kFilterG] + k * stride[kFilterK] + c * stride[kFilterC] +
                   g.tap[tap].filter,
               0, sum);
  }

  // Adds up what all parts left; `end(vector, sums)` gets the sums of a lane.
  template <class End>
  __device__ __forceinline__ void add(const End& end) const {
    const PartMeeting meeting = {
        static_cast<u32*>(g.workspace) + own_block, part, g.parts, 1, thread, g.waits != 0};
    const SliceShares shares = meeting.shares();
#pragma unroll 1
    for (int share = shares.first; share < shares.last; ++share) add_share(share, end);
    threads_sync(1, kThreads);
    meeting.end(shares);
  }

 private:
  // The parts are added in their order. A warp waits for several vectors of several parts at a
  // time.
  template <class End>
  __device__ __forceinline__ void add_share(int share, const End& end) const {
    constexpr int kTogether = 4, kAhead = 4, kWarps = kThreads / 32;
    const int last = kBlockVectors * (share + 1) / g.parts;
    const i64 distance = blocks() * kBytes;
#pragma unroll 1
    for (int vector = kBlockVectors * share / g.parts + thread / 32; vector < last;
         vector += kTogether * kWarps) {
      const char* from = sums_of(0) + vector * 512;
      float sums[kTogether][4] = {};
#pragma unroll 1
      for (int first = 0; first < g.parts; first += kAhead) {
        float next[kAhead][kTogether][4] = {};
#pragma unroll
        for (int i = 0; i < kAhead * kTogether; ++i) {
          const int part = i / kTogether;
          const int v = i % kTogether;
          if (first + part < g.parts && vector + v * kWarps < last) {
            load_global(from + part * distance + v * (kWarps * 512), next[part][v]);
          }
        }
        from += kAhead * distance;
#pragma unroll
        for (int i = 0; i < kAhead * kTogether * 4; ++i) {
          sums[i / 4 % kTogether][i % 4] += next[i / 4 / kTogether][i / 4 % kTogether][i % 4];
        }
      }
#pragma unroll 1
      for (int v = 0; v < kTogether && vector + v * kWarps < last; ++v) {
        const float own[4] = {sums[0][0], sums[0][1], sums[0][2], sums[0][3]};
        end(vector + v * kWarps, own);
        // The next one comes to where the text of one vector finds it.
#pragma unroll
        for (int i = 0; i + 1 < kTogether; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][e] = sums[i + 1][e];
        }
      }
    }
  }
};

}  // namespace tessera::device
