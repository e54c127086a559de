#include "fmha_calls.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace ck_compat {
namespace {

using tessera::FmhaProblem;
using tessera::FmhaStrides;

std::size_t bytes_of(tessera::DType type, std::int64_t elements) {
  return static_cast<std::size_t>(elements) * static_cast<std::size_t>(size_of(type));
}

bool is_backward(const FmhaCall& call) { return call.family == "bwd"; }
bool is_append(const FmhaCall& call) { return call.family == "fwd_appendkv"; }

// {batch, head, token, element} in memory, as strides of {batch, head, token, element}. Sequences
// of groups lie one behind the other: heads are then outside of all tokens, and there is no
// distance of sequences.
FmhaStrides heads_first(const FmhaCall& call, std::int64_t heads, std::int64_t tokens,
                        std::int64_t size) {
  return {call.groups ? 0 : heads * tokens * size, tokens * size, size, 1};
}

void set_strides(FmhaProblem& p, const FmhaCall& call) {
  if (!call.perm) return;
  const std::int64_t rows_q = call.groups ? call.batch * call.seqlen_q : call.seqlen_q;
  const std::int64_t rows_k = call.groups ? call.batch * call.seqlen_k : call.seqlen_k;
  if (!is_append(call) || p.rotate_q) {
    p.q_strides = heads_first(call, call.heads, rows_q, call.hdim);
    p.out_strides =
        heads_first(call, call.heads, rows_q, is_append(call) ? call.hdim : call.hdim_v);
  }
  if (is_append(call)) {
    p.k_new_strides = heads_first(call, call.heads_kv, rows_k, call.hdim);
    p.v_new_strides = heads_first(call, call.heads_kv, rows_k, call.hdim_v);
    return;
  }
  if (call.page_size == 0) {
    p.k_strides = heads_first(call, call.heads_kv, rows_k, call.hdim);
    if (call.v_rowmajor) p.v_strides = heads_first(call, call.heads_kv, rows_k, call.hdim_v);
  }
  if (is_backward(call)) {
    p.dout_strides = p.out_strides;
    p.dq_strides = p.q_strides;
    p.dk_strides = p.k_strides;
    p.dv_strides = p.v_strides;
  }
}

// Where a token of K or V lies in the caller's tensor, in rows of one head's elements: {batch,
// head, token}, in groups {head, token of all sequences}, and with perm 0 {batch, token, head}.
std::int64_t source_row(const FmhaCall& call, std::int64_t b, std::int64_t h, std::int64_t t) {
  if (!call.perm) return (b * call.seqlen_k + t) * call.heads_kv + h;
  return (call.groups ? h * call.batch + b : b * call.heads_kv + h) * call.seqlen_k + t;
}

// K or V as pages that follow each other: {page, token, head, element}. The last page of a sequence
// ends in zeros.
std::vector<char> pages_of(const void* tensor, const FmhaCall& call, std::int64_t size,
                           tessera::DType type) {
  const std::int64_t pages = (call.seqlen_k + call.page_size - 1) / call.page_size;
  const std::int64_t room = pages * call.page_size;
  const std::size_t row = bytes_of(type, size);
  std::vector<char> made(static_cast<std::size_t>(call.batch * room * call.heads_kv) * row);
  const auto* from = static_cast<const char*>(tensor);
  for (std::int64_t b = 0; b < call.batch; ++b) {
    for (std::int64_t h = 0; h < call.heads_kv; ++h) {
      for (std::int64_t t = 0; t < call.seqlen_k; ++t) {
        const std::int64_t source = source_row(call, b, h, t);
        const std::int64_t target = (b * room + t) * call.heads_kv + h;
        std::memcpy(made.data() + static_cast<std::size_t>(target) * row,
                    from + static_cast<std::size_t>(source) * row, row);
      }
    }
  }
  return made;
}

// Pages {page, token, head, element} in runs of 16 bytes: of K {page, head, element / x, token, x},
// of V {page, head, token / x, element, x}.
std::vector<char> in_runs(const std::vector<char>& pages, const FmhaCall& call, std::int64_t size,
                          tessera::DType type, bool is_k) {
  const std::int64_t bytes = size_of(type), x = 16 / bytes;
  const std::int64_t count =
      static_cast<std::int64_t>(pages.size()) / (call.page_size * call.heads_kv * size * bytes);
  std::vector<char> made(pages.size());
  for (std::int64_t page = 0; page < count; ++page) {
    for (std::int64_t t = 0; t < call.page_size; ++t) {
      for (std::int64_t h = 0; h < call.heads_kv; ++h) {
        for (std::int64_t e = 0; e < size; ++e) {
          const std::int64_t source = ((page * call.page_size + t) * call.heads_kv + h) * size + e;
          const std::int64_t block = (page * call.heads_kv + h) * call.page_size * size;
          const std::int64_t target = is_k ? block + (e / x * call.page_size + t) * x + e % x
                                           : block + (t / x * size + e) * x + t % x;
          std::memcpy(made.data() + target * bytes, pages.data() + source * bytes,
                      static_cast<std::size_t>(bytes));
        }
      }
    }
  }
  return made;
}

// Everything that a launch reads besides the caller's tensors; it lives until the launch is over.
struct Owned {
  std::vector<std::int32_t> seqlens_q, seqlens_k, page_table, page_starts;
  std::vector<char> k, v, zeros, scratch, cos, sin;
  std::vector<float> lse;
};

std::vector<std::int32_t> multiples(std::int64_t count, std::int64_t step) {
  std::vector<std::int32_t> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * step);
  }
  return made;
}

