// A call of attention as Tessera takes it: a problem's line, and operands by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ck_tile/dispatcher/backends/fmha_rules.hpp"
#include "ck_tile/dispatcher/backends/tessera_memory.hpp"
#include "ck_tile/dispatcher/fmha_kernel_key.hpp"

namespace ck_tile::dispatcher::backends {

struct FmhaCall {
  std::string line;
  Operands operands;
  std::vector<Block> own;  // what the arguments hold by value, or not at all

  FmhaCall& add(const std::string& name, const std::string& value) {
    line += " " + name + "=" + value;
    return *this;
  }
  FmhaCall& add(const std::string& name, std::int64_t value) {
    return add(name, std::to_string(value));
  }
  FmhaCall& operand(const char* name, const void* data) {
    operands.emplace_back(name, data);
    return *this;
  }
  // Numbers that a kernel reads.
  template <class Number>
  FmhaCall& numbers(MemoryKind kind, const char* name, const std::vector<Number>& values) {
    own.emplace_back(kind, values.size() * sizeof(Number));
    own.back().from_host(values.data());
    return operand(name, own.back().data());
  }
  FmhaCall& strides(const std::string& tensor, std::initializer_list<std::int64_t> bhsd) {
    constexpr const char* kEnds[] = {"_stride_b", "_stride_h", "_stride_s", "_stride_d"};
    std::size_t i = 0;
    for (const std::int64_t stride : bhsd) add(tensor + kEnds[i++], stride);
    return *this;
  }
};

// A sentence for what the arguments of a call can ask for and no kernel here does.
inline void refuse(bool is_asked, const char* what) {
  if (is_asked) throw UnsupportedProblem(std::string("attention with ") + what);
}

// The fields that a problem has without its arguments; lengths are the longest ones.
inline FmhaCall fmha_head(const FmhaProblem& p) {
  constexpr const char* kMasks[] = {"none", "top_left", "bottom_right", "top_left"};
  constexpr const char* kBiases[] = {"none", "elementwise", "alibi"};
  constexpr const char* kScales[] = {"none", "per_tensor", "per_block", "kv_block"};
  const auto [in, out] = types_of(p.data_type);
  FmhaCall call;
  call.line = "fmha";
  call.add("kind", p.api_family == FmhaApiFamily::Bwd ? "backward" : "forward");
  call.add("batch", p.batch).add("heads", p.nhead_q).add("heads_kv", p.nhead_k);
  call.add("seqlen_q", p.effective_max_seqlen_q()).add("seqlen_k", p.effective_max_seqlen_k());
  call.add("hdim", p.hdim_q).add("hdim_v", p.hdim_v).add("in", in).add("out", out);
  call.add("dtype_bias", in);
  call.add("mask", kMasks[p.mask_type & 3]);
  call.add("bias", p.bias_type < 3 ? kBiases[p.bias_type] : std::to_string(p.bias_type));
  if (p.qscale_type != 0) call.add("qscale", kScales[p.qscale_type & 3]);
  if (p.has_lse && p.api_family != FmhaApiFamily::Bwd) call.add("lse", 1);
  if (p.has_dbias) call.add("dbias", 1);
  return call;
}

// Lengths of sequences that follow each other, from their starts.
inline std::vector<std::int32_t> starts_of(MemoryKind kind, const void* starts,
                                           std::int64_t batch) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(batch) + 1);
  copy_out(kind, values.data(), starts, values.size() * sizeof(std::int32_t));
  return values;
}
inline std::int64_t longest(const std::vector<std::int32_t>& starts) {
  std::int64_t most = 1;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    most = std::max<std::int64_t>(most, starts[i] - starts[i - 1]);
  }
  return most;
}

template <class Args>
void add_dropout(const Args& a, const FmhaProblem& p, MemoryKind kind, FmhaCall& call) {
  if (!p.has_dropout) return;
  std::uint64_t pair[2] = {0, 0};
  if (const auto* values = std::get_if<0>(&a.drop_seed_offset)) {
    pair[0] = values->first, pair[1] = values->second;
  } else {
    const auto& places = std::get<1>(a.drop_seed_offset);
    copy_out(kind, &pair[0], places.first, sizeof pair[0]);
    copy_out(kind, &pair[1], places.second, sizeof pair[1]);
  }
  call.add("p_drop", std::to_string(a.p_drop));
  call.numbers<std::uint64_t>(kind, "dropout_rng", {pair[0], pair[1]});
  if (p.is_store_randval) call.add("random", 1).operand("random_values", a.rand_val_ptr);
}

