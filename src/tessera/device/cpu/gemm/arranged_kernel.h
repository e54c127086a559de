// A kernel of any way around which operands are arranged: threads share out the elements, wait for
// each other, and multiply the matrices that lie in the workspace.
#pragma once

#include "tessera/device/cpu/abi.h"
#include "tessera/device/cpu/numeric.h"
#include "tessera/device/gemm/arrange.h"
#include "tessera/device/gemm/gemm_arguments.h"

namespace tessera::device {

// Elements of so many bytes, whatever their type.
template <int kBytes>
inline void move_strided(const char* from, i64 from_step, char* to, i64 to_step, i64 count) {
  if (from_step == 1 && to_step == 1) {
    __builtin_memcpy(to, from, static_cast<unsigned long>(count * kBytes));
    return;
  }
  for (i64 i = 0; i < count; ++i) {
    __builtin_memcpy(to + i * to_step * kBytes, from + i * from_step * kBytes, kBytes);
  }
}

// A run of a job along its first dimension.
struct ArrangeRun {
  const ArrangeArguments& x;
  const ArrangeJob& job;
  char* matrix;
  bool spreads;

  template <int kBytes>
  void move(const ArrangePlace& place, i64 count) const {
    char* const tensor = static_cast<char*>(job.tensor) + place.in(job.strides) * kBytes;
    char* const dense = matrix + place.in(job.dense) * kBytes;
    if (spreads) return move_strided<kBytes>(dense, job.dense[0], tensor, job.strides[0], count);
    move_strided<kBytes>(tensor, job.strides[0], dense, job.dense[0], count);
  }

  // Up to kLanes elements of a source.
  template <class T>
  static f32v load(const void* tensor, i64 first, i64 step, i64 count) {
    const T* const from = static_cast<const T*>(tensor) + first;
    u32v words{};
    for (i64 i = 0; i < count; ++i) words[i] = word_of(from[i * step]);
    return float_of(T{}, words);
  }
  static u32 word_of(float x) { return __builtin_bit_cast(u32, x); }
  template <class T>
  static u32 word_of(T x) {
    return x.bits;
  }
  static f32v float_of(float, u32v words) { return bits_as<f32v>(words); }
  template <class T>
  static f32v float_of(T type, u32v words) {
    return bits_as<f32v>(float_bits(type, words));
  }
  static void store(float* to, f32v x, i64 i) { *to = x[i]; }
  template <class T>
  static void store(T* to, f32v x, i64 i) {
    to->bits = static_cast<u16>(round_bits(T{}, x)[i]);
  }

  template <class T>
  void merge(const ArrangePlace& place, i64 count) const {
    T* const dense = reinterpret_cast<T*>(matrix) + place.in(job.dense);
    for (i64 i = 0; i < count; i += kLanes) {
      const i64 some = count - i < kLanes ? count - i : kLanes;
      const i64 first = place.in(job.strides) + i * job.strides[0];
      f32v sum = load<T>(job.tensor, first, job.strides[0], some);
      for (int s = 1; s < job.sources; ++s) {
        const ArrangeMore& more = x.more[job.first_more + s - 1];
        const i64 begin = place.in(more.strides) + i * more.strides[0];
        const f32v next = load<T>(more.tensor, begin, more.strides[0], some);
        sum = job.multiplies != 0 ? sum * next : sum + next;
      }
      for (i64 lane = 0; lane < some; ++lane) {
        store(dense + (i + lane) * job.dense[0], sum, lane);
      }
    }
  }

  void run(i64 first, i64 count) const {
    const ArrangePlace place = arrange_place(job, first);
    if (job.sources > 1) {
      if (job.type == MergedType::fp32) return merge<float>(place, count);
      return job.type == MergedType::fp16 ? merge<fp16>(place, count) : merge<bf16>(place, count);
    }
    if (job.bytes == 4) return move<4>(place, count);
    return job.bytes == 2 ? move<2>(place, count) : move<1>(place, count);
  }
};

inline void arrange_on_cpu(const ArrangeArguments& x, const CpuThread& thread, bool spreads) {
  const int begin = spreads ? x.gathers : 0;
  for (int i = begin; i < (spreads ? x.gathers + x.spreads : x.gathers); ++i) {
    const ArrangeJob& job = x.jobs[i];
    const ArrangeRun run{x, job, static_cast<char*>(thread.workspace) + job.matrix, spreads};
    const i64 share = (job.elements + thread.count - 1) / thread.count;
    const i64 end =
        share * (thread.index + 1) < job.elements ? share * (thread.index + 1) : job.elements;
    for (i64 at = share * thread.index; at < end;) {
      const i64 left = job.sizes[0] - at % job.sizes[0];
      const i64 count = left < end - at ? left : end - at;
      run.run(at, count);
      at += count;
    }
  }
}

// `kProduct` makes the kernel that multiplies.
template <CpuKernel (*kProduct)()>
struct ArrangedKernel {
  static constexpr CpuEntry kEntry = kProduct().entries[0];

  static const ArrangeArguments& arrange_of(const void* arguments) {
    return static_cast<const ArrangeBlock*>(arguments)->arrange;
  }
  // The product's arguments where the matrices lie at this address.
  static GemmArguments product_of(const void* arguments, char* workspace) {
    GemmArguments g = *static_cast<const GemmArguments*>(arguments);
    const ArrangeArguments& x = arrange_of(arguments);
    for (int i = 0; i < x.gathers + x.spreads; ++i) {
      char* const matrix = workspace + x.jobs[i].matrix;
      const int operand = x.jobs[i].operand;
      if (operand == 0) g.a = matrix;
      if (operand == 1) g.b = matrix;
      if (operand == 2) g.c = matrix;
      if (operand >= 3 && operand < 7) g.d[operand - 3] = matrix;
      if (operand == 7) g.out = matrix;
    }
    return g;
  }

  static i64 workspace_bytes(const void* arguments, int threads) {
    const GemmArguments g = product_of(arguments, nullptr);
    return arrange_of(arguments).bytes + kEntry.workspace_bytes(&g, threads);
  }
  static void run(const void* arguments, const CpuThread* thread) {
    const ArrangeArguments& x = arrange_of(arguments);
    char* const workspace = static_cast<char*>(thread->workspace);
    arrange_on_cpu(x, *thread, false);
    thread->barrier(thread->barrier_context);
    const GemmArguments g = product_of(arguments, workspace);
    CpuThread inner = *thread;
    inner.workspace = workspace + x.bytes;
    kEntry.run(&g, &inner);
    if (x.spreads == 0) return;
    thread->barrier(thread->barrier_context);
    arrange_on_cpu(x, *thread, true);
  }
  static constexpr CpuKernel kernel() { return {kProduct().abi_version, {{workspace_bytes, run}}}; }
};

}  // namespace tessera::device
