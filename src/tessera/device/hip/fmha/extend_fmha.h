// New keys and values into a cache, and attention over it in a later step.
//
// Launch: the entry `append` as append_fmha.h says, then `run` as the attention's header says.
#pragma once

#include "tessera/device/hip/fmha/append_fmha.h"

namespace tessera::device {

template <class Arguments>
struct AppendedBefore {
  static __device__ __forceinline__ const HipAppendArguments& arguments() {
    return fresh_arguments<HipExtendArguments<Arguments>>().append;
  }
};

template <template <class> class Attention>
struct ExtendFmha {
  // C is the configuration of the attention, C::Append configures the appending. Arguments are
  // those of the attention.
  template <class C>
  struct Of {
    template <class Arguments>
    static __device__ __forceinline__ void run(const HipExtendArguments<Arguments>& all) {
      Attention<C>::run(all.attention);
    }
    template <class Arguments>
    static __device__ __forceinline__ void merge(const HipExtendArguments<Arguments>& all) {
      Attention<C>::merge(all.attention);
    }
    template <class Arguments>
    static __device__ __forceinline__ void append(const HipExtendArguments<Arguments>& all) {
      AppendFmha<typename C::Append, AppendedBefore<Arguments>>::run(all.append);
    }
    template <class Arguments>
    static __device__ __forceinline__ void check(const HipExtendArguments<Arguments>& all) {
      Attention<C>::check(all.attention);
    }
  };
};

}  // namespace tessera::device
