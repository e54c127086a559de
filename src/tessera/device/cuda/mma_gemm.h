// The cpasync kernel on tensor cores: mma.sync of sm_80 and later. tf32, fp16, bf16, int8, and fp8
// and bf8 in any mix, which become fp16 (that holds every fp8 and bf8 value) in registers.
//
// Whatever its type and layout, an operand reaches mma in blocks of 8 rows by two chunks of 16
// bytes of k; of each, thread t holds the 4 bytes of row t / 4 from byte t % 4 * 4:
//   k contiguous             ldmatrix
//   rows contiguous, 16 bit  ldmatrix.trans
//   rows contiguous, 32 bit  one load a word
//   rows contiguous, 8 bit   words of 4 rows for 4 k, transposed in registers; the rows of a block
//                            are then 4 apart, which put() undoes
#pragma once

#include "tessera/device/cuda/cpasync_gemm.h"

namespace tessera::device {

struct Fragment {
  u32 chunk[2];
};

__device__ __forceinline__ u32 load_word(u32 from) {
  u32 word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

// The columns of four words of 4 bytes, as words.
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

// A warp's part of an operand's tile: kBlocks blocks of 8 rows. The lane's first address is worked
// out once; from there, a step along the swizzled side of the tile is an exclusive or with a
// constant and a step across it an addition.
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

  // From row `first` of the tile on. ldmatrix brings two chunks of two blocks, in the order in
  // which mma wants them in neighbouring registers: A's blocks first, B's chunks first.
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

  // Where row `row` of block `block` is in the warp's part.
  static __device__ __forceinline__ u32 row_of(u32 block, u32 row) {
    return kMixed ? block / 4 * 32 + row * 4 + block % 4 : block * 8 + row;
  }

  // The fragments of the `step`th 32 bytes of k.
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

  u32 start;  // in the tile
};

// ---- what is multiplied ----

// Two fp8 or bf8 in the low half of a word as two fp16.
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

// A fragment as mma takes it: tf32 rounded, 8-bit floats as fp16.
template <class T>
struct Operand {
  static constexpr int kParts = kSame<T, fp8> || kSame<T, bf8> ? 2 : 1;  // mma a fragment feeds
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

// c += the 16 rows of `a` (the upper 8) and `low` by the 8 columns of b.
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

template <class C>
class MmaEngine {
 public:
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using ShapeA = TileShape<A, C::kTileM, C::kTileK, C::kAKContiguous>;
  using ShapeB = TileShape<B, C::kTileN, C::kTileK, C::kBKContiguous>;

  static constexpr int kWarpM = C::kTileM / C::kWaveM;
  static constexpr int kWarpN = C::kTileN / C::kWaveN;
  static constexpr int kBlocksA = kWarpM / 8;
  static constexpr int kBlocksB = kWarpN / 8;
  static constexpr int kSteps = C::kTileK * static_cast<int>(sizeof(A)) / 32;
  static constexpr int kParts = Operand<A>::kParts;
  static_assert(kSteps >= 1 && sizeof(A) == sizeof(B), "tile_k must be a multiple of 32 bytes");

  static constexpr int kThreads = C::kWaveM * C::kWaveN * 32;
  using CopyA = TileCopy<A, ShapeA, C::kTileM, C::kTileK, C::kAKContiguous, kThreads>;
  using CopyB = TileCopy<B, ShapeB, C::kTileN, C::kTileK, C::kBKContiguous, kThreads>;
  static constexpr int kStageBytes = ShapeA::kBytes + ShapeB::kBytes;
  // Beyond 8 copies of a thread their addresses are kept, not worked out anew.
  static constexpr int kRegisters = kBlocksA * kBlocksB * 2 + (kBlocksA + kBlocksB) * 2 * kParts +
                                    40 + 12 * larger(0, CopyA::kCopies + CopyB::kCopies - 8);

