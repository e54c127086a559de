// A GEMM kernel by its fields: what it computes and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "ck_tile/dispatcher/kernel_enums.hpp"

namespace ck_tile::dispatcher {

struct KernelKey {
  struct Signature {
    DataType dtype_a = DataType::FP16, dtype_b = DataType::FP16, dtype_c = DataType::FP16;
    DataType dtype_acc = DataType::FP32;
    LayoutTag layout_a = LayoutTag::RowMajor, layout_b = LayoutTag::ColMajor;
    LayoutTag layout_c = LayoutTag::RowMajor;
    bool transpose_a = false, transpose_b = false, grouped = false;
    std::uint8_t split_k = 1;
    std::string elementwise_op = "PassThrough";
    std::uint8_t num_d_tensors = 0;
    bool structured_sparsity = false;
  } signature;

  struct Algorithm {
    struct TileShape {
      std::uint16_t m = 128, n = 128, k = 32;
    } tile_shape;
    struct WaveShape {
      std::uint8_t m = 2, n = 2, k = 1;
    } wave_shape;
    struct WarpTileShape {
      std::uint8_t m = 32, n = 32, k = 16;
    } warp_tile_shape;
    Pipeline pipeline = Pipeline::CompV4;
    Scheduler scheduler = Scheduler::Intrawave;
    Epilogue epilogue = Epilogue::CShuffle;
    std::uint16_t block_size = 256;
    bool double_buffer = true, persistent = false, preshuffle = false, transpose_c = false;
    std::uint8_t num_wave_groups = 1;
    std::uint8_t vector_size_a = 0, vector_size_b = 0, vector_size_c = 0;  // 0: the widest
    bool pad_m = true, pad_n = true, pad_k = true;
    bool streamk = false;
    ReductionStrategy reduction_strategy = ReductionStrategy::None;
    bool workspace = false;
  } algorithm;

  std::string gfx_arch;
  std::string kernel;  // Tessera's name, which has all fields; empty: the fields above alone

  // The kernel's name where there is one, which is lossless; else the original's identifier.
  std::string encode_identifier() const;

  auto tie() const {
    const Signature& s = signature;
    const Algorithm& a = algorithm;
    return std::tie(s.dtype_a, s.dtype_b, s.dtype_c, s.dtype_acc, s.layout_a, s.layout_b,
                    s.layout_c, s.transpose_a, s.transpose_b, s.grouped, s.split_k,
                    s.elementwise_op, s.num_d_tensors, s.structured_sparsity, a.tile_shape.m,
                    a.tile_shape.n, a.tile_shape.k, a.wave_shape.m, a.wave_shape.n, a.wave_shape.k,
                    a.warp_tile_shape.m, a.warp_tile_shape.n, a.warp_tile_shape.k, a.pipeline,
                    a.epilogue, a.scheduler, a.block_size, gfx_arch, a.persistent, a.double_buffer,
                    a.preshuffle, a.transpose_c, a.num_wave_groups, a.vector_size_a,
                    a.vector_size_b, a.vector_size_c, a.pad_m, a.pad_n, a.pad_k, a.streamk,
                    a.reduction_strategy, a.workspace, kernel);
  }
  friend bool operator==(const KernelKey& a, const KernelKey& b) { return a.tie() == b.tie(); }
  friend bool operator!=(const KernelKey& a, const KernelKey& b) { return !(a == b); }
};

struct KernelKeyHash {
  std::size_t operator()(const KernelKey& key) const {
    return std::hash<std::string>()(key.encode_identifier());
  }
};

namespace detail {

template <class Shape>
std::string shape_text(const Shape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}

// The parts of an identifier that are left out where they have their usual value.
inline std::string unusual_parts(const KernelKey& key) {
  const KernelKey::Signature& s = key.signature;
  const KernelKey::Algorithm& a = key.algorithm;
  std::string text;
  if (a.vector_size_a + a.vector_size_b + a.vector_size_c > 0) {
    text += "_vec" + std::to_string(a.vector_size_a) + "_" + std::to_string(a.vector_size_b) + "_" +
            std::to_string(a.vector_size_c);
  }
  if (s.split_k > 1) text += "_splitk" + std::to_string(s.split_k);
  if (!s.elementwise_op.empty() && s.elementwise_op != ElementwiseOps::PassThrough) {
    text += "_" + s.elementwise_op;
  }
  if (s.num_d_tensors > 0) text += "_d" + std::to_string(s.num_d_tensors);
  if (s.structured_sparsity) text += "_sparse";
  if (a.preshuffle) text += "_preshuffle";
  if (a.streamk) {
    constexpr const char* kSums[] = {"", "", "_linear", "_tree"};
    text += std::string("_streamk") + kSums[static_cast<std::size_t>(a.reduction_strategy)];
  }
  return text;
}

}  // namespace detail

inline std::string KernelKey::encode_identifier() const {
  if (!kernel.empty()) return kernel;
  const auto flag = [](bool value) { return value ? "_True" : "_False"; };
  const Algorithm& a = algorithm;
  return to_string(signature.dtype_a) + "_" + to_string(signature.layout_a) +
         to_string(signature.layout_b) + to_string(signature.layout_c) + "_" +
         to_string(a.pipeline) + "_" + to_string(a.epilogue) + "_" + to_string(a.scheduler) +
         flag(a.pad_m) + flag(a.pad_n) + flag(a.pad_k) + flag(a.persistent) + "_" +
         detail::shape_text(a.tile_shape) + "_" + detail::shape_text(a.wave_shape) + "_" +
         detail::shape_text(a.warp_tile_shape) + detail::unusual_parts(*this);
}

}  // namespace ck_tile::dispatcher
