// A depthwise convolution as a thread sees it: patches of results, the part of the image that a
// patch meets, and single sums of any such convolution.
//
// The image is what the taps move over: x, or in backward_data y.
#pragma once

#include "tessera/device/cuda/conv/conv_result.h"
#include "tessera/device/cuda/conv/depthwise_arguments.h"

namespace tessera::device {

// The place of a patch's first result in its image. backward_data: lines and columns may be
// negative, so that all patches begin at the same residue.
struct DepthwisePatch {
  int image;
  int at[kSpatialDims];
};

template <class C>
struct DepthwiseView {
  static constexpr bool kData = C::kDirection == ConvDirection::backward_data;
  static constexpr bool kWeight = C::kDirection == ConvDirection::backward_weight;
  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  // A thread's patch, the taps of a line, and the stride along lines and columns; 0 taps: the
  // kernel is for any filter, stride and dilation.
  static constexpr int kLines = C::kWarpTileM;
  static constexpr int kColumns = C::kWarpTileN;
  static constexpr int kTaps = C::kWarpTileK;
  static constexpr int kStep = C::kTileK;
  static constexpr bool kAny = kTaps == 0;
  static constexpr int kChannels = C::kTileM * C::kTileN / (kThreads * kLines * kColumns);
  static_assert(kAny ? kChannels * kLines * kColumns == 1 : kChannels % 2 == 0,
                "channels come in pairs, or one by one");

  template <class T>
  using Stored = typename ConvResultConfig<C>::template Stored<T>;
  using Image = Stored<typename If<kData, typename C::Y, typename C::X>::Type>;
  using Filter = Stored<typename C::W>;
  using Gradient = Stored<typename C::Y>;

  // How many lines or columns of the image a patch of `results` meets. The first of them lies
  // kReach before the one that tap 0 of the first result meets.
  static constexpr int kReach = kData && !kAny ? (kTaps - 1) / (kAny ? 1 : kStep) : 0;
  static constexpr int met_by(int results) {
    if (kAny) return 1;
    return kData ? kReach + (results - 1) / (kAny ? 1 : kStep) + 1 : (results - 1) * kStep + kTaps;
  }
  static constexpr int kImageLines = met_by(kLines);
  static constexpr int kImageColumns = met_by(kColumns);
  // The tap by which a result meets a line or column of the image; it exists where it is in range.
  static constexpr int tap(int of_image, int result) {
    return kData ? result - (of_image - kReach) * kStep : of_image - result * kStep;
  }

  const DepthwiseArguments& g;

  __device__ __forceinline__ int size_of(int dim) const {  // of the results' images, or of y
    return static_cast<int>(kData ? g.conv.size[dim] : g.conv.out_size[dim]);
  }
  __device__ __forceinline__ int image_size(int dim) const {
    return static_cast<int>(kData ? g.conv.out_size[dim] : g.conv.size[dim]);
  }
  __device__ __forceinline__ const i64* image_stride() const {
    return kData ? g.conv.y_stride : g.conv.x_stride;
  }
  __device__ __forceinline__ const Image* image() const {
    return static_cast<const Image*>(kData ? g.conv.y : g.conv.x);
  }
  __device__ __forceinline__ int filter(int dim) const {
    return static_cast<int>(g.conv.filter[dim]);
  }

  // ---- patches ----

  __device__ __forceinline__ int patch_start(int dim, int index, int size) const {
    if constexpr (!kData || kAny) return index * size;
    return index * size - static_cast<int>(g.conv.pad[dim]) % kStep;
  }
  __device__ __forceinline__ DepthwisePatch patch(u32 index) const {
    const u32 line = index / static_cast<u32>(g.across);
    const u32 depth = line / static_cast<u32>(g.down);
    const u32 image = depth / static_cast<u32>(g.deep);
    const int column = static_cast<int>(index - line * g.across);
    const int row = static_cast<int>(line - depth * g.down);
    return {static_cast<int>(image),
            {static_cast<int>(depth - image * g.deep), patch_start(kHeight, row, kLines),
             patch_start(kWidth, column, kColumns)}};
  }
  // The line or column of the image where the part begins that a patch meets.
  __device__ __forceinline__ int image_start(int dim, int first) const {
    const int pad = static_cast<int>(g.conv.pad[dim]);
    return kData ? (first + pad) / (kAny ? 1 : kStep) - kReach : first * kStep - pad;
  }

