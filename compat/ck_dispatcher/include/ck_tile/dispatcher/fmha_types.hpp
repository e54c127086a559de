// What attention is called with: forward in fmha_fwd_types.hpp, gradients here.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "ck_tile/dispatcher/fmha_fwd_types.hpp"

#ifndef CK_TILE_FMHA_BWD_TYPES_FROM_EXAMPLE

struct fmha_bwd_args {
  const void *q_ptr, *k_ptr, *v_ptr, *bias_ptr, *o_ptr, *lse_ptr, *do_ptr;
  void *d_ptr, *rand_val_ptr, *dq_ptr, *dk_ptr, *dv_ptr, *dbias_ptr, *dq_acc_ptr;
  const void *seqstart_q_ptr = nullptr, *seqstart_k_ptr = nullptr;
  const void *seqlen_q_ptr = nullptr, *seqlen_k_ptr = nullptr;
  const void *cu_seqlen_q_ptr = nullptr, *cu_seqlen_k_ptr = nullptr;
  ck_tile::index_t seqlen_q, seqlen_k, batch, max_seqlen_q, max_seqlen_k;
  ck_tile::index_t hdim_q, hdim_v, nhead_q, nhead_k;
  float scale;
  ck_tile::index_t stride_q, stride_k, stride_v, stride_bias, stride_o, stride_randval;
  ck_tile::index_t stride_do, stride_dq_acc, stride_dq, stride_dk, stride_dv, stride_dbias;
  ck_tile::index_t nhead_stride_q, nhead_stride_k, nhead_stride_v, nhead_stride_bias;
  ck_tile::index_t nhead_stride_o, nhead_stride_randval, nhead_stride_do, nhead_stride_lsed;
  ck_tile::long_index_t nhead_stride_dq_acc;
  ck_tile::index_t nhead_stride_dq, nhead_stride_dk, nhead_stride_dv, nhead_stride_dbias;
  ck_tile::index_t batch_stride_q, batch_stride_k, batch_stride_v, batch_stride_bias;
  ck_tile::index_t batch_stride_o, batch_stride_randval, batch_stride_do, batch_stride_lsed;
  ck_tile::long_index_t batch_stride_dq_acc;
  ck_tile::index_t batch_stride_dq, batch_stride_dk, batch_stride_dv, batch_stride_dbias;
  ck_tile::index_t split_stride_dq_acc;
  ck_tile::index_t window_size_left, window_size_right, mask_type;
  float p_drop, p_undrop;
  std::variant<std::pair<std::uint64_t, std::uint64_t>, std::pair<const void*, const void*>>
      drop_seed_offset;
};

struct fmha_bwd_traits {
  int seqlen_q, seqlen_k, batch, max_seqlen_q, max_seqlen_k, hdim_q, hdim_v, nhead_q, nhead_k;
  std::string data_type;
  bool is_group_mode;
  mask_enum mask_type;
  bias_enum bias_type;
  bool has_dbias, has_dropout, is_store_randval, is_deterministic;
};

#endif
