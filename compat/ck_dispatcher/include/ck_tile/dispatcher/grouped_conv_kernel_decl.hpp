// Declared sets of convolution kernels; see kernel_decl.hpp.
#pragma once

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ck_tile/dispatcher/declared_sets.hpp"

namespace ck_tile::dispatcher {
namespace grouped_conv_decl {

inline constexpr const char* ANY = "*";
inline constexpr int ANY_INT = -1;

class GroupedConvSignature {
 public:
  std::string dtype_in_ = "fp16", dtype_wei_ = "fp16", dtype_out_ = "fp16", dtype_acc_ = "fp32";
  std::string dtype_workspace_ = "fp32", dtype_bias_ = "fp16";
  std::string layout_ = "nhwc";
  std::string conv_op_ = "forward";
  int num_dims_ = 2, groups_ = 1;
  std::string specialization_ = "default";

  GroupedConvSignature& dtype(const std::string& in, const std::string& weight,
                              const std::string& out, const std::string& acc = "fp32") {
    return dtype_in_ = in, dtype_wei_ = weight, dtype_out_ = out, dtype_acc_ = acc, *this;
  }
  GroupedConvSignature& dtype(const std::string& all) {
    return dtype_bias_ = all, dtype_workspace_ = "fp32", dtype(all, all, all);
  }
  GroupedConvSignature& dtype_workspace(const std::string& word) {
    return dtype_workspace_ = word, *this;
  }
  GroupedConvSignature& dtype_bias(const std::string& word) { return dtype_bias_ = word, *this; }
  GroupedConvSignature& layout(const std::string& word) { return layout_ = word, *this; }
  GroupedConvSignature& conv_type(const std::string& word) { return conv_op_ = word, *this; }
  GroupedConvSignature& dims(int count) { return num_dims_ = count, *this; }
  GroupedConvSignature& groups(int count) { return groups_ = count, *this; }
  GroupedConvSignature& spec(const std::string& word) { return specialization_ = word, *this; }
  std::string op_str() const { return conv_op_ == "forward" ? "fwd" : conv_op_; }
};

class GroupedConvAlgorithm {
 public:
  int tile_m_ = 1, tile_n_ = 128, tile_k_ = 128;
  int tile_ho_ = 1, tile_wo_ = 16;
  int wave_m_ = ANY_INT, wave_n_ = ANY_INT, wave_k_ = 1;
  int warp_m_ = ANY_INT, warp_n_ = ANY_INT, warp_k_ = 16;
  int vector_a_ = 4, vector_b_ = 8, vector_c_ = 8;
  std::string pipeline_ = "compv4", scheduler_ = "intrawave", epilogue_ = "cshuffle";
  std::string memory_op_ = "set";
  int block_size_ = 256, block_per_cu_ = 1, num_wave_groups_ = 1, num_groups_to_merge_ = 1;
  bool double_smem_buffer_ = false;
  static constexpr bool pad_m_ = true, pad_n_ = true, pad_k_ = true;

  GroupedConvAlgorithm& tile(int m, int n, int k) {
    return tile_m_ = m, tile_n_ = n, tile_k_ = k, *this;
  }
  GroupedConvAlgorithm& tile_output(int ho, int wo) { return tile_ho_ = ho, tile_wo_ = wo, *this; }
  GroupedConvAlgorithm& wave(int m, int n, int k = 1) {
    return wave_m_ = m, wave_n_ = n, wave_k_ = k, *this;
  }
  GroupedConvAlgorithm& warp(int m, int n, int k = 16) {
    return warp_m_ = m, warp_n_ = n, warp_k_ = k, *this;
  }
  GroupedConvAlgorithm& vector_sizes(int a, int b, int c) {
    return vector_a_ = a, vector_b_ = b, vector_c_ = c, *this;
  }
  GroupedConvAlgorithm& pipeline(const std::string& word) { return pipeline_ = word, *this; }
  GroupedConvAlgorithm& scheduler(const std::string& word) { return scheduler_ = word, *this; }
  GroupedConvAlgorithm& epilogue(const std::string& word) { return epilogue_ = word, *this; }
  GroupedConvAlgorithm& memory_op(const std::string& word) { return memory_op_ = word, *this; }
  GroupedConvAlgorithm& block_per_cu(int n) { return block_per_cu_ = n, *this; }
  GroupedConvAlgorithm& num_wave_groups(int n) { return num_wave_groups_ = n, *this; }
  GroupedConvAlgorithm& num_groups_to_merge(int n) { return num_groups_to_merge_ = n, *this; }
  GroupedConvAlgorithm& double_smem_buffer(bool b) { return double_smem_buffer_ = b, *this; }

  bool needs_expansion() const {
    return wave_m_ == ANY_INT || warp_m_ == ANY_INT || needs_pipeline_expansion() ||
           needs_scheduler_expansion();
  }
  bool needs_wave_expansion() const { return wave_m_ == ANY_INT || wave_n_ == ANY_INT; }
  bool needs_warp_expansion() const { return warp_m_ == ANY_INT || warp_n_ == ANY_INT; }
  bool needs_pipeline_expansion() const { return pipeline_ == ANY; }
  bool needs_scheduler_expansion() const { return scheduler_ == ANY; }
  // Puts the usual sizes and words where there are wildcards.
  void auto_fill() {
    wave(detail::or_usual(wave_m_, 2), detail::or_usual(wave_n_, 2), detail::or_usual(wave_k_, 1));
    warp(detail::or_usual(warp_m_, 32), detail::or_usual(warp_n_, 32),
         detail::or_usual(warp_k_, 16));
    pipeline(detail::or_usual(pipeline_, "compv4"));
    scheduler(detail::or_usual(scheduler_, "intrawave"));
  }