  // The place in the image that a tap of the result at place `at` meets; -1: none.
  __device__ __forceinline__ int met(int dim, int at, int tap) const {
    const int stride = static_cast<int>(g.conv.stride[dim]);
    const int pad = static_cast<int>(g.conv.pad[dim]);
    const int moved = tap * static_cast<int>(g.conv.dilation[dim]);
    int place = kData ? at + pad - moved : at * stride - pad + moved;
    if constexpr (kData) {
      if (place < 0) return -1;
      const int by = place / stride;
      if (by * stride != place) return -1;
      place = by;
    }
    return static_cast<u32>(place) < static_cast<u32>(image_size(dim)) ? place : -1;
  }

  // ---- memory ----

  static __device__ __forceinline__ i64 offset_in(const i64* stride, int image, int depth, int line,
                                                  int column) {
    return image * stride[kImageN] + depth * stride[kImageD] + line * stride[kImageH] +
           column * stride[kImageW];
  }
  // `channel` counts the channels of y over all groups.
  __device__ __forceinline__ i64 filter_offset(int channel, int z, int y, int x) const {
    const i64* const stride = g.conv.w_stride;
    const int many = static_cast<int>(g.conv.k);
    const int group = channel / many;
    return group * stride[kFilterG] + (channel - group * many) * stride[kFilterK] +
           z * stride[kFilterZ] + y * stride[kFilterY] + x * stride[kFilterX];
  }

  // ---- one sum of any depthwise convolution, of what exists ----

  // forward, backward_data: of the result at `at` in image `image`.
  __device__ __forceinline__ float exact(int image_index, const int (&at)[kSpatialDims],
                                         int channel) const {
    const int many = static_cast<int>(g.conv.k);
    const int group = kData ? channel : channel / many;
    const i64* const stride = image_stride();
    const Image* const from = image() + group * stride[kImageG];
    const auto* const filters = static_cast<const Filter*>(g.conv.w);
    float sum = 0;
#pragma unroll 1
    for (int j = 0; j < (kData ? many : 1); ++j) {
      const int of_y = kData ? group * many + j : channel;
#pragma unroll 1
      for (int z = 0; z < filter(kDepth); ++z) {
        const int depth = met(kDepth, at[kDepth], z);
        if (depth < 0) continue;
#pragma unroll 1
        for (int y = 0; y < filter(kHeight); ++y) {
          const int line = met(kHeight, at[kHeight], y);
          if (line < 0) continue;
#pragma unroll 1
          for (int x = 0; x < filter(kWidth); ++x) {
            const int column = met(kWidth, at[kWidth], x);
            if (column < 0) continue;
            const i64 offset = offset_in(stride, image_index, depth, line, column) +
                               (kData ? j * stride[kImageC] : 0);
            sum =
                fmaf(to_float(from[offset]), to_float(filters[filter_offset(of_y, z, y, x)]), sum);
          }
        }
      }
    }
    return sum;
  }