template <class Args>
void add_mask_and_bias(const Args& a, const FmhaProblem& p, FmhaCall& call) {
  if (p.mask_type != 0) {
    call.add("window_left", p.window_size_left).add("window_right", p.window_size_right);
    if (p.sink_size > 0) call.add("sink", p.sink_size);
  }
  if (p.bias_type == 1) {
    call.operand("bias", a.bias_ptr).add("bias_stride_b", a.batch_stride_bias);
    call.add("bias_stride_h", a.nhead_stride_bias).add("bias_stride_q", a.stride_bias);
    call.add("bias_stride_k", 1);
  }
  if (p.bias_type == 2) call.operand("slopes", a.bias_ptr).add("slope_stride", a.stride_bias);
}

// The lengths of groups, and of caches that are not full.
template <class Args>
FmhaCall with_lengths(const Args& a, FmhaProblem p, MemoryKind kind) {
  if (!p.is_group_mode) {
    FmhaCall call = fmha_head(p);
    if (p.has_seqlen_k_ptr) {
      const std::vector<std::int32_t> lengths(static_cast<std::size_t>(p.batch),
                                              static_cast<std::int32_t>(p.seqlen_q));
      call.add("lengths", "padded").numbers(kind, "seqlens_q", lengths);
      call.operand("seqlens_k", a.seqlen_k_ptr);
    }
    return call;
  }
  const auto starts_q = starts_of(kind, a.seqstart_q_ptr, p.batch);
  const auto starts_k = starts_of(kind, a.seqstart_k_ptr, p.batch);
  p.max_seqlen_q = longest(starts_q), p.max_seqlen_k = longest(starts_k);
  FmhaCall call = fmha_head(p);
  call.add("lengths", "packed").add("tokens_q", starts_q.back()).add("tokens_k", starts_k.back());
  call.operand("seqlens_q", a.seqstart_q_ptr).operand("seqlens_k", a.seqstart_k_ptr);
  return call;
}

// The tables of a cache of pages. The cache has as many pages as the table names.
template <class Args>
void add_pages(const Args& a, const FmhaProblem& p, MemoryKind kind, FmhaCall& call) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(p.batch * a.batch_stride_block_table));
  copy_out(kind, table.data(), a.block_table_ptr, table.size() * sizeof(std::int32_t));
  const std::int32_t last = *std::max_element(table.begin(), table.end());
  call.add("pages", "table").add("page_size", a.page_block_size).add("num_pages", last + 1);
  call.add("max_pages", a.batch_stride_block_table);
  call.add("table_stride", a.batch_stride_block_table).operand("page_table", a.block_table_ptr);
}

// The strides of queries, keys, values and the output, which forward and gradients read.
template <class Args>
void add_tensors(const Args& a, const FmhaProblem& p, FmhaCall& call) {
  const auto batch = [&p](std::int64_t stride) { return p.is_group_mode ? 0 : stride; };
  call.operand("q", a.q_ptr).operand("k", a.k_ptr).operand("v", a.v_ptr).operand("out", a.o_ptr);
  call.strides("q", {batch(a.batch_stride_q), a.nhead_stride_q, a.stride_q, 1});
  call.strides("k", {batch(a.batch_stride_k), a.nhead_stride_k, a.stride_k, 1});
  call.strides("out", {batch(a.batch_stride_o), a.nhead_stride_o, a.stride_o, 1});
  const std::int64_t token = p.is_v_rowmajor ? a.stride_v : 1;
  call.strides(
      "v", {batch(a.batch_stride_v), a.nhead_stride_v, token, p.is_v_rowmajor ? 1 : a.stride_v});
}

// The logarithms of sums, which Tessera has as {batch, head, query} without gaps.
inline void add_lse(const void* lse, std::int64_t head_stride, const FmhaProblem& p,
                    FmhaCall& call) {
  const bool has_gaps = !p.is_group_mode && p.nhead_q > 1 && head_stride != p.seqlen_q;
  refuse(has_gaps, "gaps between the heads' lse has no kernel here");
  call.operand("lse", lse);
}

