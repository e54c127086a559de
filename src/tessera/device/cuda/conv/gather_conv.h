// Any convolution on tensor cores: an implicit product of matrices whose operands threads gather
// (cp.async, or through registers) into a ring of stages, from which warps multiply by mma.sync.
//
// What is outside of an image, and what a filter of several groups lacks, is multiplied as zero. A
// sum that is not a number is therefore computed again, from the products that exist.
#pragma once

#include "tessera/device/cuda/conv/gather_copy.h"
#include "tessera/device/cuda/conv/gather_store.h"
#include "tessera/device/cuda/mma_tile.h"

namespace tessera::device {

template <class C>
class GatherConv {
  using Places = GatherPlaces<C>;
  using Image = typename Places::Image;
  using Other = typename Places::Other;
  using ImagePlace = typename Places::ImagePlace;
  using OtherPlace = typename Places::OtherPlace;
  using Index = typename Places::Index;
  using Store = GatherStore<C>;
  using Acc = typename C::Acc;
  template <bool kFirst, class First, class Second>
  using Pick = typename If<kFirst, First, Second>::Type;

  // The image has the rows of the product, or in backward_weight its columns.
  static constexpr bool kWeight = Places::kWeight;
  static constexpr bool kImageAlong = Places::kImageAlongDepth;
  static constexpr bool kOtherAlong = Places::kOtherAlongDepth;
  using A = Pick<kWeight, Other, Image>;
  using B = Pick<kWeight, Image, Other>;
  static constexpr bool kAAlong = kWeight ? kOtherAlong : kImageAlong;
  static constexpr bool kBAlong = kWeight ? kImageAlong : kOtherAlong;
  using Math = MmaTile<C, A, B, kAAlong, kBAlong>;

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  // Steps of the depth have an entry each, or each chunk of them has.
  static constexpr int kUnit = kImageAlong && kOtherAlong ? Places::kPerChunk : 1;
  static constexpr int kEntries = C::kTileK / kUnit;
  static_assert(kEntries <= kThreads, "a thread finds one place for each tile");

  using ImageShape = Pick<kWeight, typename Math::ShapeB, typename Math::ShapeA>;
  using OtherShape = Pick<kWeight, typename Math::ShapeA, typename Math::ShapeB>;
  using ImageCopy = GatherCopy<Image, ImageShape, Places::kDims, kImageAlong, kUnit, kThreads>;
  using OtherCopy = GatherCopy<Other, OtherShape, 0, kOtherAlong, kUnit, kThreads>;
  using Chunks = GatherChunks<static_cast<int>(sizeof(Image)), !C::kChannelsLast>;
  static constexpr int kAhead = C::kStages - 1;
  static constexpr int kImageAt = kWeight ? Math::ShapeA::kBytes : 0;  // in a stage
  static constexpr int kOtherAt = kWeight ? 0 : Math::ShapeA::kBytes;

  static constexpr int kSharedBytes =
      cpasync_bytes(C::kStages, Math::kStageBytes, C::kTileM, C::kTileN);
  static_assert(kSharedBytes == C::kSharedBytes, "the host counts other bytes of shared memory");
  static_assert(C::kStages >= 2, "a ring has at least 2 stages");

  struct Shared {
    GatherTile tile;
    GatherLines<C> lines;
    ImagePlace image[2][kEntries];
    OtherPlace other[2][kEntries];
  };

  const GatherArguments& a;
  Shared& shared;

  __device__ __forceinline__ GatherConv(const GatherArguments& arguments, Shared& memory)
      : a(arguments), shared(memory) {}

  __device__ __forceinline__ Places places() const { return {a, shared.tile}; }

  // The entries of a tile of the depth, one in each of the first threads.
  __device__ __forceinline__ void write_steps(const Index& digits, int turn) const {
    if (threadIdx.x >= kEntries) return;
    places().step(digits, shared.image[turn & 1][threadIdx.x], shared.other[turn & 1][threadIdx.x]);
  }

