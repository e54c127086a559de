// Which blocks of keys some queries see.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

// The keys that some query of a range sees, [0, sink) and [begin, end), and those that all of them
// see, [0, all_sink) and [all_begin, all_end). A block has kKeys keys.
template <int kKeys>
struct FmhaKeyRange {
  i64 sink, begin, end;
  i64 all_sink, all_begin, all_end;
  __device__ __forceinline__ bool has_some(i64 key) const {
    return key < sink || (key + kKeys > begin && key < end);
  }
  __device__ __forceinline__ bool has_all(i64 key) const {
    return key + kKeys <= all_sink || (key >= all_begin && key + kKeys <= all_end);
  }
};

// The range of keys that the queries [from, to] see.
template <bool kMasked, int kKeys>
__device__ __forceinline__ FmhaKeyRange<kKeys> key_range(const FmhaArguments& g,
                                                         const FmhaSequence& s, i64 from, i64 to) {
  const FmhaKeys low = keys_of<kMasked>(g, s, from);
  const FmhaKeys high = keys_of<kMasked>(g, s, to);
  return {high.sink, low.begin, high.end, low.sink, high.begin, low.end};
}

}  // namespace tessera::device