template <class Args>
FmhaCall forward_call(const Args& a, const FmhaProblem& p, MemoryKind kind) {
  refuse(a.sink_ptr != nullptr, "a tensor of sinks has no kernel here; sink_size has");
  FmhaCall call = with_lengths(a, p, kind);
  add_tensors(a, p, call);
  add_mask_and_bias(a, p, call);
  if (a.scale_s != 0) call.add("scale", std::to_string(a.scale_s));
  if (p.has_logits_soft_cap) call.add("soft_cap", std::to_string(a.logits_soft_cap));
  if (p.has_lse) add_lse(a.lse_ptr, a.nhead_stride_lse, p, call);
  if constexpr (std::is_same_v<Args, fmha_fwd_args>) {
    refuse(
        a.seqlen_q_ptr != nullptr || a.cu_seqlen_q_ptr != nullptr || a.cu_seqlen_k_ptr != nullptr,
        "lengths beside the starts of groups has no kernel here");
    add_dropout(a, p, kind, call);
    if (p.qscale_type != 0) {
      call.operand("descale_q", a.q_descale_ptr).operand("descale_k", a.k_descale_ptr);
      call.operand("descale_v", a.v_descale_ptr);
    }
  } else {
    refuse(a.cache_batch_idx != nullptr, "cache_batch_idx has no kernel here; give a block table");
    if (a.block_table_ptr != nullptr) add_pages(a, p, kind, call);
    if (p.num_splits > 1) call.add("num_splits", p.num_splits);
  }
  if (p.skip_min_seqlen_q && p.is_group_mode) call.add("skip_q", p.min_seqlen_q);
  return call;
}

inline FmhaCall backward_call(const fmha_bwd_args& a, const FmhaProblem& p, MemoryKind kind) {
  refuse(p.nhead_q != p.nhead_k,
         "gradients of keys for each head of the queries has no kernel here; repeat the keys");
  refuse(p.has_dbias &&
             (a.stride_dbias != p.seqlen_k || a.nhead_stride_dbias != p.seqlen_q * p.seqlen_k),
         "gaps in the gradient of the bias has no kernel here");
  FmhaCall call = with_lengths(a, p, kind);
  add_tensors(a, p, call);
  add_mask_and_bias(a, p, call);
  if (a.scale != 0) call.add("scale", std::to_string(a.scale));
  add_lse(a.lse_ptr, a.nhead_stride_lsed, p, call);
  add_dropout(a, p, kind, call);
  const auto batch = [&p](std::int64_t stride) { return p.is_group_mode ? 0 : stride; };
  call.strides("dout", {batch(a.batch_stride_do), a.nhead_stride_do, a.stride_do, 1});
  call.strides("dq", {batch(a.batch_stride_dq), a.nhead_stride_dq, a.stride_dq, 1});
  call.strides("dk", {batch(a.batch_stride_dk), a.nhead_stride_dk, a.stride_dk, 1});
  call.strides("dv", {batch(a.batch_stride_dv), a.nhead_stride_dv, a.stride_dv, 1});
  call.operand("dout", a.do_ptr).operand("dq", a.dq_ptr).operand("dk", a.dk_ptr);
  call.operand("dv", a.dv_ptr);
  if (p.has_dbias) call.operand("dbias", a.dbias_ptr);
  return call;
}

// Throws UnsupportedProblem with a sentence for what no kernel here does.
inline FmhaCall fmha_call_of(const FmhaInvocation& call, const FmhaProblem& p, MemoryKind kind) {
  return std::visit(
      [&](const auto& a) -> FmhaCall {
        using Args = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<Args, fmha_bwd_args>) {
          return backward_call(a, p, kind);
        } else if constexpr (std::is_same_v<Args, fmha_fwd_appendkv_args> ||
                             std::is_same_v<Args, fmha_batch_prefill_args>) {
          refuse(true,
                 "these arguments, of appending or prefilling, runs from Python and from "
                 "tessera.h alone");
          return {};
        } else {
          return forward_call(a, p, kind);
        }
      },
      call.args);
}

}  // namespace ck_tile::dispatcher::backends
