// GEMM kernels by their fields.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>

#include "tessera_ck/machine.hpp"

namespace tessera_ck {

enum class DataType : std::uint8_t { FP16, BF16, FP32, TF32, FP8, BF8, INT8, INT32 };
enum class LayoutTag : std::uint8_t { RowMajor, ColMajor };
// The original's pipelines, and behind them those of other machines.
enum class Pipeline : std::uint8_t {
  Mem,
  CompV3,
  CompV4,
  CompV5,
  PreShuffleV2,
  PackAB,
  PackB,
  PackA,
  Direct,
  Stream,
  TmaWs,
  CpAsync,
};
enum class Epilogue : std::uint8_t { Default, CShuffle, Direct, Tma };
enum class Scheduler : std::uint8_t { Auto, Intrawave, Interwave, Cooperative, Pingpong };

struct Shape {
  int m = 1, n = 1, k = 1;
  friend bool operator==(const Shape&, const Shape&) = default;
};

struct KernelKey {
  struct Signature {
    DataType dtype_a = DataType::FP16, dtype_b = DataType::FP16, dtype_c = DataType::FP16;
    DataType dtype_acc = DataType::FP32;
    LayoutTag layout_a = LayoutTag::RowMajor, layout_b = LayoutTag::ColMajor;
    LayoutTag layout_c = LayoutTag::RowMajor;
    std::string elementwise_op = "PassThrough";
    int num_d_tensors = 0;
    friend bool operator==(const Signature&, const Signature&) = default;
  };
  struct Algorithm {
    Shape tile_shape{128, 128, 32}, wave_shape{2, 2, 1}, warp_tile_shape{32, 32, 16};
    Pipeline pipeline = Pipeline::CompV4;
    Scheduler scheduler = Scheduler::Intrawave;
    Epilogue epilogue = Epilogue::CShuffle;
    bool persistent = false, preshuffle = false;
    friend bool operator==(const Algorithm&, const Algorithm&) = default;
  };
  Signature signature;
  Algorithm algorithm;
  std::string gfx_arch;  // empty: this machine
  std::string kernel;    // Tessera's name, which has all fields; empty: the fields above alone