  // The original's tables for its wildcards.
  using Shapes = std::vector<std::tuple<int, int, int>>;
  static Shapes valid_wave_configs(const std::string& arch) {
    if (arch == "gfx942" || arch == "gfx90a" || arch == "gfx950") {
      return {{1, 4, 1}, {2, 2, 1}, {4, 1, 1}};
    }
    return {{2, 2, 1}};
  }
  static Shapes valid_warp_configs(const std::string& arch, const std::string& dtype) {
    if (arch == "gfx942" && (dtype == "fp16" || dtype == "bf16")) {
      return {{16, 16, 16}, {32, 32, 16}};
    }
    return {{32, 32, 16}};
  }
  static std::vector<std::pair<std::string, std::string>> valid_trait_configs() {
    return {{"compv3", "intrawave"},
            {"compv4", "intrawave"},
            {"compv5", "intrawave"},
            {"mem", "intrawave"},
            {"mem", "interwave"}};
  }
};

struct GroupedConvKernelDecl {
  GroupedConvSignature signature;
  GroupedConvAlgorithm algorithm;
  std::string arch = "gfx942";

  GroupedConvKernelDecl() = default;
  GroupedConvKernelDecl(const GroupedConvSignature& s, const GroupedConvAlgorithm& a,
                        const std::string& target = "gfx942")
      : signature(s), algorithm(a), arch(target) {}

  std::string name() const {
    const GroupedConvAlgorithm& a = algorithm;
    const auto shape = [](int m, int n, int k) {
      return "_" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    };
    return "grouped_conv_" + signature.op_str() + "_" + signature.dtype_in_ + "_" +
           signature.layout_ + "_" + std::to_string(signature.num_dims_) + "d_" + a.pipeline_ +
           "_" + a.epilogue_ + "_" + a.scheduler_ + shape(a.tile_m_, a.tile_n_, a.tile_k_) +
           shape(a.wave_m_, a.wave_n_, a.wave_k_) + shape(a.warp_m_, a.warp_n_, a.warp_k_);
  }
  bool has_wildcards() const { return algorithm.needs_expansion() || arch == ANY; }
};

class GroupedConvKernelSet
    : public detail::DeclaredSet<GroupedConvKernelSet, GroupedConvKernelDecl> {
 public:
  using DeclaredSet::add;
  GroupedConvKernelSet& add(const GroupedConvSignature& signature,
                            const GroupedConvAlgorithm& algorithm,
                            const std::string& arch = "gfx942") {
    return add(GroupedConvKernelDecl(signature, algorithm, arch));
  }
  GroupedConvKernelSet& add(const std::string& dtype, const std::string& layout,
                            const std::string& conv_type, int tile_k, int tile_c,
                            const std::string& arch = "gfx942") {
    return add(GroupedConvSignature().dtype(dtype).layout(layout).conv_type(conv_type),
               GroupedConvAlgorithm().tile(1, tile_k, tile_c), arch);
  }
};

class GroupedConvKernelSetRegistry
    : public detail::SetRegistry<GroupedConvKernelSetRegistry, GroupedConvKernelSet> {};
using GroupedConvKernelSetRegistrar = detail::SetRegistrar<GroupedConvKernelSetRegistry>;

}  // namespace grouped_conv_decl

using GroupedConvSignature = grouped_conv_decl::GroupedConvSignature;
using GroupedConvAlgorithm = grouped_conv_decl::GroupedConvAlgorithm;
using GroupedConvKernelDecl = grouped_conv_decl::GroupedConvKernelDecl;
using GroupedConvKernelSet = grouped_conv_decl::GroupedConvKernelSet;
using GroupedConvKernelSetRegistry = grouped_conv_decl::GroupedConvKernelSetRegistry;

}  // namespace ck_tile::dispatcher

#define DECL_GROUPED_CONV_KERNEL_SET(name, ...)                                             \
  CK_TILE_DECLARED(::ck_tile::dispatcher::grouped_conv_decl::GroupedConvKernelSetRegistrar) \
  (#name, ::ck_tile::dispatcher::GroupedConvKernelSet() __VA_ARGS__.tag(#name))
#define DECL_GROUPED_CONV_KERNEL_ALL(type, letters)                                         \
  CK_TILE_DECLARED(::ck_tile::dispatcher::grouped_conv_decl::GroupedConvKernelSetRegistrar) \
  (#type "_" #letters "_all",                                                               \
   ::ck_tile::dispatcher::GroupedConvKernelSet().add(                                       \
       ::ck_tile::dispatcher::GroupedConvSignature().dtype(#type).layout(#letters),         \
       ::ck_tile::dispatcher::GroupedConvAlgorithm(), "*"))
#define GROUPED_CONV_KERNEL_SET(name) ::ck_tile::dispatcher::GroupedConvKernelSet name
#define BEGIN_GROUPED_CONV_KERNEL_SET() ::ck_tile::dispatcher::GroupedConvKernelSet()
