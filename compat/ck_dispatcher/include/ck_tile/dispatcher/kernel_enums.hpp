// The enumerations of a GEMM kernel's key, and their words. Behind the original's enumerators lie
// those of Tessera's other kernels.
#pragma once

#include <cstdint>
#include <string>

#include "ck_tile/dispatcher/words.hpp"

namespace ck_tile::dispatcher {

enum class DataType : std::uint8_t {
  FP16,
  BF16,
  FP32,
  FP64,
  FP8,
  BF8,
  INT8,
  INT4,
  INT32,
  UNKNOWN,
  TF32
};
enum class LayoutTag : std::uint8_t {
  RowMajor,
  ColMajor,
  PackedExternal,
  Row = RowMajor,
  Col = ColMajor
};
enum class Pipeline : std::uint8_t {
  Mem,
  CompV1,
  CompV2,
  CompV3,
  CompV4,
  CompV5,
  CompV6,
  PreShuffleV1,
  PreShuffleV2,
  Wavelet,
  CompAsync,
  CompTDMV1,
  CompTDMV2,
  PackAB,
  PackB,
  PackA,
  Direct,
  Stream,
  Small,
  Amx,
  TmaWs,
  CpAsync
};
enum class Epilogue : std::uint8_t {
  None,
  Default,
  CShuffle,
  Bias,
  Activation,
  BiasActivation,
  Tdm,
  Direct,
  Tma
};
enum class Scheduler : std::uint8_t { Auto, Intrawave, Interwave, Cooperative, Pingpong };
// How the parts of a stream-K kernel are summed.
enum class ReductionStrategy : std::uint8_t { None, Atomic, Linear, Tree };

namespace detail {

inline constexpr const char* kDataTypes[] = {"fp16", "bf16", "fp32",  "fp64",    "fp8", "bf8",
                                             "int8", "int4", "int32", "unknown", "tf32"};
inline constexpr const char* kLayouts[] = {"r", "c", "p"};
inline constexpr const char* kPipelines[] = {
    "mem",         "compv1",       "compv2",       "compv3",  "compv4",     "compv5",
    "compv6",      "preshufflev1", "preshufflev2", "wavelet", "comp_async", "comp_tdm",
    "comp_tdm_v2", "packab",       "packb",        "packa",   "direct",     "stream",
    "small",       "amx",          "tmaws",        "cpasync"};
inline constexpr const char* kEpilogues[] = {
    "none", "default", "cshuffle", "bias", "activation", "bias_activation", "tdm", "direct", "tma"};
inline constexpr const char* kSchedulers[] = {"auto", "intrawave", "interwave", "cooperative",
                                              "pingpong"};

}  // namespace detail

inline std::string to_string(DataType type) { return detail::word_of(detail::kDataTypes, type); }
inline std::string to_string(LayoutTag tag) { return detail::word_of(detail::kLayouts, tag); }
inline std::string to_string(Pipeline one) { return detail::word_of(detail::kPipelines, one); }
inline std::string to_string(Epilogue one) { return detail::word_of(detail::kEpilogues, one); }
inline std::string to_string(Scheduler one) { return detail::word_of(detail::kSchedulers, one); }

// A word that is none of them gives what the original gives.
inline DataType string_to_dtype(const std::string& word) {
  return detail::from_word(detail::kDataTypes, word, DataType::UNKNOWN);
}
inline LayoutTag string_to_layout(const std::string& word) {
  if (word == "col" || word == "ColMajor") return LayoutTag::ColMajor;
  if (word == "packed") return LayoutTag::PackedExternal;
  return detail::from_word(detail::kLayouts, word, LayoutTag::RowMajor);
}
inline Pipeline string_to_pipeline(const std::string& word) {
  return detail::from_word(detail::kPipelines, word, Pipeline::Mem);
}
inline Epilogue string_to_epilogue(const std::string& word) {
  return detail::from_word(detail::kEpilogues, word, Epilogue::Default);
}
inline Scheduler string_to_scheduler(const std::string& word) {
  return detail::from_word(detail::kSchedulers, word, Scheduler::Intrawave);
}

// The element-wise operations that a signature may name.
namespace ElementwiseOps {
inline constexpr const char* PassThrough = "PassThrough";
inline constexpr const char* Add = "Add";
inline constexpr const char* Multiply = "Multiply";
inline constexpr const char* MultiDAdd = "MultiDAdd";
inline constexpr const char* MultiDMultiply = "MultiDMultiply";
inline constexpr const char* Relu = "Relu";
inline constexpr const char* Gelu = "Gelu";
inline constexpr const char* Clamp = "Clamp";
inline constexpr const char* Sigmoid = "Sigmoid";
inline constexpr const char* Tanh = "Tanh";
inline constexpr const char* Swish = "Swish";
inline constexpr const char* HardSwish = "HardSwish";
}  // namespace ElementwiseOps

}  // namespace ck_tile::dispatcher
