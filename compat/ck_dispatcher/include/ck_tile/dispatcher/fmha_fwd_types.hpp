// What forward attention is called with: traits say what is computed, arguments on what. Strides
// are in elements; the innermost dimension has none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "ck_tile/dispatcher/backends/host_numbers.hpp"
#include "ck_tile/dispatcher/fmha_words.hpp"

#ifndef CK_TILE_FMHA_FWD_TYPES_FROM_EXAMPLE

// Dropout's seed and offset, or where they lie.
using fmha_drop_seed_offset =
    std::variant<std::pair<std::uint64_t, std::uint64_t>, std::pair<const void*, const void*>>;

struct fmha_fwd_args {
  const void *q_ptr = nullptr, *k_ptr = nullptr, *v_ptr = nullptr, *bias_ptr = nullptr;
  const void *q_descale_ptr = nullptr, *k_descale_ptr = nullptr, *v_descale_ptr = nullptr;
  void *rand_val_ptr = nullptr, *lse_ptr = nullptr, *o_ptr = nullptr;
  const void *seqstart_q_ptr = nullptr, *seqstart_k_ptr = nullptr;
  const void *seqlen_q_ptr = nullptr, *seqlen_k_ptr = nullptr;
  const void *cu_seqlen_q_ptr = nullptr, *cu_seqlen_k_ptr = nullptr;
  const void *block_scale_seqstart_q_ptr = nullptr, *block_scale_seqstart_k_ptr = nullptr;
  const void* sink_ptr = nullptr;
  ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
  float scale_s, logits_soft_cap;
  ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
  ck_tile::index_t nhead_stride_randval, nhead_stride_lse, nhead_stride_o;
  ck_tile::index_t nhead_stride_q_descale, nhead_stride_k_descale, nhead_stride_v_descale;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
  ck_tile::index_t batch_stride_randval, batch_stride_lse, batch_stride_o;
  ck_tile::index_t batch_stride_q_descale, batch_stride_k_descale, batch_stride_v_descale;
  ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type, min_seqlen_q;
  float p_drop;
  bool s_randval;
  fmha_drop_seed_offset drop_seed_offset;
  ck_tile::index_t block_scale_size_q, block_scale_size_kv;
};

struct fmha_fwd_pagedkv_args {
  const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr;
  void *lse_ptr, *o_ptr, *block_table_ptr;
  ck_tile::index_t batch_stride_block_table, page_block_size;
  bool is_gappy;
  const void *cache_batch_idx, *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_k_ptr, *sink_ptr;
  ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
  float scale_s, scale_p, scale_o, logits_soft_cap;
  ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_o;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
  ck_tile::index_t nhead_stride_lse, nhead_stride_o;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
  ck_tile::index_t batch_stride_lse, batch_stride_o;
  ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type, min_seqlen_q;
};

struct fmha_fwd_splitkv_args {
  const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr;
  void *lse_acc_ptr, *o_acc_ptr, *lse_ptr, *o_ptr, *block_table_ptr;
  ck_tile::index_t batch_stride_block_table, page_block_size;
  bool is_gappy;
  const void *cache_batch_idx, *seqstart_q_ptr, *seqstart_k_ptr, *seqlen_k_ptr, *sink_ptr;
  ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
  ck_tile::index_t num_splits;
  float scale_s, scale_p, scale_o, logits_soft_cap;
  ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_o_acc, stride_o;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
  ck_tile::index_t nhead_stride_lse, nhead_stride_lse_acc, nhead_stride_o_acc, nhead_stride_o;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
  ck_tile::index_t batch_stride_lse, batch_stride_lse_acc, batch_stride_o_acc, batch_stride_o;
  ck_tile::index_t split_stride_lse_acc, split_stride_o_acc;
  ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type;
};

