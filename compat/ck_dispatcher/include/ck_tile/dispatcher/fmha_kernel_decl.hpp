// Declared sets of attention kernels; see kernel_decl.hpp.
#pragma once

#include <string>

#include "ck_tile/dispatcher/declared_sets.hpp"

namespace ck_tile::dispatcher {
namespace fmha_decl {

inline constexpr const char* ANY = "*";
inline constexpr int ANY_INT = -1;

class FmhaSignature {
  using Word = const std::string&;
  using Self = FmhaSignature;

 public:
  std::string family_ = "fwd", data_type_ = "fp16", mode_ = "batch", vlayout_ = "r";
  int hdim_q_ = 128, hdim_v_ = 128;
  std::string mask_ = "no_mask", bias_ = "no_bias";
  bool lse_ = false, dropout_ = false;
  std::string qscale_ = "no_scale", rope_ = "none";
  bool logits_ = false, paged_kv_ = false, fp8_static_quant_ = false, skip_min_seqlen_q_ = false;
  bool sink_ = false, dbias_ = false, store_randval_ = false, deterministic_ = false;
  std::string kv_memory_layout_ = "vectorized", kv_lookup_table_ = "sglang";
  int page_size_ = 1;
  std::string profile_;
  int receipt_ = -1;

  Self& family(Word word) { return family_ = word, *this; }
  Self& dtype(Word word) { return data_type_ = word, *this; }
  Self& mode(Word word) { return mode_ = word, *this; }
  Self& vlayout(Word word) { return vlayout_ = word, *this; }
  Self& hdim(int q, int v = -1) { return hdim_q_ = q, hdim_v_ = v < 0 ? q : v, *this; }
  Self& mask(Word word) { return mask_ = word, *this; }
  Self& bias(Word word) { return bias_ = word, *this; }
  Self& lse(bool value = true) { return lse_ = value, *this; }
  Self& dropout(bool value = true) { return dropout_ = value, *this; }
  Self& qscale(Word word) { return qscale_ = word, *this; }
  Self& rope(Word word) { return rope_ = word, *this; }
  Self& logits(bool value = true) { return logits_ = value, *this; }
  Self& paged_kv(bool value = true) { return paged_kv_ = value, *this; }
  Self& fp8_static_quant(bool value = true) { return fp8_static_quant_ = value, *this; }
  Self& skip(bool value = true) { return skip_min_seqlen_q_ = value, *this; }
  Self& sink(bool value = true) { return sink_ = value, *this; }
  Self& dbias(bool value = true) { return dbias_ = value, *this; }
  Self& store_randval(bool value = true) { return store_randval_ = value, *this; }
  Self& deterministic(bool value = true) { return deterministic_ = value, *this; }
  Self& kv_cache(Word layout, Word table, int page_size = 1) {
    return kv_memory_layout_ = layout, kv_lookup_table_ = table, page_size_ = page_size, *this;
  }
  // What the declaration is for, as a name and as a number.
  Self& profile(Word name) { return profile_ = name, *this; }
  Self& receipt(int number) { return receipt_ = number, *this; }
};

class FmhaAlgorithm {
  using Self = FmhaAlgorithm;

 public:
  int tile_m0_ = 128, tile_n0_ = 64, tile_k0_ = 32, tile_n1_ = 128, tile_k1_ = 32;
  int tile_k0max_ = 128;
  int wave_m0_ = 2, wave_n0_ = 2, wave_k0_ = 1, wave_m1_ = 2, wave_n1_ = 2, wave_k1_ = 1;
  int wave_m2_ = 1, wave_n2_ = 1, wave_k2_ = 1;
  int warp_m0_ = 32, warp_n0_ = 32, warp_k0_ = 16, warp_m1_ = 32, warp_n1_ = 32, warp_k1_ = 16;
  int warp_m2_ = 16, warp_n2_ = 16, warp_k2_ = 16;
  std::string pipeline_ = "qr";
  bool pad_s_ = true, pad_sk_ = true, pad_d_ = true, pad_dv_ = true, use_trload_ = false;
  int hdim_q_alignment_ = 0, hdim_v_alignment_ = 0, block_per_cu_ = 1, num_wave_groups_ = 1;
  int max_splits_log2_ = 0, max_seq_len_q_ = 0, selection_rank_ = 0;
  std::string constraint_tag_;

