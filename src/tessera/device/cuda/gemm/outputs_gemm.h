// GEMM where out has a gate, rows by index or 8 bits, in up to three steps: the rows of A that an
// index names are copied one behind the other, a kernel for tiles writes the sums to the workspace,
// and blocks finish them row by row. Groups of unequal sizes are those of the kernel for tiles.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/epilogue.h"
#include "tessera/device/cuda/gemm/gate.h"
#include "tessera/device/cuda/gemm/group_check.h"
#include "tessera/device/cuda/gemm/outputs_arguments.h"
#include "tessera/device/norm.h"

namespace tessera::device {

// A configuration whose output is the sums.
template <class C>
struct SumsOf : C {
  using Out = typename C::Acc;
  using D = typename C::Acc;
  static constexpr int kNumSteps = 0, kNumD = 0;
};

// Whether the rows of groups follow each other, so that sums lie as the rows of A do. In all other
// products the matrices of sums follow each other.
template <class C>
inline constexpr bool kRowsFollow =
    C::kGrouping == Grouping::contiguous || C::kGrouping == Grouping::indexed;

// The product alone; `Gemm` is the kernel for tiles.
template <class C, template <class> class Gemm>
struct OutputsProduct {
  using Kernel = Gemm<SumsOf<C>>;
  static constexpr int kThreads = Kernel::kThreads;
  static constexpr int kMinBlocks = Kernel::kMinBlocks;

  // `more` is what the kernel for tiles gets besides.
  template <class... More>
  static __device__ __forceinline__ void run(const CudaOutputArguments& x, const More&... more) {
    if constexpr (C::kGrouping == Grouping::none) {
      CudaGemmArguments arguments;
      arguments.gemm = x.outputs.groups.gemm;
      to_workspace(x, arguments.gemm);
      arguments.raster_group = x.raster_group;
      arguments.workspace = nullptr;
      Kernel::run(arguments, more...);
    } else {
      CudaGroupArguments arguments;
      GroupArguments& groups = arguments.groups;
      groups = x.outputs.groups;
      to_workspace(x, groups.gemm);
      groups.step_out = kRowsFollow<C> ? groups.gemm.n : 0;
      if (kRowsFollow<C>) groups.gemm.batch_stride_out = 0;
      if constexpr (C::kIndexing == Indexing::gathered) {
        groups.step_a = C::kAKContiguous ? x.ld_copy : 1;
      }
      arguments.raster_group = x.raster_group;
      Kernel::run(arguments, more...);
    }
  }

 private:
  static __device__ __forceinline__ void to_workspace(const CudaOutputArguments& x,
                                                      GemmArguments& g) {
    char* const workspace = static_cast<char*>(x.workspace);
    g.out = workspace + x.sums;
    g.c = nullptr;
    g.ld_out = g.n, g.batch_stride_out = g.m * g.n;
    g.alpha = 1, g.beta = 0;
    if constexpr (C::kIndexing == Indexing::gathered) {
      g.a = workspace + x.copy;
      g.ld_a = x.ld_copy;
    }
  }
};

inline constexpr int kOutputThreads = 256;

// A block copies a row of A at a time where k is contiguous, otherwise one k of all rows. A row of
// no index keeps what the workspace holds: its sums are not finished.
template <class C>
struct OutputsGather {
  using A = typename C::A;
  static __device__ __forceinline__ void run(const CudaOutputArguments& x) {
    const GemmArguments& g = x.outputs.groups.gemm;
    const A* const a = static_cast<const A*>(g.a);
    A* const to = reinterpret_cast<A*>(static_cast<char*>(x.workspace) + x.copy);
    const i64 lines = C::kAKContiguous ? g.m : g.k;
#pragma unroll 1
    for (i64 line = blockIdx.x; line < lines; line += gridDim.x) {
      if constexpr (C::kAKContiguous) {
        const i64 from = named_row(x.outputs, line);
        for (i64 k = threadIdx.x; from >= 0 && k < g.k; k += kOutputThreads) {
          to[line * x.ld_copy + k] = a[from * g.ld_a + k];
        }
      } else {
        for (i64 row = threadIdx.x; row < g.m; row += kOutputThreads) {
          const i64 from = named_row(x.outputs, row);
          if (from >= 0) to[line * x.ld_copy + row] = a[line * g.ld_a + from];
        }
      }
    }
  }
};

template <class C>
struct OutputsFinish {
  using Out = typename C::Out;
  using Acc = typename C::Acc;
  struct Floats : C {
    using Out = float;
  };
  using Steps = Finish<Floats, GemmArguments>;
  static constexpr int kWarps = kOutputThreads / 32;
  static constexpr int kEach = kQuantBlock / 32;  // columns of a lane in a block of them
  static constexpr bool kExact = kSame<Out, int>;
  static constexpr bool kGated = C::kGate != Gate::none;
  static constexpr float kLargest = kSame<Out, fp8> ? 448.0F : 57344.0F;

