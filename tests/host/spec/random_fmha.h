// A random attention problem over all its fields.
#pragma once

#include "tessera/spec/problem.h"

namespace tessera {

template <class Random>
FmhaProblem random_fmha(Random& r) {
  FmhaProblem p;
  p.kind = r.template word<FmhaKind>();
  for (DType* type : {&p.in, &p.out, &p.dtype_bias}) *type = r.template word<DType>();
  p.lengths = r.template word<FmhaLengths>();
  for (std::int64_t* size : {&p.batch, &p.heads, &p.seqlen_q, &p.seqlen_k, &p.hdim}) {
    *size = r.integer(0, 1LL << 40);
  }
  for (std::int64_t* size : {&p.heads_kv, &p.tokens_q, &p.tokens_k, &p.hdim_v}) *size = r.stride();
  for (FmhaStrides* strides :
       {&p.q_strides, &p.k_strides, &p.v_strides, &p.out_strides, &p.bias_strides, &p.k_new_strides,
        &p.v_new_strides, &p.dout_strides, &p.dq_strides, &p.dk_strides, &p.dv_strides}) {
    for (std::int64_t& one : *strides) one = r.stride();
  }
  p.mask = r.template word<FmhaMask>();
  for (std::int64_t* end : {&p.window_left, &p.window_right}) *end = r.integer(-3, 5000);
  for (std::int64_t* count : {&p.sink, &p.slope_stride, &p.skip_q, &p.num_splits}) {
    *count = r.coin() ? 0 : r.integer(-4, 5000);
  }
  p.bias = r.template word<FmhaBias>();
  p.scale = r.number(0);
  p.soft_cap = r.number(0);
  p.lse = r.coin();
  p.p_drop = r.number(0);
  p.random = r.coin();
  p.pages = r.template word<FmhaPages>();
  p.cache_layout = r.template word<FmhaCacheLayout>();
  p.qscale = r.template word<FmhaQscale>();
  p.kv = r.template word<FmhaKv>();
  for (std::int64_t* block : {&p.qscale_block_q, &p.qscale_block_k}) *block = r.stride();
  p.page_size = r.coin() ? 0 : r.integer(-4, 5000);
  for (std::int64_t* count : {&p.num_pages, &p.max_pages, &p.table_stride, &p.page_entries}) {
    *count = r.stride();
  }
  p.check_pages = r.coin();
  p.rotary = r.template word<FmhaRotary>();
  p.rotary_dim = r.coin() ? 0 : r.integer(-4, 5000);
  p.rotary_positions = r.stride();
  p.rotate_q = r.coin();
  p.dbias = r.coin(), p.dlse = r.coin();
  return p;
}

}  // namespace tessera
