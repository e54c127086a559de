// What the documents of CK Tile's dispatcher say of its classes, as far as registration files use
// them. It stands for the dispatcher's header in tests.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace ck_tile::dispatcher {

enum class DataType { FP16, BF16, FP32, FP64, FP8, BF8, INT8, INT4, INT32, UNKNOWN };
enum class LayoutTag { RowMajor, ColMajor, PackedExternal };
enum class Pipeline { Mem, CompV1, CompV2, CompV3, CompV4, CompV5, CompV6, PreShuffleV2 };
enum class Epilogue { None, Default, CShuffle };
enum class Scheduler { Auto, Intrawave, Interwave };

struct KernelKey {
  struct Signature {
    DataType dtype_a, dtype_b, dtype_c, dtype_acc;
    LayoutTag layout_a, layout_b, layout_c;
    std::uint8_t split_k = 1;
    std::string elementwise_op;
    std::uint8_t num_d_tensors = 0;
  } signature;
  struct Algorithm {
    struct Tile {
      std::uint16_t m, n, k;
    } tile_shape;
    struct Wave {
      std::uint8_t m, n, k;
    } wave_shape, warp_tile_shape;
    Pipeline pipeline;
    Scheduler scheduler;
    Epilogue epilogue;
    std::uint16_t block_size;
    bool double_buffer, persistent, preshuffle;
    std::uint8_t num_wave_groups;
  } algorithm;
  std::string gfx_arch;
};

struct KernelInstance {
  KernelKey key;
  std::string name;
};

class Registry {
 public:
  enum class Priority { Low, Normal, High };
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  bool register_kernel(const std::shared_ptr<KernelInstance>& kernel, Priority = Priority::Normal) {
    return kernel != nullptr;
  }
};

enum class GroupedConvOp { Forward, BackwardData, BackwardWeight };
struct GroupedConvProblem {};
struct GroupedConvKernelKey {
  std::string dtype_in, dtype_wei, dtype_out, layout;
  int ndim_spatial = 2;
  GroupedConvOp op = GroupedConvOp::Forward;
  int tile_m, tile_n, tile_k, wave_m, wave_n, wave_k, warp_m, warp_n, warp_k;
  std::string pipeline, scheduler, epilogue;
  int vector_size_a, vector_size_b, vector_size_c, num_wave_groups;
  std::string arch;
};
struct GroupedConvKernelInstance {
  using RunFn = std::function<float(const GroupedConvProblem&, void*)>;
  using IsSupportedFn = std::function<bool(const GroupedConvProblem&)>;
  GroupedConvKernelInstance(const GroupedConvKernelKey&, const std::string&, RunFn, IsSupportedFn) {
  }
};
class GroupedConvRegistry {
 public:
  enum class Priority { Low, Normal, High };
  static GroupedConvRegistry& instance() {
    static GroupedConvRegistry registry;
    return registry;
  }
  bool register_kernel(const GroupedConvKernelKey&,
                       const std::shared_ptr<GroupedConvKernelInstance>& kernel,
                       Priority = Priority::Normal) {
    return kernel != nullptr;
  }
};

}  // namespace ck_tile::dispatcher
