// A convolution kernel's configuration in three parts: what it computes, how, and where.
#pragma once

#include <string>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher {

enum class ConvDataType {
  FP32,
  FP64,
  FP16,
  BF16,
  FP8,
  BF8,
  FP8_E4M3,
  FP8_E5M2,
  INT8,
  UINT8,
  INT32,
  FP4,
  INT4
};
enum class GroupedConvDirection { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT };
enum class ConvLayout2D {
  GNHWC_GKYXC_GNHWK,
  NHWGC_GKYXC_NHWGK,
  NGCHW_GKYXC_NGKHW,
  NGCHW_GKCYX_NGKHW
};
enum class ConvLayout3D {
  GNDHWC_GKZYXC_GNDHWK,
  NDHWGC_GKZYXC_NDHWGK,
  NGCDHW_GKZYXC_NGKDHW,
  NGCDHW_GKCZYX_NGKDHW
};
enum class ElementwiseOp {
  PASS_THROUGH,
  BIAS,
  BIAS_CLAMP,
  SCALE,
  BILINEAR,
  RELU,
  GELU,
  SIGMOID,
  TANH
};
enum class ConvSpecialization {
  DEFAULT,
  FILTER_1X1_PAD0,
  FILTER_1X1_STRIDE1_PAD0,
  FILTER_3X3,
  FILTER_5X5,
  FILTER_7X7
};
enum class MemoryOperation { SET, ATOMIC_ADD, ATOMIC_MAX, ADD };
enum class EpilogueType {
  CSHUFFLE,
  DEFAULT_2D,
  DEFAULT_GEMM_2D,
  DIRECT_STORE,
  BIAS_ADD,
  BIAS_ADD_RELU,
  BIAS_ADD_GELU
};
enum class PipelineVersion { V1, V2, V3, V4, V5, V6, MEMORY, COMPUTE_ASYNC, PRESHUFFLE_V2 };
enum class PipelineScheduler { DEFAULT, INTRAWAVE, INTERWAVE };
enum class GemmPadding {
  DEFAULT,
  NO_PADDING,
  M_PADDING,
  N_PADDING,
  K_PADDING,
  MN_PADDING,
  MK_PADDING,
  NK_PADDING,
  MNK_PADDING
};

struct GroupedConvSignatureInfo {
  int spatial_dim = 2;
  GroupedConvDirection direction = GroupedConvDirection::FORWARD;
  std::string in_type = "fp16", wei_type = "fp16", out_type = "fp16", acc_type = "fp32";
  std::string workspace_type = "fp32", bias_type = "fp16";
  ElementwiseOp in_element_op = ElementwiseOp::PASS_THROUGH;
  ElementwiseOp wei_element_op = ElementwiseOp::PASS_THROUGH;
  ElementwiseOp out_element_op = ElementwiseOp::PASS_THROUGH;
  ConvSpecialization conv_spec = ConvSpecialization::DEFAULT;
  int num_groups = 1;

  static const char* direction_str(GroupedConvDirection direction) {
    constexpr const char* kWords[] = {"fwd", "bwd_data", "bwd_weight"};
    return detail::word_of(kWords, direction);
  }
  static const char* datatype_str(ConvDataType type) {
    constexpr const char* kWords[] = {"fp32",  "fp64",     "fp16",     "bf16", "fp8",
                                      "bf8",   "fp8_e4m3", "fp8_e5m2", "int8", "uint8",
                                      "int32", "fp4",      "int4"};
    return detail::word_of(kWords, type);
  }
};

struct DataTileInfo {
  int m = 128, n = 128, k = 64;
};
struct WarpGemmParams {
  int gemm_m = 16, gemm_n = 16, m_iter = 2, n_iter = 2;
};
struct BlockWarpConfig {
  int m_warp = 2, n_warp = 2, k_warp = 1;
  int m_warp_tile = 32, n_warp_tile = 32, k_warp_tile = 16;
};
struct VectorSizeInfo {
  int a = 4, b = 8, c = 8;
};

