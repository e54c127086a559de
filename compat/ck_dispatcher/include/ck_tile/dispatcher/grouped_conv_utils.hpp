// What programs with convolutions need: problems and declarations by numbers, checks, printing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>

#include "ck_tile/dispatcher/arch_filter.hpp"
#include "ck_tile/dispatcher/grouped_conv_config.hpp"
#include "ck_tile/dispatcher/grouped_conv_kernel_decl.hpp"
#include "ck_tile/dispatcher/grouped_conv_problem.hpp"
#include "ck_tile/dispatcher/grouped_conv_registry.hpp"
#include "ck_tile/dispatcher/utils.hpp"

namespace ck_tile::dispatcher {

using GroupedConvSig = GroupedConvSignature;
using GroupedConvAlgo = GroupedConvAlgorithm;

namespace grouped_conv_utils {

inline GroupedConvKernelDecl declaration(const std::string& dtype, const char* layout,
                                         const char* conv_type, int dims, int tile_n, int tile_k,
                                         const char* pipeline, const std::string& arch) {
  GroupedConvAlgorithm how;
  how.tile(1, tile_n, tile_k).wave(2, 2, 1).pipeline(pipeline).vector_sizes(4, 8, 8);
  dims == 3 ? how.warp(16, 16, 32) : how.warp(32, 32, 16);
  return {GroupedConvSignature().dtype(dtype).layout(layout).conv_type(conv_type).dims(dims), how,
          arch};
}
inline GroupedConvKernelDecl create_grouped_conv2d_fwd(const std::string& dtype = "fp16",
                                                       int tile_n = 128, int tile_k = 128,
                                                       const std::string& arch = "gfx942") {
  return declaration(dtype, "nhwc", "forward", 2, tile_n, tile_k, "compv4", arch);
}
inline GroupedConvKernelDecl create_grouped_conv3d_fwd(const std::string& dtype = "fp16",
                                                       int tile_n = 64, int tile_k = 64,
                                                       const std::string& arch = "gfx942") {
  return declaration(dtype, "ndhwc", "forward", 3, tile_n, tile_k, "compv3", arch);
}
inline GroupedConvKernelDecl create_grouped_conv2d_bwd_data(const std::string& dtype = "fp16",
                                                            int tile_n = 128, int tile_k = 128,
                                                            const std::string& arch = "gfx942") {
  return declaration(dtype, "nhwc", "bwd_data", 2, tile_n, tile_k, "compv3", arch);
}
inline GroupedConvKernelDecl create_grouped_conv2d_bwd_weight(const std::string& dtype = "fp16",
                                                              int tile_n = 128, int tile_k = 128,
                                                              const std::string& arch = "gfx942") {
  GroupedConvKernelDecl made =
      declaration(dtype, "nhwc", "bwd_weight", 2, tile_n, tile_k, "compv3", arch);
  made.algorithm.memory_op("atomic_add");
  return made;
}

inline GroupedConvProblem create_grouped_conv2d_problem(int N, int C, int K, int Hi, int Wi, int Y,
                                                        int X, int stride = 1, int padding = 0,
                                                        GroupedConvOp op = GroupedConvOp::Forward) {
  GroupedConvProblem made(N, C, K, Hi, Wi, Y, X, stride, stride, padding, padding);
  made.op = op;
  return made;
}
inline GroupedConvProblem create_grouped_conv3d_problem(int N, int C, int K, int Di, int Hi, int Wi,
                                                        int Z, int Y, int X, int stride = 1,
                                                        int padding = 0,
                                                        GroupedConvOp op = GroupedConvOp::Forward) {
  GroupedConvProblem made;
  made.N = N, made.C = C, made.K = K, made.op = op;
  made.input_spatial = {Di, Hi, Wi}, made.filter_spatial = {Z, Y, X};
  made.stride = {stride, stride, stride}, made.padding = {padding, padding, padding};
  made.compute_output_size();
  return made;
}
inline GroupedConvProblem create_depthwise_grouped_conv2d_problem(int N, int C, int Hi, int Wi,
                                                                  int Y, int X, int stride = 1,
                                                                  int padding = 0) {
  GroupedConvProblem made = create_grouped_conv2d_problem(N, C, C, Hi, Wi, Y, X, stride, padding);
  made.G = C;
  return made;
}

inline GroupedConvKernelSet build_grouped_conv2d_fwd_set(const std::string& dtype = "fp16",
                                                         const std::string& arch = "gfx942") {
  return GroupedConvKernelSet()
      .add(create_grouped_conv2d_fwd(dtype, 128, 128, arch))
      .add(create_grouped_conv2d_fwd(dtype, 256, 256, arch));
}
inline GroupedConvKernelSet build_grouped_conv2d_full_set(const std::string& dtype = "fp16",
                                                          const std::string& arch = "gfx942") {
  return build_grouped_conv2d_fwd_set(dtype, arch)
      .add(create_grouped_conv2d_bwd_data(dtype, 128, 128, arch))
      .add(create_grouped_conv2d_bwd_weight(dtype, 128, 128, arch));
}

inline void print_pattern_docs(std::ostream& out = std::cout) {
  out << "GroupedConvSignature: dtype, layout, conv_type (forward, bwd_data, bwd_weight), dims\n"
         "GroupedConvAlgorithm: tile, wave, warp, pipeline, scheduler, vector_sizes\n"
         "arch: gfx942, gfx90a, gfx950, ...; \"*\" is this machine\n";
}
inline void print_grouped_conv_kernel_decl(const GroupedConvKernelDecl& decl,
                                           std::ostream& out = std::cout) {
  out << decl.name() << " for " << decl.arch << "\n";
}
inline void print_grouped_conv_problem(const GroupedConvProblem& problem,
                                       std::ostream& out = std::cout) {
  out << problem.to_string() << ", " << problem.get_flops() << " operations\n";
}

struct ValidationResult {
  bool passed = false;
  float max_abs_diff = 0, max_rel_diff = 0;
  float rtol = 1e-3F, atol = 1e-3F;