  Self& tile(int m0, int n0, int k0, int n1, int k1, int k0max) {
    tile_m0(m0).tile_n0(n0).tile_k0(k0);
    return tile_n1(n1).tile_k1(k1).tile_k0max(k0max);
  }
  Self& wave(int m0, int n0, int k0, int m1 = 2, int n1 = 2, int k1 = 1, int m2 = 1, int n2 = 1,
             int k2 = 1) {
    wave_m2_ = m2, wave_n2_ = n2, wave_k2_ = k2;
    return wave_m0(m0).wave_n0(n0).wave_k0(k0).wave_m1(m1).wave_n1(n1).wave_k1(k1);
  }
  Self& warp(int m0, int n0, int k0, int m1 = 32, int n1 = 32, int k1 = 16, int m2 = 16,
             int n2 = 16, int k2 = 16) {
    warp_m2_ = m2, warp_n2_ = n2, warp_k2_ = k2;
    return warp_m0(m0).warp_n0(n0).warp_k0(k0).warp_m1(m1).warp_n1(n1).warp_k1(k1);
  }
#define CK_TILE_SETTER(name) \
  Self& name(int value) { return name##_ = value, *this; }
  CK_TILE_SETTER(tile_m0)
  CK_TILE_SETTER(tile_n0)
  CK_TILE_SETTER(tile_k0)
  CK_TILE_SETTER(tile_n1)
  CK_TILE_SETTER(tile_k1)
  CK_TILE_SETTER(tile_k0max)
  CK_TILE_SETTER(wave_m0)
  CK_TILE_SETTER(wave_n0)
  CK_TILE_SETTER(wave_k0)
  CK_TILE_SETTER(wave_m1)
  CK_TILE_SETTER(wave_n1)
  CK_TILE_SETTER(wave_k1)
  CK_TILE_SETTER(warp_m0)
  CK_TILE_SETTER(warp_n0)
  CK_TILE_SETTER(warp_k0)
  CK_TILE_SETTER(warp_m1)
  CK_TILE_SETTER(warp_n1)
  CK_TILE_SETTER(warp_k1)
  CK_TILE_SETTER(block_per_cu)
  CK_TILE_SETTER(num_wave_groups)
  CK_TILE_SETTER(max_splits_log2)
  CK_TILE_SETTER(max_seq_len_q)
  CK_TILE_SETTER(selection_rank)
#undef CK_TILE_SETTER
  Self& pipeline(const std::string& word) { return pipeline_ = word, *this; }
  Self& padding(bool s, bool sk, bool d, bool dv) {
    return pad_s_ = s, pad_sk_ = sk, pad_d_ = d, pad_dv_ = dv, *this;
  }
  Self& trload(bool value = true) { return use_trload_ = value, *this; }
  Self& alignments(int q, int v) { return hdim_q_alignment_ = q, hdim_v_alignment_ = v, *this; }
  Self& constraint(const std::string& tag) { return constraint_tag_ = tag, *this; }

  bool needs_expansion() const { return pipeline_ == ANY; }
  void auto_fill() {
    const auto fill = [](int& size, int other) { size = size > 0 ? size : other; };
    fill(tile_n1_, tile_n0_), fill(tile_k1_, tile_k0_), fill(tile_k0max_, tile_k0_);
    fill(hdim_q_alignment_, tile_k0max_), fill(hdim_v_alignment_, tile_k0max_);
  }
};

struct FmhaKernelDecl {
  FmhaSignature signature;
  FmhaAlgorithm algorithm;
  std::string arch = "gfx942";

  FmhaKernelDecl() = default;
  FmhaKernelDecl(const FmhaSignature& s, const FmhaAlgorithm& a,
                 const std::string& target = "gfx942")
      : signature(s), algorithm(a), arch(target) {}

  std::string name() const {
    const FmhaSignature& s = signature;
    return "fmha_" + s.family_ + "_" + s.data_type_ + "_" + s.mode_ + "_dq" +
           std::to_string(s.hdim_q_) + "_dv" + std::to_string(s.hdim_v_) + "_" + s.vlayout_ + "_" +
           algorithm.pipeline_;
  }
  bool has_wildcards() const { return arch == ANY; }
};

class FmhaKernelSet : public detail::DeclaredSet<FmhaKernelSet, FmhaKernelDecl> {
 public:
  using DeclaredSet::add;
  FmhaKernelSet& add(const FmhaSignature& signature, const FmhaAlgorithm& algorithm,
                     const std::string& arch = "gfx942") {
    return add(FmhaKernelDecl(signature, algorithm, arch));
  }
};

class FmhaKernelSetRegistry : public detail::SetRegistry<FmhaKernelSetRegistry, FmhaKernelSet> {};
using FmhaKernelSetRegistrar = detail::SetRegistrar<FmhaKernelSetRegistry>;

}  // namespace fmha_decl

using FmhaSignature = fmha_decl::FmhaSignature;
using FmhaAlgorithm = fmha_decl::FmhaAlgorithm;
using FmhaKernelDecl = fmha_decl::FmhaKernelDecl;
using FmhaKernelSet = fmha_decl::FmhaKernelSet;
using FmhaKernelSetRegistry = fmha_decl::FmhaKernelSetRegistry;

}  // namespace ck_tile::dispatcher

#define DECL_FMHA_KERNEL_SET(name, ...)                                      \
  CK_TILE_DECLARED(::ck_tile::dispatcher::fmha_decl::FmhaKernelSetRegistrar) \
  (#name, ::ck_tile::dispatcher::FmhaKernelSet() __VA_ARGS__.tag(#name))
