// A problem of attention, built by setters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/families/settings.h"
#include "tessera/spec/fmha_problem.h"

#pragma GCC visibility push(default)
namespace tessera {

// CK Tile's problem builder has the same setters and words; docs/attention.md says which field
// of the problem each one sets. Setters may be called in any order, and the last call of one
// counts.
//   FmhaProblem p = FmhaProblemBuilder().data_type("bf16").dims(128, 128, 2, 512, 512)
//                       .nheads(32, 8).mask_type("bottom_right").build();
class FmhaProblemBuilder {
 public:
  // fwd, fwd_pagedkv, fwd_splitkv, fwd_appendkv, batch_prefill, bwd
  FmhaProblemBuilder& api_family(std::string_view word);
  // One of the kernels that CK Tile has for the API family: fwd_splitkv_combine.
  FmhaProblemBuilder& kernel_family(std::string_view word);
  // What target() returns.
  FmhaProblemBuilder& gfx_arch(std::string_view target);
  // fp32, fp16, bf16, and with outputs of fp16, bf16, fp32 or their own type fp8fp16, fp8bf16,
  // fp8fp32, fp8, bf8
  FmhaProblemBuilder& data_type(std::string_view word);
  // With group_mode the lengths count all sequences together.
  FmhaProblemBuilder& dims(std::int64_t hdim_q, std::int64_t hdim_v, std::int64_t batch,
                           std::int64_t seqlen_q, std::int64_t seqlen_k);
  FmhaProblemBuilder& nheads(std::int64_t q, std::int64_t k);
  FmhaProblemBuilder& mask_type(std::string_view word);  // no, top_left, bottom_right, generic
  FmhaProblemBuilder& bias_type(std::string_view word);  // no, elementwise, alibi
  FmhaProblemBuilder& lse(bool value);
  FmhaProblemBuilder& dropout(bool value, float p_drop = 0.2F);
  FmhaProblemBuilder& qscale_type(std::string_view word);  // no, pertensor, blockscale, ...
  FmhaProblemBuilder& rope_type(std::string_view word);    // none, interleaved, half_rotated
  FmhaProblemBuilder& logits_soft_cap(bool value, float cap = 30.0F);
  FmhaProblemBuilder& v_rowmajor(bool value);
  FmhaProblemBuilder& group_mode(bool value);
  FmhaProblemBuilder& paged_kv(bool value);
  FmhaProblemBuilder& fp8_static_quant(bool value);
  // Whether sequences of at most `longest` queries are left out.
  FmhaProblemBuilder& skip_min_seqlen_q(bool value, std::int64_t longest = 1);
  FmhaProblemBuilder& sink(bool value);
  // linear or vectorized; vllm_2d or sglang_1d; tokens of a page
  FmhaProblemBuilder& kv_cache(std::string_view layout, std::string_view table, std::int64_t page);
  FmhaProblemBuilder& window(std::int64_t left, std::int64_t right);
  FmhaProblemBuilder& sink_size(std::int64_t tokens);
  FmhaProblemBuilder& max_seqlen(std::int64_t q, std::int64_t k);
  FmhaProblemBuilder& num_splits(std::int64_t parts);
  FmhaProblemBuilder& bwd_flags(bool dbias, bool store_randval, bool deterministic);

  // Throws Error{parse_error} for an unknown word, with the nearest one, Error{invalid_argument}
  // with the rule that the settings break, and Error{unsupported} for what there is no kernel of.
  // A problem cannot hold target() and deterministic(): give them to the dispatcher.
  FmhaProblem build() const;
  // The word of gfx_arch(): DispatcherOptions::target.
  std::string target() const;
  // The last argument of bwd_flags(): DispatcherOptions::deterministic.
  bool deterministic() const;

 private:
  FmhaProblemBuilder& call(std::string_view setter, std::vector<std::string> arguments);
  std::vector<Setting> settings_;
};

}  // namespace tessera
#pragma GCC visibility pop