  // Lossless where the kernel has a name of Tessera's.
  std::string encode_identifier() const;
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

struct KernelKeyHash {
  std::size_t operator()(const KernelKey& key) const {
    return std::hash<std::string>()(key.encode_identifier());
  }
};

namespace detail {

// The words of the enumerations. PreShuffleV2 is a kernel of compv3 that reads a packed B.
inline constexpr const char* kDataTypes[] = {"fp16", "bf16", "fp32", "tf32",
                                             "fp8",  "bf8",  "int8", "int32"};
inline constexpr const char* kPipelines[] = {"mem",    "compv3", "compv4", "compv5",
                                             "compv3", "packab", "packb",  "packa",
                                             "direct", "stream", "tmaws",  "cpasync"};
inline constexpr const char* kSchedulers[] = {"auto", "intrawave", "interwave", "cooperative",
                                              "pingpong"};
inline constexpr const char* kEpilogues[] = {"default", "cshuffle", "direct", "tma"};

inline const char* word(DataType type) { return kDataTypes[static_cast<int>(type)]; }
inline const char* word(Pipeline pipeline) { return kPipelines[static_cast<int>(pipeline)]; }
inline const char* word(Scheduler scheduler) { return kSchedulers[static_cast<int>(scheduler)]; }
inline const char* word(Epilogue epilogue) { return kEpilogues[static_cast<int>(epilogue)]; }

// The first that has Tessera's word; `other` where none has it.
template <class Enumeration, std::size_t count>
Enumeration named(const char* const (&words)[count], std::string_view wanted, Enumeration other) {
  const auto* const found = std::find(std::begin(words), std::end(words), wanted);
  return found == std::end(words) ? other : static_cast<Enumeration>(found - std::begin(words));
}
inline std::string text(const Shape& shape) {
  return std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
}
inline Shape shape_of(const tessera::Shape3& shape) { return {shape.m, shape.n, shape.k}; }

// op(A x B + D0 + D1 + ...) as Tessera's chain: ("Relu", 1) is "multi_d_add1+relu".
inline std::string epilogue_text(const std::string& operation, int num_d) {
  const std::string number = std::to_string(num_d);
  if (operation == "MultiDMultiply" || operation == "Multiply") {
    return num_d == 0 ? "none" : "multi_d_multiply" + number;
  }
  constexpr const char* kSteps[][2] = {
      {"PassThrough", ""}, {"MultiDAdd", ""},      {"Add", ""},
      {"Relu", "relu"},    {"Gelu", "gelu"},       {"Tanh", "tanh"},
      {"Swish", "silu"},   {"Sigmoid", "sigmoid"}, {"FastGelu", "gelu_tanh"}};
  for (const auto& [name, step] : kSteps) {
    if (operation != name) continue;
    const std::string sum = num_d == 0 ? "" : "multi_d_add" + number;
    const std::string chain = sum + (*step != '\0' && !sum.empty() ? "+" : "") + step;
    return chain.empty() ? "none" : chain;
  }
  throw DispatcherError("there is no element-wise operation '" + operation + "'");
}

}  // namespace detail

inline std::string KernelKey::encode_identifier() const {
  if (!kernel.empty()) return kernel;
  const auto letter = [](LayoutTag tag) { return tag == LayoutTag::RowMajor ? 'r' : 'c'; };
  std::string id = detail::word(signature.dtype_a);
  id += std::string("_") + letter(signature.layout_a) + letter(signature.layout_b) +
        letter(signature.layout_c);
  id += std::string("_") + detail::word(algorithm.pipeline) + "_" +
        detail::word(algorithm.epilogue) + "_" + detail::word(algorithm.scheduler) +
        "_True_True_True_" + (algorithm.persistent ? "True" : "False") + "_" +
        detail::text(algorithm.tile_shape) + "_" + detail::text(algorithm.wave_shape) + "_" +
        detail::text(algorithm.warp_tile_shape);
  if (signature.num_d_tensors > 0) {
    id += "_" + signature.elementwise_op + "_d" + std::to_string(signature.num_d_tensors);
  }
  if (algorithm.preshuffle) id += "_preshuffle";
  return id + "_" + detail::word(signature.dtype_b) + "_" + detail::word(signature.dtype_c) +
         (gfx_arch.empty() ? "" : "_" + gfx_arch);
}

// The fields of one of Tessera's kernels.
inline KernelKey key_of(const tessera::KernelSpec& spec) {
  const auto& s = std::get<tessera::GemmSignature>(spec.signature);
  const tessera::Algorithm& how = spec.algorithm;
  const auto type = [](tessera::DType dtype) {
    return detail::named(detail::kDataTypes, tessera::to_string(dtype), DataType::INT32);
  };
  const auto tag = [](bool is_row) { return is_row ? LayoutTag::RowMajor : LayoutTag::ColMajor; };
  KernelKey key;
  key.signature.dtype_a = type(s.a), key.signature.dtype_b = type(s.b);
  key.signature.dtype_c = type(s.out), key.signature.dtype_acc = type(s.acc);
  key.signature.layout_a = tag(tessera::a_is_row_major(s.layout));
  key.signature.layout_b = tag(tessera::b_is_row_major(s.layout));
  key.signature.elementwise_op = tessera::to_string(s.epilogue);
  key.signature.num_d_tensors = s.epilogue.num_d;
  key.algorithm.tile_shape = detail::shape_of(how.tile);
  key.algorithm.wave_shape = detail::shape_of(how.wave);
  key.algorithm.warp_tile_shape = detail::shape_of(how.warp_tile);
  key.algorithm.pipeline =
      detail::named(detail::kPipelines, tessera::to_string(how.pipeline), Pipeline::CompV4);
  key.algorithm.scheduler =
      static_cast<Scheduler>(std::array{0, 3, 4, 1, 2}[static_cast<std::size_t>(how.scheduler)]);
  key.algorithm.epilogue =
      static_cast<Epilogue>(std::array{0, 2, 3, 1}[static_cast<std::size_t>(how.store)]);
  key.algorithm.persistent = how.persistent, key.algorithm.preshuffle = s.preshuffled_b;
  key.gfx_arch = spec.target;
  key.kernel = tessera::name_of(spec);
  return key;
}

}  // namespace tessera_ck
