// The main loop of Hopper kernels whose operands have scales of blocks of 128 along k. It is that
// of tma_main_loop.h, with these differences:
//   - the producer's whole warp fills the ring: one thread asks for tiles, and all threads copy the
//     stage's scales to shared memory by cp.async, at any stride
//   - a consumer sums each stage by itself, multiplies these sums by the stage's scales and adds
//     them in fp32, while the other consumer's instructions keep the tensor cores busy
//   - each warp tells by itself that it has read a stage
// It knows nothing of tiles' order or of the output.
#pragma once

#include "tessera/device/cuda/copied_stages.h"
#include "tessera/device/cuda/scaled_sizes.h"

namespace tessera::device {

// The operand's rows that a tile has one behind the other.
struct RowsInOrder {
  // How many scales a thread copies at a time. With more, their addresses would take more registers
  // than a producer has.
  static constexpr int kAtOnce = 4;

  int first, last;  // the tile's first row, and the last row that there is

  // A place without a row gets the last one.
  __device__ __forceinline__ int of(int row) const { return min(first + row, last); }
};

// The scales of one operand for a row of tiles along k: kPlaces places of kUnit rows each, of which
// kRows share a scale. Strides count bytes.
template <int kRows, int kUnit, int kPlaces, class TileRows = RowsInOrder>
struct ScaleLoader {
  using Rows = TileRows;

  const char* data;
  i64 stride_rows, stride_k;
  Rows rows;

  // Copies the scales of block `step` of k, by so many threads.
  template <int kThreads = 32>
  __device__ __forceinline__ void fetch(u32 to, int step, int thread) const {
    const char* const from = data + step * stride_k;
#pragma unroll Rows::kAtOnce
    for (int i = 0; i < kPlaces; i += kThreads) {
      const int place = i + thread;
      if (kPlaces % kThreads != 0 && place >= kPlaces) break;
      const int row = rows.of(place * kUnit) / kRows;
      copy_async<4>(to + place * 4, from + row * stride_rows, 4);
    }
  }
};

// kPartQ as ScaledShape::part_q.
template <class C, class LoaderP, class LoaderQ, int kPartQ = 0>
struct TmaScaledLoop {
  using Plain = TmaMainLoop<C, LoaderP, LoaderQ>;
  using Acc = typename Plain::Acc;
  using Ring = typename Plain::Ring;
  using Release = typename Plain::Release;
  using Loaders = typename Plain::Loaders;
  using TileP = typename Plain::TileP;
  using TileQ = typename Plain::TileQ;
  static constexpr int kBlocks = Plain::kBlocks;
  static constexpr int kAccumulators = Plain::kAccumulators;
  static_assert(C::kTileK == kScaledDepth && sizeof(typename TileP::Element) == 1,
                "a stage is one block of scales");
  static_assert(!C::kPingpong,
                "consumers that take turns could not add while the other multiplies");
  static_assert(kSame<Acc, float>, "sums are fp32");

  // ---- scales in shared memory: in each stage those of P, then those of Q ----

  static constexpr int kRowsP = C::kSwapAb ? C::kScaleRowsB : C::kScaleRowsA;
  static constexpr int kRowsQ = C::kSwapAb ? C::kScaleRowsA : C::kScaleRowsB;
  static constexpr ScaledSizes kSizes =
      scaled_sizes({C::kTileM, C::kTileN, kRowsP, kRowsQ, kPartQ});
  static constexpr int kScaleBytes = kSizes.stage_bytes;
  using ScalesP = ScaleLoader<kRowsP, kSizes.unit_p, kSizes.places_p>;
  using ScalesQ = ScaleLoader<kRowsQ, kSizes.unit_q, kSizes.places_q>;
  struct Scales {
    ScalesP p;
    ScalesQ q;
  };

  Plain loop;
  u32 scales;  // address in shared memory

  __device__ __forceinline__ u32 scales_p(u32 stage) const { return scales + stage * kScaleBytes; }
  __device__ __forceinline__ u32 scales_q(u32 stage) const {
    return scales_p(stage) + kSizes.places_p * 4;
  }

  // One thread calls this before a barrier of the block. A stage is full when its tiles and the
  // copies of so many threads are there, and empty when all warps have read it.
  static constexpr int kWarps = kGroupThreads / 32;
  __device__ __forceinline__ void init_ring(u32 copiers = 32) const {
    for (u32 i = 0; i < C::kStages; ++i) {
      barrier_init(loop.full(i), 1 + copiers);
      barrier_init(loop.empty(i), Plain::kConsumers * kWarps * Plain::kReleases);
    }
  }

  // ---- the producer: one warp fills the ring ----

  __device__ __forceinline__ bool is_filling_warp() const { return uniform(loop.thread / 32) == 0; }

  // All threads of the warp call this; one of them is `chosen`. See TmaMainLoop::fill().
  // make_scales() returns the loaders of scales, also inside the loop.
  template <class MakeScales, class MakeLoaders>
  __device__ __forceinline__ void fill(Ring& ring, const StepRange& range,
                                       const MakeScales& make_scales, bool chosen,
                                       const MakeLoaders& make_loaders) const {
    const int lane = loop.thread % 32;
    const auto ask = [&](u32 stage, int step) {
      const u32 full = loop.full(stage);
      barrier_expect(full, Plain::kStageBytes);
      const u32 to_p = loop.stages + stage * TileP::kBytes;
      const u32 to_q = loop.stages + Plain::kOffsetQ + stage * TileQ::kBytes;
      const Loaders from = make_loaders();
      from.p.fetch({to_p, full, 0, LoaderP::kHint}, step);
      from.q.fetch({to_q, full, 0, LoaderQ::kHint}, step);
    };
    fill_with_copies(loop, ring, range, chosen, ask, [&](u32 stage, int step) {
      const Scales from_scales = make_scales();
      from_scales.p.fetch(scales_p(stage), step, lane);
      from_scales.q.fetch(scales_q(stage), step, lane);
    });
  }

