// A convolution kernel by its fields, and one that can be asked and run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "ck_tile/dispatcher/grouped_conv_problem.hpp"

namespace ck_tile::dispatcher {

// The tensors of the calling thread's run, which a kernel's function reads: forward (X, W, Y),
// backward data (dY, W, dX), backward weight (X, dY, dW).
struct ConvDispatchBuffers {
  const void* input_ptr = nullptr;
  const void* weight_ptr = nullptr;
  void* output_ptr = nullptr;
  int warmup = 3, repeat = 10;
  bool benchmarking = true;
  int split_k = 1;
};
inline thread_local ConvDispatchBuffers g_conv_dispatch_buffers;

namespace detail {

inline const char* op_word(GroupedConvOp op) {
  constexpr const char* kWords[] = {"fwd", "bwd_data", "bwd_weight"};
  return kWords[static_cast<std::size_t>(op)];
}

}  // namespace detail

struct GroupedConvKernelKey {
  std::string dtype_in, dtype_wei, dtype_out, layout;
  int ndim_spatial = 2;
  GroupedConvOp op = GroupedConvOp::Forward;
  int tile_m = 1, tile_n = 128, tile_k = 128;
  int wave_m = 2, wave_n = 2, wave_k = 1;
  int warp_m = 32, warp_n = 32, warp_k = 16;
  std::string pipeline = "compv3", scheduler = "intrawave", epilogue = "cshuffle";
  int vector_size_a = 4, vector_size_b = 8, vector_size_c = 8;
  int block_per_cu = 1, num_wave_groups = 1, num_groups_to_merge = 1;
  std::string specialization = "default";
  bool large_tensor = false;
  bool streamk_enabled = false;
  std::string streamk_reduction = "none";
  bool streamk_persistent = false;
  std::string arch = "gfx942";
  std::string kernel;  // Tessera's name, which has all fields; empty: the fields above alone

  auto tie() const {
    return std::tie(dtype_in, dtype_wei, dtype_out, layout, ndim_spatial, op, tile_m, tile_n,
                    tile_k, wave_m, wave_n, wave_k, warp_m, warp_n, warp_k, pipeline, scheduler,
                    epilogue, vector_size_a, vector_size_b, vector_size_c, block_per_cu,
                    num_wave_groups, num_groups_to_merge, specialization, large_tensor,
                    streamk_enabled, streamk_reduction, streamk_persistent, arch, kernel);
  }
  bool operator==(const GroupedConvKernelKey& other) const { return tie() == other.tie(); }
  bool operator!=(const GroupedConvKernelKey& other) const { return !(*this == other); }
  std::string to_string() const {
    const auto shape = [](int m, int n, int k) {
      return "_" + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
    };
    return std::string("grouped_conv_") + detail::op_word(op) + "_" + dtype_in + "_" +
           std::to_string(ndim_spatial) + "d" + shape(tile_m, tile_n, tile_k) +
           shape(wave_m, wave_n, wave_k) + shape(warp_m, warp_n, warp_k) + "_" + pipeline +
           (specialization == "default" ? "" : "_" + specialization);
  }
};

struct GroupedConvKernelKeyHash {
  std::size_t operator()(const GroupedConvKernelKey& key) const {
    return std::hash<std::string>()(key.to_string() + key.layout + key.arch + key.kernel);
  }
};

class GroupedConvKernelInstance {
 public:
  // Milliseconds; the second argument is the stream.
  using RunFn = std::function<float(const GroupedConvProblem&, void*)>;
  using IsSupportedFn = std::function<bool(const GroupedConvProblem&)>;

  // Without is_supported every problem of the key's direction is taken. instance_string: another
  // name, such as Tessera's.
  GroupedConvKernelInstance(const GroupedConvKernelKey& key, const std::string& name, RunFn run,
                            IsSupportedFn is_supported = nullptr,
                            const std::string& instance_string = "")
      : key_(key),
        name_(name),
        run_(std::move(run)),
        is_supported_(std::move(is_supported)),
        instance_string_(instance_string) {}

  const GroupedConvKernelKey& key() const { return key_; }
  const std::string& name(bool use_instance_string = false) const {
    return use_instance_string && !instance_string_.empty() ? instance_string_ : name_;
  }
  bool is_fwd() const { return key_.op == GroupedConvOp::Forward; }
  bool is_bwd_data() const { return key_.op == GroupedConvOp::BackwardData; }
  bool is_bwd_weight() const { return key_.op == GroupedConvOp::BackwardWeight; }
  bool matches(const GroupedConvProblem& problem) const { return key_.op == problem.op; }
  bool is_supported(const GroupedConvProblem& problem) const {
    return is_supported_ == nullptr || is_supported_(problem);
  }
  float run(const GroupedConvProblem& problem, void* stream = nullptr) const {
    return run_(problem, stream);
  }

 private:
  GroupedConvKernelKey key_;
  std::string name_;
  RunFn run_;
  IsSupportedFn is_supported_;
  std::string instance_string_;
};

using GroupedConvKernelInstancePtr = std::shared_ptr<GroupedConvKernelInstance>;

}  // namespace ck_tile::dispatcher