  // backward_weight: of a tap, over the patches from `first` to `last`.
  __device__ __forceinline__ float exact_tap(int channel, int z, int y, int x, int first,
                                             int last) const {
    const int group = channel / static_cast<int>(g.conv.k);
    const int inner = channel - group * static_cast<int>(g.conv.k);
    const i64* const from = g.conv.x_stride;
    const i64* const of_y = g.conv.y_stride;
    const Image* const image_x = image() + group * from[kImageG];
    const auto* const image_y =
        static_cast<const Gradient*>(g.conv.y) + group * of_y[kImageG] + inner * of_y[kImageC];
    float sum = 0;
#pragma unroll 1
    for (int index = first; index < last; ++index) {
      const DepthwisePatch p = patch(index);
      const int depth = met(kDepth, p.at[kDepth], z);
      if (depth < 0) continue;
#pragma unroll 1
      for (int i = 0; i < kLines * kColumns; ++i) {
        const int line = p.at[kHeight] + i / kColumns;
        const int column = p.at[kWidth] + i % kColumns;
        const int x_line = met(kHeight, line, y);
        const int x_column = met(kWidth, column, x);
        if (line >= size_of(kHeight) || column >= size_of(kWidth)) continue;
        if (x_line < 0 || x_column < 0) continue;
        const float a = to_float(image_y[offset_in(of_y, p.image, p.at[kDepth], line, column)]);
        const float b = to_float(image_x[offset_in(from, p.image, depth, x_line, x_column)]);
        sum = fmaf(a, b, sum);
      }
    }
    return sum;
  }
};

// ---- vectors of channels ----

// The value stays in its register. Otherwise the compiler would convert an element, or load a
// constant, once more in each branch that uses it.
__device__ __forceinline__ void stay(float& x) { asm volatile("" : "+f"(x)); }
__device__ __forceinline__ void stay(int& x) { asm volatile("" : "+r"(x)); }

// kCount neighbours in memory, aligned to their size, as words.
template <class T, int kCount>
struct ChannelRun {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * kCount;
  static constexpr int kWords = kBytes / 4;
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "a load has 4, 8 or 16 bytes");
  u32 words[kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = 0;
  }
  __device__ __forceinline__ void load(const T* from) {
    if constexpr (kBytes == 4) {
      words[0] = __ldg(reinterpret_cast<const u32*>(from));
    } else if constexpr (kBytes == 8) {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
      words[0] = two.x;
      words[1] = two.y;
    } else {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
      words[0] = four.x;
      words[1] = four.y;
      words[2] = four.z;
      words[3] = four.w;
    }
  }
  __device__ __forceinline__ void to_floats(float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (sizeof(T) == 4) {
        x[i] = __uint_as_float(words[i]);
      } else if constexpr (kSame<T, bf16>) {
        x[i] = __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000U);
      } else {
        x[i] = to_float(T{static_cast<u16>(words[i / 2] >> (i % 2 * 16))});
      }
    }
  }
};

// A part of one line of the image: kRuns columns, of which those exist whose bit is set. Nothing
// here waits for the memory.
template <class T, int kCount, int kRuns>
struct ImageLine {
  ChannelRun<T, kCount> runs[kRuns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) runs[i].clear();
  }
  // `distance` lies between two columns, in bytes.
  __device__ __forceinline__ void load(const char* from, int distance, u32 exist) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      runs[i].clear();
      if ((exist >> i & 1) != 0) runs[i].load(reinterpret_cast<const T*>(from + i64{distance} * i));
    }
  }
  __device__ __forceinline__ void to_floats(float (&x)[kRuns][kCount]) const {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      runs[i].to_floats(x[i]);
#pragma unroll
      for (int c = 0; c < kCount; ++c) stay(x[i][c]);
    }
  }
};

// A bit for each of kCount places from `first` on: whether it is below `size` and not negative.
template <int kCount>
__device__ __forceinline__ u32 places_inside(int first, int size) {
  static_assert(kCount < 32, "a word has a bit for each place");
  const int low = min(max(-first, 0), kCount);
  const int high = min(max(size - first, 0), kCount);
  return ((1U << high) - 1) & ~((1U << low) - 1);
}

// The quotient and the rest of two numbers that are not negative.
struct Divided {
  int quotient, rest;
};
__device__ __forceinline__ Divided divided(int value, int by) {
  const u32 quotient = static_cast<u32>(value) / static_cast<u32>(by);
  return {static_cast<int>(quotient), value - static_cast<int>(quotient) * by};
}

template <class T>
__device__ __forceinline__ bool is_aligned(const T* p, int bytes) {
  return (reinterpret_cast<u64>(p) & static_cast<u64>(bytes - 1)) == 0;
}

}  // namespace tessera::device
