// The words of attention's enums, and what a table of words is: words_internal.h has all others.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tessera/spec/fmha_words.h"

namespace tessera {

// kNoun is the name of such a word in messages; kAll holds the word of each value.
template <class Enum>
struct Words;

template <>
struct Words<FmhaKind> {
  static constexpr std::string_view kNoun = "kind";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"forward", "append", "extend", "backward"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaKind::backward) + 1);
};

template <>
struct Words<FmhaLengths> {
  static constexpr std::string_view kNoun = "kind of lengths";
  static constexpr auto kAll = std::to_array<std::string_view>({"equal", "packed", "padded"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaLengths::padded) + 1);
};

template <>
struct Words<FmhaMask> {
  static constexpr std::string_view kNoun = "mask";
  static constexpr auto kAll =
      std::to_array<std::string_view>({"none", "top_left", "bottom_right"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaMask::bottom_right) + 1);
};

template <>
struct Words<FmhaBias> {
  static constexpr std::string_view kNoun = "bias";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "elementwise", "alibi"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaBias::alibi) + 1);
};

template <>
struct Words<FmhaPages> {
  static constexpr std::string_view kNoun = "kind of pages";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "table", "list"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaPages::list) + 1);
};

template <>
struct Words<FmhaCacheLayout> {
  static constexpr std::string_view kNoun = "layout of a cache";
  static constexpr auto kAll = std::to_array<std::string_view>({"linear", "vectorized"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaCacheLayout::vectorized) + 1);
};

template <>
struct Words<FmhaKv> {
  static constexpr std::string_view kNoun = "type of keys and values";
  static constexpr auto kAll = std::to_array<std::string_view>({"same", "fp8", "bf8"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaKv::bf8) + 1);
};

template <>
struct Words<FmhaQscale> {
  static constexpr std::string_view kNoun = "kind of factors";
  static constexpr auto kAll = std::to_array<std::string_view>(
      {"none", "per_tensor", "per_block", "kv_block", "per_head", "per_token"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaQscale::per_token) + 1);
};

template <>
struct Words<FmhaRotary> {
  static constexpr std::string_view kNoun = "rotary embedding";
  static constexpr auto kAll = std::to_array<std::string_view>({"none", "interleaved", "half"});
  static_assert(kAll.size() == static_cast<std::size_t>(FmhaRotary::half) + 1);
};

}  // namespace tessera
