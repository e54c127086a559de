// Neighbours in memory to and from floats, 16 bytes at a time where they are aligned.
#pragma once

#include "tessera/device/hip/memory.h"

namespace tessera::device {

template <class T>
using GlobalOut = __attribute__((address_space(1))) T*;

// kCount neighbours as they lie in memory.
template <class T, int kCount>
struct Neighbours {
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr int kBytes = kCount * kSize;
  static constexpr int kPart = kBytes < 16 ? kBytes : 16;  // that an access moves
  using Part = Vec<u32, kPart / 4>;
  u32 words[kBytes / 4];

  __device__ __forceinline__ void put(int i, u32 element) {
    words[i * kSize / 4] |= element << (i * kSize % 4 * 8);
  }
  __device__ __forceinline__ u32 element(int i) const {
    return words[i * kSize / 4] >> (i * kSize % 4 * 8);
  }
  __device__ __forceinline__ float at(int i) const { return float_of_bits<T>(element(i)); }
};

// Nothing that loads waits for the memory.

// All of them, aligned.
template <int kCount, class T>
__device__ __forceinline__ Neighbours<T, kCount> load_aligned(Global<T> p) {
  using Run = Neighbours<T, kCount>;
  Run run;
#pragma unroll
  for (int i = 0; i < Run::kBytes / Run::kPart; ++i) {
    const auto part = ((Global<typename Run::Part>)p)[i];
#pragma unroll
    for (int word = 0; word < Run::kPart / 4; ++word) {
      run.words[i * (Run::kPart / 4) + word] = part[word];
    }
  }
  return run;
}

// The elements from `first` on of the `width` of a row, which are not none; behind its end the last
// one is repeated, without a branch for each element.
template <int kCount, class T>
__device__ __forceinline__ Neighbours<T, kCount> load_neighbours(Global<T> row, int first,
                                                                 int width, bool aligned) {
  if (aligned && first + kCount <= width) return load_aligned<kCount, T>(row + first);
  Neighbours<T, kCount> run = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = first + i < width ? first + i : width - 1;
    run.put(i, ((Global<WordBits<T>>)row)[at]);
  }
  return run;
}

template <class T, int kCount>
__device__ __forceinline__ Neighbours<T, kCount> round_neighbours(const float (&x)[kCount]) {
  Neighbours<T, kCount> run = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) run.put(i, round_to<T>(x[i]));
  return run;
}

// Stores the first `left` elements.
template <class T, int kCount>
__device__ __forceinline__ void store_neighbours(GlobalOut<T> p, bool aligned, int left,
                                                 const Neighbours<T, kCount>& run) {
  using Run = Neighbours<T, kCount>;
  if (aligned && left >= kCount) {
#pragma unroll
    for (int i = 0; i < Run::kBytes / Run::kPart; ++i) {
      typename Run::Part part;
#pragma unroll
      for (int word = 0; word < Run::kPart / 4; ++word) {
        part[word] = run.words[i * (Run::kPart / 4) + word];
      }
      ((GlobalOut<typename Run::Part>)p)[i] = part;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i < left) ((GlobalOut<WordBits<T>>)p)[i] = static_cast<WordBits<T>>(run.element(i));
  }
}

}  // namespace tessera::device
