// Declared sets of attention kernels; see kernel_decl.hpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tessera_ck/fmha_problem.hpp"
#include "tessera_ck/kernel_decl.hpp"

namespace tessera_ck {

// What a kernel computes. Every kernel of Tessera's takes any vlayout, hdim, sink, skip and page of
// the cache, which therefore narrow nothing.
struct FmhaSignature {
  std::string family_ = "fwd", dtype_ = "fp16", mode_ = "batch", mask_ = "no", bias_ = "no";
  std::string qscale_ = "no", rope_ = "none", receipt_;
  bool lse_ = false, dropout_ = false, logits_ = false, paged_ = false, dbias_ = false;
  bool random_ = false, deterministic_ = false;
  std::string cache_layout_ = "linear", table_ = "vllm_2d";

  FmhaSignature& family(const std::string& word) { return family_ = word, *this; }
  FmhaSignature& dtype(const std::string& word) { return dtype_ = word, *this; }
  FmhaSignature& mode(const std::string& word) { return mode_ = word, *this; }
  FmhaSignature& vlayout(const std::string&) { return *this; }
  FmhaSignature& hdim(int, int) { return *this; }
  FmhaSignature& hdim(int) { return *this; }
  FmhaSignature& mask(const std::string& word) { return mask_ = word, *this; }
  FmhaSignature& bias(const std::string& word) { return bias_ = word, *this; }
  FmhaSignature& lse(bool value) { return lse_ = value, *this; }
  FmhaSignature& dropout(bool value) { return dropout_ = value, *this; }
  FmhaSignature& qscale(const std::string& word) { return qscale_ = word, *this; }
  FmhaSignature& rope(const std::string& word) { return rope_ = word, *this; }
  FmhaSignature& logits(bool value) { return logits_ = value, *this; }
  FmhaSignature& paged_kv(bool value) { return paged_ = value, *this; }
  FmhaSignature& fp8_static_quant(bool value) {
    if (value && qscale_ == "no") qscale_ = "pertensor";
    return *this;
  }
  FmhaSignature& skip(bool) { return *this; }
  FmhaSignature& sink(bool) { return *this; }
  FmhaSignature& dbias(bool value) { return dbias_ = value, *this; }
  FmhaSignature& store_randval(bool value) { return random_ = value, *this; }
  FmhaSignature& deterministic(bool value) { return deterministic_ = value, *this; }
  FmhaSignature& kv_cache(const std::string& layout, const std::string& table, int /*page*/) {
    return cache_layout_ = layout, table_ = table, paged_ = true, *this;
  }
  // What a framework needs, instead of one signature: "flash", "pytorch", ...
  FmhaSignature& profile(const std::string& name) { return receipt_ = name, *this; }
  FmhaSignature& receipt(int number) { return receipt_ = std::to_string(number), *this; }
  friend bool operator==(const FmhaSignature&, const FmhaSignature&) = default;
};

// How it computes it.
struct FmhaAlgorithm {
  std::array<int, 6> tile_{128, 64, 32, 128, 32, 128};
  std::string pipeline_ = "qr";

