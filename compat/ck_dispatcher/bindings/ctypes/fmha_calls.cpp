#include "fmha_calls.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ck_compat {
namespace {

using tessera::FmhaProblem;
using tessera::Tensor;

constexpr float kDropped = 0.2F, kSoftCap = 30.0F;
constexpr int kSinkTokens = 4, kPageTokens = 64;

constexpr const char* kMasks[] = {"no", "top_left", "bottom_right", "generic"};
constexpr const char* kBiases[] = {"no", "elementwise", "alibi"};
constexpr const char* kRopes[] = {"none", "interleaved", "half_rotated"};
constexpr const char* kScales[] = {"no", "pertensor", "blockscale", "kv_blockscale"};

// A number's word; one that has none stays a number, which the problem builder refuses.
template <std::size_t count>
std::string word_of(const char* const (&words)[count], int number) {
  return number >= 0 && number < static_cast<int>(count) ? words[number] : std::to_string(number);
}

bool is_backward(const FmhaCall& call) { return call.family == "bwd"; }
bool is_append(const FmhaCall& call) { return call.family == "fwd_appendkv"; }

// Whether it is K or V in a cache, whose order is the library's own.
bool is_cache(const Tensor& t, const FmhaCall& call) {
  return (t.name == "k" || t.name == "v") && (is_append(call) || call.pages);
}

std::int64_t page_of(const FmhaCall& call) {
  return call.page_size > 0 ? call.page_size : kPageTokens;
}

FmhaProblem built(const FmhaCall& call) {
  tessera::FmhaProblemBuilder builder;
  // Appended tokens are the queries; the cache has room for them alone.
  const std::int64_t rows_q = is_append(call) ? call.seqlen_k : call.seqlen_q;
  const std::int64_t times = call.groups ? call.batch : 1;
  builder.api_family(call.family)
      .data_type(call.data_type)
      .dims(call.hdim, call.hdim_v, call.batch, times * rows_q, times * call.seqlen_k)
      .nheads(call.heads, call.heads_kv)
      .v_rowmajor(call.v_rowmajor)
      .lse(call.lse || is_backward(call));
  if (call.groups) builder.group_mode(true).max_seqlen(call.seqlen_q, call.seqlen_k);
  if (!is_append(call)) {
    builder.mask_type(word_of(kMasks, call.mask)).bias_type(word_of(kBiases, call.bias));
  }
  if (call.dropout) builder.dropout(true, kDropped);
  if (call.window) builder.window(call.window->at(0), call.window->at(1));
  if (call.logits) builder.logits_soft_cap(true, kSoftCap);
  if (call.sink) builder.sink(true).sink_size(kSinkTokens);
  // Equal sequences are left out all together or not at all.
  if (call.skip > 0 && call.groups) builder.skip_min_seqlen_q(true, call.skip);
  if (call.splits > 0) builder.num_splits(call.splits);
  if (call.rope != 0) builder.rope_type(word_of(kRopes, call.rope));
  if (call.qscale != 0) builder.qscale_type(word_of(kScales, call.qscale));
  if (call.pages) {
    builder.paged_kv(true).kv_cache(call.cache_layout == 0 ? "vectorized" : "linear",
                                    call.cache_lookup == 0 ? "sglang_1d" : "vllm_2d",
                                    page_of(call));
  }
  if (is_backward(call)) builder.bwd_flags(call.dbias, call.store_random, call.deterministic);
  return builder.build();
}

// {batch, head, token, element} in memory. Sequences of groups lie one behind the other: heads are
// then outside of all tokens, and there is no distance of sequences.
void set_strides(FmhaProblem& p, const FmhaCall& call) {
  using P = FmhaProblem;
  static const std::map<std::string_view, tessera::FmhaStrides P::*> kStrides = {
      {"q", &P::q_strides},       {"k", &P::k_strides},         {"v", &P::v_strides},
      {"out", &P::out_strides},   {"k_new", &P::k_new_strides}, {"v_new", &P::v_new_strides},
      {"dout", &P::dout_strides}, {"dq", &P::dq_strides},       {"dk", &P::dk_strides},
      {"dv", &P::dv_strides}};
  for (const Tensor& t : tessera::tensors_of(p)) {
    const auto place = kStrides.find(t.name);
    if (place == kStrides.end() || is_cache(t, call)) continue;
    if (t.name == "v" && !call.v_rowmajor) continue;
    const std::int64_t size = t.sizes[0], tokens = t.sizes[1], heads = t.sizes[2];
    p.*place->second = {call.groups ? 0 : heads * tokens * size, tokens * size, size, 1};
  }
}

FmhaProblem problem_of(const FmhaCall& call) {
  FmhaProblem made = built(call);
  if (!is_append(call)) made.scale = call.scale;
  // Queries are turned by the positions of the new keys, which there must be for each of them.
  made.rotate_q = is_append(call) && call.rope != 0 && call.seqlen_q == call.seqlen_k;
  if (call.perm) set_strides(made, call);
  tessera::validate(made);
  return made;
}

// K or V as pages that follow each other: {page, token, head, element}, or vectorized in runs of 16
// bytes, of K {page, head, element / x, token, x}, of V {page, head, token / x, element, x}. The
// last page of a sequence ends in zeros. The caller has {batch, head, token}, in groups {head,
// token of all sequences}, and with perm 0 {batch, token, head}, each a row of elements.
void fill_pages(const Tensor& t, const FmhaCall& call, std::vector<char>& pages) {
  const auto* from = static_cast<const char*>(call.tensors.at(t.name));
  const std::int64_t bytes = size_of(t.dtype), x = 16 / bytes, page = page_of(call);
  const std::int64_t size = t.name == "k" ? call.hdim : call.hdim_v, heads = call.heads_kv;
  const std::int64_t per_sequence = (call.seqlen_k + page - 1) / page;
  const bool in_runs = call.cache_layout == 0;
  const std::int64_t run = !in_runs ? size : t.name == "k" ? x : 1;
  const auto target = [&](std::int64_t at, std::int64_t token, std::int64_t h, std::int64_t e) {
    if (!in_runs) return ((at * page + token) * heads + h) * size + e;
    const std::int64_t block = (at * heads + h) * page * size;
    return block + (t.name == "k" ? (e / x * page + token) * x + e % x
                                  : (token / x * size + e) * x + token % x);
  };
  for (std::int64_t row = 0; row < call.batch * heads * call.seqlen_k; ++row) {
    const std::int64_t inner = row / call.seqlen_k;
    std::int64_t b = inner / heads, h = inner % heads, token = row % call.seqlen_k;
    if (!call.perm) {
      b = row / heads / call.seqlen_k, h = row % heads, token = row / heads % call.seqlen_k;
    } else if (call.groups) {
      b = inner % call.batch, h = inner / call.batch;
    }
    for (std::int64_t e = 0; e < size; e += run) {
      const std::int64_t to = target(b * per_sequence + token / page, token % page, h, e);
      std::memcpy(pages.data() + to * bytes, from + (row * size + e) * bytes,
                  static_cast<std::size_t>(run * bytes));
    }
  }
}

// What a launch reads or writes besides the caller's tensors: equal lengths, pages that follow each
// other, angles of position / 10000^(i / half), as rotary embeddings have them, and else zeros.
std::vector<char> own_tensor(const Tensor& t, const FmhaCall& call, const FmhaProblem& p) {
  std::vector<char> bytes(t.bytes());
  if (call.tensors.count(t.name) != 0) fill_pages(t, call, bytes);
  const auto fill = [&]<class Number>(Number, const auto& value_of) {
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      const auto value = static_cast<Number>(value_of(i));
      std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    }
  };
  const auto multiples = [&](std::int64_t step) {
    fill(std::int32_t{}, [step](std::int64_t i) { return i * step; });
  };
  if (t.name == "seqlens_q") multiples(call.seqlen_q);
  if (t.name == "page_table") multiples(1);
  if (t.name == "page_starts") multiples(tessera::pages_needed(p));
  if (t.name == "seqlens_k" && call.pages && !is_append(call)) {
    fill(std::int32_t{}, [&call](std::int64_t) { return call.seqlen_k; });
  } else if (t.name == "seqlens_k" && !is_append(call)) {
    multiples(call.seqlen_k);
  }
  if (t.name == "cos" || t.name == "sin") {
    const std::int64_t half = t.sizes[0];
    fill(float{}, [&](std::int64_t i) {
      const double place = static_cast<double>(i % half) / static_cast<double>(half);
      const double angle = static_cast<double>(i / half) * std::pow(10000.0, -place);
      return t.name == "cos" ? std::cos(angle) : std::sin(angle);
    });
  }
  return bytes;
}

}  // namespace

bool lacks_tensor(const FmhaCall& call) {
  return std::any_of(call.tensors.begin(), call.tensors.end(),
                     [](const auto& tensor) { return tensor.second == nullptr; });
}

double run_attention(const Live& live, const FmhaCall& call) {
  const FmhaProblem p = problem_of(call);
  Staging staging(live);
  std::vector<std::vector<char>> own;
  tessera::FmhaOperands seeded;
  seeded.seed = 1;
  tessera::Operands operands = seeded;
  for (const Tensor& t : tessera::tensors_of(p)) {
    if (t.may_be_null || t.name == "scale_o") continue;
    const auto given = call.tensors.find(t.name);
    const bool is_callers = given != call.tensors.end() && !is_cache(t, call);
    const void* host = is_callers ? given->second : own.emplace_back(own_tensor(t, call, p)).data();
    tessera::set_pointer(operands, t,
                         t.is_written() ? staging.write(const_cast<void*>(host), t.bytes())
                                        : const_cast<void*>(staging.read(host, t.bytes())));
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
