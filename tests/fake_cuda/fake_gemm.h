// The kernel of a GPU that is none: a plain GEMM on the arguments that a real one would get.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "fake_cuda.h"
#include "tessera/device/cuda/gemm/gemm_arguments.h"

namespace fake_cuda {

// fp32 or bf16 elements.
inline float load(const void* data, long long index, bool is_bf16) {
  if (!is_bf16) return static_cast<const float*>(data)[index];
  const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(data)[index]} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline void store(void* data, long long index, bool is_bf16, float value) {
  if (!is_bf16) {
    static_cast<float*>(data)[index] = value;
    return;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  static_cast<std::uint16_t*>(data)[index] =
      static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A batch's matrix.
inline const void* matrix_of(const tessera::device::GemmArguments& g, const void* operand,
                             long long stride, long long batch, bool is_bf16) {
  if (g.pointer_arrays != 0) return static_cast<const void* const*>(operand)[batch];
  return static_cast<const char*>(operand) + batch * stride * (is_bf16 ? 2 : 4);
}

// The kernel's name says types and layout; there is no epilogue.
inline void run_gemm(const LaunchRecord& record) {
  tessera::device::CudaGemmArguments arguments;
  std::memcpy(&arguments, record.arguments, sizeof(arguments));
  const tessera::device::GemmArguments& g = arguments.gemm;
  const std::string name = record.kernel;
  const bool is_bf16 = name.find("_bf16_") != std::string::npos;
  const auto has = [&name](const char* layout) { return name.find(layout) != std::string::npos; };
  const bool a_rows = has("_rcr_") || has("_rrr_");
  const bool b_rows = has("_rrr_") || has("_crr_");
  for (long long batch = 0; batch < g.batch; ++batch) {
    const void* const a = matrix_of(g, g.a, g.batch_stride_a, batch, is_bf16);
    const void* const b = matrix_of(g, g.b, g.batch_stride_b, batch, is_bf16);
    void* const out = const_cast<void*>(matrix_of(g, g.out, g.batch_stride_out, batch, is_bf16));
    for (long long m = 0; m < g.m; ++m) {
      for (long long n = 0; n < g.n; ++n) {
        double sum = 0;
        for (long long k = 0; k < g.k; ++k) {
          sum += static_cast<double>(load(a, a_rows ? m * g.ld_a + k : k * g.ld_a + m, is_bf16)) *
                 load(b, b_rows ? k * g.ld_b + n : n * g.ld_b + k, is_bf16);
        }
        store(out, m * g.ld_out + n, is_bf16, static_cast<float>(g.alpha * sum));
      }
    }
  }
}

inline void run_wrong_gemm(const LaunchRecord& record) {
  run_gemm(record);
  tessera::device::CudaGemmArguments arguments;
  std::memcpy(&arguments, record.arguments, sizeof(arguments));
  store(arguments.gemm.out, 0, std::string(record.kernel).find("_bf16_") != std::string::npos, 1e6);
}

}  // namespace fake_cuda
