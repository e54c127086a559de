// The fields of the spec's structs, as tables with one row for each field. All code that reads,
// writes or hashes a struct walks its table, so that no field can be forgotten.
#pragma once

#include <array>
#include <string_view>

#include "tessera/spec/field_table_internal.h"
#include "tessera/spec/fmha_fields_internal.h"
#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera {

// The ends of the keys of arrays.
inline constexpr std::array<std::string_view, kMaxD> kNumbered = {"0", "1", "2", "3"};
inline constexpr std::array<std::string_view, kMaxSources - 1> kOfSources = {"1", "2", "3"};
inline constexpr std::array<std::string_view, 3> kOfSize = {"d", "h", "w"};
inline constexpr std::array<std::string_view, 3> kOfFilter = {"z", "y", "x"};
inline constexpr std::array<std::string_view, 6> kOfImage = {"n", "g", "c", "d", "h", "w"};
inline constexpr std::array<std::string_view, 6> kOfOutput = {"n", "g", "k", "d", "h", "w"};
inline constexpr std::array<std::string_view, 6> kOfFilters = {"g", "k", "c", "z", "y", "x"};

template <>
struct Fields<GemmProblem> {
  using S = GemmProblem;
  static constexpr auto kAll = row_list(
      field("m", &S::m, kRequired), field("n", &S::n, kRequired), field("k", &S::k, kRequired),
      field("batch", &S::batch), field("a", &S::a), field("b", &S::b), field("acc", &S::acc),
      field("out", &S::out), field("d", &S::d), field("layout", &S::layout),
      field("ld_a", &S::ld_a), field("ld_b", &S::ld_b), field("ld_c", &S::ld_c),
      field("ld_out", &S::ld_out), fields("ld_d", &S::ld_d, kNumbered),
      field("batch_stride_a", &S::batch_stride_a), field("batch_stride_b", &S::batch_stride_b),
      field("batch_stride_c", &S::batch_stride_c), field("batch_stride_out", &S::batch_stride_out),
      fields("batch_stride_d", &S::batch_stride_d, kNumbered), field("alpha", &S::alpha),
      field("beta", &S::beta), field("epilogue", &S::epilogue), field("clamp_lo", &S::clamp_lo),
      field("clamp_hi", &S::clamp_hi), field("preshuffle", &S::preshuffled_b),
      field("pointer_arrays", &S::pointer_arrays), field("groups", &S::groups),
      field("grouping", &S::grouping), field("check_groups", &S::check_groups),
      field("group_strides", &S::group_strides), field("group_int64", &S::group_int64),
      field("scale_a", &S::scale_a), field("scale_b", &S::scale_b),
      field("scale_type", &S::scale_type), field("scale_quads", &S::scale_quads),
      field("stride_scale_a_m", &S::stride_scale_a_m),
      field("stride_scale_a_k", &S::stride_scale_a_k),
      field("stride_scale_b_n", &S::stride_scale_b_n),
      field("stride_scale_b_k", &S::stride_scale_b_k),
      field("batch_stride_scale_a", &S::batch_stride_scale_a),
      field("batch_stride_scale_b", &S::batch_stride_scale_b), field("gate", &S::gate),
      field("gate_interleaved", &S::gate_interleaved), field("indexing", &S::indexing),
      field("index_room", &S::index_room), field("quant", &S::quant),
      field("scales_by_column", &S::scales_by_column), field("dims", &S::dims),
      field("merge_a", &S::merge_a), field("merge_b", &S::merge_b),
      field("sources_a", &S::sources_a), field("sources_b", &S::sources_b),
      fields("ld_a", &S::ld_more_a, kOfSources), fields("ld_b", &S::ld_more_b, kOfSources),
      fields("batch_stride_a", &S::batch_stride_more_a, kOfSources),
      fields("batch_stride_b", &S::batch_stride_more_b, kOfSources));
};

template <>
struct Fields<GemmSignature> {
  using S = GemmSignature;
  static constexpr auto kAll = row_list(
      field("a", &S::a, kRequired), field("b", &S::b, follows(&S::a)),
      field("acc", &S::acc, follows(&S::a, default_accumulator)),
      field("out", &S::out, follows(&S::a, default_output)), field("d", &S::d, follows(&S::out)),
      field("layout", &S::layout, kRequired), field("epilogue", &S::epilogue),
      field("preshuffle", &S::preshuffled_b), field("grouping", &S::grouping),
      field("scale_a", &S::scale_a), field("scale_b", &S::scale_b),
      field("scale_type", &S::scale_type), field("gate", &S::gate),
      field("gate_interleaved", &S::gate_interleaved), field("indexing", &S::indexing),
      field("quant", &S::quant), field("arranged", &S::arranged));
};