  using WarpA = WarpOperand<A, ShapeA, C::kAKContiguous, kBlocksA, false>;
  using WarpB = WarpOperand<B, ShapeB, C::kBKContiguous, kBlocksB, true>;

  __device__ __forceinline__ explicit MmaEngine(u32 thread)
      : lane(thread & 31),
        row(thread / 32 / C::kWaveN * kWarpM),
        column(thread / 32 % C::kWaveN * kWarpN),
        warp_a(row, lane),
        warp_b(column, lane) {}

  // Stage i of the ring is filled kStages - 1 turns before it is multiplied. One loop serves the
  // turns that only fill, those that do both, and those that only multiply.
  __device__ __forceinline__ void accumulate(const GemmArguments& g, const TileCorner& corner,
                                             u32 shared) {
    constexpr int kAhead = C::kStages - 1;
    OperandCopies<C, CopyA, CopyB> copies(g, corner, threadIdx.x);
    i64 k_left = g.k;
    u32 fill = 0;
    u32 use = 0;
    const i64 turns = (g.k + C::kTileK - 1) / C::kTileK + kAhead;
#pragma unroll 1
    for (i64 turn = 0; turn < turns; ++turn) {
      if (turn >= kAhead) {
        copies_wait<kAhead - 1>();
        __syncthreads();
      }
      if (k_left > 0) {
        const u32 stage = shared + fill * kStageBytes;
        copies.a.fetch(stage, k_left);
        copies.b.fetch(stage + ShapeA::kBytes, k_left);
        k_left -= C::kTileK;
        fill = fill + 1 == C::kStages ? 0 : fill + 1;
      }
      copies_commit();
      if (turn >= kAhead) {
        const u32 stage = shared + use * kStageBytes;
        multiply(stage, stage + ShapeA::kBytes);
        use = use + 1 == C::kStages ? 0 : use + 1;
      }
    }
    copies_wait<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void put(Acc* tile) const {
    using Output = TileOutput<C, 0>;
#pragma unroll
    for (int i = 0; i < kBlocksA; ++i) {
      const u32 at_row = row + WarpA::row_of(i, lane >> 2);
#pragma unroll
      for (int j = 0; j < kBlocksB; ++j) {
        const u32 at_column = column + WarpB::row_of(j, (lane & 3) * 2);
        const u32 second = column + WarpB::row_of(j, (lane & 3) * 2 + 1);
        Output::put(tile, at_row, at_column, acc[i / 2][j][i % 2 * 2]);
        Output::put(tile, at_row, second, acc[i / 2][j][i % 2 * 2 + 1]);
      }
    }
  }

 private:
  __device__ __forceinline__ void multiply(u32 a_tile, u32 b_tile) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragment a[kBlocksA];
      Fragment b[kBlocksB];
      warp_a.load(a_tile, step, a);
      warp_b.load(b_tile, step, b);
      multiply_step(a, b);
    }
  }

  __device__ __forceinline__ void multiply_step(const Fragment (&a)[kBlocksA],
                                                const Fragment (&b)[kBlocksB]) {
    u32 columns[kBlocksB][kParts][2];
#pragma unroll
    for (int j = 0; j < kBlocksB; ++j) {
      const Operand<B> operand(b[j]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        columns[j][part][0] = operand.words[part][0];
        columns[j][part][1] = operand.words[part][1];
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocksA; i += 2) {
      const Operand<A> upper(a[i]);
      const Operand<A> lower(a[i + 1]);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int j = 0; j < kBlocksB; ++j) {
          mma<A>(acc[i / 2][j], upper.words[part], lower.words[part], columns[j][part]);
        }
      }
    }
  }

  u32 lane, row, column;
  WarpA warp_a;
  WarpB warp_b;
  Acc acc[kBlocksA / 2][kBlocksB][4] = {};
};

template <class C>
using MmaGemm = CpasyncGemm<C, MmaEngine>;

}  // namespace tessera::device