struct fmha_fwd_appendkv_args {
  void *q_ptr, *k_ptr;
  const void* knew_ptr;
  void* v_ptr;
  const void *vnew_ptr, *seqlen_k_ptr;
  ck_tile::index_t seqlen_q, seqlen_knew, batch, hdim_q, hdim_v, nhead_q, nhead_k;
  const void *rotary_cos_ptr, *rotary_sin_ptr;
  ck_tile::index_t rotary_dim;
  bool has_mask;
  void* block_table_ptr;
  ck_tile::index_t batch_stride_block_table, page_block_size;
  const void *cache_batch_idx, *sink_ptr;
  ck_tile::index_t stride_q, stride_k, stride_knew, stride_v, stride_vnew;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_knew, nhead_stride_v;
  ck_tile::index_t nhead_stride_vnew;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_knew, batch_stride_v;
  ck_tile::index_t batch_stride_vnew;
  const void* cache_batch_idx_ptr = nullptr;  // another name of cache_batch_idx
};

struct fmha_batch_prefill_args {
  const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr, *q_descale_ptr, *k_descale_ptr, *v_descale_ptr;
  void *rand_val_ptr, *lse_ptr, *o_ptr;
  const void *seqstart_q_ptr, *sink_ptr;
  ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, hdim_q, hdim_v, nhead_q, nhead_k;
  std::int32_t num_total_pages;
  ck_tile::index_t page_block_size;
  ck_tile::BlockAttentionKVCacheMemoryLayoutEnum kv_memory_layout;
  ck_tile::BlockAttentionKVCacheLookupTableEnum kv_lookup_table;
  void *kv_indptr, *kv_page_indices, *kv_last_page_lens, *seqlen_k_ptr;
  ck_tile::index_t batch_stride_block_table;
  float scale_s, scale_p, scale_o, logits_soft_cap;
  ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_randval, stride_o;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
  ck_tile::index_t nhead_stride_randval, nhead_stride_lse, nhead_stride_o;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
  ck_tile::index_t batch_stride_randval, batch_stride_lse, batch_stride_o;
  ck_tile::index_t window_size_left, window_size_right, sink_size, mask_type;
  float p_drop;
  bool s_randval;
  fmha_drop_seed_offset drop_seed_offset;
  ck_tile::index_t nblock_stride_kv_block_descale = 0, nhead_stride_kv_block_descale = 0;
};

struct fmha_fwd_traits {
  int hdim_q, hdim_v;
  std::string data_type;
  bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
  mask_enum mask_type;
  bias_enum bias_type;
  bool has_lse, has_dropout;
  quant_scale_enum qscale_type;
  bool skip_min_seqlen_q = false, has_sink = false;
};

struct fmha_fwd_pagedkv_traits {
  int hdim_q, hdim_v;
  std::string data_type;
  bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
  mask_enum mask_type;
  bias_enum bias_type;
  bool has_lse = false, use_pagedkv = true, do_fp8_static_quant = false;
  bool skip_min_seqlen_q = false, has_sink = false;
};

struct fmha_fwd_splitkv_traits {
  int hdim_q, hdim_v;
  std::string data_type;
  bool is_group_mode, is_v_rowmajor, has_logits_soft_cap;
  mask_enum mask_type;
  bias_enum bias_type;
  bool has_lse, do_fp8_static_quant = false, has_sink = false;
};

struct fmha_fwd_appendkv_traits {
  int hdim_q, hdim_v;
  std::string data_type;
  bool is_v_rowmajor;
  rope_enum rope_type;
};

struct fmha_batch_prefill_traits : fmha_fwd_traits {
  ck_tile::BlockAttentionKVCacheMemoryLayoutEnum kv_memory_layout =
      ck_tile::BlockAttentionKVCacheMemoryLayoutEnum::VECTORIZED_LAYOUT;
  ck_tile::BlockAttentionKVCacheLookupTableEnum kv_lookup_table =
      ck_tile::BlockAttentionKVCacheLookupTableEnum::SGLANG_PAGE_TABLE_1D;
  int page_size = 1;
};

#endif
