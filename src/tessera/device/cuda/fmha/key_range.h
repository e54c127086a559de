// Which blocks of keys some queries see.
#pragma once

#include "tessera/device/integers.h"

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

}  // namespace tessera::device
