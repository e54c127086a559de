// Operands for mma.sync and for fused multiply-add: the threads' parts of an operand's tile in
// registers, and the instruction.
//
// For every type and layout, mma takes an operand in blocks of 8 rows by two chunks of 16 bytes of
// k. In each chunk, thread t holds the 4 bytes of row t / 4 from byte t % 4 * 4 on. They are loaded
// by:
//   k contiguous             ldmatrix
//   rows contiguous, 16 bit  ldmatrix.trans
//   rows contiguous, 32 bit  one load a word
//   rows contiguous, 8 bit   words of 4 rows for 4 k, transposed in registers; the rows of a block
//                            are then 4 apart, which row_of() tells
#pragma once

#include "tessera/device/cuda/ptx.h"

namespace tessera::device {

struct Fragment {
  u32 chunk[2];
};

__device__ __forceinline__ u32 load_word(u32 from) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

// Transposes four words of 4 bytes.
__device__ __forceinline__ void transpose_bytes(const u32 (&rows)[4], u32 (&columns)[4]) {
  const u32 low01 = __byte_perm(rows[0], rows[1], 0x5140);
  const u32 low23 = __byte_perm(rows[2], rows[3], 0x5140);
  const u32 high01 = __byte_perm(rows[0], rows[1], 0x7362);
  const u32 high23 = __byte_perm(rows[2], rows[3], 0x7362);
  columns[0] = __byte_perm(low01, low23, 0x5410);
  columns[1] = __byte_perm(low01, low23, 0x7632);
  columns[2] = __byte_perm(high01, high23, 0x5410);
  columns[3] = __byte_perm(high01, high23, 0x7632);
}

// A warp's part of an operand's tile: kBlocks blocks of 8 rows. The lane's first address is
// computed once. From there, a step along the swizzled side of the tile is an exclusive or with a
// constant, and a step across it is an addition.
template <class T, class Shape, bool kKContiguous, int kBlocks, bool kChunksFirst>
class WarpOperand {
 public:
  static constexpr int kSize = static_cast<int>(sizeof(T));
  static constexpr bool kMixed = !kKContiguous && kSize == 1;  // rows of a block are 4 apart
  static constexpr int kLineBytes = Shape::kLineBytes;
  static_assert(kBlocks % (kMixed ? 4 : 2) == 0, "a warp needs 16 rows, 32 where they are mixed");
  static_assert(kKContiguous || (kBlocks & (kBlocks - 1)) == 0,
                "where rows are contiguous a warp needs a power of two of them");
  static_assert(Shape::kBytes % 1024 == 0, "tiles must keep the alignment of the swizzle");

  // The part begins at row `first` of the tile. ldmatrix loads two chunks of two blocks, in the
  // order of registers that mma needs: for A the blocks first, for B the chunks first.
  __device__ __forceinline__ WarpOperand(u32 first, u32 lane) {
    const u32 block = kChunksFirst ? lane >> 4 : lane >> 3 & 1;
    const u32 chunk = kChunksFirst ? lane >> 3 & 1 : lane >> 4;
    if constexpr (kKContiguous) {
      start = Shape::at(first + block * 8 + (lane & 7), chunk);
    } else if constexpr (kSize == 2) {
      start = Shape::at(chunk * 8 + (lane & 7), first / 8 + block);
    } else if constexpr (kSize == 4) {
      const u32 row = first + (lane >> 2);
      start = Shape::at(lane & 3, row / 4) + row % 4 * 4;
    } else {
      const u32 row = first + (lane >> 2) * 4;
      start = Shape::at((lane & 3) * 4, row / 16) + row % 16;
    }
  }

  // The place of row `row` of block `block` in the warp's part.
  static __device__ __forceinline__ u32 row_of(u32 block, u32 row) {
    return kMixed ? block / 4 * 32 + row * 4 + block % 4 : block * 8 + row;
  }

  // Loads the fragments of the 32 bytes of k with number `step`.
  __device__ __forceinline__ void load(u32 tile, int step, Fragment (&out)[kBlocks]) const {
    if constexpr (kKContiguous || kSize == 2) {
      load_blocks(tile, step, out);
    } else if constexpr (kSize == 4) {
      load_words(tile, step, out);
    } else {
      load_bytes(tile, step, out);
    }
  }

 private:
  __device__ __forceinline__ void load_blocks(u32 tile, int step, Fragment (&out)[kBlocks]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; block += 2) {
      u32 words[4];
      if constexpr (kKContiguous) {
        load_matrices<false>(tile + (start ^ step * 32) + block * 8 * kLineBytes, words);
      } else {
        load_matrices<true>(tile + (start ^ block * 16) + step * 16 * kLineBytes, words);
      }
      out[block] = {{words[0], words[kChunksFirst ? 1 : 2]}};
      out[block + 1] = {{words[kChunksFirst ? 2 : 1], words[3]}};
    }
  }

