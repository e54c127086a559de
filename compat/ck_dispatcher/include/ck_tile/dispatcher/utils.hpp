// What programs around a dispatcher need: memory, clocks, checks, printing, keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>

#if defined(__has_include)
#if __has_include(<hip/hip_runtime.h>)
#include <hip/hip_runtime.h>
#endif
#endif

#include "ck_tile/dispatcher/checking.hpp"
#include "ck_tile/dispatcher/declared_kernels.hpp"
#include "ck_tile/dispatcher/dispatcher.hpp"
#include "ck_tile/dispatcher/gpu_buffer.hpp"
#include "ck_tile/dispatcher/kernel_config.hpp"
#include "ck_tile/dispatcher/timing.hpp"

// For programs that call HIP by themselves.
#define CK_HIP_CHECK(call)                                                                      \
  do {                                                                                          \
    const hipError_t ck_status = (call);                                                        \
    if (ck_status != hipSuccess) {                                                              \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " << hipGetErrorString(ck_status) << "\n"; \
      return false;                                                                             \
    }                                                                                           \
  } while (0)
#define CK_HIP_CHECK_THROW(call)                                                     \
  do {                                                                               \
    const hipError_t ck_status = (call);                                             \
    if (ck_status != hipSuccess)                                                     \
      throw std::runtime_error(std::string("HIP: ") + hipGetErrorString(ck_status)); \
  } while (0)

namespace ck_tile::dispatcher::utils {

inline void print_separator(char c = '=', int width = 70) {
  std::cout << std::string(static_cast<std::size_t>(width), c) << "\n";
}
inline void print_header(const std::string& title) {
  print_separator();
  std::cout << title << "\n";
  print_separator();
}
inline std::string format_size(std::int64_t m, std::int64_t n, std::int64_t k) {
  return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
}
// With a comma for each thousand.
inline std::string format_number(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t place = text.size(); place > first + 3;) text.insert(place -= 3, ",");
  return text;
}

inline void print_kernel_info(const KernelInstance& kernel, std::ostream& out = std::cout) {
  const KernelKey& key = kernel.get_key();
  const KernelKey::Signature& s = key.signature;
  const KernelKey::Algorithm& a = key.algorithm;
  out << kernel.get_name() << "\n    types " << to_string(s.dtype_a) << " " << to_string(s.dtype_b)
      << " " << to_string(s.dtype_c) << ", layout " << to_string(s.layout_a)
      << to_string(s.layout_b) << to_string(s.layout_c) << "\n    tile "
      << dispatcher::detail::shape_text(a.tile_shape) << ", wave "
      << dispatcher::detail::shape_text(a.wave_shape) << ", warp tile "
      << dispatcher::detail::shape_text(a.warp_tile_shape) << "\n    pipeline "
      << to_string(a.pipeline) << ", scheduler " << to_string(a.scheduler) << ", epilogue "
      << to_string(a.epilogue) << ", target " << key.gfx_arch << "\n";
}
inline void print_registered_kernels(const Registry& registry, std::ostream& out = std::cout,
                                     bool verbose = false) {
  out << registry.size() << " registered kernels:\n";
  int number = 0;
  for (const KernelInstancePtr& one : registry.get_all()) {
    out << "  " << ++number << ". ";
    if (verbose) {
      print_kernel_info(*one, out);
    } else {
      out << one->get_name() << "\n";
    }
  }
}

// A key by plain numbers; KernelConfig has the same with setters.
struct KernelKeyBuilder {
  int tile_m = 128, tile_n = 128, tile_k = 32;
  int wave_m = 2, wave_n = 2, wave_k = 1;
  int warp_m = 32, warp_n = 32, warp_k = 16;
  int block_size = 256;
  DataType dtype_a = DataType::FP16, dtype_b = DataType::FP16, dtype_c = DataType::FP16;
  DataType dtype_acc = DataType::FP32;
  LayoutTag layout_a = LayoutTag::RowMajor, layout_b = LayoutTag::ColMajor;
  LayoutTag layout_c = LayoutTag::RowMajor;
  Pipeline pipeline = Pipeline::CompV4;
  Scheduler scheduler = Scheduler::Intrawave;
  Epilogue epilogue = Epilogue::CShuffle;
  bool preshuffle = false;
  int num_d_tensors = 0;
  std::string elementwise_op = "PassThrough";
  std::string gfx_arch = "gfx942";

  KernelKey build() const {
    KernelConfig config;
    config.tile(tile_m, tile_n, tile_k)
        .wave(wave_m, wave_n, wave_k)
        .warp_tile(warp_m, warp_n, warp_k);
    config.block(block_size).dtypes(dtype_a, dtype_b, dtype_c, dtype_acc);
    config.layouts(layout_a, layout_b, layout_c).pipeline(pipeline).scheduler(scheduler);
    config.epilogue(epilogue).arch(gfx_arch).preshuffle = preshuffle;
    KernelKey key = config.build_key();
    key.signature.num_d_tensors = static_cast<std::uint8_t>(num_d_tensors);
    key.signature.elementwise_op = elementwise_op;
    return key;
  }

  static KernelKeyBuilder fp16_rcr() { return {}; }
  static KernelKeyBuilder fp16_rrr() {
    KernelKeyBuilder made;
    made.layout_b = LayoutTag::RowMajor;
    return made;
  }
  static KernelKeyBuilder preshuffle_v1() { return preshuffled(Pipeline::PreShuffleV1); }
  static KernelKeyBuilder preshuffle_v2() { return preshuffled(Pipeline::PreShuffleV2); }
  static KernelKeyBuilder multi_d(int num_d, const std::string& operation = "MultiDAdd") {
    KernelKeyBuilder made;
    made.num_d_tensors = num_d, made.elementwise_op = operation;
    return made;
  }

 private:
  static KernelKeyBuilder preshuffled(Pipeline pipeline) {
    KernelKeyBuilder made;
    made.pipeline = pipeline, made.preshuffle = true;
    return made;
  }
};

inline KernelKey create_fp16_rcr_key(int tile_m, int tile_n, int tile_k, int wave_m = 2,
                                     int wave_n = 2, int wave_k = 1, int warp_m = 32,
                                     int warp_n = 32, int warp_k = 16,
                                     const std::string& gfx_arch = "gfx942") {
  KernelKeyBuilder made = KernelKeyBuilder::fp16_rcr();
  made.tile_m = tile_m, made.tile_n = tile_n, made.tile_k = tile_k;
  made.wave_m = wave_m, made.wave_n = wave_n, made.wave_k = wave_k;
  made.warp_m = warp_m, made.warp_n = warp_n, made.warp_k = warp_k;
  made.gfx_arch = gfx_arch;
  return made.build();
}

}  // namespace ck_tile::dispatcher::utils
