// What attention is asked for, and what it is asked on.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "tessera_ck/machine.hpp"

namespace tessera_ck {

enum class FmhaApiFamily { Fwd, FwdPagedKv, FwdSplitKv, FwdAppendKv, BatchPrefill, Bwd };
enum class FmhaKernelFamily {
  Fwd,
  FwdPagedKv,
  FwdSplitKv,
  FwdSplitKvCombine,
  FwdAppendKv,
  BatchPrefill,
  BwdDotDoO,
  BwdDqDkDv,
  BwdConvertDq,
};

inline const char* to_string(FmhaApiFamily family) {
  constexpr std::array kWords = {"fwd",          "fwd_pagedkv",   "fwd_splitkv",
                                 "fwd_appendkv", "batch_prefill", "bwd"};
  return kWords[static_cast<std::size_t>(family)];
}
inline const char* to_string(FmhaKernelFamily family) {
  constexpr std::array kWords = {
      "fwd",           "fwd_pagedkv",  "fwd_splitkv",  "fwd_splitkv_combine", "fwd_appendkv",
      "batch_prefill", "bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq"};
  return kWords[static_cast<std::size_t>(family)];
}

struct FmhaProblem {
  FmhaApiFamily api_family = FmhaApiFamily::Fwd;
  tessera::FmhaProblem asked;
  std::string gfx_arch;        // empty: any of the registry's
  bool deterministic = false;  // kernels with equal bits each time alone

  // Tessera's line.
  std::string to_string() const { return tessera::to_string(tessera::Problem(asked)); }
};

// Tessera's builder, with enumerations besides words.
class FmhaProblemBuilder {
 public:
  FmhaProblemBuilder& api_family(FmhaApiFamily family) {
    family_ = family;
    b_.api_family(to_string(family));
    return *this;
  }
  FmhaProblemBuilder& kernel_family(FmhaKernelFamily family) {
    b_.kernel_family(to_string(family));
    return *this;
  }
  FmhaProblemBuilder& gfx_arch(const std::string& arch) { return arch_ = arch, *this; }
  FmhaProblemBuilder& data_type(const std::string& word) { return b_.data_type(word), *this; }
  FmhaProblemBuilder& dims(std::int64_t hdim_q, std::int64_t hdim_v, std::int64_t batch,
                           std::int64_t seqlen_q, std::int64_t seqlen_k) {
    return b_.dims(hdim_q, hdim_v, batch, seqlen_q, seqlen_k), *this;
  }
  FmhaProblemBuilder& nheads(std::int64_t q, std::int64_t k) { return b_.nheads(q, k), *this; }
  FmhaProblemBuilder& mask_type(const std::string& word) { return b_.mask_type(word), *this; }
  FmhaProblemBuilder& mask_type(int number) { return mask_type(std::to_string(number)); }
  FmhaProblemBuilder& bias_type(const std::string& word) { return b_.bias_type(word), *this; }
  FmhaProblemBuilder& bias_type(int number) { return bias_type(std::to_string(number)); }
  FmhaProblemBuilder& lse(bool value) { return b_.lse(value), *this; }
  FmhaProblemBuilder& dropout(bool value, float p = 0.2F) { return b_.dropout(value, p), *this; }
  FmhaProblemBuilder& qscale_type(const std::string& word) { return b_.qscale_type(word), *this; }
  FmhaProblemBuilder& rope_type(const std::string& word) { return b_.rope_type(word), *this; }
  FmhaProblemBuilder& logits_soft_cap(bool value, float cap = 30.0F) {
    return b_.logits_soft_cap(value, cap), *this;
  }
  FmhaProblemBuilder& v_rowmajor(bool value) { return b_.v_rowmajor(value), *this; }
  FmhaProblemBuilder& group_mode(bool value) { return b_.group_mode(value), *this; }
  FmhaProblemBuilder& paged_kv(bool value) { return b_.paged_kv(value), *this; }
  FmhaProblemBuilder& fp8_static_quant(bool value) { return b_.fp8_static_quant(value), *this; }
  FmhaProblemBuilder& skip_min_seqlen_q(bool value, std::int64_t longest = 1) {
    return b_.skip_min_seqlen_q(value, longest), *this;
  }
  FmhaProblemBuilder& sink(bool value) { return b_.sink(value), *this; }
  FmhaProblemBuilder& kv_cache(const std::string& layout, const std::string& table,
                               std::int64_t page) {
    return b_.kv_cache(layout, table, page), *this;
  }
  FmhaProblemBuilder& window(std::int64_t left, std::int64_t right) {
    return b_.window(left, right), *this;
  }
  FmhaProblemBuilder& sink_size(std::int64_t tokens) { return b_.sink_size(tokens), *this; }
  FmhaProblemBuilder& max_seqlen(std::int64_t q, std::int64_t k) {
    return b_.max_seqlen(q, k), *this;
  }
  FmhaProblemBuilder& num_splits(std::int64_t parts) { return b_.num_splits(parts), *this; }
  FmhaProblemBuilder& bwd_flags(bool dbias, bool store_randval, bool deterministic) {
    return b_.bwd_flags(dbias, store_randval, deterministic), *this;
  }
  // Throws std::invalid_argument with the rule that the settings break.
  FmhaProblem build() const {
    try {
      return {family_, b_.build(), arch_, b_.deterministic()};
    } catch (const tessera::Error& error) {
      throw std::invalid_argument(error.what());
    }
  }

 private:
  FmhaApiFamily family_ = FmhaApiFamily::Fwd;
  tessera::FmhaProblemBuilder b_;
  std::string arch_;
};

// What to compute, and on what: the traits are a problem, the arguments Tessera's operands.
struct FmhaInvocation {
  FmhaProblem problem;
  tessera::FmhaOperands args;

  static FmhaInvocation make(FmhaProblem problem, const tessera::FmhaOperands& args) {
    return {std::move(problem), args};
  }
};

}  // namespace tessera_ck
