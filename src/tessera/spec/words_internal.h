// The words of every enum of the spec: one table for each enum, in enum order, and the reading of
// words.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/enums.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/spec/fmha_words_internal.h"
#include "tessera/spec/gemm_words_internal.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera {

template <>
struct Words<DType> {
  static constexpr std::string_view kNoun = "dtype";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"fp32", "tf32", "fp16", "bf16", "fp8", "bf8", "int8", "int32"});
  static_assert(kAll.size() == static_cast<std::size_t>(DType::int32) + 1);
};

template <>
struct Words<Fp8Encoding> {
  static constexpr std::string_view kNoun = "encoding of fp8";
  static constexpr auto kAll = std::to_array<std::string_view>({"ocp", "fnuz"});
  static_assert(kAll.size() == static_cast<std::size_t>(Fp8Encoding::fnuz) + 1);
};

template <>
struct Words<EpilogueOp> {
  static constexpr std::string_view kNoun = "epilogue op";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"pass_through", "bias", "add", "multiply", "multi_d_add", "multi_d_multiply", "relu", "gelu",
       "gelu_tanh", "silu", "sigmoid", "tanh", "clamp", "row_scale", "col_scale"});
  static_assert(kAll.size() == static_cast<std::size_t>(EpilogueOp::col_scale) + 1);
};

template <>
struct Words<Op> {
  static constexpr std::string_view kNoun = "operation";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"gemm", "norm", "conv", "fmha", "route"});
  static_assert(kAll.size() == static_cast<std::size_t>(Op::route) + 1);
};

template <>
struct Words<NormKind> {
  static constexpr std::string_view kNoun = "kind";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"softmax", "rmsnorm", "layernorm", "silu_mul", "gelu_mul", "gelu_tanh_mul", "copy"});
  static_assert(kAll.size() == static_cast<std::size_t>(NormKind::copy) + 1);
};

template <>
struct Words<NormQuant> {
  static constexpr std::string_view kNoun = "quant";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "tensor", "row", "block"});
  static_assert(kAll.size() == static_cast<std::size_t>(NormQuant::block) + 1);
};

template <>
struct Words<ConvDirection> {
  static constexpr std::string_view kNoun = "direction";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"forward", "backward_data", "backward_weight"});
  static_assert(kAll.size() == static_cast<std::size_t>(ConvDirection::backward_weight) + 1);
};

template <>
struct Words<ConvLayout> {
  static constexpr std::string_view kNoun = "layout";
  static constexpr auto kAll = std::to_array<std::string_view>({"nhwgc", "nchw"});
  static_assert(kAll.size() == static_cast<std::size_t>(ConvLayout::nchw) + 1);
};

template <>
struct Words<RouteScoring> {
  static constexpr std::string_view kNoun = "scoring";
  static constexpr auto kAll = std::to_array<std::string_view>({"softmax", "sigmoid", "given"});
  static_assert(kAll.size() == static_cast<std::size_t>(RouteScoring::given) + 1);
};

template <>
struct Words<Pipeline> {
  static constexpr std::string_view kNoun = "pipeline";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"packab",  "packb",  "packa",  "direct",  "stream", "tmaws",     "cpasync",
       "compv3",  "compv4", "compv5", "mem",     "rows",   "depthwise", "flash",
       "splitkv", "async",  "qr",     "qrasync", "small",  "amx",       "grouped"});
  static_assert(kAll.size() == static_cast<std::size_t>(Pipeline::grouped) + 1);
};

template <>
struct Words<Scheduler> {
  static constexpr std::string_view kNoun = "scheduler";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"standard", "cooperative", "pingpong", "intrawave", "interwave"});
  static_assert(kAll.size() == static_cast<std::size_t>(Scheduler::interwave) + 1);
};

template <>
struct Words<Store> {
  static constexpr std::string_view kNoun = "store";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"standard", "direct", "tma", "cshuffle"});
  static_assert(kAll.size() == static_cast<std::size_t>(Store::cshuffle) + 1);
};

template <>
struct Words<SplitK> {
  static constexpr std::string_view kNoun = "split_k";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "ordered", "atomic"});
  static_assert(kAll.size() == static_cast<std::size_t>(SplitK::atomic) + 1);
};

template <class Enum>
concept Worded = requires {
  Words<Enum>::kAll;
};

// Throws Error{invalid_argument} for a number that the enum does not have.
template <Worded Enum>
std::string_view word_of(Enum value) {
  return row_of_enum(Words<Enum>::kAll, Words<Enum>::kNoun, value);
}

template <Worded Enum>
bool read_word(std::string_view text, Enum& value) {
  const auto& all = Words<Enum>::kAll;
  const auto found = std::find(all.begin(), all.end(), text);
  if (found == all.end()) return false;
  value = static_cast<Enum>(found - all.begin());
  return true;
}

// An operation by its own word, or by the word that the CK Tile Dispatcher has for it.
inline bool read_word(std::string_view text, Op& op) {
  if (text == "gemm_universal") text = "gemm";
  if (text == "grouped_conv") text = "conv";
  if (text == "attention") text = "fmha";
  return read_word<Op>(text, op);
}

// A direction by its own word, or by the words that the CK Tile Dispatcher has for it.
inline bool read_word(std::string_view text, ConvDirection& direction) {
  if (text == "fwd") text = "forward";
  if (text == "bwd_data" || text == "bwdd") text = "backward_data";
  if (text == "bwd_weight" || text == "bwdw") text = "backward_weight";
  return read_word<ConvDirection>(text, direction);
}

// A layout by its own word, or by the words of other numbers of dimensions.
inline bool read_word(std::string_view text, ConvLayout& layout) {
  for (const std::string_view last : {"nwgc", "ndhwgc", "nhwc", "nwc", "ndhwc"}) {
    if (text == last) text = "nhwgc";
  }
  if (text == "ncw" || text == "ncdhw") text = "nchw";
  return read_word<ConvLayout>(text, layout);
}

template <Worded Enum>
std::vector<std::string> known_words() {
  return {Words<Enum>::kAll.begin(), Words<Enum>::kAll.end()};
}

// "one of rcr, rrr, crr, ccr"
template <Worded Enum>
std::string one_of() {
  return "one of " + join(known_words<Enum>(), ", ");
}

// "unknown <noun> 'x'" followed by the nearest word, or by all of them where none is near.
inline std::string unknown_word(std::string_view noun, std::string_view text,
                                const std::vector<std::string>& known) {
  const std::string hint = did_you_mean(text, known);
  const std::string all = ": it must be one of " + join(known, ", ");
  return "unknown " + std::string(noun) + " '" + std::string(text) + "'" +
         (hint.empty() ? all : hint);
}

template <Worded Enum>
Enum parse_word(std::string_view text) {
  Enum value{};
  if (read_word(text, value)) return value;
  throw Error(ErrorCode::parse_error, unknown_word(Words<Enum>::kNoun, text, known_words<Enum>()));
}

// Reads "128x256x64"; false when it is no shape.
bool read_shape(std::string_view text, Shape3& shape);

}  // namespace tessera
