// The problem of a call; fmha_problem.hpp includes this file.
#pragma once

#include <string>
#include <type_traits>
#include <variant>

#include "ck_tile/dispatcher/fmha_problem.hpp"

namespace ck_tile::dispatcher {

namespace detail {

// What all forward traits but those of appending have.
template <class Traits>
void read_forward(const Traits& t, FmhaProblem& p) {
  p.is_group_mode = t.is_group_mode, p.is_v_rowmajor = t.is_v_rowmajor;
  p.has_logits_soft_cap = t.has_logits_soft_cap, p.has_lse = t.has_lse, p.has_sink = t.has_sink;
  p.mask_type = static_cast<int>(t.mask_type), p.bias_type = static_cast<int>(t.bias_type);
}
inline void read_traits(const fmha_fwd_traits& t, FmhaProblem& p) {
  read_forward(t, p);
  p.requested_family = FmhaKernelFamily::Fwd;
  p.has_dropout = t.has_dropout, p.skip_min_seqlen_q = t.skip_min_seqlen_q;
  p.qscale_type = static_cast<int>(t.qscale_type);
}
inline void read_traits(const fmha_fwd_pagedkv_traits& t, FmhaProblem& p) {
  read_forward(t, p);
  p.requested_family = FmhaKernelFamily::FwdPagedKv;
  p.use_paged_kv = t.use_pagedkv, p.do_fp8_static_quant = t.do_fp8_static_quant;
  p.skip_min_seqlen_q = t.skip_min_seqlen_q;
}
inline void read_traits(const fmha_fwd_splitkv_traits& t, FmhaProblem& p) {
  read_forward(t, p);
  p.requested_family = FmhaKernelFamily::FwdSplitKv;
  p.do_fp8_static_quant = t.do_fp8_static_quant;
}
inline void read_traits(const fmha_fwd_appendkv_traits& t, FmhaProblem& p) {
  p.requested_family = FmhaKernelFamily::FwdAppendKv;
  p.is_v_rowmajor = t.is_v_rowmajor, p.rope_type = static_cast<int>(t.rope_type);
}
inline void read_traits(const fmha_batch_prefill_traits& t, FmhaProblem& p) {
  read_traits(static_cast<const fmha_fwd_traits&>(t), p);
  p.requested_family = FmhaKernelFamily::BatchPrefill;
  p.page_size = t.page_size;
}
inline void read_traits(const fmha_bwd_traits& t, FmhaProblem& p) {
  p.requested_family = FmhaKernelFamily::BwdDqDkDv;
  p.is_group_mode = t.is_group_mode, p.has_dropout = t.has_dropout, p.has_dbias = t.has_dbias;
  p.is_store_randval = t.is_store_randval, p.is_deterministic = t.is_deterministic;
  p.mask_type = static_cast<int>(t.mask_type), p.bias_type = static_cast<int>(t.bias_type);
}

template <class Args>
constexpr bool is_bwd = std::is_same_v<Args, fmha_bwd_args>;
template <class Args>
constexpr bool is_prefill = std::is_same_v<Args, fmha_batch_prefill_args>;
template <class Args>
constexpr bool is_append = std::is_same_v<Args, fmha_fwd_appendkv_args>;
template <class Args>
constexpr bool is_cached =
    std::is_same_v<Args, fmha_fwd_pagedkv_args> || std::is_same_v<Args, fmha_fwd_splitkv_args>;

// What all arguments but those of appending have.
template <class Args>
void read_lengths(const Args& a, FmhaProblem& p) {
  p.seqlen_q = a.seqlen_q, p.seqlen_k = a.seqlen_k, p.max_seqlen_q = a.max_seqlen_q;
  p.window_size_left = a.window_size_left, p.window_size_right = a.window_size_right;
  p.has_seqstart_q_ptr = a.seqstart_q_ptr != nullptr;
  p.has_seqlen_k_ptr = a.seqlen_k_ptr != nullptr;
  if constexpr (is_bwd<Args>) {
    p.max_seqlen_k = a.max_seqlen_k;
  } else {
    p.sink_size = a.sink_size;
  }
  if constexpr (!is_prefill<Args>) p.has_seqstart_k_ptr = a.seqstart_k_ptr != nullptr;
  if constexpr (!is_prefill<Args> && !is_cached<Args>) {
    p.has_seqlen_q_ptr = a.seqlen_q_ptr != nullptr;
    p.has_cu_seqlen_q_ptr = a.cu_seqlen_q_ptr != nullptr;
    p.has_cu_seqlen_k_ptr = a.cu_seqlen_k_ptr != nullptr;
  }
}

template <class Args>
void read_args(const Args& a, FmhaProblem& p) {
  p.batch = a.batch, p.nhead_q = a.nhead_q, p.nhead_k = a.nhead_k;
  if constexpr (is_append<Args>) {
    p.seqlen_q = a.seqlen_q, p.seqlen_k = a.seqlen_knew, p.rotary_dim = a.rotary_dim;
    p.has_seqlen_k_ptr = a.seqlen_k_ptr != nullptr;
    p.has_rotary_cos_sin = a.rotary_cos_ptr != nullptr && a.rotary_sin_ptr != nullptr;
  } else {
    read_lengths(a, p);
  }
  if constexpr (is_append<Args> || is_cached<Args>) {
    p.page_size = a.page_block_size;
    p.has_block_table_ptr = a.block_table_ptr != nullptr;
    p.has_cache_batch_idx = a.cache_batch_idx != nullptr;
  }
  if constexpr (is_append<Args>) {
    p.has_cache_batch_idx = p.has_cache_batch_idx || a.cache_batch_idx_ptr != nullptr;
  }
  if constexpr (is_cached<Args>) p.is_gappy = a.is_gappy;
  if constexpr (is_append<Args> || std::is_same_v<Args, fmha_fwd_splitkv_args>) {
    p.use_paged_kv = p.has_block_table_ptr;
  }
  if constexpr (std::is_same_v<Args, fmha_fwd_splitkv_args>) p.num_splits = a.num_splits;
  if constexpr (is_prefill<Args>) {
    p.use_paged_kv = true, p.page_size = a.page_block_size;
    p.kv_memory_layout = static_cast<int>(a.kv_memory_layout);
    p.kv_lookup_table = static_cast<int>(a.kv_lookup_table);
  }
  if constexpr (std::is_same_v<Args, fmha_fwd_args> ||
                std::is_same_v<Args, fmha_fwd_pagedkv_args>) {
    p.min_seqlen_q = a.min_seqlen_q;
  }
}

}  // namespace detail

inline FmhaProblem FmhaProblem::from_invocation(const FmhaInvocation& call,
                                                const std::string& gfx_arch) {
  FmhaProblem p;
  p.api_family = call.api_family, p.gfx_arch = gfx_arch;
  std::visit(
      [&p](const auto& t) {
        p.data_type = t.data_type, p.hdim_q = t.hdim_q, p.hdim_v = t.hdim_v;
        detail::read_traits(t, p);
      },
      call.traits);
  std::visit([&p](const auto& a) { detail::read_args(a, p); }, call.args);
  return p;
}

}  // namespace ck_tile::dispatcher
