// New keys and values into a cache on a GPU, and attention over it in a later step.
//
// Launch: the entry `append` as append_fmha.h says, then `run` as the attention's header says.
#pragma once

#include "tessera/device/cuda/fmha/append_fmha.h"

namespace tessera::device {

template <template <class> class Attention>
struct ExtendFmha {
  // C is the configuration of the attention, C::Append configures the appending.
  template <class C>
  struct Of {
    template <class Arguments>
    static __device__ __forceinline__ void run(const FmhaExtendArguments<Arguments>& g) {
      Attention<C>::run(g.attention);
    }
    template <class Arguments>
    static __device__ __forceinline__ void append(const FmhaExtendArguments<Arguments>& g) {
      FmhaAppendKernel<typename C::Append>::run(g.append);
    }
    template <class Arguments>
    static __device__ __forceinline__ void check(const FmhaExtendArguments<Arguments>& g) {
      Attention<C>::check(g.attention);
    }
  };
};

}  // namespace tessera::device