  FmhaAlgorithm& tile(int m0, int n0, int k0, int n1, int k1, int k0max) {
    return tile_ = {m0, n0, k0, n1, k1, k0max}, *this;
  }
  FmhaAlgorithm& wave(const std::array<int, 9>& all) {
    for (int i = 0; i < 9; ++i) wave(i, all[static_cast<std::size_t>(i)]);
    return *this;
  }
  FmhaAlgorithm& warp(const std::array<int, 9>& all) {
    for (int i = 0; i < 9; ++i) warp(i, all[static_cast<std::size_t>(i)]);
    return *this;
  }
  FmhaAlgorithm& tile_m0(int v) { return tile_[0] = v, *this; }
  FmhaAlgorithm& tile_n0(int v) { return tile_[1] = v, *this; }
  FmhaAlgorithm& tile_k0(int v) { return tile_[2] = v, *this; }
  FmhaAlgorithm& tile_n1(int v) { return tile_[3] = v, *this; }
  FmhaAlgorithm& tile_k1(int v) { return tile_[4] = v, *this; }
  FmhaAlgorithm& tile_k0max(int v) { return tile_[5] = v, *this; }
  FmhaAlgorithm& wave_m0(int v) { return wave(0, v); }
  FmhaAlgorithm& wave_n0(int v) { return wave(1, v); }
  FmhaAlgorithm& wave_k0(int v) { return wave(2, v); }
  FmhaAlgorithm& wave_m1(int v) { return wave(3, v); }
  FmhaAlgorithm& wave_n1(int v) { return wave(4, v); }
  FmhaAlgorithm& wave_k1(int v) { return wave(5, v); }
  FmhaAlgorithm& warp_m0(int v) { return warp(0, v); }
  FmhaAlgorithm& warp_n0(int v) { return warp(1, v); }
  FmhaAlgorithm& warp_k0(int v) { return warp(2, v); }
  FmhaAlgorithm& warp_m1(int v) { return warp(3, v); }
  FmhaAlgorithm& warp_n1(int v) { return warp(4, v); }
  FmhaAlgorithm& warp_k1(int v) { return warp(5, v); }
  FmhaAlgorithm& pipeline(const std::string& word) { return pipeline_ = word, *this; }
  FmhaAlgorithm& max_seq_len_q(int rows) { return tile_m0(rows); }
  FmhaAlgorithm& padding(bool s, bool sk, bool d, bool dv) {
    return hint("padding", !s || !sk || !d || !dv, detail::kAnySize);
  }
  FmhaAlgorithm& trload(bool value) { return hint("trload", value); }
  FmhaAlgorithm& alignments(int, int) { return hint("alignments", true); }
  FmhaAlgorithm& block_per_cu(int n) { return hint("block_per_cu", n != -1); }
  FmhaAlgorithm& num_wave_groups(int n) { return hint("num_wave_groups", n != 1); }
  FmhaAlgorithm& max_splits_log2(int) { return hint("max_splits_log2", true); }
  FmhaAlgorithm& selection_rank(int rank) { return hint("selection_rank", rank != 0); }
  FmhaAlgorithm& constraint(const std::string& text) { return hint("constraint", !text.empty()); }