struct GroupedConvAlgorithmInfo {
  DataTileInfo tile;
  BlockWarpConfig warp;
  VectorSizeInfo vector_size;
  PipelineVersion pipeline = PipelineVersion::V4;
  PipelineScheduler scheduler = PipelineScheduler::INTRAWAVE;
  GemmPadding padding = GemmPadding::MNK_PADDING;
  MemoryOperation memory_op = MemoryOperation::SET;
  EpilogueType epilogue = EpilogueType::CSHUFFLE;
  int thread_block_size = 256;
  bool double_smem_buffer = false;
  int num_wave_groups = 1, block_per_cu = 1, num_groups_to_merge = 1;

  static const char* pipeline_str(PipelineVersion version) {
    constexpr const char* kWords[] = {"v1",     "v2",  "compv3",     "compv4",       "compv5",
                                      "compv6", "mem", "comp_async", "preshuffle_v2"};
    return detail::word_of(kWords, version);
  }
  static const char* scheduler_str(PipelineScheduler scheduler) {
    constexpr const char* kWords[] = {"default", "intrawave", "interwave"};
    return detail::word_of(kWords, scheduler);
  }
  static const char* memory_op_str(MemoryOperation operation) {
    constexpr const char* kWords[] = {"set", "atomic_add", "atomic_max", "add"};
    return detail::word_of(kWords, operation);
  }
  static const char* epilogue_str(EpilogueType type) {
    constexpr const char* kWords[] = {"cshuffle",     "default_2d", "default_gemm_2d",
                                      "direct_store", "bias_add",   "bias_add_relu",
                                      "bias_add_gelu"};
    return detail::word_of(kWords, type);
  }
};

struct ArchInfo {
  std::string name = "gfx942";
  int max_waves_per_cu = 8, lds_size_kb = 64, sgpr_count = 108, vgpr_count = 512;
  bool supports_mfma_fp16() const { return name.find("gfx9") != std::string::npos; }
  bool supports_wmma() const { return name.find("gfx11") != std::string::npos; }
};

struct GroupedConvConfig {
  GroupedConvSignatureInfo signature;
  GroupedConvAlgorithmInfo algorithm;
  ArchInfo arch;

  std::string name() const {
    return std::string("grouped_conv_") +
           GroupedConvSignatureInfo::direction_str(signature.direction) + "_" + signature.in_type +
           "_" + std::to_string(signature.spatial_dim) + "d_" +
           GroupedConvAlgorithmInfo::pipeline_str(algorithm.pipeline) + "_" +
           detail::shape_text(algorithm.tile);
  }
  std::string brief() const {
    return std::to_string(signature.spatial_dim) + "D grouped convolution, " +
           GroupedConvSignatureInfo::direction_str(signature.direction) + ", " + signature.in_type;
  }
  std::string detailed() const {
    const BlockWarpConfig& w = algorithm.warp;
    const DataTileInfo waves{w.m_warp, w.n_warp, w.k_warp};
    const DataTileInfo tiles{w.m_warp_tile, w.n_warp_tile, w.k_warp_tile};
    return brief() + "\n  Signature: sums of " + signature.acc_type + ", " +
           std::to_string(signature.num_groups) + " groups\n  Algorithm: tile " +
           detail::shape_text(algorithm.tile) + ", waves " + detail::shape_text(waves) +
           ", warp tile " + detail::shape_text(tiles) + ", pipeline " +
           GroupedConvAlgorithmInfo::pipeline_str(algorithm.pipeline) + ", scheduler " +
           GroupedConvAlgorithmInfo::scheduler_str(algorithm.scheduler) + "\n  Arch: " + arch.name +
           "\n";
  }
};

template <class T>
struct DataTypeTraits;
template <>
struct DataTypeTraits<float> {
  static constexpr const char* name = "fp32";
  static constexpr int size_bytes = 4;
};
template <>
struct DataTypeTraits<double> {
  static constexpr const char* name = "fp64";
  static constexpr int size_bytes = 8;
};

template <class In, class Weight = In, class Out = In, class Sum = float>
struct ConvTypeConfig {
  using input_type = In;
  using weight_type = Weight;
  using output_type = Out;
  using accumulator_type = Sum;
};

}  // namespace ck_tile::dispatcher

#include "ck_tile/dispatcher/grouped_conv_configs.hpp"
