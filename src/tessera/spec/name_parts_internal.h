// How the fields of a kernel's spec stand in its name: one table for each signature, and one for
// the algorithm. A field at its default is left out; the default is that of the fields' table.
#pragma once

#include <string_view>
#include <type_traits>

#include "tessera/spec/fields_internal.h"

namespace tessera {

// One field as one word: the prefix, the value, the suffix. A flag's word is its prefix. An
// epilogue has a word for each of its steps.
template <class Struct, class Value>
struct NamePart {
  using Owner = Struct;
  std::string_view what;  // its name in messages
  Value Struct::*member;
  std::string_view prefix, suffix;
  Follows<Struct, Value> follows;
  bool is_required = false;
};

// Two fields as one word: the prefix, the first value, the separator, the second value. The word is
// left out where both are at their defaults.
template <class Struct, class First, class Second>
struct NamePair {
  using Owner = Struct;
  std::string_view what;
  First Struct::*first;
  Second Struct::*second;
  std::string_view prefix, separator;
  static constexpr bool is_required = false;
};

template <class Struct, class Value>
constexpr Follows<Struct, Value> follows_of(Value Struct::*member) {
  Follows<Struct, Value> found;
  const auto one = [&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row.member), Value Struct::*>) {
      if (row.member == member) found = row.follows;
    }
  };
  Fields<Struct>::kAll([&](const auto&... rows) { (one(rows), ...); });
  return found;
}

template <class Struct, class Value>
constexpr NamePart<Struct, Value> part(std::string_view what, Value Struct::*member,
                                       std::string_view prefix = "") {
  return {what, member, prefix, "", follows_of(member)};
}
template <class Struct, class Value>
constexpr NamePart<Struct, Value> required(std::string_view what, Value Struct::*member,
                                           std::string_view suffix = "") {
  return {what, member, "", suffix, {}, true};
}
template <class Struct>
constexpr NamePart<Struct, bool> flag(std::string_view word, bool Struct::*member) {
  return {word, member, word, "", {}};
}
template <class Struct, class First, class Second>
constexpr NamePair<Struct, First, Second> pair(std::string_view what, std::string_view prefix,
                                               First Struct::*first, std::string_view separator,
                                               Second Struct::*second) {
  return {what, first, second, prefix, separator};
}

// kHead: the words in their order. kOptions: words behind those of the algorithm's head.
template <class Struct>
struct NameParts;

template <>
struct NameParts<GemmSignature> {
  using S = GemmSignature;
  static constexpr auto kHead = row_list(required("a dtype", &S::a), part("the dtype of B", &S::b),
                                         required("a layout", &S::layout));
  static constexpr auto kOptions =
      row_list(part("an accumulator", &S::acc, "acc"), part("an output", &S::out, "out"),
               part("a dtype of the D tensors", &S::d, "d"), flag("presh", &S::preshuffled_b),
               part("a grouping", &S::grouping, "groups"),
               part("a block of A that shares a scale", &S::scale_a, "scalea"),
               part("a block of B that shares a scale", &S::scale_b, "scaleb"),
               part("a type of scales", &S::scale_type, "by"), part("a gate", &S::gate, "gate"),
               flag("interleaved", &S::gate_interleaved), part("an indexing", &S::indexing, "rows"),
               part("what shares a scale of the output", &S::quant, "quant"),
               flag("arranged", &S::arranged), part("an epilogue op", &S::epilogue));
};

template <>
struct NameParts<NormSignature> {
  using S = NormSignature;
  static constexpr auto kHead =
      row_list(required("a dtype", &S::in), part("the dtype of scale and shift", &S::weight),
               required("a kind", &S::kind));
  static constexpr auto kOptions = row_list(
      part("an output", &S::out, "out"), flag("scale", &S::scale), flag("shift", &S::shift),
      flag("residual", &S::residual), part("what shares a scale", &S::quant, "quant"),
      flag("interleaved", &S::interleaved));
};

template <>
struct NameParts<ConvSignature> {
  using S = ConvSignature;
  static constexpr auto kHead =
      row_list(required("a direction", &S::direction), required("a dtype", &S::in),
               part("the dtype of the filters", &S::weight), required("a layout", &S::layout),
               required("the number of spatial dimensions such as 2d", &S::ndim, "d"));
  static constexpr auto kOptions =
      row_list(part("an accumulator", &S::acc, "acc"), part("an output", &S::out, "out"),
               part("a dtype of the D tensors", &S::d, "d"), part("an epilogue op", &S::epilogue));
};

template <>
struct NameParts<FmhaSignature> {
  using S = FmhaSignature;
  static constexpr auto kHead = row_list(required("a kind", &S::kind), required("a dtype", &S::in));
  static constexpr auto kOptions = row_list(
      part("an output", &S::out, "out"), part("lengths", &S::lengths), flag("masked", &S::masked),
      part("a bias", &S::bias, "bias"), part("a dtype of the bias", &S::dtype_bias, "by"),
      part("a dtype of keys and values", &S::kv, "kv"), flag("softcap", &S::soft_cap),
      flag("lse", &S::lse), flag("dropout", &S::dropout), flag("random", &S::random),
      part("pages", &S::pages, "pages"), part("a layout of a cache", &S::cache_layout),
      part("factors", &S::qscale, "scales"), part("a rotary embedding", &S::rotary, "rotary"),
      flag("rotateq", &S::rotate_q), flag("dbias", &S::dbias));
};

template <>
struct NameParts<RouteSignature> {
  using S = RouteSignature;
  static constexpr auto kHead =
      row_list(required("a dtype", &S::in), required("a scoring", &S::scoring));
  static constexpr auto kOptions = row_list(flag("bias", &S::bias), flag("order", &S::order));
};

template <>
struct NameParts<Algorithm> {
  using S = Algorithm;
  static constexpr auto kHead = row_list(required("a pipeline", &S::pipeline),
                                         required("a tile such as 240x480x256", &S::tile),
                                         required("a wave such as 2x1x1", &S::wave),
                                         required("a warp tile such as 12x32x1", &S::warp_tile));
  static constexpr auto kOptions =
      row_list(part("a scheduler", &S::scheduler), part("a store", &S::store, "store"),
               pair("a split of K such as splitordered4", "split", &S::split_k, "", &S::splits),
               part("slices such as slices8", &S::slices, "slices"), flag("streamk", &S::streamk),
               part("stages such as s4", &S::stages, "s"),
               pair("a cluster such as c2x1", "c", &S::cluster_m, "x", &S::cluster_n),
               flag("persistent", &S::persistent), flag("swap", &S::swap_ab),
               flag("repack", &S::repack), flag("pointwise", &S::pointwise));
};

// Whether each field has its place in the name, so that equal names mean equal specs.
template <class Struct>
constexpr bool names_all_fields() {
  const auto count = [](const auto&... parts) {
    return (std::size_t{0} + ... + (requires { parts.second; } ? 2U : 1U));
  };
  return NameParts<Struct>::kHead(count) + NameParts<Struct>::kOptions(count) ==
         Fields<Struct>::kAll([](const auto&... rows) { return sizeof...(rows); });
}
static_assert(names_all_fields<GemmSignature>() && names_all_fields<NormSignature>() &&
              names_all_fields<ConvSignature>() && names_all_fields<FmhaSignature>() &&
              names_all_fields<RouteSignature>() && names_all_fields<Algorithm>());

}  // namespace tessera
