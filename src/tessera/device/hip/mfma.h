// The matrix instructions (MFMA) of each target, over 16 bytes of k in a lane.
//
// Mfma<First, Second, kSide>::step<part>(first, second, sums) multiplies part `part` of kParts. The
// lane l holds 16 bytes of row l % kSide of each operand, and the lanes l / kSide hold different k.
// k may come in any order when it is the same in both operands, so the order that an instruction
// gives to k does not matter. A lane then has sums of row l % kSide of Second; its sum number s is
// column 4 * (l / kSide) + s / 4 * 4 * (64 / kSide) + s % 4 of First.
#pragma once

#include "tessera/device/hip/types.h"

namespace tessera::device {

template <class First, class Second, int kSide>
struct Mfma;

// As matrix.h describes it.
template <int kSide>
struct MfmaLayout {
  static constexpr int kGroups = 64 / kSide, kLaneChunks = 1;
  using Lane = Chunk;
  static __device__ __forceinline__ int group_of_k(int lane) { return lane / kSide; }
  static __device__ __forceinline__ int row_of_first(int lane) { return lane % kSide; }
  static __device__ __forceinline__ int first_quad(int lane) { return lane / kSide; }
  static constexpr int more_quads(int quad) { return kGroups * quad; }
  template <class Read>
  static __device__ __forceinline__ Lane read(Read read_chunk) {
    return read_chunk(0);
  }
};

// Part `part` of a chunk that is cut into pieces of kBytes.
template <class Operand>
__device__ __forceinline__ Operand piece(const Chunk& chunk, int part) {
  if constexpr (sizeof(Operand) == 16) {
    return bits<Operand>(chunk);
  } else if constexpr (sizeof(Operand) == 8) {
    return bits<Operand>(Vec<u32, 2>{chunk[2 * part], chunk[2 * part + 1]});
  } else {
    return bits<Operand>(chunk[part]);
  }
}

#define TESSERA_MFMA(FIRST, SECOND, SIDE, SUM, OPERAND, BUILTIN)                                  \
  template <>                                                                                     \
  struct Mfma<FIRST, SECOND, SIDE> : MfmaLayout<SIDE> {                                           \
    static constexpr int kParts = 16 / static_cast<int>(sizeof(OPERAND));                         \
    using Sum = Vec<SUM, SIDE * SIDE / 64>;                                                       \
    static __device__ __forceinline__ Sum step(int part, const Chunk& first, const Chunk& second, \
                                               const Sum& sums) {                                 \
      return BUILTIN(piece<OPERAND>(first, part), piece<OPERAND>(second, part), sums, 0, 0, 0);   \
    }                                                                                             \
  }
#define TESSERA_MFMA_SAME(TYPE, SIDE, SUM, OPERAND, BUILTIN) \
  TESSERA_MFMA(TYPE, TYPE, SIDE, SUM, OPERAND, BUILTIN)

using Half4 = Vec<_Float16, 4>;
using Half8 = Vec<_Float16, 8>;
using Short4 = Vec<short, 4>;
using Float2 = Vec<float, 2>;

#if !defined(__GFX11__) && !defined(__GFX12__)
TESSERA_MFMA_SAME(float, 32, float, float, __builtin_amdgcn_mfma_f32_32x32x2f32);
TESSERA_MFMA_SAME(float, 16, float, float, __builtin_amdgcn_mfma_f32_16x16x4f32);
#endif

#if defined(__gfx950__)
using Bfloat8 = Vec<__bf16, 8>;
TESSERA_MFMA_SAME(fp16, 32, float, Half8, __builtin_amdgcn_mfma_f32_32x32x16_f16);
TESSERA_MFMA_SAME(fp16, 16, float, Half8, __builtin_amdgcn_mfma_f32_16x16x32_f16);
TESSERA_MFMA_SAME(bf16, 32, float, Bfloat8, __builtin_amdgcn_mfma_f32_32x32x16_bf16);
TESSERA_MFMA_SAME(bf16, 16, float, Bfloat8, __builtin_amdgcn_mfma_f32_16x16x32_bf16);
TESSERA_MFMA_SAME(int8, 32, int, Chunk, __builtin_amdgcn_mfma_i32_32x32x32_i8);
TESSERA_MFMA_SAME(int8, 16, int, Chunk, __builtin_amdgcn_mfma_i32_16x16x64_i8);
#elif defined(__gfx90a__) || defined(__gfx942__)
TESSERA_MFMA_SAME(fp16, 32, float, Half4, __builtin_amdgcn_mfma_f32_32x32x8f16);
TESSERA_MFMA_SAME(fp16, 16, float, Half4, __builtin_amdgcn_mfma_f32_16x16x16f16);
TESSERA_MFMA_SAME(bf16, 32, float, Short4, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k);
TESSERA_MFMA_SAME(bf16, 16, float, Short4, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k);
#endif
#if defined(__gfx90a__)
TESSERA_MFMA_SAME(int8, 32, int, int, __builtin_amdgcn_mfma_i32_32x32x8i8);
TESSERA_MFMA_SAME(int8, 16, int, int, __builtin_amdgcn_mfma_i32_16x16x16i8);
#endif
#if defined(__gfx942__)
TESSERA_MFMA_SAME(int8, 32, int, long, __builtin_amdgcn_mfma_i32_32x32x16_i8);
TESSERA_MFMA_SAME(int8, 16, int, long, __builtin_amdgcn_mfma_i32_16x16x32_i8);
TESSERA_MFMA_SAME(tf32, 32, float, Float2, __builtin_amdgcn_mfma_f32_32x32x4_xf32);
TESSERA_MFMA_SAME(tf32, 16, float, Float2, __builtin_amdgcn_mfma_f32_16x16x8_xf32);
#endif
#if defined(__gfx942__) || defined(__gfx950__)
TESSERA_MFMA(fp8, fp8, 32, float, long, __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8);
TESSERA_MFMA(fp8, fp8, 16, float, long, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8);
TESSERA_MFMA(fp8, bf8, 32, float, long, __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8);
TESSERA_MFMA(fp8, bf8, 16, float, long, __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8);
TESSERA_MFMA(bf8, fp8, 32, float, long, __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8);
TESSERA_MFMA(bf8, fp8, 16, float, long, __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8);
TESSERA_MFMA(bf8, bf8, 32, float, long, __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8);
TESSERA_MFMA(bf8, bf8, 16, float, long, __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8);
#endif
#undef TESSERA_MFMA
#undef TESSERA_MFMA_SAME

}  // namespace tessera::device
