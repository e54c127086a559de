// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b]) for every valid problem, on the ordinary
// lanes: any size, stride and alignment, counted in 64 bits. Elements are loaded one by one and
// multiplied as fp32, or as int32 modulo 2^32. Config has the form that mfma_gemm.h describes. This
// kernel reads its types, kTileM, kTileN, kTileK, the layouts and the epilogue. `Groups` is of
// grouped_gemm.h.
#pragma once

#include "tessera/device/hip/epilogue.h"
#include "tessera/device/hip/gemm/no_groups.h"
#include "tessera/device/hip/memory.h"

namespace tessera::device {

// One tile of an operand in LDS: [k][row], converted.
template <class T, class Acc, int kRows, int kDepth, bool kKContiguous, int kThreads>
struct PlainTile {
  static constexpr int kLine = kRows + 4;  // lines begin at different banks
  static constexpr int kBytes = kLine * kDepth * 4;
  static constexpr int kAlong = 8;  // neighbours along k in a row of lanes, which use all banks
  static_assert(kRows * kDepth % kThreads == 0, "threads load the same number of elements");
  static_assert(kDepth % kAlong == 0, "lanes load whole rows");

  // Loads the tile that begins at `data`, from which on so many rows and `k - k_first` along k
  // exist.
  template <class Scales>
  static __device__ __forceinline__ void load(Shared* tile, Global<T> data, i64 ld, i64 rows,
                                              i64 k_first, i64 k, int thread,
                                              const Scales& scales) {
#pragma unroll
    for (int i = 0; i < kRows * kDepth / kThreads; ++i) {
      const int index = thread + i * kThreads;
      const int row = kKContiguous ? index / kAlong % kRows : index % kRows;
      const int depth =
          kKContiguous ? index % kAlong + index / kAlong / kRows * kAlong : index / kRows;
      Acc value = 0;
      if (row < rows && depth < k - k_first) {
        const T element = bits<T>(*reinterpret_cast<Global<WordBits<T>>>(
            data + (kKContiguous ? row * ld + depth : depth * ld + row)));
        if constexpr (kSame<T, int8>) {
          value = element.value;
        } else {
          value = scales.apply(to_float(element), row, k_first + depth);
        }
      }
      store_shared(tile + (depth * kLine + row) * 4, value);
    }
  }
};

// The operands of a kernel without scales. `Part` is of the groups.
struct NoScales {
  template <class Part>
  static __device__ __forceinline__ NoScales a(const Part&, i64, i64) {
    return {};
  }
  template <class Part>
  static __device__ __forceinline__ NoScales b(const Part&, i64, i64) {
    return {};
  }
  __device__ __forceinline__ float apply(float value, int, i64) const { return value; }
};

template <class C, class Groups = NoGroups, class Scales = NoScales>
struct GeneralGemm {
  using A = typename C::A;
  using B = typename C::B;
  using Acc = typename C::Acc;
  using Sum = typename If<kSame<Acc, int>, u32, float>::Type;
  static constexpr int kThreads = 256;
  static constexpr int kMinWaves = 2, kMaxWaves = 8;
  static constexpr int kMfmas = 0;
  static constexpr int kSide = 16;  // threads along m and n, each with 4 x 4 sums
  static_assert(C::kTileM == 4 * kSide && C::kTileN == 4 * kSide, "threads cover the tile");
  static_assert(C::kSlices == 1 && !C::kPreshuffled, "a general kernel has one form");

  using TileA = PlainTile<A, Sum, C::kTileM, C::kTileK, C::kAKContiguous, kThreads>;
  using TileB = PlainTile<B, Sum, C::kTileN, C::kTileK, C::kBKContiguous, kThreads>;

