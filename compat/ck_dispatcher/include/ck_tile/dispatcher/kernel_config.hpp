// A GEMM kernel's configuration, field by field:
//
//   const auto config = KernelConfig::fp16_rcr().tile(128, 128, 32).pipeline(Pipeline::CompV4);
//   registry.register_kernel(config.build_key(), config.get_name());
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

#include "ck_tile/dispatcher/kernel_key.hpp"

namespace ck_tile::dispatcher {

class KernelConfig {
 public:
  DataType dtype_a = DataType::FP16, dtype_b = DataType::FP16, dtype_c = DataType::FP16;
  DataType dtype_acc = DataType::FP32;
  LayoutTag layout_a = LayoutTag::RowMajor, layout_b = LayoutTag::ColMajor;
  LayoutTag layout_c = LayoutTag::RowMajor;
  int tile_m = 128, tile_n = 128, tile_k = 32;
  int wave_m = 2, wave_n = 2, wave_k = 1;
  int warp_m = 32, warp_n = 32, warp_k = 16;
  int block_size = 256;
  Pipeline pipeline_type = Pipeline::CompV4;
  Scheduler scheduler_type = Scheduler::Intrawave;
  Epilogue epilogue_type = Epilogue::CShuffle;
  bool pad_m = true, pad_n = true, pad_k = true;
  bool preshuffle = false;
  std::string gfx_arch = "gfx942";

  KernelConfig& tile(int m, int n, int k) { return tile_m = m, tile_n = n, tile_k = k, *this; }
  KernelConfig& wave(int m, int n, int k) { return wave_m = m, wave_n = n, wave_k = k, *this; }
  KernelConfig& warp_tile(int m, int n, int k) { return warp_m = m, warp_n = n, warp_k = k, *this; }
  KernelConfig& block(int size) { return block_size = size, *this; }
  KernelConfig& pipeline(Pipeline one) { return pipeline_type = one, *this; }
  KernelConfig& scheduler(Scheduler one) { return scheduler_type = one, *this; }
  KernelConfig& epilogue(Epilogue one) { return epilogue_type = one, *this; }
  KernelConfig& dtypes(DataType a, DataType b, DataType c, DataType acc = DataType::FP32) {
    return dtype_a = a, dtype_b = b, dtype_c = c, dtype_acc = acc, *this;
  }
  KernelConfig& layouts(LayoutTag a, LayoutTag b, LayoutTag c) {
    return layout_a = a, layout_b = b, layout_c = c, *this;
  }
  KernelConfig& padding(bool m, bool n, bool k) { return pad_m = m, pad_n = n, pad_k = k, *this; }
  KernelConfig& arch(const std::string& target) { return gfx_arch = target, *this; }

  static KernelConfig fp16_rcr() { return {}; }
  static KernelConfig fp16_rrr() {
    return KernelConfig().layouts(LayoutTag::RowMajor, LayoutTag::RowMajor, LayoutTag::RowMajor);
  }
  static KernelConfig bf16_rcr() {
    return KernelConfig().dtypes(DataType::BF16, DataType::BF16, DataType::BF16);
  }
  static KernelConfig fp32_rcr() {
    return KernelConfig().dtypes(DataType::FP32, DataType::FP32, DataType::FP32);
  }

  KernelKey build_key() const {
    KernelKey key;
    key.signature.dtype_a = dtype_a, key.signature.dtype_b = dtype_b;
    key.signature.dtype_c = dtype_c, key.signature.dtype_acc = dtype_acc;
    key.signature.layout_a = layout_a, key.signature.layout_b = layout_b;
    key.signature.layout_c = layout_c;
    const auto wide = [](int size) { return static_cast<std::uint16_t>(size); };
    const auto narrow = [](int size) { return static_cast<std::uint8_t>(size); };
    key.algorithm.tile_shape = {wide(tile_m), wide(tile_n), wide(tile_k)};
    key.algorithm.wave_shape = {narrow(wave_m), narrow(wave_n), narrow(wave_k)};
    key.algorithm.warp_tile_shape = {narrow(warp_m), narrow(warp_n), narrow(warp_k)};
    key.algorithm.pipeline = pipeline_type, key.algorithm.scheduler = scheduler_type;
    key.algorithm.epilogue = epilogue_type, key.algorithm.block_size = wide(block_size);
    key.algorithm.preshuffle = preshuffle;
    key.algorithm.pad_m = pad_m, key.algorithm.pad_n = pad_n, key.algorithm.pad_k = pad_k;
    key.gfx_arch = gfx_arch;
    return key;
  }

  std::string tile_str() const { return text(tile_m, tile_n, tile_k); }
  std::string wave_str() const { return text(wave_m, wave_n, wave_k); }
  std::string warp_tile_str() const { return text(warp_m, warp_n, warp_k); }
  std::string layout_str() const {
    return to_string(layout_a) + to_string(layout_b) + to_string(layout_c);
  }
  std::string get_name() const { return "gemm_" + build_key().encode_identifier(); }

  void print_config(std::ostream& out = std::cout) const {
    const auto row = [&out](const char* name, const std::string& value) {
      out << "  " << name << ": " << value << "\n";
    };
    row("dtypes", to_string(dtype_a) + " " + to_string(dtype_b) + " " + to_string(dtype_c) + " " +
                      to_string(dtype_acc));
    row("layout", layout_str()), row("tile", tile_str()), row("wave", wave_str());
    row("warp_tile", warp_tile_str()), row("pipeline", to_string(pipeline_type));
    row("scheduler", to_string(scheduler_type)), row("epilogue", to_string(epilogue_type));
    row("pad", text(pad_m, pad_n, pad_k)), row("gfx_arch", gfx_arch);
  }

 private:
  static std::string text(int m, int n, int k) {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
  }
};

}  // namespace ck_tile::dispatcher
