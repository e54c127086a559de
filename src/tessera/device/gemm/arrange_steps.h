// The steps of a GPU around the product of arranged operands: neighbouring threads have
// neighbouring elements of the matrix.
#pragma once

#include "tessera/device/gemm/arrange.h"

namespace tessera::device {

// Machine has the types fp16 and bf16, for_each(blocks, job, visit), which shares the places of a
// job among all threads of so many blocks, and the conversions read() and put().
template <class Machine>
struct ArrangeSteps {
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
      return job.type == MergedType::fp16 ? merge<typename Machine::fp16>(x, job)
                                          : merge<typename Machine::bf16>(x, job);
    }
    if (job.bytes == 4) return move<unsigned>(x, job, spreads);
    return job.bytes == 2 ? move<unsigned short>(x, job, spreads)
                          : move<unsigned char>(x, job, spreads);
  }

  template <class T>
  static __device__ __forceinline__ T* matrix_of(const ArrangeArguments& x, const ArrangeJob& job) {
    return reinterpret_cast<T*>(static_cast<char*>(x.workspace) + job.matrix);
  }

  template <class T>
  static __device__ __forceinline__ void move(const ArrangeArguments& x, const ArrangeJob& job,
                                              bool spreads) {
    T* const matrix = matrix_of<T>(x, job);
    T* const tensor = static_cast<T*>(job.tensor);
    Machine::for_each(spreads ? x.spread_blocks : x.blocks, job, [&](const ArrangePlace& place) {
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
    Machine::for_each(x.blocks, job, [&](const ArrangePlace& place) {
      float sum = Machine::read(static_cast<const T*>(job.tensor) + place.in(job.strides));
      for (int s = 1; s < job.sources; ++s) {
        const ArrangeMore& more = x.more[job.first_more + s - 1];
        const float next =
            Machine::read(static_cast<const T*>(more.tensor) + place.in(more.strides));
        sum = merge_of(job, sum, next);
      }
      Machine::put(matrix + place.in(job.dense), sum);
    });
  }
};

}  // namespace tessera::device