const std::int32_t* numbers(Staging& staging, const std::vector<std::int32_t>& list) {
  if (list.empty()) return nullptr;
  return static_cast<const std::int32_t*>(staging.read(list.data(), list.size() * 4));
}

void bind_lengths(const FmhaCall& call, const FmhaProblem& p, Owned& own, Staging& staging,
                  tessera::FmhaOperands& operands) {
  if (call.groups) own.seqlens_q = multiples(call.batch + 1, call.seqlen_q);
  if (is_append(call)) {
    own.seqlens_k.assign(static_cast<std::size_t>(call.batch), 0);
  } else if (call.groups && call.page_size > 0) {
    own.seqlens_k.assign(static_cast<std::size_t>(call.batch),
                         static_cast<std::int32_t>(call.seqlen_k));
  } else if (call.groups) {
    own.seqlens_k = multiples(call.batch + 1, call.seqlen_k);
  }
  if (call.page_size > 0) {
    const std::int64_t pages = tessera::pages_needed(p);
    own.page_table = multiples(call.batch * pages, 1);
    if (p.pages == tessera::FmhaPages::list) own.page_starts = multiples(call.batch + 1, pages);
  }
  operands.seqlens_q = numbers(staging, own.seqlens_q);
  operands.seqlens_k = numbers(staging, own.seqlens_k);
  operands.page_table = numbers(staging, own.page_table);
  operands.page_starts = numbers(staging, own.page_starts);
}

void bind_keys(const FmhaCall& call, const FmhaProblem& p, Owned& own, Staging& staging,
               tessera::FmhaOperands& operands) {
  const std::int64_t rows = call.batch * call.heads_kv * call.seqlen_k;
  if (call.page_size == 0) {
    operands.k = staging.read(call.k, bytes_of(p.in, rows * call.hdim));
    operands.v = staging.read(call.v, bytes_of(p.in, rows * call.hdim_v));
    return;
  }
  own.k = pages_of(call.k, call, call.hdim, p.in);
  own.v = pages_of(call.v, call, call.hdim_v, p.in);
  if (call.vectorized) {
    own.k = in_runs(own.k, call, call.hdim, p.in, true);
    own.v = in_runs(own.v, call, call.hdim_v, p.in, false);
  }
  operands.k = staging.read(own.k.data(), own.k.size());
  operands.v = staging.read(own.v.data(), own.v.size());
}

void bind_bias(const FmhaCall& call, const FmhaProblem& p, Owned& own, Staging& staging,
               tessera::FmhaOperands& operands) {
  if (p.bias == tessera::FmhaBias::elementwise) {
    const std::int64_t rows_q = call.groups ? call.batch * call.seqlen_q : call.seqlen_q;
    const std::int64_t sequences = call.groups ? 1 : call.batch;
    own.zeros.resize(bytes_of(p.dtype_bias, sequences * call.heads * rows_q * call.seqlen_k));
    operands.bias = staging.read(own.zeros.data(), own.zeros.size());
    if (p.dbias) {
      own.scratch.resize(own.zeros.size());
      operands.dbias = staging.write(own.scratch.data(), own.scratch.size());
    }
  } else if (p.bias == tessera::FmhaBias::alibi) {
    own.zeros.resize(static_cast<std::size_t>(call.heads) * sizeof(float));
    operands.slopes = static_cast<const float*>(staging.read(own.zeros.data(), own.zeros.size()));
  }
}

