// Attention forward on Hopper's copy engine and tensor cores: Q K^T of a block of keys is
// multiplied together with P V of the block before, in the same tile or not, and the
// softmax of a block runs beside P V. In the steady state no maxima are taken, see flash_rows.h.
//
// Launch: blocks of flash_threads(wave_m) threads with flash_sizes().bytes of dynamic shared
// memory; any number of blocks, which take tiles from a counter.
#pragma once

#include "tessera/device/cuda/fmha/check_pages.h"
#include "tessera/device/cuda/fmha/flash_consumer.h"
#include "tessera/device/cuda/fmha/flash_paged_producer.h"
#include "tessera/device/cuda/fmha/flash_producer.h"

namespace tessera::device {

template <class C>
struct FlashFmha {
  using Block = FlashBlock<C>;

  static __device__ __forceinline__ void check(const FlashArguments& arguments) {
    check_pages<C::kLengths, C::kPages>(arguments.fmha);
  }

  static __device__ __forceinline__ void run(const FlashArguments& arguments) {
    if (Block::kPaged && has_bad_page(arguments.fmha)) return;
    extern __shared__ __align__(1024) unsigned char flash_memory[];
    constexpr int kConsumers = Block::kConsumers;
    const Block block = {shared_address(flash_memory)};
    const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
    if (threadIdx.x == 0) block.init();
    __syncthreads();
    if (group == kConsumers) {
      registers_shrink<flash_fetch_registers(Block::kShape)>();
      const int warp = uniform(static_cast<int>(threadIdx.x) % kGroupThreads / 32);
      if constexpr (Block::kPaged) {
        if (warp == 0) FlashPagedProducer<C>(arguments, block).run();
      } else {
        if (warp == 0 && elect_one()) FlashProducer<C>(arguments, block).run();
      }
      if constexpr (Block::kConverts) {
        if (warp > 0) FlashConverter<C>(block, warp - 1).run();
      }
    } else {
      registers_grow<flash_registers(Block::kShape)>();
      FlashConsumer<C>(arguments, block, group).run();
    }
  }
};

}  // namespace tessera::device
