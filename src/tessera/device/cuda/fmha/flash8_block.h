// What the roles of a block of a flash kernel with products of 8 bits share: the places in shared
// memory, and the layouts.
#pragma once

#include "tessera/device/cuda/fmha/flash8_sizes.h"
#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_tiles.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

// Values as the tensor cores read them: a line for each element of a head, whose bytes are
// neighbouring keys. Slabs of kLine keys, swizzled over whole lines of kLine bytes. Lines and keys
// have orders of their own, see flash8_turn.h.
template <int kKeys, int kHdimV>
struct Flash8Turned {
  static constexpr int kLine = flash8_line(kKeys);
  static constexpr int kPieces = kLine / 16;  // pieces of 16 keys of a line
  static constexpr int kSlabBytes = kHdimV * kLine;
  static constexpr int kSteps = kLine / kWgmmaBytesK;
  static constexpr u64 kSwizzle = kLine == kLineBytes ? 1 : 3;
  static constexpr u64 kDescriptor = kSwizzle << 62 | u64{8 * kLine >> 4} << 32 | u64{1} << 16;
  static_assert(kLine == kLineBytes || kLine == 32, "swizzles of 128 and of 32 bytes");

  static __device__ __forceinline__ u64 descriptor(u32 at) {
    return kDescriptor | (at & 0x3ffff) >> 4;
  }
  // The difference of descriptors between the first step of 32 keys and this one.
  static constexpr int descriptor_offset(int step) {
    return (step / kSteps * kSlabBytes + step % kSteps * kWgmmaBytesK) >> 4;
  }
  // Where 16 keys of a line lie.
  static __device__ __forceinline__ u32 place(int line, int piece) {
    const int phase = kLine == kLineBytes ? line & 7 : line >> 2 & 1;
    return piece / kPieces * kSlabBytes + line * kLine + ((piece % kPieces ^ phase) << 4);
  }
};

template <class C>
struct Flash8Block {
  using T = typename C::In;
  using Out = typename C::Out;
  using Seen = FlashSeen<C>;
  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kStages = C::kStages;
  static constexpr bool kEqual = Seen::kEqual;
  static constexpr Flash8Shape kShape = {
      kConsumers,      kKeys, C::kTileK, C::kHdimV, kStages, C::kBetween, scales_keys(C::kQscale),
      sizeof(Out) != 2};
  static constexpr Flash8Sizes kSizes = flash8_sizes(kShape);
  static constexpr int kBuffers = kSizes.query_buffers;
  static constexpr int kRaws = kSizes.raw_stages;
  static_assert(sizeof(T) == 1, "elements have 8 bits");
  static_assert(!Seen::kBends && !Seen::kPaged && !C::kDropout, "scores are products");
  static_assert(C::kTileM == kConsumers * kWgmmaRows, "a consumer has 64 queries");
  static_assert(kConsumers == 2 || kConsumers == 3, "consumers take turns");
  static_assert(kKeys % 32 == 0, "blocks have whole steps of keys");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");
  static_assert(flash_registers_suffice(kConsumers, flash8_registers(kShape),
                                        flash8_fetch_registers(kShape)),
                "consumers would wait for registers");

  // Queries, keys, and values as they are loaded lie in whole lines.
  using Queries = OperandTile<T, kWgmmaRows, rounded_up(C::kTileK, kLineBytes), true>;
  using Keys = OperandTile<T, kKeys, rounded_up(C::kTileK, kLineBytes), true>;
  using Raw = OperandTile<T, kKeys, rounded_up(C::kHdimV, kLineBytes), true>;
  using Turned = Flash8Turned<kKeys, C::kHdimV>;
  static_assert(Keys::kBytes == kSizes.key_bytes && Raw::kBytes == kSizes.raw_bytes,
                "the host reckons with the same sizes");

  u32 shared;

  // `buffer` counts the buffers of all consumers.
  __device__ __forceinline__ u32 queries(u32 buffer) const {
    return shared + buffer * kSizes.query_bytes;
  }
  __device__ __forceinline__ u32 place(u32 buffer) const {
    return shared + kSizes.places + buffer * kFlashPlaceBytes;
  }
  __device__ __forceinline__ u32 keys(u32 stage) const {
    return shared + kSizes.keys + stage * kSizes.key_bytes;
  }
  __device__ __forceinline__ u32 raw(u32 stage) const {
    return shared + kSizes.raws + stage * kSizes.raw_bytes;
  }
  // What is said of values as they were loaded: kFlash8IsThere and kFlash8IsLast, and how many keys
  // count.
  __device__ __forceinline__ u32 state(u32 stage) const {
    return shared + kSizes.states + stage * 8;
  }
  __device__ __forceinline__ u32 turned(u32 stage) const {
    return shared + kSizes.turned + stage * kSizes.turned_bytes;
  }
  // A warp's part of the sums in shared memory, where it also stages its results.
  __device__ __forceinline__ u32 sums(int group, int warp) const {
    return shared + kSizes.sums + static_cast<u32>(group) * kSizes.sum_bytes +
           static_cast<u32>(warp) * (kSizes.sum_bytes / 4);
  }

  __device__ __forceinline__ u32 keys_full(u32 stage) const {
    return shared + kSizes.barriers + stage * 8;
  }
  __device__ __forceinline__ u32 keys_empty(u32 stage) const { return keys_full(kStages + stage); }
  __device__ __forceinline__ u32 raw_full(u32 stage) const { return keys_empty(kStages + stage); }
  __device__ __forceinline__ u32 raw_empty(u32 stage) const { return raw_full(kRaws + stage); }
  __device__ __forceinline__ u32 turned_full(u32 stage) const { return raw_empty(kRaws + stage); }
  __device__ __forceinline__ u32 turned_empty(u32 stage) const {
    return turned_full(kFlash8Turned + stage);
  }
  __device__ __forceinline__ u32 queries_full(u32 buffer) const {
    return turned_empty(kFlash8Turned + buffer);
  }
  __device__ __forceinline__ u32 queries_empty(u32 buffer) const {
    return queries_full(kConsumers * kBuffers + buffer);
  }

  // Queries are released by each warp, because a warp reads them on its own when it repairs a
  // block.
  __device__ __forceinline__ void init() const {
    for (u32 i = 0; i < kStages; ++i) {
      barrier_init(keys_full(i), 1);
      barrier_init(keys_empty(i), kConsumers);
    }
    for (u32 i = 0; i < kRaws; ++i) {
      barrier_init(raw_full(i), 1);
      barrier_init(raw_empty(i), kFlash8Turners);
    }
    for (u32 i = 0; i < kFlash8Turned; ++i) {
      barrier_init(turned_full(i), kFlash8Turners);
      barrier_init(turned_empty(i), kConsumers);
    }
    for (u32 i = 0; i < kConsumers * kBuffers; ++i) {
      barrier_init(queries_full(i), 1);
      barrier_init(queries_empty(i), 4);
    }
    for (u32 i = 0; i < kConsumers; ++i) store_shared(shared + kSizes.flags + i * 8, 0, 0);
    barrier_init_fence();
  }
};

}  // namespace tessera::device