  // A row of the product, and where it goes.
  struct Row {
    Acc* sums;
    Out* out;
    const Out* c;
    i64 named;  // row of out, C and D
  };

  static __device__ __forceinline__ float value(const GemmArguments& g, const Steps& steps,
                                                const Row& row, i64 column) {
    float x = static_cast<float>(row.sums[column]) * g.alpha;
    if constexpr (C::kQuant == NormQuant::none) {
      if (g.beta != 0) x += to_float(row.c[column]) * g.beta;
    }
    const u64 pair = steps.rounded(Place{row.named, column, 1}, Values{x, 0.0F});
    return __uint_as_float(static_cast<u32>(pair));
  }
  static __device__ __forceinline__ float gated(const GemmArguments& g, const Steps& steps,
                                                const Row& row, i64 column) {
    if constexpr (!kGated) return value(g, steps, row, column);
    const i64 first = C::kGateInterleaved ? 2 * column : column;
    const i64 second = C::kGateInterleaved ? 2 * column + 1 : g.n / 2 + column;
    return gated_pair<C::kGate>(value(g, steps, row, first), value(g, steps, row, second));
  }

  // NaN does not count.
  static __device__ __forceinline__ float most_of(float most, float y) {
    const float magnitude = fabsf(y);
    return magnitude > most ? magnitude : most;
  }

  static __device__ __forceinline__ void store_exact(const GemmArguments& g, const Row& row) {
    for (i64 column = threadIdx.x; column < g.n; column += kOutputThreads) {
      u32 x = static_cast<u32>(row.sums[column]) * static_cast<u32>(static_cast<int>(g.alpha));
      if (g.beta != 0) {
        x += static_cast<u32>(row.c[column]) * static_cast<u32>(static_cast<int>(g.beta));
      }
      row.out[column] = static_cast<int>(x);
    }
  }

  static __device__ __forceinline__ void store_plain(const GemmArguments& g, const Steps& steps,
                                                     const Row& row, i64 columns, float factor) {
    for (i64 column = threadIdx.x; column < columns; column += kOutputThreads) {
      const float y = gated(g, steps, row, column);
      row.out[column] = rounded_output<Out>(C::kQuant == NormQuant::none ? y : y * factor);
    }
  }

