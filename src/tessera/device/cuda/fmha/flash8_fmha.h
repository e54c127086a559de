// Attention forward on Hopper's copy engine and tensor cores with both products in 8 bits: weights
// are rounded to e4m3, and values are turned on their way, so that the keys of an element are
// neighbours. Otherwise the kernel works as flash_fmha.h says: Q K^T of a block of keys is
// multiplied together with P V of the block before, and steady blocks take no maxima
// (flash8_rows.h). Sums go to a second level every few blocks (flash8_sums.h).
//
// Launch: blocks of flash_threads(wave_m) threads with flash8_sizes().bytes of dynamic shared
// memory; any number of blocks, which take tiles from a counter.
#pragma once

#include "tessera/device/cuda/fmha/flash8_consumer.h"
#include "tessera/device/cuda/fmha/flash8_producer.h"

namespace tessera::device {

template <class C>
struct Flash8Fmha {
  using Block = Flash8Block<C>;

  static __device__ __forceinline__ void run(const FlashArguments& arguments) {
    extern __shared__ __align__(1024) unsigned char flash_memory[];
    constexpr int kConsumers = Block::kConsumers;
    const Block block = {shared_address(flash_memory)};
    const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
    if (threadIdx.x == 0) block.init();
    __syncthreads();
    if (group == kConsumers) {
      registers_shrink<flash8_fetch_registers(Block::kShape)>();
      const int warp = uniform(static_cast<int>(threadIdx.x) % kGroupThreads / 32);
      if (warp == 0) {
        if (elect_one()) Flash8Producer<C>(arguments, block).run();
      } else {
        Flash8Turner<C>(block, warp - 1).run();
      }
    } else {
      registers_grow<flash8_registers(Block::kShape)>();
      Flash8Consumer<C>(arguments, block, group).run();
    }
  }
};

}  // namespace tessera::device
