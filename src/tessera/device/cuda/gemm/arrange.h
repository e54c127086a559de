// Arranges operands before a product and spreads the result after it: neighbouring threads have
// neighbouring elements of the matrix.
#pragma once

#include "tessera/device/cuda/types.h"
#include "tessera/device/gemm/arrange.h"

namespace tessera::device {

struct Arrange {
  static __device__ __forceinline__ void gather(const ArrangeArguments& x) {
    for (int i = 0; i < x.gathers; ++i) run(x, x.jobs[i], false);
  }
  static __device__ __forceinline__ void spread(const ArrangeArguments& x) {
    for (int i = x.gathers; i < x.gathers + x.spreads; ++i) run(x, x.jobs[i], true);
  }

 private:
  static __device__ __forceinline__ void run(const ArrangeArguments& x, const ArrangeJob& job,
                                             bool spreads) {
    if (job.sources > 1) {
      if (job.type == MergedType::fp32) return merge<float>(x, job);
      return job.type == MergedType::fp16 ? merge<fp16>(x, job) : merge<bf16>(x, job);
    }
    if (job.bytes == 4) return move<u32>(x, job, spreads);
    return job.bytes == 2 ? move<u16>(x, job, spreads) : move<u8>(x, job, spreads);
  }

  template <class T>
  static __device__ __forceinline__ T* matrix_of(const ArrangeArguments& x, const ArrangeJob& job) {
    return reinterpret_cast<T*>(static_cast<char*>(x.workspace) + job.matrix);
  }

  template <class Visit>
  static __device__ __forceinline__ void for_each(const ArrangeJob& job, const Visit& visit) {
    const i64 step = static_cast<i64>(gridDim.x) * kArrangeThreads;
#pragma unroll 1
    for (i64 i = static_cast<i64>(blockIdx.x) * kArrangeThreads + threadIdx.x; i < job.elements;
         i += step) {
      visit(arrange_place(job, i));
    }
  }

  template <class T>
  static __device__ __forceinline__ void move(const ArrangeArguments& x, const ArrangeJob& job,
                                              bool spreads) {
    T* const matrix = matrix_of<T>(x, job);
    T* const tensor = static_cast<T*>(job.tensor);
    for_each(job, [&](const ArrangePlace& place) {
      if (spreads) {
        tensor[place.in(job.strides)] = matrix[place.in(job.dense)];
      } else {
        matrix[place.in(job.dense)] = tensor[place.in(job.strides)];
      }
    });
  }

  template <class T>
  static __device__ __forceinline__ void merge(const ArrangeArguments& x, const ArrangeJob& job) {
    T* const matrix = matrix_of<T>(x, job);
    for_each(job, [&](const ArrangePlace& place) {
      float sum = to_float(static_cast<const T*>(job.tensor)[place.in(job.strides)]);
      for (int s = 1; s < job.sources; ++s) {
        const ArrangeMore& more = x.more[job.first_more + s - 1];
        const i64 at = place.in(more.strides);
        sum = merge_of(job, sum, to_float(static_cast<const T*>(more.tensor)[at]));
      }
      store(matrix + place.in(job.dense), sum);
    });
  }
  static __device__ __forceinline__ void store(float* to, float x) { *to = x; }
  static __device__ __forceinline__ void store(fp16* to, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
  }
  static __device__ __forceinline__ void store(bf16* to, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
  }
};

}  // namespace tessera::device
