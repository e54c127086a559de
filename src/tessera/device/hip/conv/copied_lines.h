// The first step of convolutions that copy their operands (repack_arguments.h): a lane makes a
// chunk of 16 bytes of channels.
#pragma once

#include "tessera/device/hip/conv/repack_arguments.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

template <class T, class Arguments>
struct ConvCopies {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));

  static __device__ __forceinline__ u32 take(u32& index, int size) {
    const u32 rest = index / static_cast<u32>(size);
    const u32 digit = index - rest * static_cast<u32>(size);
    index = rest;
    return digit;
  }
  static __device__ __forceinline__ u32 chunks_of(const HipConvCopy& copy) {
    u32 all = static_cast<u32>(copy.chunks);
#pragma unroll
    for (int i = 0; i < 5; ++i) all *= static_cast<u32>(copy.sizes[i]);
    return all;
  }

  static __device__ __forceinline__ void move(const HipConvCopy& copy, u64 workspace, u32 index) {
    u32 digits[5];
    u32 chunk = 0;
    if (copy.across != 0) {
      digits[3] = take(index, copy.sizes[3]);
      chunk = take(index, copy.chunks);
      digits[4] = take(index, copy.sizes[4]);
    } else {
      chunk = take(index, copy.chunks);
      digits[4] = take(index, copy.sizes[4]);
      digits[3] = take(index, copy.sizes[3]);
    }
    digits[2] = take(index, copy.sizes[2]);
    digits[1] = take(index, copy.sizes[1]);
    digits[0] = index;
    i64 line = 0;
#pragma unroll
    for (int i = 0; i < 5; ++i) line = line * copy.sizes[i] + digits[i];
    *(Chunk*)(workspace + static_cast<u64>(copy.to) +
              static_cast<u64>(line * copy.chunks + chunk) * 16) =
        gather(copy, digits, static_cast<int>(chunk) * kElements);
  }

  // The channels from `first` on of a line.
  static __device__ __forceinline__ Chunk gather(const HipConvCopy& copy, u32 (&digits)[5],
                                                 int first) {
    const bool exists = static_cast<int>(digits[1]) < copy.rows;
    int own_group = -1;  // of filters
    i64 at = 0;
    if (copy.is_filter != 0) {
      own_group = static_cast<int>(digits[1]) / copy.rows_of_group;
      at = own_group * copy.row_group_stride;
      digits[1] -= static_cast<u32>(own_group * copy.rows_of_group);
    }
#pragma unroll
    for (int i = 0; i < 5; ++i) at += digits[i] * copy.strides[i];
    int group = first / copy.of_group, channel = first - group * copy.of_group;
    constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
    const auto from = (Global<WordBits<T>>)copy.from + at;
    Chunk words = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const bool is_own = own_group < 0 || group == own_group;
      u32 element = 0;
      if (exists && is_own && first + i < copy.channels) {
        element = from[group * copy.group_stride + channel * copy.channel_stride];
      }
      words[i / kPerWord] |= element << 32 / kPerWord * (i % kPerWord) % 32;
      const bool is_last = ++channel == copy.of_group;
      group += is_last ? 1 : 0, channel = is_last ? 0 : channel;
    }
    return words;
  }

  static __device__ __forceinline__ void run() {
    const Arguments& g = fresh_arguments<Arguments>();
    const u64 workspace = bits<u64>(g.conv.product.workspace);
    const u32 index =
        __builtin_amdgcn_workgroup_id_x() * kHipCopyLanes + __builtin_amdgcn_workitem_id_x();
    const u32 first = chunks_of(g.copies[0]);
    if (index < first) {
      move(g.copies[0], workspace, index);
    } else if (index - first < chunks_of(g.copies[1])) {
      move(g.copies[1], workspace, index - first);
    }
  }
};

}  // namespace tessera::device
