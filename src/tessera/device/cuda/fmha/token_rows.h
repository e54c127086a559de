// Rows of tokens in device memory, of any strides and alignment and in pages of a cache, and how
// the threads of a block read them.
#pragma once

#include "tessera/device/cuda/vectors.h"
#include "tessera/device/fmha.h"

namespace tessera::device {

__device__ __forceinline__ bool aligned16(const void* p) {
  return reinterpret_cast<u64>(p) % 16 == 0;
}

// Tokens at equal distances. along(): whether the elements of a token are neighbours; aligned():
// whether all of their runs of 16 bytes are aligned, which begin at element(0), element(16 bytes),
// ... and whose elements are step() apart.
template <class T>
struct StridedTokens {
  const T* data;
  i64 token_stride, element_stride;
  __device__ __forceinline__ bool along() const { return element_stride == 1; }
  __device__ __forceinline__ bool aligned() const {
    return along() && aligned16(data) && token_stride * static_cast<i64>(sizeof(T)) % 16 == 0;
  }
  __device__ __forceinline__ const T* token(int row) const { return data + row * token_stride; }
  __device__ __forceinline__ i64 element(int index) const { return index * element_stride; }
  __device__ __forceinline__ i64 step() const { return element_stride; }
};

// Keys or values of a sequence from `first` on, in the pages of a cache.
template <class T, FmhaCacheLayout kLayout, bool kOfKeys>
struct PagedTokens {
  static constexpr bool kInRuns = kLayout == FmhaCacheLayout::vectorized;
  static constexpr int kRun = 16 / static_cast<int>(sizeof(T));
  const FmhaArguments& g;
  const FmhaSequence& s;
  i64 head, first;

  __device__ __forceinline__ const T* data() const {
    return static_cast<const T*>(kOfKeys ? g.k : g.v);
  }
  __device__ __forceinline__ const i64 (&stride() const)[kTokenStrides] {
    return kOfKeys ? g.k_stride : g.v_stride;
  }
  __device__ __forceinline__ bool along() const { return !kInRuns && step() == 1; }
  __device__ __forceinline__ bool aligned() const {
    if (kInRuns) return kOfKeys && aligned16(data());
    const i64 all = stride()[kTokenBatch] | stride()[kTokenHead] | stride()[kToken];
    return along() && aligned16(data()) && all * static_cast<i64>(sizeof(T)) % 16 == 0;
  }
  // The rows behind the last one take the place of the last one.
  __device__ __forceinline__ const T* token(int row) const {
    const FmhaSlot slot = slot_of(g, first + row < s.keys ? first + row : s.keys - 1);
    const i64 page = page_of(g, s, slot.entry);
    if (kOfKeys) return data() + key_token(g, page, head, slot.token);
    return data() + value_token<kLayout>(g, page, head, slot.token, kRun);
  }
  __device__ __forceinline__ i64 element(int index) const {
    return kOfKeys ? key_element<kLayout>(g, index, kRun) : index * step();
  }
  __device__ __forceinline__ i64 step() const {
    return kOfKeys && kInRuns ? 1 : stride()[kTokenElement];
  }
};

// The elements of one head, a row for each token. What lies behind the last row and behind the end
// of a row reads as zeros.
template <class T, int kWarps, class Tokens = StridedTokens<T>>
struct TokenRows {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  using Run = Neighbours<T, kVector>;

  Tokens tokens;
  i64 rows;
  int hdim;

  // Calls put(row, element, run) for all runs of kRows rows of up to kHdim elements. The lanes of a
  // warp take runs of a row where its elements are neighbours in memory, and runs of different rows
  // where they are not: then tokens may be.
  template <int kRows, int kHdim, class Put>
  __device__ __forceinline__ void bring(int lane, int warp, Put put) const {
    constexpr int kRuns = (kHdim + kVector - 1) / kVector;
    constexpr int kLanes = kRuns > 16 ? 32 : kRuns > 8 ? 16 : kRuns > 4 ? 8 : kRuns > 2 ? 4 : 2;
    constexpr int kTogether = 32 / kLanes;  // rows of a warp
    const bool along = tokens.along(), aligned = tokens.aligned();
    const int first = along ? lane % kLanes : warp;
    const int step = along ? kLanes : kWarps;
#pragma unroll 1
    for (int row = along ? warp * kTogether + lane / kLanes : lane; row < kRows;
         row += along ? kWarps * kTogether : 32) {
      const T* const token = tokens.token(row);
#pragma unroll 1
      for (int element = first * kVector; element < hdim; element += step * kVector) {
        put(row, element, load(aligned, token, row < rows ? hdim - element : 0, element));
      }
    }
  }

 private:
  __device__ __forceinline__ Run load(bool aligned, const T* token, int left, int element) const {
    const T* const p = token + tokens.element(element);
    const i64 step = tokens.step();
    if (aligned && left >= kVector) return load_constants<kVector>(p, true, kVector);
    Run run = {};
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < left) run.x[i] = p[i * step];
    }
    return run;
  }
};

}  // namespace tessera::device