  __device__ __forceinline__ void load_words(u32 tile, int step, Fragment (&out)[kBlocks]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const u32 from = tile + (start ^ block * 32) + step * 8 * kLineBytes;
      out[block].chunk[0] = load_word(from);
      out[block].chunk[1] = load_word(from + 4 * kLineBytes);
    }
  }

  __device__ __forceinline__ void load_bytes(u32 tile, int step, Fragment (&out)[kBlocks]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; block += 4) {
#pragma unroll
      for (int chunk = 0; chunk < 2; ++chunk) {
        const u32 from = tile + (start ^ block * 8) + (step * 32 + chunk * 16) * kLineBytes;
        u32 rows[4];
        u32 columns[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] = load_word(from + i * kLineBytes);
        transpose_bytes(rows, columns);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[block + i].chunk[chunk] = columns[i];
      }
    }
  }

  u32 start;  // first address, relative to the tile
};

// ---- what is multiplied ----

// Converts two fp8 or bf8 in the low half of a word to two fp16.
template <class T>
__device__ __forceinline__ u32 halves_of(u32 pair) {
  u32 halves;
  if constexpr (kSame<T, bf8>) {
    halves = __byte_perm(pair, 0, 0x1404);  // bf8 is the upper half of an fp16
  } else {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(pair)));
  }
  return halves;
}

// A fragment in the form for mma: tf32 is rounded, 8-bit floats become fp16.
template <class T>
struct Operand {
  // how many mma use a fragment
  static constexpr int kParts = kSame<T, fp8> || kSame<T, bf8> ? 2 : 1;
  u32 words[kParts][2];

  __device__ __forceinline__ explicit Operand(const Fragment& f) {
    if constexpr (kParts == 2) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        words[part][0] = halves_of<T>(f.chunk[part]);
        words[part][1] = halves_of<T>(f.chunk[part] >> 16);
      }
    } else if constexpr (kSame<T, tf32>) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(words[0][i]) : "f"(__uint_as_float(f.chunk[i])));
      }
    } else {
      words[0][0] = f.chunk[0];
      words[0][1] = f.chunk[1];
    }
  }
};

#define TESSERA_MMA(shape_and_types, kind)                             \
  asm("mma.sync.aligned." shape_and_types                              \
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                \
      "{%0, %1, %2, %3};"                                              \
      : "+" kind(c[0]), "+" kind(c[1]), "+" kind(c[2]), "+" kind(c[3]) \
      : "r"(a[0]), "r"(low[0]), "r"(a[1]), "r"(low[1]), "r"(b[0]), "r"(b[1]))

// c += A x B, where A has 16 rows (the first 8 in `a`, the others in `low`) and B has 8 columns.
template <class T, class Acc>
__device__ __forceinline__ void mma(Acc (&c)[4], const u32 (&a)[2], const u32 (&low)[2],
                                    const u32 (&b)[2]) {
  if constexpr (kSame<T, bf16>) {
    TESSERA_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "f");
  } else if constexpr (kSame<T, tf32>) {
    TESSERA_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "f");
  } else if constexpr (kSame<T, int8>) {
    TESSERA_MMA("m16n8k32.row.col.s32.s8.s8.s32", "r");
  } else {
    TESSERA_MMA("m16n8k16.row.col.f32.f16.f16.f32", "f");
  }
}

#undef TESSERA_MMA

// ---- fused multiply-add ----

__device__ __forceinline__ void load_vector(u32 from, float (&out)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
               : "r"(from)
               : "memory");
}

// One lane's rows of a tile with lines of kLineBytes. The lane has vectors of 4 rows. The vectors
// of the other lanes of the warp lie between them, so that lanes read different banks.
template <int kLineBytes, int kCount, int kLanes>
class LaneOperand {
 public:
  // The warp's rows begin at `first_row`.
  __device__ __forceinline__ LaneOperand(u32 first_row, u32 lane) : first(first_row + lane * 4) {}

  // The tile's row for this lane's row `index`.
  __device__ __forceinline__ u32 row_of(u32 index) const {
    return first + index / 4 * kLanes * 4 + index % 4;
  }

  // Loads the elements of one k.
  __device__ __forceinline__ void load(u32 tile, int k, float (&out)[kCount]) const {
    float vector[4];
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      load_vector(tile + first * 4 + k * kLineBytes + i * kLanes * 4, vector);
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i + e] = vector[e];
    }
  }

 private:
  u32 first;
};

}  // namespace tessera::device
