// What the roles of a flash kernel's block share: the places in shared memory, and the types.
#pragma once

#include "tessera/device/cuda/fmha/flash_ptx.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/cuda/fmha/flash_tiles.h"
#include "tessera/device/cuda/ring.h"
#include "tessera/device/cuda/tma_tile.h"

namespace tessera::device {

template <class C>
struct FlashBlock {
  using T = typename C::In;
  using Out = typename C::Out;
  using Seen = FlashSeen<C>;
  static constexpr FmhaQscale kQscale = C::kQscale;
  // Numbers of 8 bits are multiplied as such for the scores only. Weights have 16 bits, and values
  // are converted to them, which is exact.
  static constexpr bool kConverts = sizeof(T) == 1;
  static constexpr int kConverters = 3;  // warps
  using Weight = typename If<kConverts, fp16, T>::Type;
  static constexpr int kConsumers = C::kWaveM;
  static constexpr int kKeys = C::kTileN;
  static constexpr int kStages = C::kStages;
  static constexpr bool kBends = Seen::kBends;
  // Whether biases are fetched before the products that they are added to: 3 consumers have no
  // registers for that.
  static constexpr bool kFetchesBias =
      C::kBias == FmhaBias::elementwise && sizeof(typename C::Bias) == 2 && kConsumers == 2;
  static constexpr FlashShape kShape = {kConsumers,       kKeys,
                                        C::kTileK,        C::kHdimV,
                                        kStages,          kBends || C::kDropout,
                                        kConverts,        scales_keys(kQscale),
                                        sizeof(Out) != 2, C::kPages != FmhaPages::none};
  static constexpr FlashSizes kSizes = flash_sizes(kShape);
  static constexpr int kBuffers = kSizes.query_buffers;
  static constexpr bool kPaged = Seen::kPaged;
  static constexpr bool kEqual = Seen::kEqual;
  static_assert(C::kTileM == kConsumers * kWgmmaRows, "a consumer has 64 queries");
  static_assert(kConsumers == 2 || kConsumers == 3, "consumers take turns");
  static_assert(kSizes.bytes <= kSharedLimit, "the block must fit into shared memory");
  static_assert(flash_registers_suffice(kConsumers, flash_registers(kShape),
                                        flash_fetch_registers(kShape)),
                "consumers would wait for registers");

  // Queries and keys lie in whole lines; what is behind a head in them is not multiplied.
  static constexpr int kPerLine = kLineBytes / static_cast<int>(sizeof(T));
  using Queries = OperandTile<T, kWgmmaRows, rounded_up(C::kTileK, kPerLine), true>;
  using Keys = OperandTile<T, kKeys, rounded_up(C::kTileK, kPerLine), true>;
  using Values = OperandTile<Weight, C::kHdimV, kKeys, false>;
  static_assert(Keys::kBytes <= kSizes.stage_bytes && Values::kBytes <= kSizes.stage_bytes,
                "a stage holds keys or values");

  u32 shared;

  __device__ __forceinline__ u32 stage(u32 index) const {
    return shared + kSizes.stages + index * kSizes.stage_bytes;
  }
  // Where the queries of a consumer lie. `buffer` counts the buffers of all consumers.
  __device__ __forceinline__ u32 queries(u32 buffer) const {
    return shared + buffer * kSizes.query_bytes;
  }
  __device__ __forceinline__ u32 place(u32 buffer) const {
    return shared + kSizes.places + buffer * kFlashPlaceBytes;
  }
  __device__ __forceinline__ u32 full(u32 index) const {
    return shared + kSizes.barriers + index * 8;
  }
  __device__ __forceinline__ u32 empty(u32 index) const { return full(kStages + index); }
  __device__ __forceinline__ u32 queries_full(u32 buffer) const {
    return full(2 * kStages + buffer);
  }
  __device__ __forceinline__ u32 queries_empty(u32 buffer) const {
    return queries_full(kConsumers * kBuffers + buffer);
  }

  // Values of 8 bits, which wait for conversion, and what is said of them.
  __device__ __forceinline__ u32 raw(u32 index) const {
    return shared + kSizes.raws + index * kSizes.raw_bytes;
  }
  __device__ __forceinline__ u32 raw_state(u32 index) const {
    return shared + kSizes.states + index * 8;
  }
  __device__ __forceinline__ u32 raw_full(u32 index) const {
    return queries_empty(kConsumers * kBuffers + index);
  }
  __device__ __forceinline__ u32 raw_empty(u32 index) const { return raw_full(kFlashRaws + index); }

  // Queries are released by each warp, because a warp reads them on its own when it repairs a
  // block.
  __device__ __forceinline__ void init() const {
    for (u32 i = 0; i < kStages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), kConsumers);
    }
    for (u32 i = 0; i < kConsumers * kBuffers; ++i) {
      barrier_init(queries_full(i), 1);
      barrier_init(queries_empty(i), 4);
    }
    if constexpr (kConverts) {
      for (u32 i = 0; i < kFlashRaws; ++i) {
        barrier_init(raw_full(i), 1);
        barrier_init(raw_empty(i), kConverters);
      }
    }
    for (u32 i = 0; i < kConsumers; ++i) {
      store_shared(shared + kSizes.flags + i * 8, 0, 0);
    }
    barrier_init_fence();
  }
};

}  // namespace tessera::device