  // ---- the consumers ----

  // In each warp, one thread tells one of the blocks that fill a stage.
  __device__ __forceinline__ Release release() const {
    const int lane = loop.thread % 32;
    if constexpr (Plain::kReleases == 1) {
      return {loop.empty(0), lane == 0};
    } else {
      const int other = lane - C::kClusterM;
      const int rank = lane < C::kClusterM
                           ? lane + C::kClusterM * loop.at_q
                           : loop.at_p + C::kClusterM * (other + (other >= loop.at_q ? 1 : 0));
      const bool serves = lane < Plain::kReleases;
      return {in_block(loop.empty(0), serves ? rank : 0), serves};
    }
  }

  // The scales of a thread's rows (two in each block of 64), and of its columns: two of every 8, or
  // one for all columns of a place.
  static constexpr bool kByColumn = kSizes.unit_q == 1;
  static constexpr int kOfColumns = kByColumn ? C::kTileN / 4 : C::kTileN / kSizes.unit_q;

  // The blocks that fit on a unit, by shared memory and registers. With one consumer, several do.
  static constexpr int min_blocks(int shared_bytes) {
    constexpr int kRegisters = kRegistersBesides + 2 * kBlocks * kAccumulators + kOfColumns;
    const int by_shared = kSharedPerUnit / (shared_bytes + kSharedReserve);
    const int fit = least_of(3, least_of(by_shared, 65536 / (kRegisters * Plain::kThreads)));
    return Plain::kConsumers > 1 || fit < 1 ? 1 : fit;
  }

  struct Factors {
    float p[kBlocks][2];
    float q[kOfColumns];
  };

  __device__ __forceinline__ Factors factors(u32 stage) const {
    const int lane = loop.thread & 31;
    const int first = loop.warpgroup * kBlocks * kWgmmaRows;
    Factors f;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int row = first + block * kWgmmaRows + (loop.thread >> 5) * 16 + (lane >> 2);
      f.p[block][0] = load_float(scales_p(stage) + row / kSizes.unit_p * 4);
      f.p[block][1] =
          kSizes.unit_p == 1 ? load_float(scales_p(stage) + (row + 8) * 4) : f.p[block][0];
    }
    const u32 q = scales_q(stage);
    if constexpr (kByColumn) {
#pragma unroll
      for (int i = 0; i < kOfColumns; i += 2) {
        load_shared(q + (i * 4 + (lane & 3) * 2) * 4, f.q[i], f.q[i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOfColumns; ++i) f.q[i] = load_float(q + i * 4);
    }
    return f;
  }

  static __device__ __forceinline__ float load_float(u32 from) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
    return x;
  }

  // Adds a stage's sums of a block of 64 rows to those of the stages before.
  static __device__ __forceinline__ void promote(const Factors& f, int block,
                                                 const Acc (&part)[kAccumulators],
                                                 Acc (&sums)[kBlocks][kAccumulators]) {
#pragma unroll
    for (int i = 0; i < kAccumulators / 4; ++i) {  // of every 8 columns
      const float left = f.q[kByColumn ? i * 2 : i * 8 / kSizes.unit_q];
      const float right = f.q[kByColumn ? i * 2 + 1 : i * 8 / kSizes.unit_q];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p = f.p[block][half];
        const int at = i * 4 + half * 2;
        sums[block][at] += p * left * part[at];
        sums[block][at + 1] += p * right * part[at + 1];
      }
    }
  }

  // part = a stage's products of a block of 64 rows.
  __device__ __forceinline__ void multiply_stage(Acc (&part)[kAccumulators], u32 stage,
                                                 int block) const {
    using Instruction = typename Plain::Instruction;
    const u64 p = TileP::descriptor(loop.stages + stage * TileP::kBytes) +
                  TileP::descriptor_offset(loop.warpgroup * kBlocks, 0);
    const u64 q = TileQ::descriptor(loop.stages + Plain::kOffsetQ + stage * TileQ::kBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < Plain::kMultiply; ++step) {
      Instruction::multiply(part, p + TileP::descriptor_offset(block, step),
                            q + TileQ::descriptor_offset(0, step), step != 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_done(part);
  }

  // sums = this consumer's rows of the tile, multiplied over so many stages. change(stage, k) is
  // called of a stage that is full, before it is multiplied.
  template <class Change>
  __device__ __forceinline__ void multiply(Acc (&sums)[kBlocks][kAccumulators], Ring& ring,
                                           const Release& free, int count,
                                           const Change& change) const {
    Acc part[kAccumulators] = {};
#pragma unroll
    for (int i = 0; i < kBlocks * kAccumulators; ++i) {
      sums[i / kAccumulators][i % kAccumulators] = 0;
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      barrier_wait(loop.full(ring.stage), ring.phase);
      change(ring.stage, k);
      const Factors f = factors(ring.stage);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        multiply_stage(part, ring.stage, block);
        if (block + 1 == kBlocks) {
          __syncwarp();  // all lanes have read their factors
          free(ring.stage);
        }
        promote(f, block, part, sums);
      }
      ring.next();
    }
  }
};

}  // namespace tessera::device
