// Rows in LDS that meet tokens, a lane each: what all gradients of attention begin with. For dq
// and dbias the rows are queries with dout and the tokens are keys with values; for dk and dv it is
// the other way round.
#pragma once

#include "tessera/device/hip/fmha/direct_sizes.h"
#include "tessera/device/hip/fmha/key_places.h"

#pragma clang force_cuda_host_device begin
#include "tessera/device/fmha_backward.h"
#pragma clang force_cuda_host_device end

#include "tessera/device/hip/fmha/backward_arguments.h"

namespace tessera::device {

// Tokens of one head in memory, and how many elements they have.
template <class In>
struct TokenHead {
  const In* first;  // of the token that is counted as 0
  i64 token, element;
  int hdim;
  __device__ __forceinline__ const In* at(i64 index) const { return first + index * token; }
};

template <class C>
struct BackwardRows {
  using In = typename C::In;
  static constexpr int kRows = C::kTileM / C::kWaveM;  // of a wave
  static constexpr int kLong = hip_direct_row_bytes(C::kTileK);
  static constexpr int kLongV = hip_direct_row_bytes(C::kHdimV);
  static constexpr int kBytes = kRows * (kLong + kLongV);  // of a wave

  Shared* const memory;

  // Row r of the elements that q and k have, or of those that dout and v have.
  template <bool kOfV>
  __device__ __forceinline__ Shared* row(int r) const {
    return memory + (kOfV ? kRows * kLong + r * kLongV : r * kLong);
  }

  // Brings `count` tokens from `token` on; zeros behind a head's end and in place of tokens that
  // are not there.
  template <bool kOfV>
  __device__ __forceinline__ void bring(const TokenHead<In>& from, i64 token, int count) const {
    const int lane = lane_of_wave();
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const In* const p = from.at(token + (r < count ? r : 0));
#pragma unroll 1
      for (int i = lane; i < (kOfV ? kLongV : kLong) / 4; i += kLanes) {
        float x = 0;
        if (r < count && i < from.hdim) x = widened(load_element(p + i * from.element));
        store_shared(row<kOfV>(r) + i * 4, x);
      }
    }
  }

  // x[r] = the product of row r and this lane's token. The order of the sum is the same whichever
  // of both is a row.
  template <bool kOfV>
  __device__ __forceinline__ void multiply(const TokenHead<In>& of, i64 token,
                                           float (&x)[kRows]) const {
    const In* const p = of.at(token);
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = 0;
    const bool is_whole = of.element == 1 && of.hdim % 4 == 0 && four_aligned(p);
    if (lanes_with(!is_whole) == 0) {
#pragma unroll 2
      for (int i = 0; i < of.hdim; i += 4) add_four<kOfV>(load_four(p + i), i, x);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < of.hdim; i += 4) {
      Float4 y = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < of.hdim) y[j] = widened(load_element(p + (i + j) * of.element));
      }
      add_four<kOfV>(y, i, x);
    }
  }
  template <bool kOfV>
  __device__ __forceinline__ void add_four(const Float4& y, int element, float (&x)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Float4 own = load_shared<Float4>(row<kOfV>(r) + element * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) x[r] = __builtin_fmaf(own[j], y[j], x[r]);
    }
  }

  // Adds `count` tokens from `token` on, times the weights that their lanes have for each row. A
  // lane has every kLanes-th element.
  template <int kParts>
  static __device__ __forceinline__ void add(const TokenHead<In>& of, i64 token, int count,
                                             const float (&weights)[kRows],
                                             float (&sums)[kRows][kParts]) {
    const int lane = lane_of_wave();
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const In* const from = of.at(token + t);
      float y[kParts];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int element = lane + i * kLanes;
        y[i] =
            widened(load_element(from + (element < of.hdim ? element : of.hdim - 1) * of.element));
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float weight = number_of(weights[r], t);
#pragma unroll
        for (int i = 0; i < kParts; ++i) sums[r][i] += weight * y[i];
      }
    }
  }

  template <int kParts>
  static __device__ __forceinline__ void store(In* to, i64 step, int hdim, float by,
                                               const float (&sums)[kParts]) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int element = lane_of_wave() + i * kLanes;
      if (element < hdim) store_element(to + element * step, rounded<In>(sums[i] * by));
    }
  }
};

}  // namespace tessera::device