 private:
  FmhaAlgorithm& hint(const char* name, bool is_asked, const char* why = detail::kOwn) {
    detail::changes_nothing(name, is_asked, why);
    return *this;
  }
  FmhaAlgorithm& wave(int place, int v) {
    constexpr std::array kUsual{4, 1, 1, 4, 1, 1, 1, 1, 1};
    return hint("wave", v != kUsual[static_cast<std::size_t>(place)]);
  }
  FmhaAlgorithm& warp(int place, int v) {
    constexpr std::array kUsual{32, 32, 16, 32, 32, 16, 16, 16, 16};
    return hint("warp", v != kUsual[static_cast<std::size_t>(place)]);
  }
};

using FmhaDeclaration = decl::BaseDeclaration<FmhaSignature, FmhaAlgorithm>;

class FmhaKernelSet : public decl::BaseKernelSet<FmhaKernelSet, FmhaSignature, FmhaAlgorithm> {
 public:
  using BaseKernelSet::add;
  FmhaKernelSet& add(const FmhaSignature& signature) { return add(signature, FmhaAlgorithm()); }
};

namespace detail {

// The original's word for one of Tessera's; "*" stays.
inline std::string fmha_word(const std::string& what, const std::string& word) {
  constexpr const char* kWords[][3] = {{"family", "bwd", "backward"},
                                       {"family", "fwd_appendkv", "append"},
                                       {"family", "*", "*"},
                                       {"bias", "no", "none"},
                                       {"qscale", "no", "none"},
                                       {"qscale", "pertensor", "per_tensor"},
                                       {"qscale", "blockscale", "per_block"},
                                       {"qscale", "kv_blockscale", "kv_block"},
                                       {"rope", "half_rotated", "half"},
                                       {"mask", "top_left", "generic"},
                                       {"mask", "bottom_right", "generic"},
                                       {"mask", "causal", "generic"}};
  for (const auto& [kind, theirs, ours] : kWords) {
    if (what == kind && word == theirs) return ours;
  }
  return what == "family" ? "forward" : word;
}

// Without the kernels of several blocks that add to one element, where those are not wanted.
inline std::vector<tessera::KernelSpec> allowed(std::vector<tessera::KernelSpec> specs,
                                                bool is_deterministic) {
  if (!is_deterministic) return specs;
  std::erase_if(specs, [](const tessera::KernelSpec& spec) {
    return spec.algorithm.split_k == tessera::SplitK::atomic;
  });
  if (specs.empty()) {
    throw DispatcherError(
        "deterministic(true) leaves none of the declared kernels: all of them "
        "add with atomic operations");
  }
  return specs;
}

// Whether a receipt stands beside settings of which it takes none.
inline bool has_more_than_receipt(FmhaSignature signature) {
  signature.receipt_.clear();
  signature.deterministic_ = false;
  return signature != FmhaSignature();
}

// Narrows a set by what a signature says of the scores. Kernels that append keys have none: what is
// asked for beyond the usual leaves no kernel.
inline void narrow_scores(const FmhaSignature& s, tessera::KernelSetBuilder& builder) {
  const bool is_append = s.family_ == "fwd_appendkv";
  const auto narrow = [&](const char* field, const std::string& word, const char* usual) {
    if (!is_append || (word != usual && word != "*")) builder.where(field, word);
  };
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  narrow("mask", fmha_word("mask", s.mask_), "no");
  narrow("bias", fmha_word("bias", s.bias_), "none");
  narrow("lse", flag(s.lse_), "false");
  narrow("dropout", flag(s.dropout_), "false");
  narrow("logits", flag(s.logits_), "false");
}

}  // namespace detail

// The kernels that a declaration stands for. Throws DispatcherError with the rule, or where the
// target has none such.
inline std::vector<tessera::KernelSpec> kernels_of(const FmhaDeclaration& wanted) {
  const std::shared_ptr<Machine> machine = machine_for(wanted.arch);
  const FmhaSignature& s = wanted.signature;
  return in_sentences([&] {
    tessera::KernelSetBuilder builder("declared", machine->dispatcher->target());
    if (!s.receipt_.empty()) {
      detail::changes_nothing("signature", detail::has_more_than_receipt(s),
                              "the receipt beside it says what its kernels compute");
      return detail::allowed(builder.receipt(s.receipt_).build().specs, s.deterministic_);
    }
    builder.op(tessera::Op::fmha).dtype(s.dtype_);
    builder.where("kind", detail::fmha_word("family", s.family_)).where("mode", s.mode_);
    detail::narrow_scores(s, builder);
    if (s.family_ == "fwd_appendkv" || s.rope_ != "none") {
      builder.where("rotary", detail::fmha_word("rope", s.rope_));
    }
    if (s.qscale_ != "no") builder.where("qscale", detail::fmha_word("qscale", s.qscale_));
    if (s.dbias_) builder.where("dbias", "true");
    if (s.random_) builder.where("random", "true");
    if (s.paged_) {
      builder.where("pages", s.table_ == "sglang_1d" ? "list" : "table");
      builder.where("cache_layout", s.cache_layout_);
    }
    const std::string& pipeline = wanted.algorithm.pipeline_;
    if (!decl::detail::has_pipeline(*machine, tessera::Op::fmha, pipeline)) {
      decl::detail::tell_other_kernels(*machine, pipeline);
    } else if (pipeline != decl::ANY) {
      const std::array<int, 6>& t = wanted.algorithm.tile_;
      detail::changes_nothing("tile_k0, tile_n1, tile_k1", t[2] != 32 || t[3] != 128 || t[4] != 32);
      builder.pipeline(pipeline).tile(decl::detail::pattern({t[0], t[1], t[5]}));
    }
    return detail::allowed(builder.build().specs, s.deterministic_);
  });
}

using FmhaKernelSetRegistry = decl::NamedSets<FmhaKernelSet>;

}  // namespace tessera_ck

#define DECL_FMHA_KERNEL_SET(name, ...) \
  CK_TILE_DECLARE_SET(::tessera_ck::FmhaKernelSet, #name, __VA_ARGS__)
#define FMHA_KERNEL_SET(name) ::tessera_ck::FmhaKernelSetRegistry::instance().get(#name)
