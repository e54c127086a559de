// The matrix instructions (WMMA) of RDNA 3 and RDNA 4, for waves of 32 lanes: 16x16 sums, over 32
// bytes of k of each row. matrix.h describes the interface.
//
// RDNA 4: lane l has 16 bytes of row l % 16 of each operand, and the lanes from 16 on have the
// other k. Its sums are of row l % 16 of Second, and of the 8 columns of First from 8 * (l / 16)
// on. RDNA 3: lane l has all 32 bytes of row l % 16, the lanes from 16 on the same ones again. Its
// sums are of every second row of First, from l / 16 on. A lane therefore holds another row of
// First than its number says, so that sums are of the same columns as on RDNA 4.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

template <class First, class Second, int kSide>
struct Wmma;

struct WmmaLayout {
#if defined(__GFX11__)
  static constexpr int kGroups = 1, kLaneChunks = 2;
#else
  static constexpr int kGroups = 2, kLaneChunks = 1;
#endif
  static constexpr int kWords = 4 * kLaneChunks;
  using Lane = Vec<u32, kWords>;
  static __device__ __forceinline__ int group_of_k(int lane) {
    return kGroups == 1 ? 0 : lane / 16;
  }
  static __device__ __forceinline__ int row_of_first(int lane) {
    return kGroups == 1 ? lane % 2 * 8 + lane % 16 / 2 : lane % 16;
  }
  static __device__ __forceinline__ int first_quad(int lane) { return lane / 16 * 2; }
  static constexpr int more_quads(int quad) { return quad; }
  template <class Read>
  static __device__ __forceinline__ Lane read(Read read_chunk) {
    Lane all;
#pragma unroll
    for (int i = 0; i < kLaneChunks; ++i) {
      const Chunk chunk = read_chunk(i);
#pragma unroll
      for (int word = 0; word < 4; ++word) all[4 * i + word] = chunk[word];
    }
    return all;
  }
  // Part `part` of what a lane holds.
  template <class Operand>
  static __device__ __forceinline__ Operand piece(const Lane& lane, int part) {
    constexpr int kPart = static_cast<int>(sizeof(Operand)) / 4;
    Vec<u32, kPart> words;
#pragma unroll
    for (int i = 0; i < kPart; ++i) words[i] = lane[part * kPart + i];
    return bits<Operand>(words);
  }
};

#define TESSERA_WMMA(FIRST, SECOND, SUM, OPERAND, ...)                                          \
  template <>                                                                                   \
  struct Wmma<FIRST, SECOND, 16> : WmmaLayout {                                                 \
    static constexpr int kParts = static_cast<int>(sizeof(Lane) / sizeof(OPERAND));             \
    using Sum = Vec<SUM, 8>;                                                                    \
    static __device__ __forceinline__ Sum step(int part, const Lane& first, const Lane& second, \
                                               const Sum& sums) {                               \
      const OPERAND a = piece<OPERAND>(first, part), b = piece<OPERAND>(second, part);          \
      return __VA_ARGS__;                                                                       \
    }                                                                                           \
  }

#if defined(__GFX11__)
using Half16 = Vec<_Float16, 16>;
using Short16 = Vec<short, 16>;
using Int4 = Vec<int, 4>;
TESSERA_WMMA(fp16, fp16, float, Half16, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, sums));
TESSERA_WMMA(bf16, bf16, float, Short16, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, sums));
TESSERA_WMMA(int8, int8, int, Int4,
             __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, sums, false));
#else
using Half8 = Vec<_Float16, 8>;
using Short8 = Vec<short, 8>;
using Int2 = Vec<int, 2>;
TESSERA_WMMA(fp16, fp16, float, Half8,
             __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, sums));
TESSERA_WMMA(bf16, bf16, float, Short8,
             __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, sums));
TESSERA_WMMA(int8, int8, int, Int2,
             __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, sums, false));
TESSERA_WMMA(fp8, fp8, float, Int2,
             __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a, b, sums));
TESSERA_WMMA(fp8, bf8, float, Int2,
             __builtin_amdgcn_wmma_f32_16x16x16_fp8_bf8_w32_gfx12(a, b, sums));
TESSERA_WMMA(bf8, fp8, float, Int2,
             __builtin_amdgcn_wmma_f32_16x16x16_bf8_fp8_w32_gfx12(a, b, sums));
TESSERA_WMMA(bf8, bf8, float, Int2,
             __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(a, b, sums));
#endif
#undef TESSERA_WMMA

}  // namespace tessera::device
