// The fields of the spec's structs, as tables with one row for each field. All code that reads,
// writes or hashes a struct walks its table, so that no field can be forgotten.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "tessera/base/forever.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"
#include "tessera/spec/words_internal.h"

namespace tessera {

enum class Range : std::uint8_t { any, not_negative, positive };

// The rule that a reader checks for a field.
struct Rule {
  bool required = false;
  Range range = Range::any;
};

inline constexpr Rule kOptional{};
inline constexpr Rule kRequired{.required = true};
inline constexpr Rule kPositive{.range = Range::positive};
inline constexpr Rule kNotNegative{.range = Range::not_negative};
inline constexpr Rule kRequiredPositive{.required = true, .range = Range::positive};

// The ends of the keys of an array's elements.
using KeyEnds = std::span<const std::string_view>;
inline constexpr std::array<std::string_view, kMaxD> kNumbered = {"0", "1", "2", "3"};
inline constexpr std::array<std::string_view, 3> kOfSize = {"d", "h", "w"};
inline constexpr std::array<std::string_view, 3> kOfFilter = {"z", "y", "x"};
inline constexpr std::array<std::string_view, 6> kOfImage = {"n", "g", "c", "d", "h", "w"};
inline constexpr std::array<std::string_view, 6> kOfOutput = {"n", "g", "k", "d", "h", "w"};
inline constexpr std::array<std::string_view, 6> kOfFilters = {"g", "k", "c", "z", "y", "x"};

template <class Struct, class Value>
struct Field {
  std::string_view key;
  Value Struct::*member;
  Rule rule;
  KeyEnds ends;  // of an array: one for each element
};

template <class Struct, class Value>
constexpr Field<Struct, Value> field(std::string_view key, Value Struct::*member,
                                     Rule rule = kOptional) {
  return {key, member, rule, {}};
}

// An array: each element is a field of its own, whose key begins with `key`.
template <class Struct, std::size_t n>
constexpr Field<Struct, std::array<std::int64_t, n>> fields(
    std::string_view key, std::array<std::int64_t, n> Struct::*member,
    const std::array<std::string_view, n>& ends, Rule rule = kOptional) {
  return {key, member, rule, ends};
}

template <class Struct>
struct Fields;

template <class Struct>
concept HasFields = requires {
  Fields<Struct>::kAll;
};

template <class T>
inline constexpr bool kIsArray = false;
template <class T, std::size_t n>
inline constexpr bool kIsArray<std::array<T, n>> = true;

// Calls visit(key, value, default value, rule) for each field, in the order of the table.
template <class Struct, class Visit>
void for_each_field(Struct& object, Visit&& visit) {
  using Plain = std::remove_const_t<Struct>;
  static const Forever<Plain> kDefaults;
  const auto one = [&](const auto& row) {
    auto& value = object.*row.member;
    const auto& standard = (*kDefaults).*row.member;
    if constexpr (kIsArray<std::remove_cvref_t<decltype(value)>>) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        visit(std::string(row.key).append(row.ends[i]), value[i], standard[i], row.rule);
      }
    } else {
      visit(std::string(row.key), value, standard, row.rule);
    }
  };
  std::apply([&](const auto&... rows) { (one(rows), ...); }, Fields<Plain>::kAll);
}

// Calls visit(value) for each field, in the order of the table.
template <class Struct, class Visit>
void for_each_value(const Struct& object, Visit&& visit) {
  std::apply([&](const auto&... rows) { (visit(object.*rows.member), ...); }, Fields<Struct>::kAll);
}

// Throws Error{invalid_argument} for a number that is not in the enum: "<what>: <key> must be a
// number from 0 to 7, got 99".
template <class Struct>
void check_numbers(std::string_view what, const Struct& object) {
  const auto one = [&](const auto& row) {
    const auto& value = object.*row.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (Worded<Value>) {
      const std::int64_t last = std::ssize(Words<Value>::kAll) - 1;
      const std::string reason = number_reason(row.key, static_cast<std::int64_t>(value), last);
      if (reason.empty()) return;
      throw Error(ErrorCode::invalid_argument, std::string(what) + ": " + reason);
    }
  };
  std::apply([&](const auto&... rows) { (one(rows), ...); }, Fields<Struct>::kAll);
}