  template <class Arguments>
  static __device__ __forceinline__ void run(const Arguments&) {
    __shared__ __attribute__((aligned(16))) static u8 memory[TileA::kBytes + TileB::kBytes];
    if constexpr (Groups::kAny) return run_groups((Shared*)memory);
    const typename Groups::Part all{};
    const GemmArguments& g = Groups::product(all);
    const u64 tiles_m = static_cast<u64>(g.m + C::kTileM - 1) / C::kTileM;
    const u64 tiles_n = static_cast<u64>(g.n + C::kTileN - 1) / C::kTileN;
    const u64 total = tiles_m * tiles_n * static_cast<u64>(g.batch);
    const u64 blocks = static_cast<u64>(fresh_arguments<HipGemmArguments>().blocks);
#pragma unroll 1
    for (u64 index = __builtin_amdgcn_workgroup_id_x(); index < total; index += blocks) {
      const u64 across = index / tiles_n;
      const GeneralGemm block(static_cast<i64>(across / tiles_m),
                              static_cast<i64>(across % tiles_m) * C::kTileM,
                              static_cast<i64>(index % tiles_n) * C::kTileN, (Shared*)memory);
      block.compute(all);
    }
  }

 private:
  __device__ __forceinline__ GeneralGemm(i64 batch_index, i64 first_row, i64 first_column,
                                         Shared* lds)
      : batch(batch_index),
        row(first_row),
        column(first_column),
        memory(lds),
        thread(fresh_thread<kThreads>()) {}

  static __device__ __forceinline__ void run_groups(Shared* memory) {
    if (Groups::refused()) return;
    typename Groups::Walk walk;
    typename Groups::Tile tile;
#pragma unroll 1
    while (walk.next(tile)) {
      GeneralGemm(0, tile.row, tile.column, memory).compute(tile.part);
    }
  }

  // Arguments are read anew where they are needed, because scalar registers are few.
  template <class Part>
  __device__ __forceinline__ void compute(const Part& part) const {
    Vec<Sum, 4> sums[4] = {0, 0, 0, 0};
    add_products(part, sums);
    const GemmArguments& g = Groups::product(part);
    const Finish<C, GemmArguments> finish(g, batch);
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const i64 to_row = row + thread / kSide * 4 + i;
      const i64 to_column = column + thread % kSide * 4;
      const i64 columns = to_row < g.m ? g.n - to_column : 0;
      const Vec<Sum, 4> own = i == 0 ? sums[0] : i == 1 ? sums[1] : i == 2 ? sums[2] : sums[3];
      finish.store({to_row, to_column, static_cast<int>(columns < 4 ? columns : 4)},
                   bits<Vec<Acc, 4>>(own));
    }
  }

  template <class Part>
  __device__ __forceinline__ void add_products(const Part& part, Vec<Sum, 4> (&sums)[4]) const {
    const GemmArguments& g = Groups::product(part);
    const bool in_array = g.pointer_arrays != 0;
    const auto a = (Global<A>)matrix_of<A>(g.a, g.batch_stride_a, batch, in_array);
    const auto b = (Global<B>)matrix_of<B>(g.b, g.batch_stride_b, batch, in_array);
#pragma unroll 1
    for (i64 k = 0; k < g.k; k += C::kTileK) {
      const i64 at_a = C::kAKContiguous ? row * g.ld_a + k : k * g.ld_a + row;
      const i64 at_b = C::kBKContiguous ? column * g.ld_b + k : k * g.ld_b + column;
      TileA::load(memory, a + at_a, g.ld_a, g.m - row, k, g.k, thread, Scales::a(part, batch, row));
      TileB::load(memory + TileA::kBytes, b + at_b, g.ld_b, g.n - column, k, g.k, thread,
                  Scales::b(part, batch, column));
      barrier();
      multiply(sums);
      barrier();
    }
  }

  __device__ __forceinline__ void multiply(Vec<Sum, 4> (&sums)[4]) const {
#pragma unroll 4
    for (int k = 0; k < C::kTileK; ++k) {
      const auto x = load_shared<Vec<Sum, 4>>(memory + (k * TileA::kLine + thread / kSide * 4) * 4);
      const auto y = load_shared<Vec<Sum, 4>>(memory + TileA::kBytes +
                                              (k * TileB::kLine + thread % kSide * 4) * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] += x[i] * y;
    }
  }

  i64 batch, row, column;
  Shared* memory;
  int thread;
};

}  // namespace tessera::device
