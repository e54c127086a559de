// Any convolution on the ordinary cores of a GPU: an implicit product of matrices whose operands
// threads gather element by element, by computed places. Elements outside of the image are not
// multiplied.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/conv_view.h"
#include "tessera/device/cuda/tile_sizes.h"

namespace tessera::device {

// A lane has kWarpTileM x kWarpTileN sums, in vectors of 4 rows and 4 columns; the lanes of a warp
// form a grid over the warp's part of the tile.
template <class C>
class DirectConv {
  using View = ConvView<C>;
  using Place = typename View::Place;
  using Result = ConvResult<C>;
  using Acc = typename C::Acc;
  static constexpr bool kWeight = View::kWeight;
  using Image = typename If<View::kData, typename C::Y, typename C::X>::Type;
  using Other = typename If<kWeight, typename C::Y, typename C::W>::Type;

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kRows = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kLanesM = kWarpM / kRows;
  static constexpr int kLanesN = kWarpN / kColumns;
  static_assert(kLanesM * kLanesN == 32, "the lanes of a warp must cover its part of the tile");
  static_assert(kRows % 4 == 0 && kColumns % 4 == 0, "lanes read vectors of 4");
  static_assert(C::kSlices == 1, "the depth is not shared between blocks");

  // ---- shared memory ----

  static constexpr int kImageLines = kWeight ? C::kTileN : C::kTileM;
  static constexpr int kOtherLines = kWeight ? C::kTileM : C::kTileN;
  static constexpr int kPad = 4;  // elements: lines of neighbouring steps start 4 banks apart
  static constexpr int kPart = 4 * kLanesM;  // rows of a warp that are stored at a time

  struct alignas(16) Operands {
    Acc image[C::kTileK][kImageLines + kPad];
    Acc other[C::kTileK][kOtherLines + kPad];
  };
  struct Steps {
    Place image[C::kTileK];
    i64 other[C::kTileK];
  };
  struct Shared {
    union {
      Operands operands[2];
      Acc part[C::kWaveM * C::kWaveN][kPart][kWarpN + 1];
    };
    Steps steps[2];
    ConvTiles tiles;
    ConvTile tile;
    Place image_lines[kImageLines];
    i64 other_lines[kOtherLines];
    i64 image_results[kImageLines];
    i64 other_results[kOtherLines];
  };

  // ---- elements on their way to shared memory ----

  // A thread's share of kLines x kTileK elements; neighbours in memory belong to neighbours.
  template <int kLines, bool kAlongDepth>
  struct Share {
    static constexpr int kCount = kLines * C::kTileK / kThreads;
    static_assert(kLines * C::kTileK % kThreads == 0, "threads load equally many elements");
    static __device__ __forceinline__ int step(int i) {
      const int index = static_cast<int>(threadIdx.x) + i * kThreads;
      return kAlongDepth ? index % C::kTileK : index / kLines;
    }
    static __device__ __forceinline__ int line(int i) {
      const int index = static_cast<int>(threadIdx.x) + i * kThreads;
      return kAlongDepth ? index / C::kTileK : index % kLines;
    }
  };
  // Channels lie side by side, or pixels and taps do.
  using ImageShare = Share<kImageLines, C::kChannelsLast != kWeight>;
  using OtherShare =
      Share<kOtherLines, C::kChannelsLast ? C::kDirection == ConvDirection::forward : true>;

  struct Fetched {
    Image image[ImageShare::kCount];
    Other other[OtherShare::kCount];
    u32 outside;  // a bit for each element of the image
  };
  static_assert(ImageShare::kCount <= 32, "a word has a bit for each element");

  static constexpr bool kExact = kSame<Acc, int>;
  static constexpr u32 kOutside = 0x7fa5c3e1;  // a NaN that to_sum() never returns