template <>
struct Fields<GemmProblem> {
  using S = GemmProblem;
  static constexpr auto kAll = std::tuple{
      field("m", &S::m, kRequired),
      field("n", &S::n, kRequired),
      field("k", &S::k, kRequired),
      field("batch", &S::batch),
      field("a", &S::a),
      field("b", &S::b),
      field("acc", &S::acc),
      field("out", &S::out),
      field("d", &S::d),
      field("layout", &S::layout),
      field("ld_a", &S::ld_a),
      field("ld_b", &S::ld_b),
      field("ld_c", &S::ld_c),
      field("ld_out", &S::ld_out),
      fields("ld_d", &S::ld_d, kNumbered),
      field("batch_stride_a", &S::batch_stride_a),
      field("batch_stride_b", &S::batch_stride_b),
      field("batch_stride_c", &S::batch_stride_c),
      field("batch_stride_out", &S::batch_stride_out),
      fields("batch_stride_d", &S::batch_stride_d, kNumbered),
      field("alpha", &S::alpha),
      field("beta", &S::beta),
      field("epilogue", &S::epilogue),
      field("clamp_lo", &S::clamp_lo),
      field("clamp_hi", &S::clamp_hi),
      field("preshuffle", &S::preshuffled_b),
      field("pointer_arrays", &S::pointer_arrays),
  };
};

template <>
struct Fields<GemmSignature> {
  using S = GemmSignature;
  static constexpr auto kAll = std::tuple{
      field("a", &S::a, kRequired),
      field("b", &S::b),
      field("acc", &S::acc),
      field("out", &S::out),
      field("d", &S::d),
      field("layout", &S::layout, kRequired),
      field("epilogue", &S::epilogue),
      field("preshuffle", &S::preshuffled_b),
  };
};

template <>
struct Fields<NormProblem> {
  using S = NormProblem;
  static constexpr auto kAll = std::tuple{
      field("kind", &S::kind, kRequired),
      field("rows", &S::rows, kRequired),
      field("columns", &S::columns, kRequired),
      field("in", &S::in),
      field("weight", &S::weight),
      field("out", &S::out),
      field("ld_in", &S::ld_in),
      field("ld_residual", &S::ld_residual),
      field("ld_out", &S::ld_out),
      field("ld_sum", &S::ld_sum),
      field("epsilon", &S::epsilon),
      field("scale", &S::scale),
      field("shift", &S::shift),
      field("residual", &S::residual),
  };
};

template <>
struct Fields<NormSignature> {
  using S = NormSignature;
  static constexpr auto kAll = std::tuple{
      field("kind", &S::kind, kRequired), field("in", &S::in, kRequired),
      field("weight", &S::weight),        field("out", &S::out),
      field("scale", &S::scale),          field("shift", &S::shift),
      field("residual", &S::residual),
  };
};

template <>
struct Fields<ConvProblem> {
  using S = ConvProblem;
  static constexpr auto kAll = std::tuple{
      field("direction", &S::direction, kRequired),
      field("n", &S::n, kRequired),
      field("c", &S::c, kRequired),
      field("k", &S::k, kRequired),
      field("g", &S::g),
      field("ndim", &S::ndim),
      fields("", &S::size, kOfSize),
      fields("", &S::filter, kOfFilter),
      fields("stride_", &S::stride, kOfSize),
      fields("dilation_", &S::dilation, kOfSize),
      fields("pad_", &S::pad, kOfSize),
      fields("pad_right_", &S::pad_right, kOfSize),
      field("in", &S::in),
      field("weight", &S::weight),
      field("acc", &S::acc),
      field("out", &S::out),
      field("dtype_d", &S::d),
      field("layout", &S::layout),
      fields("in_stride_", &S::in_strides, kOfImage),
      fields("weight_stride_", &S::weight_strides, kOfFilters),
      fields("out_stride_", &S::out_strides, kOfOutput),
      field("alpha", &S::alpha),
      field("beta", &S::beta),
      field("epilogue", &S::epilogue),
      field("clamp_lo", &S::clamp_lo),
      field("clamp_hi", &S::clamp_hi),
  };
};

template <>
struct Fields<ConvSignature> {
  using S = ConvSignature;
  static constexpr auto kAll = std::tuple{
      field("direction", &S::direction, kRequired),
      field("in", &S::in, kRequired),
      field("weight", &S::weight),
      field("acc", &S::acc),
      field("out", &S::out),
      field("dtype_d", &S::d),
      field("layout", &S::layout),
      field("ndim", &S::ndim, kPositive),
      field("epilogue", &S::epilogue),
  };
};

template <>
struct Fields<Algorithm> {
  using S = Algorithm;
  static constexpr auto kAll = std::tuple{
      field("pipeline", &S::pipeline, kRequired),
      field("tile", &S::tile, kRequired),
      field("wave", &S::wave, kRequired),
      field("warp_tile", &S::warp_tile, kRequired),
      field("scheduler", &S::scheduler),
      field("store", &S::store),
      field("split_k", &S::split_k),
      field("splits", &S::splits, kPositive),
      field("slices", &S::slices, kPositive),
      field("stages", &S::stages, kPositive),
      field("cluster_m", &S::cluster_m, kPositive),
      field("cluster_n", &S::cluster_n, kPositive),
      field("persistent", &S::persistent),
      field("swap_ab", &S::swap_ab),
      field("repack", &S::repack),
  };
};

}  // namespace tessera
