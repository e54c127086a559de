// The words of GEMM's enums: words_internal.h has those of others.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tessera/spec/fmha_words_internal.h"
#include "tessera/spec/gemm_problem.h"

namespace tessera {

template <>
struct Words<GemmLayout> {
  static constexpr std::string_view kNoun = "layout";
  static constexpr auto kAll = std::to_array<std::string_view>({"rcr", "rrr", "crr", "ccr"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmLayout::ccr) + 1);
};

template <>
struct Words<GemmGrouping> {
  static constexpr std::string_view kNoun = "grouping";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"none", "contiguous", "indexed", "masked", "along_k", "lists"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmGrouping::lists) + 1);
};

template <>
struct Words<GemmScale> {
  static constexpr std::string_view kNoun = "block of a scale";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"none", "1x32", "1x128", "128x128"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmScale::by_128x128) + 1);
};

template <>
struct Words<GemmScaleType> {
  static constexpr std::string_view kNoun = "type of scales";
  static constexpr auto kAll = std::to_array<std::string_view>({"fp32", "e8m0"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmScaleType::e8m0) + 1);
};

template <>
struct Words<GemmGate> {
  static constexpr std::string_view kNoun = "gate";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"none", "silu_mul", "gelu_mul", "gelu_tanh_mul"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmGate::gelu_tanh_mul) + 1);
};

template <>
struct Words<GemmIndexing> {
  static constexpr std::string_view kNoun = "indexing";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "gathered", "scattered"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmIndexing::scattered) + 1);
};

template <>
struct Words<GemmMerge> {
  static constexpr std::string_view kNoun = "merge";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "add", "multiply"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmMerge::multiply) + 1);
};

template <>
struct Words<GemmDimKind> {
  static constexpr std::string_view kNoun = "kind of dimension";
  static constexpr auto kAll = std::to_array<std::string_view>({"g", "m", "n", "k"});
  static_assert(kAll.size() == static_cast<std::size_t>(GemmDimKind::k) + 1);
};

}  // namespace tessera