  __device__ __forceinline__ void fetch(const ImageCopy& image, const OtherCopy& other, u32 stage,
                                        int table) const {
    constexpr int kAtOnce = 2;
    constexpr int kOthers = ImageCopy::kCopies;  // the first chunk of the other operand
    if (image.copies_chunks()) image.copy_chunks(stage + kImageAt, shared.image[table]);
    if (other.copies_chunks()) other.copy_chunks(stage + kOtherAt, shared.other[table]);
    const int last = kOthers + (other.copies_chunks() ? 0 : OtherCopy::kCopies);
#pragma unroll 1
    for (int first = image.copies_chunks() ? kOthers : 0; first < last; first += kAtOnce) {
      GatherChunk chunks[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i;
        chunks[i] = index < kOthers ? image.chunk_of(index, stage + kImageAt, shared.image[table])
                                    : other.chunk_of(min(index - kOthers, OtherCopy::kCopies - 1),
                                                     stage + kOtherAt, shared.other[table]);
        if (index >= last) chunks[i].to = kNoChunk;
      }
      Chunks::fetch(chunks);
    }
  }

  // Adds up the tiles [first, last) of the depth. A stage is filled kAhead turns before it is
  // multiplied, and its entries are written in the turn before that.
  __device__ __forceinline__ void accumulate(u32 first, u32 last, u32 ring, Math& math) const {
    if (first == last) return;  // pixels that no tap meets have digits of no size
    const GatherTile& t = shared.tile;
    const auto sizes = places().depth_sizes();
    const Index tile_step = Index::split(C::kTileK, sizes.of);
    Index digits = Index::split(first * C::kTileK + threadIdx.x * kUnit, sizes.of);
    const ImageCopy image(a.image, a.image_limit, t.product, shared.lines.image);
    const OtherCopy other(a.other, a.image_limit, t.product, shared.lines.other);
    u32 fill = 0;
    u32 use = 0;
    const int tiles = static_cast<int>(last - first);
#pragma unroll 1
    for (int turn = -1; turn < tiles + kAhead; ++turn) {
      copies_wait<kAhead - 1>();
      __syncthreads();
      if (turn >= 0 && turn < tiles) {
        const u32 stage = ring + fill * Math::kStageBytes;
        fetch(image, other, stage, turn & 1);
        fill = fill + 1 == C::kStages ? 0 : fill + 1;
      }
      copies_commit();
      if (turn + 1 < tiles) {
        write_steps(digits, turn + 1);
        digits.add(tile_step, sizes.of);
      }
      if (turn >= kAhead) {
        const u32 stage = ring + use * Math::kStageBytes;
        math.multiply(stage, stage + Math::ShapeA::kBytes);
        use = use + 1 == C::kStages ? 0 : use + 1;
      }
    }
    copies_wait<0>();
    __syncthreads();
  }

  // ---- sums that are not numbers ----

  static __device__ __forceinline__ bool is_number(Acc x) { return x == x; }

  template <class T>
  static __device__ __forceinline__ float to_sum(T x) {
    if constexpr (kSame<T, tf32>) {
      return __uint_as_float(x.bits);
    } else if constexpr (kSame<T, fp8> || kSame<T, bf8>) {
      return to_float(fp16{static_cast<u16>(halves_of<T>(x.bits))});
    } else {
      return to_float(x);
    }
  }