template <>
struct Fields<NormProblem> {
  using S = NormProblem;
  static constexpr auto kAll = row_list(
      field("kind", &S::kind, kRequired), field("rows", &S::rows, kRequired),
      field("columns", &S::columns, kRequired), field("in", &S::in), field("weight", &S::weight),
      field("out", &S::out), field("ld_in", &S::ld_in), field("ld_residual", &S::ld_residual),
      field("ld_out", &S::ld_out), field("ld_sum", &S::ld_sum), field("epsilon", &S::epsilon),
      field("scale", &S::scale), field("shift", &S::shift), field("residual", &S::residual),
      field("quant", &S::quant), field("scales_by_column", &S::scales_by_column),
      field("interleaved", &S::interleaved));
};

template <>
struct Fields<NormSignature> {
  using S = NormSignature;
  static constexpr auto kAll =
      row_list(field("kind", &S::kind, kRequired), field("in", &S::in, kRequired),
               field("weight", &S::weight, follows(&S::in)),
               field("out", &S::out, follows(&S::in, default_output)), field("scale", &S::scale),
               field("shift", &S::shift), field("residual", &S::residual),
               field("quant", &S::quant), field("interleaved", &S::interleaved));
};

template <>
struct Fields<ConvProblem> {
  using S = ConvProblem;
  static constexpr auto kAll = row_list(
      field("direction", &S::direction, kRequired), field("n", &S::n, kRequired),
      field("c", &S::c, kRequired), field("k", &S::k, kRequired), field("g", &S::g),
      field("ndim", &S::ndim), fields("", &S::size, kOfSize), fields("", &S::filter, kOfFilter),
      fields("stride_", &S::stride, kOfSize), fields("dilation_", &S::dilation, kOfSize),
      fields("pad_", &S::pad, kOfSize), fields("pad_right_", &S::pad_right, kOfSize),
      field("in", &S::in), field("weight", &S::weight), field("acc", &S::acc),
      field("out", &S::out), field("dtype_d", &S::d), field("layout", &S::layout),
      fields("in_stride_", &S::in_strides, kOfImage),
      fields("weight_stride_", &S::weight_strides, kOfFilters),
      fields("out_stride_", &S::out_strides, kOfOutput), field("alpha", &S::alpha),
      field("beta", &S::beta), field("epilogue", &S::epilogue), field("clamp_lo", &S::clamp_lo),
      field("clamp_hi", &S::clamp_hi));
};

template <>
struct Fields<ConvSignature> {
  using S = ConvSignature;
  static constexpr auto kAll =
      row_list(field("direction", &S::direction, kRequired), field("in", &S::in, kRequired),
               field("weight", &S::weight, follows(&S::in)),
               field("acc", &S::acc, follows(&S::in, default_accumulator)),
               field("out", &S::out, follows(&S::in, default_output)),
               field("dtype_d", &S::d, follows(&S::out)), field("layout", &S::layout),
               field("ndim", &S::ndim, kPositive), field("epilogue", &S::epilogue));
};

template <>
struct Fields<RouteProblem> {
  using S = RouteProblem;
  static constexpr auto kAll = row_list(
      field("tokens", &S::tokens, kRequired), field("experts", &S::experts, kRequired),
      field("top_k", &S::top_k, kRequired), field("scoring", &S::scoring), field("in", &S::in),
      field("num_groups", &S::num_groups), field("top_groups", &S::top_groups),
      field("ld_logits", &S::ld_logits), field("scaling_factor", &S::scaling_factor),
      field("bias", &S::bias), field("renormalize", &S::renormalize), field("order", &S::order));
};

template <>
struct Fields<RouteSignature> {
  using S = RouteSignature;
  static constexpr auto kAll =
      row_list(field("scoring", &S::scoring, kRequired), field("in", &S::in, kRequired),
               field("bias", &S::bias), field("order", &S::order));
};

template <>
struct Fields<Algorithm> {
  using S = Algorithm;
  static constexpr auto kAll = row_list(
      field("pipeline", &S::pipeline, kRequired), field("tile", &S::tile, kRequired),
      field("wave", &S::wave, kRequired), field("warp_tile", &S::warp_tile, kRequired),
      field("scheduler", &S::scheduler), field("store", &S::store), field("split_k", &S::split_k),
      field("splits", &S::splits, kPositive), field("slices", &S::slices, kPositive),
      field("streamk", &S::streamk), field("stages", &S::stages, kPositive),
      field("cluster_m", &S::cluster_m, kPositive), field("cluster_n", &S::cluster_n, kPositive),
      field("persistent", &S::persistent), field("swap_ab", &S::swap_ab),
      field("repack", &S::repack), field("pointwise", &S::pointwise));
};

// A signature of the operation whose fields are at their defaults.
Signature blank_signature(Op op);

}  // namespace tessera