  template <class T>
  static __device__ __forceinline__ Acc to_sum(T x) {
    if constexpr (kExact) {
      return x.value;
    } else if constexpr (kSame<T, tf32>) {
      return to_sum(__uint_as_float(x.bits));
    } else if constexpr (kSame<T, fp8>) {
      return fp8_to_float(x);
    } else if constexpr (kSame<T, bf8>) {
      return to_float(fp16{static_cast<u16>(x.bits << 8)});
    } else {
      const float wide = to_float(x);
      if constexpr (!kSame<T, float>) return wide;
      return wide == wide ? wide : __uint_as_float(0x7fffffff);
    }
  }
  static __device__ __forceinline__ float fp8_to_float(fp8 x) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(x.bits)));
    return to_float(fp16{static_cast<u16>(pair)});
  }
  static __device__ __forceinline__ bool is_finite(float x) { return x - x == 0; }
  static __device__ __forceinline__ bool is_finite(int) { return true; }

  const ConvArguments& g;
  Shared& shared;
  Acc sums[kRows][kColumns];

  __device__ __forceinline__ DirectConv(const ConvArguments& arguments, Shared& memory)
      : g(arguments), shared(memory) {}

  // The places of the steps from `first` on.
  __device__ __forceinline__ void find_steps(u64 first, Steps& steps) {
    if (threadIdx.x >= C::kTileK) return;
    const u64 step = first + threadIdx.x;
    if (step >= shared.tile.depth) return;
    View{g}.step(shared.tile, step, steps.image[threadIdx.x], steps.other[threadIdx.x]);
  }

  __device__ __forceinline__ void find_lines() {
    const ConvTile& t = shared.tile;
    const u64 image_first = kWeight ? t.column : t.row;
    const u64 image_last = (kWeight ? t.columns : t.rows) - 1;
    const u64 other_first = kWeight ? t.row : t.column;
    const u64 other_last = (kWeight ? t.rows : t.columns) - 1;
    // What a tile lacks is read as its last line; nobody stores those results.
    for (int i = threadIdx.x; i < kImageLines; i += kThreads) {
      View{g}.image_line(t, min(image_first + i, image_last), shared.image_lines[i],
                         shared.image_results[i]);
    }
    for (int i = threadIdx.x; i < kOtherLines; i += kThreads) {
      View{g}.other_line(min(other_first + i, other_last), shared.other_lines[i],
                         shared.other_results[i]);
    }
  }

  __device__ __forceinline__ void fetch(const Image* image, const Other* other, const Steps& steps,
                                        u64 left, Fetched& to) const {
    to.outside = 0;
#pragma unroll
    for (int i = 0; i < ImageShare::kCount; ++i) {
      const Place& line = shared.image_lines[ImageShare::line(i)];
      const Place& step = steps.image[ImageShare::step(i)];
      bool inside = static_cast<u64>(ImageShare::step(i)) < left;
#pragma unroll
      for (int dim = 0; dim < View::kDims; ++dim) {
        const u64 at = static_cast<u64>(line.at[dim] + step.at[dim]);
        inside = inside && at < static_cast<u64>(View{g}.image_size(View::kFirst + dim));
      }
      to.image[i] = {};
      if (inside) to.image[i] = image[line.offset + step.offset];
      if (!inside) to.outside |= 1U << i;
    }
#pragma unroll
    for (int i = 0; i < OtherShare::kCount; ++i) {
      const int step = OtherShare::step(i);
      to.other[i] = {};
      if (static_cast<u64>(step) < left)
        to.other[i] = other[shared.other_lines[OtherShare::line(i)] + steps.other[step]];
    }
  }

  // Returns whether an element of the other operand is NaN or infinite.
  __device__ __forceinline__ bool put(const Fetched& from, Operands& to) const {
    bool all_finite = true;
#pragma unroll
    for (int i = 0; i < ImageShare::kCount; ++i) {
      to.image[ImageShare::step(i)][ImageShare::line(i)] = to_sum(from.image[i]);
    }
#pragma unroll
    for (int i = 0; i < OtherShare::kCount; ++i) {
      const Acc x = to_sum(from.other[i]);
      to.other[OtherShare::step(i)][OtherShare::line(i)] = x;
      all_finite = all_finite && is_finite(x);
    }
    return !all_finite;
  }
  __device__ __forceinline__ void mark_outside(const Fetched& from, Operands& to) const {
#pragma unroll
    for (int i = 0; i < ImageShare::kCount; ++i) {
      if ((from.outside >> i & 1) == 0) continue;
      to.image[ImageShare::step(i)][ImageShare::line(i)] = __uint_as_float(kOutside);
    }
  }

  // ---- products ----

  struct alignas(16) Vector {
    Acc x[4];
  };
  // The place of this lane's rows or columns, number `vector` of its vectors.
  static __device__ __forceinline__ int row(int vector) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return warp / C::kWaveN * kWarpM + (vector * kLanesM + lane / kLanesN) * 4;
  }
  static __device__ __forceinline__ int column(int vector) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return warp % C::kWaveN * kWarpN + (vector * kLanesN + lane % kLanesN) * 4;
  }

  // kMarked: elements outside of the image are marked, and not multiplied. Otherwise they are 0.
  template <bool kMarked>
  __device__ __forceinline__ void multiply(const Operands& from) {
#pragma unroll kMarked ? 1 : 4
    for (int k = 0; k < C::kTileK; ++k) {
      const Acc* const rows = kWeight ? from.other[k] : from.image[k];
      const Acc* const columns = kWeight ? from.image[k] : from.other[k];
      Vector a[kRows / 4];
      Vector b[kColumns / 4];
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        a[i] = *reinterpret_cast<const Vector*>(rows + row(i));
      }
#pragma unroll
      for (int j = 0; j < kColumns / 4; ++j) {
        b[j] = *reinterpret_cast<const Vector*>(columns + column(j));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const Acc x = a[i / 4].x[i % 4];
          const Acc y = b[j / 4].x[j % 4];
          if constexpr (kExact) {
            sums[i][j] += x * y;
          } else if constexpr (kMarked) {
            const bool outside = __float_as_uint(kWeight ? y : x) == kOutside;
            sums[i][j] = outside ? sums[i][j] : fmaf(x, y, sums[i][j]);
          } else {
            sums[i][j] = fmaf(x, y, sums[i][j]);
          }
        }
      }
    }
  }

  // While a stage is multiplied, the elements of the next one are on their way.
  __device__ __forceinline__ void accumulate() {
    const u64 depth = shared.tile.depth;
    const i64 group = shared.tile.group;
    const auto* const image =
        static_cast<const Image*>(View{g}.image()) + group * View{g}.image_stride()[kImageG];
    const auto* const other =
        static_cast<const Other*>(View{g}.other()) + group * View{g}.other_group();
    Fetched fetched;
    bool has_stage = false;
#pragma unroll 1
    for (u64 first = 0; depth > 0; first += C::kTileK) {
      const int turn = first / C::kTileK % 2;
      Operands& stage = shared.operands[turn];
      Steps& steps = shared.steps[turn];
      const bool special = has_stage && put(fetched, stage);
      if (first < depth) find_steps(first, steps);
      const bool marked = !kExact & __syncthreads_or(special);
      if (marked) {
        mark_outside(fetched, stage);
        __syncthreads();
      }
      if (first < depth) fetch(image, other, steps, depth - first, fetched);
      if (marked) {
        multiply<true>(stage);
      } else if (has_stage) {
        multiply<false>(stage);
      }
      if (first >= depth) return;
      has_stage = true;
    }
  }

  // ---- results ----

  // A warp stores its part by itself, some rows at a time, so that neighbours in memory are stored
  // together.
  __device__ __forceinline__ void store() {
    const ConvTile& t = shared.tile;
    const ConvResultArguments arguments = conv_result_arguments(g);
    const Result result(arguments, t.group * View{g}.result_group());
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp_row = warp / C::kWaveN * kWarpM;
    const int warp_column = warp % C::kWaveN * kWarpN;
    const i64* const row_results = kWeight ? shared.other_results : shared.image_results;
    const i64* const column_results = kWeight ? shared.image_results : shared.other_results;
    const i64 first_channel = t.group * g.k + static_cast<i64>(t.column);
    auto& part = shared.part[warp];
#pragma unroll
    for (int vector = 0; vector < kRows / 4; ++vector) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4 * kColumns; ++i) {
        part[lane / kLanesN * 4 + i % 4][column(i / 16) - warp_column + i / 4 % 4] =
            sums[vector * 4 + i % 4][i / 4];
      }
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < kPart * kWarpN; i += 32) {
        constexpr bool kAlongColumns = kWeight || C::kChannelsLast;
        const int part_row = kAlongColumns ? i / kWarpN : i % kPart;
        const int part_column = kAlongColumns ? i % kWarpN : i / kPart;
        const int row = warp_row + vector * kPart + part_row;
        const int column = warp_column + part_column;
        if (t.row + row >= t.rows || t.column + column >= t.columns) continue;
        result.store(row_results[row] + column_results[column], first_channel + column,
                     part[part_row][part_column]);
      }
    }
  }

  __device__ __forceinline__ void run_tile(u64 index) {
    if (threadIdx.x == 0) View{g}.find(shared.tiles, index, shared.tile);
    __syncthreads();
    if (shared.tile.row < shared.tile.rows) {
      find_lines();
#pragma unroll
      for (int i = 0; i < kRows * kColumns; ++i) sums[i / kColumns][i % kColumns] = 0;
      accumulate();
      __syncthreads();
      store();
    }
    __syncthreads();
  }

 public:
  static __device__ __forceinline__ void run(const ConvArguments& arguments) {
    __shared__ Shared shared;
    if (threadIdx.x == 0) shared.tiles = View{arguments}.tiles();
    __syncthreads();
#pragma unroll 1
    for (u64 index = blockIdx.x; index < shared.tiles.count; index += gridDim.x) {
      DirectConv(arguments, shared).run_tile(index);
    }
  }
};

}  // namespace tessera::device
