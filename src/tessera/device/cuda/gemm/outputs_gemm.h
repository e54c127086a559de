// GEMM where out has a gate, rows by index or 8 bits, in up to three steps: the rows of A that an
// index names are copied one behind the other, a kernel for tiles writes the sums to the workspace,
// and blocks finish them row by row.
#pragma once

#include "tessera/device/cuda/eight_bits.h"
#include "tessera/device/cuda/epilogue.h"
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

// The product alone; `Gemm` is the kernel for tiles.
template <class C, template <class> class Gemm>
struct OutputsProduct {
  using Kernel = Gemm<SumsOf<C>>;
  static constexpr int kThreads = Kernel::kThreads;
  static constexpr int kMinBlocks = Kernel::kMinBlocks;

  // `more` is what the kernel for tiles gets besides.
  template <class... More>
  static __device__ __forceinline__ void run(const CudaOutputArguments& x, const More&... more) {
    CudaGemmArguments arguments;
    GemmArguments& g = arguments.gemm;
    g = x.product.gemm;
    char* const workspace = static_cast<char*>(x.product.workspace);
    g.out = workspace + x.sums;
    g.c = nullptr;
    g.ld_out = g.n, g.batch_stride_out = g.m * g.n;
    g.alpha = 1, g.beta = 0;
    if constexpr (C::kIndexing == Indexing::gathered) {
      g.a = workspace + x.copy;
      g.ld_a = x.ld_copy;
    }
    arguments.raster_group = x.product.raster_group;
    arguments.workspace = nullptr;
    Kernel::run(arguments, more...);
  }
};

inline constexpr int kOutputThreads = 256;

// A block copies a row of A at a time where k is contiguous, otherwise one k of all rows. A row of
// no index keeps what the workspace holds: its sums are not finished.
template <class C>
struct OutputsGather {
  using A = typename C::A;
  static __device__ __forceinline__ void run(const CudaOutputArguments& x) {
    const GemmArguments& g = x.product.gemm;
    const A* const a = static_cast<const A*>(g.a);
    A* const to = reinterpret_cast<A*>(static_cast<char*>(x.product.workspace) + x.copy);
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
  static __device__ __forceinline__ float act(float x) {
    if constexpr (C::kGate == Gate::silu_mul) return silu(x);
    if constexpr (C::kGate == Gate::gelu_mul) return gelu(x);
    return gelu_tanh(x);
  }
  static __device__ __forceinline__ float gated(const GemmArguments& g, const Steps& steps,
                                                const Row& row, i64 column) {
    if constexpr (!kGated) return value(g, steps, row, column);
    const i64 first = C::kGateInterleaved ? 2 * column : column;
    const i64 second = C::kGateInterleaved ? 2 * column + 1 : g.n / 2 + column;
    return act(value(g, steps, row, first)) * value(g, steps, row, second);
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

  static __device__ __forceinline__ void finish_row(const CudaOutputArguments& x,
                                                    const Steps& steps, const Row& row, i64 batch) {
    const GemmArguments& g = x.product.gemm;
    const OutputArguments& o = x.outputs;
    const i64 columns = kGated ? g.n / 2 : g.n;
    float* const scales = o.out_scales + batch * o.matrix_of_scales + row.named * o.row_of_scales;
    if constexpr (kExact) {
      store_exact(g, row);
    } else if constexpr (C::kQuant == NormQuant::block) {
      store_blocks(g, steps, row, columns, scales, o.block_of_scales);
    } else if constexpr (C::kQuant == NormQuant::row) {
      store_row(g, steps, row, columns, scales);
    } else {
      const float factor = C::kQuant == NormQuant::tensor ? 1.0F / *o.out_scale : 1.0F;
      store_plain(g, steps, row, columns, factor);
    }
  }

  // The row of out of a row of the product; -1: none.
  static __device__ __forceinline__ i64 row_of_out(const OutputArguments& o, i64 row) {
    if constexpr (C::kIndexing == Indexing::none) return row;
    const i64 named = named_row(o, row);
    return named < 0 || C::kIndexing == Indexing::scattered ? named : row;
  }

  static __device__ __forceinline__ void run(const CudaOutputArguments& x) {
    const GemmArguments& g = x.product.gemm;
    Acc* const sums = reinterpret_cast<Acc*>(static_cast<char*>(x.product.workspace) + x.sums);
#pragma unroll 1
    for (i64 index = blockIdx.x; index < g.m * g.batch; index += gridDim.x) {
      const i64 batch = index / g.m;
      const i64 named = row_of_out(x.outputs, index % g.m);
      if (named < 0) continue;
      const Steps steps(g, batch);
      Out* const out = static_cast<Out*>(g.out) + batch * g.batch_stride_out + named * g.ld_out;
      const Out* const c = static_cast<const Out*>(g.c) + batch * g.batch_stride_c + named * g.ld_c;
      finish_row(x, steps, {sums + index * g.n, out, c, named}, batch);
    }
  }
};

}  // namespace tessera::device
