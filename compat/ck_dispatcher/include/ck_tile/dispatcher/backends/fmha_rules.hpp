// Whether the fields of an attention kernel's key take a problem, by the original's rules.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "ck_tile/dispatcher/fmha_kernel_key.hpp"

namespace ck_tile::dispatcher::backends {

// Two types, such as fp8bf16, are the operands' and the output's.
inline std::pair<std::string, std::string> types_of(const std::string& word) {
  for (const char* narrow : {"fp8", "bf8"}) {
    if (word.size() > 3 && word.rfind(narrow, 0) == 0) return {narrow, word.substr(3)};
  }
  return {word, word};
}

// Both corners are one kernel, in the original as here.
inline bool fmha_mask_compatible(int kernel, int problem) {
  const auto is_corner = [](int mask) { return mask == 1 || mask == 2; };
  return kernel == problem || (is_corner(kernel) && is_corner(problem));
}

inline bool fmha_signature_matches(const FmhaKernelKey& key, const FmhaProblem& p) {
  const FmhaKernelKey::Signature& s = key.signature;
  const auto flags = [](const auto& x) {
    return std::make_tuple(x.data_type, x.is_group_mode, x.is_v_rowmajor, x.has_logits_soft_cap,
                           x.bias_type, x.has_lse, x.has_dropout, x.qscale_type, x.rope_type,
                           x.use_paged_kv, x.do_fp8_static_quant, x.skip_min_seqlen_q, x.has_sink,
                           x.has_dbias, x.is_store_randval, x.is_deterministic);
  };
  if (s.family != p.requested_family || flags(s) != flags(p)) return false;
  if (!fmha_mask_compatible(s.mask_type, p.mask_type)) return false;
  if (p.hdim_q > s.hdim_q || p.hdim_v > s.hdim_v) return false;
  const bool is_prefill = s.family == FmhaKernelFamily::BatchPrefill;
  if (is_prefill &&
      (s.kv_memory_layout != p.kv_memory_layout || s.kv_lookup_table != p.kv_lookup_table)) {
    return false;
  }
  const bool has_pages =
      s.family != FmhaKernelFamily::Fwd && s.family < FmhaKernelFamily::BwdDotDoO;
  return !has_pages || s.page_size <= 1 || s.page_size == p.page_size;
}

inline bool fmha_algorithm_supports(const FmhaKernelKey& key, const FmhaProblem& p) {
  const FmhaKernelKey::Algorithm& a = key.algorithm;
  const auto divides = [](std::int64_t size, std::int64_t length) {
    return size <= 0 || length % size == 0;
  };
  if (p.is_group_mode && p.max_seqlen_q <= 0) return false;
  if (!a.pad_s && !divides(a.tile_shape.m0, p.effective_max_seqlen_q())) return false;
  if (!a.pad_sk &&
      (p.has_variable_seqlen_k() || !divides(a.tile_shape.n0, p.effective_max_seqlen_k()))) {
    return false;
  }
  if (!a.pad_d && !divides(a.hdim_q_alignment, p.hdim_q)) return false;
  if (!a.pad_dv && !divides(a.hdim_v_alignment, p.hdim_v)) return false;
  if (a.max_seq_len_q > 0 && p.effective_max_seqlen_q() > a.max_seq_len_q) return false;
  return a.max_splits_log2 == 0 || p.num_splits <= (std::int64_t{1} << a.max_splits_log2);
}

}  // namespace ck_tile::dispatcher::backends
