// What attention is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "ck_tile/dispatcher/fmha_invocation.hpp"

namespace ck_tile::dispatcher {

struct FmhaProblem {
  FmhaApiFamily api_family = FmhaApiFamily::Fwd;
  FmhaKernelFamily requested_family = FmhaKernelFamily::Fwd;
  std::string gfx_arch, data_type;
  bool is_group_mode = false, is_v_rowmajor = true, has_logits_soft_cap = false;
  int mask_type = 0, bias_type = 0;
  bool has_lse = false, has_dropout = false;
  int qscale_type = 0, rope_type = 0;
  bool use_paged_kv = false, do_fp8_static_quant = false, skip_min_seqlen_q = false;
  bool has_sink = false, has_dbias = false, is_store_randval = false, is_deterministic = false;
  int kv_memory_layout = 0, kv_lookup_table = 0, page_size = 1;

  std::int64_t seqlen_q = 0, seqlen_k = 0, max_seqlen_q = 0, max_seqlen_k = 0;
  std::int64_t batch = 0, hdim_q = 0, hdim_v = 0, nhead_q = 0, nhead_k = 0, num_splits = 1;
  std::int64_t window_size_left = 0, window_size_right = 0, sink_size = 0, min_seqlen_q = 0;
  std::int64_t rotary_dim = 0;

  bool has_seqstart_q_ptr = false, has_seqstart_k_ptr = false;
  bool has_seqlen_q_ptr = false, has_seqlen_k_ptr = false;
  bool has_cu_seqlen_q_ptr = false, has_cu_seqlen_k_ptr = false;
  bool has_block_table_ptr = false, has_cache_batch_idx = false, is_gappy = false;
  bool has_rotary_cos_sin = false;

  bool is_valid() const {
    return !data_type.empty() && batch > 0 && hdim_q > 0 && hdim_v > 0 && nhead_q > 0 &&
           nhead_k > 0;
  }
  std::int64_t effective_max_seqlen_q() const { return max_seqlen_q > 0 ? max_seqlen_q : seqlen_q; }
  std::int64_t effective_max_seqlen_k() const { return max_seqlen_k > 0 ? max_seqlen_k : seqlen_k; }
  bool has_variable_seqlen_q() const {
    return has_seqstart_q_ptr || has_seqlen_q_ptr || has_cu_seqlen_q_ptr;
  }
  bool has_variable_seqlen_k() const {
    return has_seqstart_k_ptr || has_seqlen_k_ptr || has_cu_seqlen_k_ptr || is_gappy;
  }
  // Of the two products, by the longest lengths; 0 where a size is missing.
  std::uint64_t num_ops() const {
    std::uint64_t product = 2;
    for (const std::int64_t size : {batch, nhead_q, effective_max_seqlen_q(),
                                    effective_max_seqlen_k(), hdim_q > 0 ? hdim_q + hdim_v : 0}) {
      product *= static_cast<std::uint64_t>(size > 0 ? size : 0);
    }
    return product;
  }

  std::string to_string() const {
    const auto part = [](const char* name, std::int64_t value) {
      return std::string(", ") + name + "=" + std::to_string(value);
    };
    return "FmhaProblem(api=" + dispatcher::to_string(api_family) +
           ", family=" + dispatcher::to_string(requested_family) + ", dtype=" + data_type +
           ", arch=" + gfx_arch + part("batch", batch) + part("sq", seqlen_q) +
           part("sk", seqlen_k) + part("dq", hdim_q) + part("dv", hdim_v) + part("hq", nhead_q) +
           part("hk", nhead_k) + ", group=" + (is_group_mode ? "y" : "n") +
           part("mask", mask_type) + part("bias", bias_type) + ")";
  }
  // All that tells which kernels compute the problem, for caches of choices.
  std::string canonical_key() const {
    constexpr char kEnd = '\x1f';
    std::string key = dispatcher::to_string(api_family) + kEnd +
                      dispatcher::to_string(requested_family) + kEnd + data_type + kEnd + gfx_arch;
    for (const std::int64_t number : std::initializer_list<std::int64_t>{hdim_q,
                                                                         hdim_v,
                                                                         is_group_mode,
                                                                         is_v_rowmajor,
                                                                         has_logits_soft_cap,
                                                                         mask_type,
                                                                         bias_type,
                                                                         has_lse,
                                                                         has_dropout,
                                                                         qscale_type,
                                                                         rope_type,
                                                                         use_paged_kv,
                                                                         do_fp8_static_quant,
                                                                         skip_min_seqlen_q,
                                                                         has_sink,
                                                                         has_dbias,
                                                                         is_store_randval,
                                                                         is_deterministic,
                                                                         kv_memory_layout,
                                                                         kv_lookup_table,
                                                                         page_size}) {
      key += kEnd + std::to_string(number);
    }
    return key;
  }

  // The problem of a call: what its traits and its arguments say.
  static FmhaProblem from_invocation(const FmhaInvocation& call, const std::string& gfx_arch = "");
};

// Bytes and places of what the original's gradients keep between their kernels; Tessera's need none
// of it.
struct FmhaBwdWorkspaceInfo {
  std::size_t d_bytes = 0, dq_acc_bytes = 0, rand_val_bytes = 0, total_bytes = 0;
  std::size_t d_offset = 0, dq_acc_offset = 0, rand_val_offset = 0;
};

inline FmhaBwdWorkspaceInfo bwd_workspace_info(const FmhaProblem& p) {
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto rows = static_cast<std::size_t>(p.batch * p.nhead_q * p.seqlen_q);
  FmhaBwdWorkspaceInfo made;
  made.d_bytes = rows * sizeof(float);
  made.dq_acc_bytes = made.d_bytes * static_cast<std::size_t>(p.hdim_q);
  if (p.is_store_randval) made.rand_val_bytes = rows * static_cast<std::size_t>(p.seqlen_k);
  made.dq_acc_offset = aligned(made.d_bytes);
  made.rand_val_offset = aligned(made.dq_acc_offset + made.dq_acc_bytes);
  made.total_bytes = aligned(made.rand_val_offset + made.rand_val_bytes);
  return made;
}

}  // namespace ck_tile::dispatcher

#include "ck_tile/dispatcher/fmha_problem_builder.hpp"
#include "ck_tile/dispatcher/fmha_problem_of.hpp"
