// An attention kernel by its fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>

#include "ck_tile/dispatcher/fmha_problem.hpp"

namespace ck_tile::dispatcher {

struct FmhaKernelKey {
  struct Signature {
    FmhaKernelFamily family = FmhaKernelFamily::Fwd;
    std::string data_type;
    bool is_group_mode = false, is_v_rowmajor = true, has_logits_soft_cap = false;
    int mask_type = 0, bias_type = 0;
    bool has_lse = false, has_dropout = false;
    int qscale_type = 0, rope_type = 0;
    bool use_paged_kv = false, do_fp8_static_quant = false, skip_min_seqlen_q = false;
    bool has_sink = false, has_dbias = false, is_store_randval = false, is_deterministic = false;
    int kv_memory_layout = 0, kv_lookup_table = 0, page_size = 1;
    std::uint16_t hdim_q = 0, hdim_v = 0;
    int receipt = -1;

    auto tie() const {
      return std::tie(family, data_type, is_group_mode, is_v_rowmajor, has_logits_soft_cap,
                      mask_type, bias_type, has_lse, has_dropout, qscale_type, rope_type,
                      use_paged_kv, do_fp8_static_quant, skip_min_seqlen_q, has_sink, has_dbias,
                      is_store_randval, is_deterministic, kv_memory_layout, kv_lookup_table,
                      page_size, hdim_q, hdim_v, receipt);
    }
  } signature;

  struct Algorithm {
    struct TileShape {
      std::uint16_t m0 = 0, n0 = 0, k0 = 0, n1 = 0, k1 = 0, k0max = 0;
      auto tie() const { return std::tie(m0, n0, k0, n1, k1, k0max); }
    } tile_shape;
    struct WaveShape {
      std::uint8_t m0 = 1, n0 = 1, k0 = 1, m1 = 1, n1 = 1, k1 = 1, m2 = 1, n2 = 1, k2 = 1;
      auto tie() const { return std::tie(m0, n0, k0, m1, n1, k1, m2, n2, k2); }
    } wave_shape;
    struct WarpTileShape {
      std::uint16_t m0 = 0, n0 = 0, k0 = 0, m1 = 0, n1 = 0, k1 = 0, m2 = 0, n2 = 0, k2 = 0;
      auto tie() const { return std::tie(m0, n0, k0, m1, n1, k1, m2, n2, k2); }
    } warp_tile_shape;
    std::string pipeline;
    bool pad_s = true, pad_sk = true, pad_d = true, pad_dv = true, use_trload = false;
    std::uint8_t block_per_cu = 1, num_wave_groups = 1, max_splits_log2 = 0;
    std::uint16_t max_seq_len_q = 0, hdim_q_alignment = 0, hdim_v_alignment = 0;
    std::int32_t selection_rank = 0;
    std::string constraint_tag;

    auto tie() const {
      return std::tie(pipeline, pad_s, pad_sk, pad_d, pad_dv, use_trload, block_per_cu,
                      num_wave_groups, max_splits_log2, max_seq_len_q, hdim_q_alignment,
                      hdim_v_alignment, selection_rank, constraint_tag);
    }
  } algorithm;

  std::string gfx_arch;
  std::string kernel;  // Tessera's name, which has all fields; empty: the fields above alone

  auto tie() const {
    return std::tuple_cat(signature.tie(), algorithm.tile_shape.tie(), algorithm.wave_shape.tie(),
                          algorithm.warp_tile_shape.tie(), algorithm.tie(),
                          std::tie(gfx_arch, kernel));
  }
  friend bool operator==(const FmhaKernelKey& a, const FmhaKernelKey& b) {
    return a.tie() == b.tie();
  }
  friend bool operator!=(const FmhaKernelKey& a, const FmhaKernelKey& b) { return !(a == b); }

  // The kernel's name where there is one, which is lossless; else the original's identifier.
  std::string encode_identifier() const;
};

namespace detail {

inline std::string by_x(std::initializer_list<int> sizes) {
  std::string text;
  for (const int size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

inline std::string signature_text(const FmhaKernelKey::Signature& s) {
  std::string text = "fmha_" + to_string(s.family) + "_" + s.data_type +
                     (s.is_group_mode ? "_group" : "_batch") + (s.is_v_rowmajor ? "_vr" : "_vc") +
                     "_hq" + std::to_string(s.hdim_q) + "_hv" + std::to_string(s.hdim_v) + "_p";
  return text;
}

inline std::string flags_text(const FmhaKernelKey::Signature& s) {
  std::string text;
  const std::initializer_list<std::pair<const char*, int>> parts = {
      {"m", s.mask_type},          {"b", s.bias_type},
      {"lse", s.has_lse},          {"do", s.has_dropout},
      {"qs", s.qscale_type},       {"rp", s.rope_type},
      {"pkv", s.use_paged_kv},     {"sq", s.do_fp8_static_quant},
      {"sk", s.skip_min_seqlen_q}, {"sink", s.has_sink},
      {"db", s.has_dbias},         {"sr", s.is_store_randval},
      {"det", s.is_deterministic}, {"km", s.kv_memory_layout},
      {"kl", s.kv_lookup_table},   {"ps", s.page_size}};
  for (const auto& [name, value] : parts) {
    text += std::string("_") + name + std::to_string(value);
  }
  return text;
}

}  // namespace detail

inline std::string FmhaKernelKey::encode_identifier() const {
  if (!kernel.empty()) return kernel;
  const Algorithm& a = algorithm;
  const Algorithm::TileShape& t = a.tile_shape;
  const Algorithm::WaveShape& w = a.wave_shape;
  const Algorithm::WarpTileShape& p = a.warp_tile_shape;
  const auto part = [](const char* name, int value) {
    return std::string("_") + name + std::to_string(value);
  };
  return detail::signature_text(signature) + a.pipeline + detail::flags_text(signature) + "_t" +
         detail::by_x({t.m0, t.n0, t.k0, t.n1, t.k1, t.k0max}) + "_w0" +
         detail::by_x({w.m0, w.n0, w.k0}) + "_w1" + detail::by_x({w.m1, w.n1, w.k1}) + "_wt0" +
         detail::by_x({p.m0, p.n0, p.k0}) + "_wt1" + detail::by_x({p.m1, p.n1, p.k1}) +
         part("pads", a.pad_s) + std::to_string(a.pad_sk) + std::to_string(a.pad_d) +
         std::to_string(a.pad_dv) + part("tr", a.use_trload) + part("bpc", a.block_per_cu) +
         part("wg", a.num_wave_groups) + part("ms", a.max_splits_log2) +
         part("mq", a.max_seq_len_q) + part("aq", a.hdim_q_alignment) +
         part("av", a.hdim_v_alignment) + part("r", a.selection_rank) +
         part("rc", signature.receipt);
}

struct FmhaKernelKeyHash {
  std::size_t operator()(const FmhaKernelKey& key) const {
    return std::hash<std::string>()(key.encode_identifier());
  }
};

}  // namespace ck_tile::dispatcher