void bind_factors(const FmhaCall& call, const FmhaProblem& p, Staging& staging,
                  tessera::FmhaOperands& operands) {
  if (p.qscale == tessera::FmhaQscale::none) return;
  const FmhaProblem full = tessera::with_strides(p);
  std::int64_t count_q = 1, count_k = 1;
  if (p.qscale == tessera::FmhaQscale::per_block) {
    count_q =
        call.batch * call.heads * ((call.seqlen_q + full.qscale_block_q - 1) / full.qscale_block_q);
  }
  if (p.qscale != tessera::FmhaQscale::per_tensor) {
    count_k = tessera::scales_pages(p)
                  ? full.num_pages * call.heads_kv
                  : call.batch * call.heads_kv *
                        ((call.seqlen_k + full.qscale_block_k - 1) / full.qscale_block_k);
  }
  const auto factors = [&staging](const float* host, std::int64_t count) {
    return static_cast<const float*>(staging.read(host, static_cast<std::size_t>(count) * 4));
  };
  operands.descale_q = factors(call.descale_q, count_q);
  operands.descale_k = factors(call.descale_k, count_k);
  operands.descale_v = factors(call.descale_v, count_k);
}

// Angles of position / 10000^(i / half), as rotary embeddings have them.
void bind_embedding(const FmhaProblem& p, Owned& own, Staging& staging,
                    tessera::FmhaOperands& operands) {
  if (p.rotary == tessera::FmhaRotary::none) return;
  const std::int64_t half = (p.rotary_dim == 0 ? p.hdim : p.rotary_dim) / 2;
  const std::int64_t positions = tessera::with_strides(p).rotary_positions;
  std::vector<float> cosines, sines;
  for (std::int64_t row = 0; row < positions; ++row) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(row) *
                           std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const auto store = [&staging](std::vector<char>& bytes, const std::vector<float>& list) {
    bytes.resize(list.size() * sizeof(float));
    std::memcpy(bytes.data(), list.data(), bytes.size());
    return static_cast<const float*>(staging.read(bytes.data(), bytes.size()));
  };
  operands.cos = store(own.cos, cosines);
  operands.sin = store(own.sin, sines);
}

void bind_append(const FmhaCall& call, const FmhaProblem& p, Owned& own, Staging& staging,
                 tessera::FmhaOperands& operands) {
  const std::int64_t fresh = call.batch * call.heads_kv * call.seqlen_k;
  operands.k_new = staging.read(call.k, bytes_of(p.in, fresh * call.hdim));
  operands.v_new = staging.read(call.v, bytes_of(p.in, fresh * call.hdim_v));
  const FmhaProblem full = tessera::with_strides(p);
  const std::int64_t rows = call.page_size > 0 ? full.num_pages * full.page_size * call.heads_kv
                                               : call.batch * call.heads_kv * p.seqlen_k;
  own.k.resize(bytes_of(p.in, rows * call.hdim));
  own.v.resize(bytes_of(p.in, rows * call.hdim_v));
  operands.k = staging.write(own.k.data(), own.k.size());
  operands.v = staging.write(own.v.data(), own.v.size());
  if (p.rotate_q) {
    const std::size_t bytes = bytes_of(p.in, call.batch * call.heads * call.seqlen_q * call.hdim);
    own.scratch.resize(bytes);
    operands.q = staging.read(call.q, bytes);
    operands.out = staging.write(own.scratch.data(), bytes);
  }
  bind_embedding(p, own, staging, operands);
}

void bind_backward(const FmhaCall& call, const FmhaProblem& p, Staging& staging,
                   tessera::FmhaOperands& operands) {
  const std::int64_t rows_q = call.batch * call.heads * call.seqlen_q;
  const std::int64_t rows_k = call.batch * call.heads_kv * call.seqlen_k;
  operands.out = const_cast<void*>(staging.read(call.out, bytes_of(p.out, rows_q * call.hdim_v)));
  operands.lse = static_cast<float*>(
      const_cast<void*>(staging.read(call.lse_in, static_cast<std::size_t>(rows_q) * 4)));
  operands.dout = staging.read(call.dout, bytes_of(p.out, rows_q * call.hdim_v));
  operands.dq = staging.write(call.dq, bytes_of(p.in, rows_q * call.hdim));
  operands.dk = staging.write(call.dk, bytes_of(p.in, rows_k * call.hdim));
  operands.dv = staging.write(call.dv, bytes_of(p.in, rows_k * call.hdim_v));
}

}  // namespace

