// New keys and values into a cache, and attention over it in a later step.
//
// Launch: the entry `append` as append_fmha.h says, then `run` as the attention's header says.
#pragma once

#include "tessera/device/hip/fmha/append_fmha.h"

namespace tessera::device {

struct AppendedBefore {
  static __device__ __forceinline__ const HipAppendArguments& arguments() {
    return fresh_arguments<HipExtendArguments>().append;
  }
};

template <template <class> class Attention>
struct ExtendFmha {
  // C is the configuration of the attention, C::Append configures the appending.
  template <class C>
  struct Of {
    static __device__ __forceinline__ void run(const HipExtendArguments& all) {
      Attention<C>::run(all.attention);
    }
    static __device__ __forceinline__ void append(const HipExtendArguments& all) {
      AppendFmha<typename C::Append, AppendedBefore>::run(all.append);
    }
    static __device__ __forceinline__ void check(const HipExtendArguments& all) {
      Attention<C>::check(all.attention);
    }
  };
};

}  // namespace tessera::device
