// Words of attention on AMD GPUs: what every backend shares, loads and stores of single elements,
// numbers that are the same in all lanes, and the blocks of a grid.
#pragma once

#include "tessera/device/hip/eight_bits.h"
#include "tessera/device/hip/lanes.h"
#include "tessera/device/hip/math.h"
#include "tessera/device/hip/memory.h"

#pragma clang force_cuda_host_device begin
#include "tessera/device/fmha.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/device/fmha_scales.h"
#pragma clang force_cuda_host_device end

#include "tessera/device/hip/fmha/arguments.h"

namespace tessera::device {

__device__ __forceinline__ float minus_infinity() { return bits<float>(0xff800000U); }

__device__ __forceinline__ float log_fast(float x) {
  return __builtin_amdgcn_logf(x) * 0.693147181F;
}

// ---- elements in memory ----

template <class T>
__device__ __forceinline__ T load_element(const T* from) {
  return bits<T>(*(Global<WordBits<T>>)from);
}
template <class T>
__device__ __forceinline__ void store_element(T* to, T value) {
  *(__attribute__((address_space(1))) WordBits<T>*)to = bits<WordBits<T>>(value);
}

// Four neighbours, and whether they can be loaded as one word.
template <class T>
__device__ __forceinline__ Float4 load_four(const T* from) {
  const Quad<T> quad = *(Global<Quad<T>>)from;
  Float4 x;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = widened(bits<T>(static_cast<WordBits<T>>(bits_of<T>(quad, i))));
  }
  return x;
}
template <class T>
__device__ __forceinline__ bool four_aligned(const T* p) {
  return (bits<u64>(p) & (4 * sizeof(T) - 1)) == 0;
}

// ---- lanes ----

__device__ __forceinline__ int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
__device__ __forceinline__ i64 uniform(i64 x) {
  return static_cast<i64>(uniform(static_cast<u64>(x)));
}

// The same number in a scalar register, of which the compiler can't compute anything ahead of this
// call: what follows from it would fill the registers.
template <class T>
__device__ __forceinline__ T uniform_here(T x) {
  asm volatile("" : "+s"(x));
  return x;
}

// The number of lane `lane`, which is the same in all lanes.
__device__ __forceinline__ float number_of(float x, int lane) {
  return bits<float>(__builtin_amdgcn_readlane(bits<int>(x), lane));
}
__device__ __forceinline__ i64 number_of(i64 x, int lane) {
  const auto word = [lane](i64 from) {
    return static_cast<u32>(
        __builtin_amdgcn_readlane(static_cast<int>(static_cast<u32>(from)), lane));
  };
  return static_cast<i64>(u64{word(x >> 32)} << 32 | word(x));
}

// The thread's wave in its workgroup.
__device__ __forceinline__ int wave_of_block() {
  return uniform(static_cast<int>(__builtin_amdgcn_workitem_id_x()) / kLanes);
}

// What sequence_of() says, in scalar registers.
template <FmhaLengths kLengths, FmhaPages kPages>
__device__ __forceinline__ FmhaSequence uniform_sequence(const FmhaArguments& g, i64 batch) {
  const FmhaSequence s = sequence_of<kLengths, kPages>(g, batch);
  return {uniform(s.queries), uniform(s.keys), uniform(s.first_query), uniform(s.first_key)};
}

// ---- the grid ----

// How many blocks there are, and how many workgroups along each side. No count reaches 2^31.
struct BlockCounts {
  i64 batches, heads, blocks;
  const HipGrid& grid;
};

// Calls visit(batch, head, block) for each of this workgroup's blocks, of which counts() says how
// many there are; a workgroup takes further ones where a side of the grid is shorter.
template <class Counts, class Visit>
__device__ __forceinline__ void for_each_block(const Counts& counts, const Visit& visit) {
  // Loops begin again from vector registers: scalar ones are short.
  const int own_head = not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_y()));
  const int own_block = not_ahead(static_cast<int>(__builtin_amdgcn_workgroup_id_x()));
#pragma unroll 1
  for (u32 batch = __builtin_amdgcn_workgroup_id_z(); batch < static_cast<u32>(counts().batches);
       batch += counts().grid.side[2]) {
#pragma unroll 1
    for (u32 head = uniform(own_head); head < static_cast<u32>(counts().heads);
         head += counts().grid.side[1]) {
#pragma unroll 1
      for (u32 block = uniform(own_block); block < static_cast<u32>(counts().blocks);
           block += counts().grid.side[0]) {
        visit(static_cast<int>(batch), static_cast<int>(head), static_cast<int>(block));
      }
    }
  }
}

// ---- masks ----

// The keys that some query of a range sees: [0, sink) and [begin, end).
struct SeenKeys {
  i64 sink, begin, end;
  // Whether a block of `count` keys has one of them.
  __device__ __forceinline__ bool has_some(i64 key, int count) const {
    return key < sink || (key + count > begin && key < end);
  }
};

template <bool kMasked>
__device__ __forceinline__ SeenKeys seen_keys(const FmhaArguments& g, const FmhaSequence& s,
                                              i64 first, i64 last) {
  const FmhaKeys low = keys_of<kMasked>(g, s, first), high = keys_of<kMasked>(g, s, last);
  return {high.sink, low.begin, high.end};
}

// Calls visit(key) for each block of kKeys keys that has one of them.
template <int kKeys, class Visit>
__device__ __forceinline__ void for_each_key_block(const SeenKeys& seen, const Visit& visit) {
  const i64 begin = seen.begin / kKeys * kKeys;
  i64 key = seen.sink > 0 ? 0 : begin;
#pragma unroll 1
  while (key < seen.end) {
    visit(key);
    key += kKeys;
    if (key >= seen.sink && key < begin) key = begin;
  }
}

}  // namespace tessera::device