  // Adds up the products of a row and a column of the tile that exist, until the sum is no number.
  __device__ __noinline__ float add_again(u32 row, u32 column, u32 first, u32 last) const {
    const GatherTile& t = shared.tile;
    const Places in = places();
    const auto sizes = in.depth_sizes();
    const ImagePlace image_line = shared.lines.image[kWeight ? column : row];
    const OtherPlace other_line = shared.lines.other[kWeight ? row : column];
    const auto* const image =
        reinterpret_cast<const Image*>(a.image.data) + t.product * a.image.product;
    const auto* const other =
        reinterpret_cast<const Other*>(a.other.data) + t.product * a.other.product;
    float sum = 0;
    for (u32 step = first * C::kTileK; step < last * C::kTileK && sum == sum; ++step) {
      ImagePlace x;
      OtherPlace w;
      in.step(Index::split(step, sizes.of), x, w);
      x = x + image_line;
      w = w + other_line;
      bool exists = static_cast<u32>(x.run) < static_cast<u32>(a.image.run_limit) &&
                    static_cast<u32>(w.run) < static_cast<u32>(a.other.run_limit);
#pragma unroll
      for (int i = 0; i < Places::kDims; ++i) {
        exists = exists &&
                 static_cast<u32>(x.at[i]) < static_cast<u32>(a.image_limit[kSpatialDims - 1 - i]);
      }
      if (exists) sum = fmaf(to_sum(image[x.offset]), to_sum(other[w.offset]), sum);
    }
    return sum;
  }

  // Puts the sums to shared memory, and then, where one is no number, the sums of what exists.
  __device__ __forceinline__ void put(const Math& math, Acc* staged, u32 first, u32 last) const {
    bool all_numbers = true;
    math.for_each([&](u32 row, u32 column, Acc sum) {
      Store::at(staged, row, column) = sum;
      all_numbers = all_numbers && is_number(sum);
    });
    if constexpr (kSame<Acc, int>) {
      __syncthreads();
    } else {
      if (__syncthreads_or(!all_numbers) == 0) return;
#pragma unroll 1
      for (u32 i = threadIdx.x; i < C::kTileM * C::kTileN; i += kThreads) {
        const u32 row = i / C::kTileN;
        const u32 column = i % C::kTileN;
        Acc& sum = Store::at(staged, row, column);
        if (is_number(sum) || !shared.lines.has(row, column)) continue;
        sum = add_again(row, column, first, last);
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void run_tile(u32 tile, u32 slice, char* ring) {
    if (threadIdx.x == 0) Places::find(a, tile, shared.tile);
    __syncthreads();
    const GatherTile& t = shared.tile;
    if (t.row < t.rows && t.column < t.columns) {
      const Places in = places();
      shared.lines.find(in, threadIdx.x, kThreads);
      __syncthreads();
      const u32 tiles = static_cast<u32>(divided_up(t.depth, C::kTileK));
      const u32 first = static_cast<u32>(u64{tiles} * slice / C::kSlices);
      const u32 last = static_cast<u32>(u64{tiles} * (slice + 1) / C::kSlices);
      Math math(threadIdx.x);
      accumulate(first, last, shared_address(ring), math);
      Acc* const staged = reinterpret_cast<Acc*>(ring);
      put(math, staged, first, last);
      if constexpr (C::kSlices > 1) {
        Store::put_slice(a, tile, slice, staged, threadIdx.x, kThreads);
      } else {
        Store::store(a, in, shared.lines, staged, threadIdx.x, kThreads);
      }
    }
    __syncthreads();
  }

 public:
  static __device__ __forceinline__ void run(const GatherArguments& arguments) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ Shared memory;
    const u32 count = static_cast<u32>(arguments.tiles) * C::kSlices;
#pragma unroll 1
    for (u32 index = blockIdx.x; index < count; index += gridDim.x) {
      GatherConv(arguments, memory).run_tile(index / C::kSlices, index % C::kSlices, ring);
    }
  }

  // The second step of slices: a block finishes a part of a tile.
  static __device__ __forceinline__ void run_sum(const GatherArguments& arguments) {
    __shared__ GatherTile tile;
    constexpr u32 kParts = C::kTileM * C::kTileN / 2 / kThreads;
    static_assert(kParts * kThreads * 2 == C::kTileM * C::kTileN, "blocks finish whole pairs");
    if (threadIdx.x == 0) Places::find(arguments, blockIdx.x / kParts, tile);
    __syncthreads();
    if (tile.row >= tile.rows || tile.column >= tile.columns) return;
    const u32 pair = blockIdx.x % kParts * kThreads + threadIdx.x;
    Store::add_slices(arguments, Places{arguments, tile}, blockIdx.x / kParts, pair);
  }
};

}  // namespace tessera::device