  // A warp has a block of columns.
  static __device__ __forceinline__ void store_blocks(const GemmArguments& g, const Steps& steps,
                                                      const Row& row, i64 columns, float* scales,
                                                      i64 step) {
    const i64 blocks = (columns + kQuantBlock - 1) / kQuantBlock;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (i64 block = threadIdx.x / 32; block < blocks; block += kWarps) {
      float y[kEach];
      float most = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const i64 column = block * kQuantBlock + i * 32 + lane;
        y[i] = column < columns ? gated(g, steps, row, column) : 0.0F;
        most = most_of(most, y[i]);
      }
      const float scale = quant_scale(most_of_warp(most), kLargest);
      if (lane == 0) scales[block * step] = scale;
      const float factor = 1.0F / scale;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const i64 column = block * kQuantBlock + i * 32 + lane;
        if (column < columns) row.out[column] = rounded_output<Out>(y[i] * factor);
      }
    }
  }

  // Results wait in the place of sums that the same thread has read.
  static __device__ __forceinline__ void store_row(const GemmArguments& g, const Steps& steps,
                                                   const Row& row, i64 columns, float* scale) {
    __shared__ float mosts[kWarps];
    float* const results = reinterpret_cast<float*>(row.sums);
    constexpr i64 kStep = kGated && C::kGateInterleaved ? 2 : 1;
    float most = 0;
    for (i64 column = threadIdx.x; column < columns; column += kOutputThreads) {
      const float y = gated(g, steps, row, column);
      results[column * kStep] = y;
      most = most_of(most, y);
    }
    most = most_of_warp(most);
    __syncthreads();  // the row before has been read
    if (threadIdx.x % 32 == 0) mosts[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWarps; ++i) most = fmaxf(most, mosts[i]);
    const float of_row = quant_scale(most, kLargest);
    if (threadIdx.x == 0 && columns > 0) *scale = of_row;
    const float factor = 1.0F / of_row;
    for (i64 column = threadIdx.x; column < columns; column += kOutputThreads) {
      row.out[column] = rounded_output<Out>(results[column * kStep] * factor);
    }
  }

  // A product's row, or a part of it: the matrix or the group it is of, and the row in that.
  struct RowOfPart {
    GroupPart part;
    i64 row;
  };
  static constexpr RowOfPart no_row() { return {{-1, 0, 0}, 0}; }

  static __device__ __forceinline__ void finish_row(const OutputArguments& x, Acc* sums,
                                                    const RowOfPart& at) {
    const i64 named = row_of_out(x, at);
    if (named < 0) return;
    const GemmArguments g = product_of(x.groups, at.part, kElements);
    const Steps steps(g, 0);
    const Row row = {sums, static_cast<Out*>(g.out) + named * g.ld_out,
                     static_cast<const Out*>(g.c) + named * g.ld_c, named};
    const i64 columns = kGated ? g.n / 2 : g.n;
    float* const scales = x.out_scales + at.part.group * x.matrix_of_scales +
                          at.part.begin * x.step_of_scales + named * x.row_of_scales;
    if constexpr (kExact) {
      store_exact(g, row);
    } else if constexpr (C::kQuant == NormQuant::block) {
      store_blocks(g, steps, row, columns, scales, x.block_of_scales);
    } else if constexpr (C::kQuant == NormQuant::row) {
      store_row(g, steps, row, columns, scales);
    } else {
      const float factor = C::kQuant == NormQuant::tensor ? 1.0F / *x.out_scale : 1.0F;
      store_plain(g, steps, row, columns, factor);
    }
  }

  // The row of out, counted from the part's first one; -1: none.
  static __device__ __forceinline__ i64 row_of_out(const OutputArguments& x, const RowOfPart& at) {
    if (at.part.group < 0) return -1;
    if constexpr (C::kIndexing == Indexing::none) return at.row;
    const i64 named = named_row(x, at.part.begin + at.row);
    return named < 0 || C::kIndexing == Indexing::scattered ? named : at.row;
  }

  // ---- which group a row of sums belongs to ----

  static __device__ __forceinline__ i64 group_of_row(const GroupArguments& x, i64 row) {
    if constexpr (C::kGrouping == Grouping::indexed) {
      const i64 group = number_at(x, row);
      return group < x.groups ? group : -1;
    } else {
      i64 low = 0;  // the first group that ends behind the row
      i64 high = x.groups;
      while (low < high) {
        const i64 middle = (low + high) / 2;
        if (number_at(x, middle) > row) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      return low < x.groups ? low : -1;
    }
  }

  static __device__ __forceinline__ RowOfPart row_at(const GroupArguments& x, i64 index) {
    if constexpr (kRowsFollow<C>) {
      return {{group_of_row(x, index), index, 1}, 0};
    } else {
      const i64 matrix = index / x.gemm.m;
      const i64 row = index % x.gemm.m;
      if constexpr (C::kGrouping == Grouping::masked) {
        if (row >= number_at(x, matrix)) return no_row();
      }
      return {{matrix, 0, x.gemm.m}, row};
    }
  }

  static constexpr GroupElements kElements = {sizeof(typename C::A), sizeof(typename C::B),
                                              sizeof(typename C::D), sizeof(Out)};

  static __device__ __forceinline__ void run(const CudaOutputArguments& x) {
    const GroupArguments& all = x.outputs.groups;
    if constexpr (C::kGrouping != Grouping::none) {
      if (found_bad_group(all)) return;
    }
    Acc* const sums = reinterpret_cast<Acc*>(static_cast<char*>(x.workspace) + x.sums);
    const i64 matrices = kRowsFollow<C>                   ? 1
                         : C::kGrouping == Grouping::none ? all.gemm.batch
                                                          : all.groups;
#pragma unroll 1
    for (i64 index = blockIdx.x; index < all.gemm.m * matrices; index += gridDim.x) {
      finish_row(x.outputs, sums + index * all.gemm.n, row_at(all, index));
    }
  }
};

}  // namespace tessera::device