  void print(std::ostream& out = std::cout) const {
    out << (passed ? "passed" : "failed") << ": largest difference " << max_abs_diff
        << ", relative " << max_rel_diff << "; rtol " << rtol << ", atol " << atol << "\n";
  }
};

// Every element must be within atol + rtol * |reference|.
template <class T>
ValidationResult validate_buffers(const T* result, const T* reference, std::size_t count,
                                  float rtol = 1e-3F, float atol = 1e-3F) {
  ValidationResult found;
  found.rtol = rtol, found.atol = atol, found.passed = true;
  for (std::size_t i = 0; i < count; ++i) {
    const auto wanted = static_cast<float>(reference[i]);
    const float difference = std::fabs(static_cast<float>(result[i]) - wanted);
    const float size = std::fabs(wanted);
    found.max_abs_diff = std::max(found.max_abs_diff, difference);
    if (size > 1e-10F) found.max_rel_diff = std::max(found.max_rel_diff, difference / size);
    found.passed = found.passed && difference <= atol + rtol * size;
  }
  return found;
}

struct BenchmarkResult {
  std::string kernel_name;
  float time_ms = 0, tflops = 0;
  int warmup_runs = 0, benchmark_runs = 0;

  void print(std::ostream& out = std::cout) const {
    out << kernel_name << ": " << time_ms << " ms, " << tflops << " TFLOPS, " << benchmark_runs
        << " runs after " << warmup_runs << "\n";
  }
};

inline float calc_tflops(double flops, float time_ms) {
  return static_cast<float>(flops / (static_cast<double>(time_ms) * 1e9));
}
inline double calculate_conv_tflops(const GroupedConvProblem& problem, double time_ms) {
  return problem.get_flops() / (time_ms * 1e9);
}

}  // namespace grouped_conv_utils
}  // namespace ck_tile::dispatcher
