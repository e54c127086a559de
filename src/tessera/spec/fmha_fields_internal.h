// The fields of attention's structs, see fields_internal.h.
#pragma once

#include <array>
#include <string_view>

#include "tessera/spec/field_table_internal.h"
#include "tessera/spec/kernel_spec.h"

namespace tessera {

// The ends of the keys of arrays.
inline constexpr std::array<std::string_view, 4> kOfTokens = {"b", "h", "s", "d"};
inline constexpr std::array<std::string_view, 4> kOfScores = {"b", "h", "q", "k"};

template <>
struct Fields<FmhaProblem> {
  using S = FmhaProblem;
  static constexpr auto kAll = row_list(
      field("kind", &S::kind), field("batch", &S::batch), field("heads", &S::heads, kRequired),
      field("heads_kv", &S::heads_kv), field("seqlen_q", &S::seqlen_q, kRequired),
      field("seqlen_k", &S::seqlen_k, kRequired), field("hdim", &S::hdim, kRequired),
      field("hdim_v", &S::hdim_v), field("v_in_k", &S::v_in_k), field("lengths", &S::lengths),
      field("tokens_q", &S::tokens_q), field("tokens_k", &S::tokens_k), field("in", &S::in),
      field("out", &S::out), field("dtype_bias", &S::dtype_bias), field("kv", &S::kv),
      fields("q_stride_", &S::q_strides, kOfTokens), fields("k_stride_", &S::k_strides, kOfTokens),
      fields("v_stride_", &S::v_strides, kOfTokens),
      fields("out_stride_", &S::out_strides, kOfTokens),
      fields("bias_stride_", &S::bias_strides, kOfScores), field("mask", &S::mask),
      field("window_left", &S::window_left), field("window_right", &S::window_right),
      field("sink", &S::sink), field("bias", &S::bias), field("slope_stride", &S::slope_stride),
      field("scale", &S::scale), field("soft_cap", &S::soft_cap), field("lse", &S::lse),
      field("p_drop", &S::p_drop), field("random", &S::random), field("skip_q", &S::skip_q),
      field("num_splits", &S::num_splits), field("pages", &S::pages),
      field("cache_layout", &S::cache_layout), field("page_size", &S::page_size),
      field("num_pages", &S::num_pages), field("max_pages", &S::max_pages),
      field("table_stride", &S::table_stride), field("page_entries", &S::page_entries),
      field("check_pages", &S::check_pages), field("qscale", &S::qscale),
      field("qscale_block_q", &S::qscale_block_q), field("qscale_block_k", &S::qscale_block_k),
      fields("k_new_stride_", &S::k_new_strides, kOfTokens),
      fields("v_new_stride_", &S::v_new_strides, kOfTokens),
      fields("q_turned_stride_", &S::q_turned_strides, kOfTokens), field("rotary", &S::rotary),
      field("rotary_dim", &S::rotary_dim), field("rotary_positions", &S::rotary_positions),
      field("rotate_q", &S::rotate_q), fields("dout_stride_", &S::dout_strides, kOfTokens),
      fields("dq_stride_", &S::dq_strides, kOfTokens),
      fields("dk_stride_", &S::dk_strides, kOfTokens),
      fields("dv_stride_", &S::dv_strides, kOfTokens), field("dbias", &S::dbias),
      field("dlse", &S::dlse));
};

template <>
struct Fields<FmhaSignature> {
  using S = FmhaSignature;
  static constexpr auto kAll = row_list(
      field("kind", &S::kind, kRequired), field("in", &S::in, kRequired),
      field("out", &S::out, follows(&S::in, default_output)),
      field("dtype_bias", &S::dtype_bias, follows(&S::in)), field("kv", &S::kv),
      field("lengths", &S::lengths), field("masked", &S::masked), field("bias", &S::bias),
      field("soft_cap", &S::soft_cap), field("lse", &S::lse), field("dropout", &S::dropout),
      field("random", &S::random), field("pages", &S::pages),
      field("cache_layout", &S::cache_layout), field("qscale", &S::qscale),
      field("rotary", &S::rotary), field("rotate_q", &S::rotate_q), field("dbias", &S::dbias));
};

}  // namespace tessera
