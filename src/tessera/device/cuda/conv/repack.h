// The entry _prepare, a kernel that runs before a tmaws kernel of a convolution. It copies the
// operands that the copy engine cannot read, or should not, to the workspace
// (repack_arguments.h).
#pragma once

#include "tessera/device/cuda/conv/repack_arguments.h"
#include "tessera/device/cuda/copy_lines.h"

namespace tessera::device {

// T is a type of 16 bits. All threads of a grid of any size copy, 16 bytes each at a time.
template <class T>
struct Repack {
  static __device__ __forceinline__ int first() {
    return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  }
  static __device__ __forceinline__ int step() { return static_cast<int>(gridDim.x * blockDim.x); }
  static __device__ __forceinline__ char* at(const CudaRepackArguments& g, i64 offset) {
    return static_cast<char*>(g.workspace) + offset;
  }
  static __device__ __forceinline__ u32 element(const void* from, i64 offset) {
    return offset < 0 ? 0 : u32{static_cast<const u16*>(from)[offset]};
  }

  template <bool kMayTranspose>
  static __device__ __forceinline__ void image(const CudaRepackArguments& g, int index) {
    const ImageCopy& x = g.images[index];
    if (x.to == 0) return;
    if constexpr (kMayTranspose) {
      if ((g.transposed >> index & 1) != 0) return transpose(g, x);
    }
    const bool in_lines = x.channel == 1 && x.cell_channels % kOctet == 0;
    for (int i = first(); i < x.octets; i += step()) {
      const CellPlace place = cell_place(x, i);
      u32 words[4];
      if (!in_lines || !line(x, place, words)) elements(x, place, words);
      store_global(at(g, x.to) + i64{i} * 16, words);
    }
  }

  // Eight channels that lie side by side, whole words at a time where they are aligned.
  static __device__ __forceinline__ bool line(const ImageCopy& x, const CellPlace& place,
                                              u32 (&words)[4]) {
    const CellQuarter quarter = cell_quarter(x, place, 0);
    const i64 from = source_of(x, quarter);
    if (from < 0 || quarter.group_channel + kOctet > x.group_channels) return false;
    const u16* const source = static_cast<const u16*>(x.from) + from;
    const bool in_words = reinterpret_cast<u64>(source) % 4 == 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = in_words ? reinterpret_cast<const u32*>(source)[i]
                          : u32{source[i * 2 + 1]} << 16 | source[i * 2];
    }
    return true;
  }

  static __device__ __forceinline__ void elements(const ImageCopy& x, const CellPlace& place,
                                                  u32 (&words)[4]) {
#pragma unroll 1
    for (int first = 0; first < kOctet; first += 4) {
      CellQuarter quarter = cell_quarter(x, place, first);
      u32 four[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four[i] = element(x.from, source_of(x, quarter));
        go_on(x, quarter);
      }
      words[0] = words[2], words[1] = words[3];
      words[2] = four[1] << 16 | four[0];
      words[3] = four[3] << 16 | four[2];
    }
  }

  // Planes of pixels without gaps become pixels of channels.
  static __device__ __forceinline__ void transpose(const CudaRepackArguments& g,
                                                   const ImageCopy& x) {
    const i64 pixels = i64{x.size[0]} * x.size[1] * x.size[2];
    const i64 images = x.octets / (pixels * (x.cell_channels / kOctet));
    TransposeLines<T>::run({x.from, false, pixels, x.channels, x.channel, images, x.image,
                            at(g, x.to), x.cell_channels, pixels * x.cell_channels});
  }

  static __device__ __forceinline__ i64 filter_from(const CudaRepackArguments& g, bool forward,
                                                    int row, int tap, int channel) {
    if (!has_result_cells(g)) return filter_source(g.filter, g.images[0], row, tap, channel);
    return result_filter_source(g, forward, forward ? row : channel, tap, forward ? channel : row);
  }
  template <bool kForward>
  static __device__ __forceinline__ void filter(const CudaRepackArguments& g) {
    const FilterCopy& w = g.filter;
    if (w.to == 0) return;
    const FilterShape shape =
        has_result_cells(g) ? result_filter_shape(g, kForward) : filter_shape(w, g.images[0]);
    const int octets = (shape.channels + kOctet - 1) / kOctet;  // of a tap
    const int all = shape.rows * shape.taps * octets;
    for (int i = first(); i < all; i += step()) {
      const int lines = i / octets;
      const int channel = (i - lines * octets) * kOctet;
      const int row = lines / shape.taps;
      u64 low = 0, high = 0;  // elements move from the end of `high` to the begin of `low`
#pragma unroll 1
      for (int j = 0; j < kOctet; ++j) {
        const bool exists = channel + j < shape.channels;
        const i64 from =
            exists ? filter_from(g, kForward, row, lines - row * shape.taps, channel + j) : -1;
        low = low >> 16 | high << 48;
        high = high >> 16 | u64{element(w.from, from)} << 48;
      }
      const u32 words[4] = {static_cast<u32>(low), static_cast<u32>(low >> 32),
                            static_cast<u32>(high), static_cast<u32>(high >> 32)};
      store_global(at(g, w.to) + i64{i} * 16, words);
    }
  }
};

}  // namespace tessera::device