FmhaProblem problem_of(const FmhaCall& call) {
  tessera::FmhaProblemBuilder builder;
  // Appended tokens are the queries; the cache has room for them alone.
  const std::int64_t rows_q = is_append(call) ? call.seqlen_k : call.seqlen_q;
  const std::int64_t times = call.groups ? call.batch : 1;
  builder.api_family(call.family == "fwd" && call.page_size > 0 ? "fwd_pagedkv" : call.family)
      .data_type(call.data_type)
      .dims(call.hdim, call.hdim_v, call.batch, times * rows_q, times * call.seqlen_k)
      .nheads(call.heads, call.heads_kv)
      .v_rowmajor(call.v_rowmajor);
  if (call.groups) builder.group_mode(true).max_seqlen(call.seqlen_q, call.seqlen_k);
  if (!is_append(call)) builder.mask_type(call.mask).bias_type(call.bias);
  builder.lse(call.lse || is_backward(call));
  if (call.p_drop > 0) builder.dropout(true, call.p_drop);
  if (call.has_window) builder.window(call.window[0], call.window[1]);
  if (call.soft_cap > 0) builder.logits_soft_cap(true, call.soft_cap);
  if (call.sink > 0) builder.sink(true).sink_size(call.sink);
  // Equal sequences are left out all together or not at all.
  if (call.skip > 0 && call.groups) builder.skip_min_seqlen_q(true, call.skip);
  if (call.splits > 0) builder.num_splits(call.splits);
  if (call.rope != "none") builder.rope_type(call.rope);
  if (call.qscale != "no") builder.qscale_type(call.qscale);
  if (call.page_size > 0) {
    builder.paged_kv(true).kv_cache(call.vectorized ? "vectorized" : "linear",
                                    call.listed ? "sglang_1d" : "vllm_2d", call.page_size);
  }
  if (is_backward(call)) {
    builder.bwd_flags(call.dbias, call.store_random, call.deterministic);
  }
  FmhaProblem made = builder.build();
  if (!is_append(call)) made.scale = call.scale;
  // Queries are turned by the positions of the new keys, which there must be for each of them.
  made.rotate_q = is_append(call) && call.rope != "none" && call.seqlen_q == call.seqlen_k;
  set_strides(made, call);
  return made;
}

bool lacks_tensor(const FmhaCall& call) {
  if (call.q == nullptr || call.k == nullptr || call.v == nullptr) return true;
  if (is_append(call)) return false;
  if (call.out == nullptr) return true;
  if (call.qscale != "no" &&
      (call.descale_q == nullptr || call.descale_k == nullptr || call.descale_v == nullptr)) {
    return true;
  }
  return is_backward(call) && (call.lse_in == nullptr || call.dout == nullptr ||
                               call.dq == nullptr || call.dk == nullptr || call.dv == nullptr);
}

double run_attention(const Live& live, const FmhaCall& call) {
  const FmhaProblem p = problem_of(call);
  Staging staging(live);
  Owned own;
  tessera::FmhaOperands operands;
  operands.seed = 1;
  bind_lengths(call, p, own, staging, operands);
  const std::int64_t rows_q = call.batch * call.heads * call.seqlen_q;
  if (is_append(call)) {
    bind_append(call, p, own, staging, operands);
  } else {
    operands.q = staging.read(call.q, bytes_of(p.in, rows_q * call.hdim));
    bind_keys(call, p, own, staging, operands);
    bind_bias(call, p, own, staging, operands);
    bind_factors(call, p, staging, operands);
    if (is_backward(call)) {
      bind_backward(call, p, staging, operands);
    } else {
      operands.out = staging.write(call.out, bytes_of(p.out, rows_q * call.hdim_v));
      own.lse.resize(p.lse ? static_cast<std::size_t>(rows_q) : 0);
      operands.lse = static_cast<float*>(
          staging.write(p.lse ? own.lse.data() : nullptr, own.lse.size() * sizeof(float)));
    }
  }
  tessera::RunOptions options;
  tessera::Dispatcher& dispatcher = live.dispatcher(call.deterministic);
  if (call.verify) {
    options.verify = true;
    dispatcher.run(p, operands, options);
    options.verify = false;
  }
  const tessera::RunTiming timing = dispatcher.time(p, operands, options);
  staging.copy_back();
  return timing.median_seconds;
}

}  // namespace ck_compat
