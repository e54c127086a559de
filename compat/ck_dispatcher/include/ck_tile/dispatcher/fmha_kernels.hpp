// Which attention kernels a declaration stands for. One whose pipeline the target has stands for
// the target's kernels that it narrows to. Any other one says what to compute: it is one kernel,
// for which Tessera chooses at each problem.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ck_tile/dispatcher/backends/tessera_fmha.hpp"
#include "ck_tile/dispatcher/fmha_kernel_decl.hpp"
#include "ck_tile/dispatcher/fmha_registry.hpp"
#include "ck_tile/dispatcher/register_declared.hpp"

namespace ck_tile::dispatcher {

namespace detail {

struct WordNumber {
  const char* word;
  int number;
};

// The number of a declaration's word; throws DispatcherError for an unknown one.
template <std::size_t count>
int number_of(const WordNumber (&table)[count], const std::string& word) {
  std::string known;
  for (const WordNumber& one : table) {
    if (word == one.word) return one.number;
    known += std::string(known.empty() ? "" : ", ") + one.word;
  }
  throw DispatcherError("'" + word + "' is none of " + known);
}

inline constexpr WordNumber kFmhaMasks[] = {{"no", 0},
                                            {"no_mask", 0},
                                            {"top_left", 1},
                                            {"mask_top_left", 1},
                                            {"causal", 1},
                                            {"bottom_right", 2},
                                            {"mask_bottom_right", 2},
                                            {"generic", 3},
                                            {"window_generic", 3}};
inline constexpr WordNumber kFmhaBiases[] = {
    {"no", 0},          {"no_bias", 0},          {"bias", 1},
    {"elementwise", 1}, {"elementwise_bias", 1}, {"alibi", 2}};
inline constexpr WordNumber kFmhaScales[] = {
    {"no", 0}, {"no_scale", 0}, {"pertensor", 1}, {"blockscale", 2}, {"kv_blockscale", 3}};
inline constexpr WordNumber kFmhaRopes[] = {{"none", 0},  {"no", 0},           {"interleaved", 1},
                                            {"inter", 1}, {"half_rotated", 2}, {"half", 2}};
inline constexpr WordNumber kFmhaLayouts[] = {{"vectorized", 0}, {"linear", 1}};
inline constexpr WordNumber kFmhaTables[] = {
    {"vllm", 0}, {"vllm_2d", 0}, {"sglang", 1}, {"sglang_1d", 1}};

inline FmhaKernelKey::Signature signature_of(const FmhaSignature& s) {
  FmhaKernelKey::Signature made;
  made.family = from_word(kKernelFamilies, s.family_ == "bwd" ? "bwd_dq_dk_dv" : s.family_,
                          FmhaKernelFamily::Fwd);
  made.data_type = s.data_type_, made.is_group_mode = s.mode_ == "group";
  made.is_v_rowmajor = s.vlayout_ == "r" || s.vlayout_ == "row";
  made.has_logits_soft_cap = s.logits_;
  made.mask_type = number_of(kFmhaMasks, s.mask_);
  made.bias_type = number_of(kFmhaBiases, s.bias_);
  made.has_lse = s.lse_, made.has_dropout = s.dropout_;
  made.qscale_type = number_of(kFmhaScales, s.qscale_);
  made.rope_type = number_of(kFmhaRopes, s.rope_);
  made.use_paged_kv = s.paged_kv_ || made.family == FmhaKernelFamily::BatchPrefill;
  made.do_fp8_static_quant = s.fp8_static_quant_;
  made.skip_min_seqlen_q = s.skip_min_seqlen_q_, made.has_sink = s.sink_;
  made.has_dbias = s.dbias_, made.is_store_randval = s.store_randval_;
  made.is_deterministic = s.deterministic_;
  made.kv_memory_layout = number_of(kFmhaLayouts, s.kv_memory_layout_);
  made.kv_lookup_table = number_of(kFmhaTables, s.kv_lookup_table_);
  made.page_size = s.page_size_, made.receipt = s.receipt_;
  made.hdim_q = static_cast<std::uint16_t>(s.hdim_q_);
  made.hdim_v = static_cast<std::uint16_t>(s.hdim_v_);
  return made;
}

inline FmhaKernelKey key_of(const FmhaKernelDecl& decl) {
  FmhaAlgorithm a = decl.algorithm;
  a.auto_fill();
  const auto wide = [](int size) { return static_cast<std::uint16_t>(size); };
  const auto narrow = [](int size) { return static_cast<std::uint8_t>(size); };
  FmhaKernelKey key;
  key.signature = signature_of(decl.signature);
  FmhaKernelKey::Algorithm& k = key.algorithm;
  k.tile_shape = {wide(a.tile_m0_), wide(a.tile_n0_), wide(a.tile_k0_),
                  wide(a.tile_n1_), wide(a.tile_k1_), wide(a.tile_k0max_)};
  k.wave_shape = {narrow(a.wave_m0_), narrow(a.wave_n0_), narrow(a.wave_k0_),
                  narrow(a.wave_m1_), narrow(a.wave_n1_), narrow(a.wave_k1_),
                  narrow(a.wave_m2_), narrow(a.wave_n2_), narrow(a.wave_k2_)};
  k.warp_tile_shape = {wide(a.warp_m0_), wide(a.warp_n0_), wide(a.warp_k0_),
                       wide(a.warp_m1_), wide(a.warp_n1_), wide(a.warp_k1_),
                       wide(a.warp_m2_), wide(a.warp_n2_), wide(a.warp_k2_)};
  k.pipeline = a.pipeline_, k.pad_s = a.pad_s_, k.pad_sk = a.pad_sk_;
  k.pad_d = a.pad_d_, k.pad_dv = a.pad_dv_, k.use_trload = a.use_trload_;
  k.block_per_cu = narrow(a.block_per_cu_), k.num_wave_groups = narrow(a.num_wave_groups_);
  k.max_splits_log2 = narrow(a.max_splits_log2_), k.max_seq_len_q = wide(a.max_seq_len_q_);
  k.hdim_q_alignment = wide(a.hdim_q_alignment_), k.hdim_v_alignment = wide(a.hdim_v_alignment_);
  k.selection_rank = a.selection_rank_, k.constraint_tag = a.constraint_tag_;
  key.gfx_arch = decl.arch;
  return key;
}

// The target's kernels of a pipeline that compute what a key says.
inline std::vector<std::string> matching_fmha_kernels(const backends::Machine& machine,
                                                      const FmhaKernelKey& key) {
  const bool is_backward = key.signature.family == FmhaKernelFamily::BwdDqDkDv;
  if (!backends::has_pipeline(machine, "fmha", key.algorithm.pipeline)) return {};
  const backends::KernelSetHandle set = backends::kernel_set(machine);
  backends::check(tsr_kernel_set_op(set.get(), "fmha"));
  const auto where = [&](const char* name, const std::string& pattern) {
    if (pattern == "*") return;
    backends::check(tsr_kernel_set_where(set.get(), name, pattern.c_str()));
  };
  const auto [in, out] = backends::types_of(key.signature.data_type);
  const bool is_append = key.signature.family == FmhaKernelFamily::FwdAppendKv;
  where("variant", is_backward ? "backward" : is_append ? "append" : "forward");
  where("in", in), where("out", out), where("pipeline", key.algorithm.pipeline);
  where("mode", key.signature.is_group_mode ? "group" : "batch");
  where("mask", key.signature.mask_type == 0 ? "no" : "generic");
  return backends::names_of(set);
}

}  // namespace detail

namespace fmha_decl {

inline std::vector<FmhaKernelInstancePtr> kernels_of(const FmhaKernelDecl& wanted) {
  const FmhaKernelKey key = dispatcher::detail::key_of(wanted);
  const backends::MachinePtr machine = backends::machine_that_runs(wanted.arch);
  std::vector<FmhaKernelInstancePtr> all;
  for (const std::string& name : dispatcher::detail::matching_fmha_kernels(*machine, key)) {
    FmhaKernelKey exact = key;
    exact.kernel = name, exact.gfx_arch = machine->name();
    all.push_back(std::make_shared<backends::TesseraFmha>(exact, name, machine, name));
  }
  if (!all.empty()) return all;
  dispatcher::detail::tell("pipeline " + key.algorithm.pipeline + " is none of " + machine->name() +
                           "'s for this attention; its own kernels are taken");
  return {std::make_shared<backends::TesseraFmha>(key, wanted.name(), machine, "")};
}

}  // namespace fmha_decl

// These register declarations for a target, whatever target they name, and return how many kernels
// are new.
inline std::size_t register_set_for(const FmhaKernelSet& set, FmhaRegistry& registry,
                                    const std::string& arch) {
  FmhaKernelSet for_arch;
  for (FmhaKernelDecl one : set.declarations()) {
    if (!arch.empty()) one.arch = arch;
    for_arch.add(one);
  }
  return registry.register_set(for_arch);
}
inline std::size_t register_declared(FmhaRegistry& registry, const std::string& arch = {}) {
  std::size_t count = 0;
  for (const std::string& name : FmhaKernelSetRegistry::instance().names()) {
    count += register_set_for(FmhaKernelSetRegistry::instance().get(name), registry, arch);
  }
  return count;
}
inline std::size_t register_declared_set(const std::string& set, FmhaRegistry& registry,
                                         const std::string& arch = {}) {
  if (!FmhaKernelSetRegistry::instance().has(set)) {
    throw DispatcherError("there is no kernel set '" + set + "'");
  }
  return register_set_for(FmhaKernelSetRegistry::instance().get(set), registry, arch);
}

}  // namespace ck_tile::dispatcher
