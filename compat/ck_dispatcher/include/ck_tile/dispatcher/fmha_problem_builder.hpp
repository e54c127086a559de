// A problem of attention by setters; fmha_problem.hpp includes this file.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ck_tile/dispatcher/fmha_problem.hpp"

namespace ck_tile::dispatcher {

class FmhaProblemBuilder {
  using Builder = FmhaProblemBuilder;
  using Size = std::int64_t;

 public:
  Builder& api_family(FmhaApiFamily family) { return p_.api_family = family, *this; }
  Builder& kernel_family(FmhaKernelFamily family) { return p_.requested_family = family, *this; }
  Builder& gfx_arch(const std::string& arch) { return p_.gfx_arch = arch, *this; }
  Builder& data_type(const std::string& word) { return p_.data_type = word, *this; }
  Builder& dims(Size hdim_q, Size hdim_v, Size batch, Size seqlen_q, Size seqlen_k) {
    p_.hdim_q = hdim_q, p_.hdim_v = hdim_v, p_.batch = batch;
    return p_.seqlen_q = seqlen_q, p_.seqlen_k = seqlen_k, *this;
  }
  Builder& nheads(Size q, Size k) { return p_.nhead_q = q, p_.nhead_k = k, *this; }
  Builder& mask_type(int number) { return p_.mask_type = number, *this; }
  Builder& bias_type(int number) { return p_.bias_type = number, *this; }
  Builder& lse(bool value) { return p_.has_lse = value, *this; }
  Builder& dropout(bool value) { return p_.has_dropout = value, *this; }
  Builder& qscale_type(int number) { return p_.qscale_type = number, *this; }
  Builder& rope_type(int number) { return p_.rope_type = number, *this; }
  Builder& logits_soft_cap(bool value) { return p_.has_logits_soft_cap = value, *this; }
  Builder& v_rowmajor(bool value) { return p_.is_v_rowmajor = value, *this; }
  Builder& group_mode(bool value) { return p_.is_group_mode = value, *this; }
  Builder& paged_kv(bool value) { return p_.use_paged_kv = value, *this; }
  Builder& fp8_static_quant(bool value) { return p_.do_fp8_static_quant = value, *this; }
  Builder& skip_min_seqlen_q(bool value) { return p_.skip_min_seqlen_q = value, *this; }
  Builder& sink(bool value) { return p_.has_sink = value, *this; }
  Builder& kv_cache(int layout, int table, int page_size) {
    p_.kv_memory_layout = layout, p_.kv_lookup_table = table;
    return p_.page_size = page_size, *this;
  }
  Builder& window(Size left, Size right) {
    return p_.window_size_left = left, p_.window_size_right = right, *this;
  }
  Builder& sink_size(Size tokens) { return p_.sink_size = tokens, p_.has_sink = tokens > 0, *this; }
  Builder& max_seqlen(Size q, Size k) { return p_.max_seqlen_q = q, p_.max_seqlen_k = k, *this; }
  Builder& num_splits(Size parts) { return p_.num_splits = parts, *this; }
  Builder& bwd_flags(bool dbias, bool store_randval, bool deterministic) {
    p_.has_dbias = dbias, p_.is_store_randval = store_randval;
    return p_.is_deterministic = deterministic, *this;
  }

  // Throws std::invalid_argument with the rule that the settings break. No sequence of a group is
  // longer than dims() says, so that its lengths are the longest where max_seqlen() says none.
  FmhaProblem build() const {
    if (!p_.is_valid()) fail("a type, and sizes of at least 1");
    if (p_.api_family == FmhaApiFamily::Bwd && !p_.has_lse) fail("lse(true) for gradients");
    FmhaProblem made = p_;
    if (!made.is_group_mode) return made;
    made.max_seqlen_q = made.effective_max_seqlen_q();
    made.max_seqlen_k = made.effective_max_seqlen_k();
    if (made.max_seqlen_q <= 0) fail("lengths by dims() or max_seqlen() for groups");
    return made;
  }

 private:
  void fail(const char* what) const {
    throw std::invalid_argument(std::string("attention needs ") + what + "; got " + p_.to_string());
  }

  FmhaProblem p_;
};

}  // namespace ck_tile::dispatcher
