// Which problems are valid.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/validate_internal.h"
#include "tessera/families/tile/strides.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::fmha {

// ---- sizes ----

void check_counts(std::initializer_list<Count> counts) {
  for (const auto& [name, value, least, most] : counts) {
    if (value < least) refuse("{} must be at least {}, got {}", name, least, value);
    if (value > most) refuse("{} must be at most {}, got {}", name, most, value);
  }
}

void check_left_out(const Strides& strides, std::string_view with) {
  for (std::size_t i = 0; i < strides.values.size(); ++i) {
    if (strides.values[i] == kPacked) continue;
    refuse("{}_stride_{} must be left out with {}, got {}", strides.name, strides.ends[i], with,
           strides.values[i]);
  }
}

void check_standard(std::initializer_list<Standard> fields, std::string_view with) {
  for (const auto& [name, value, standard] : fields) {
    if (value != standard) refuse("{} must be {} with {}, got {}", name, standard, with, value);
  }
}

void check_no_window(const FmhaProblem& p, std::string_view with) {
  constexpr FmhaProblem kDefault;
  check_standard({{"window_left", p.window_left, kDefault.window_left},
                  {"window_right", p.window_right, kDefault.window_right},
                  {"sink", p.sink, kDefault.sink}},
                 with);
}

void check_sizes(const FmhaProblem& p) {
  check_counts({{"batch", p.batch, 0, kMostCount},
                {"heads", p.heads, 1, kMostCount},
                {"heads_kv", p.heads_kv, 1, kMostCount},
                {"seqlen_q", p.seqlen_q, 0, kMostCount},
                {"seqlen_k", p.seqlen_k, 0, kMostCount},
                {"hdim", p.hdim, 1, kMostHdim},
                {"hdim_v", p.hdim_v, 1, kMostHdimV}});
  if (p.heads % p.heads_kv == 0) return;
  refuse("heads_kv must divide heads, got heads_kv={} and heads={}", p.heads_kv, p.heads);
}

void check_token_count(std::string_view of, std::int64_t given, std::int64_t longest,
                       const FmhaProblem& p) {
  if (given == kPacked || given == p.batch * longest) return;
  refuse("tokens_{0} must be left out or {1} (batch x seqlen_{0}) with lengths={2}, got {3}", of,
         p.batch * longest, to_string(p.lengths), given);
}

void check_key_count(const FmhaProblem& given, const FmhaProblem& p) {
  if (p.pages == FmhaPages::none) return check_token_count("k", given.tokens_k, p.seqlen_k, p);
  if (given.tokens_k == kPacked) return;
  refuse("tokens_k must be left out with pages={}, got {}", to_string(p.pages), given.tokens_k);
}

namespace {

void check_tokens(const FmhaProblem& given, const FmhaProblem& p) {
  if (p.pages != FmhaPages::none) check_key_count(given, p);
  if (p.lengths == FmhaLengths::packed) {
    return check_counts(
        {{"tokens_q", p.tokens_q, 0, kMostCount}, {"tokens_k", p.tokens_k, 0, kMostCount}});
  }
  check_token_count("q", given.tokens_q, p.seqlen_q, p);
  if (p.pages == FmhaPages::none) check_key_count(given, p);
}

void check_splits(const FmhaProblem& p) {
  check_counts({{"num_splits", p.num_splits, kSplitsOfEach, kMostSplits}});
}

void check_skipped(const FmhaProblem& p) {
  check_counts({{"skip_q", p.skip_q, 0, kMostCount}});
  if (p.skip_q == 0 || p.lengths != FmhaLengths::equal) return;
  refuse("skip_q must be 0 with lengths=equal, where all sequences are as long, got {}", p.skip_q);
}

// ---- masks, biases and scalars ----

void check_mask(const FmhaProblem& p) {
  if (p.mask == FmhaMask::none) check_no_window(p, "mask=none");
  check_counts({{"window_left", p.window_left, -1, kMostCount},
                {"window_right", p.window_right, -1, kMostCount},
                {"sink", p.sink, 0, kMostCount}});
}

void check_bias(const FmhaProblem& given) {
  if (given.bias != FmhaBias::elementwise) {
    check_left_out({"bias", given.bias_strides, kOfScores},
                   fmt::format("bias={}", to_string(given.bias)));
  }
  if (given.slope_stride < 0) refuse("slope_stride must be at least 0, got {}", given.slope_stride);
  if (given.bias == FmhaBias::alibi || given.slope_stride == 0) return;
  refuse("slope_stride must be 0 with bias={}, which has no slopes, got {}", to_string(given.bias),
         given.slope_stride);
}

void check_scalars(const FmhaProblem& p) {
  if (!std::isfinite(p.scale)) refuse("scale must be finite, got {}", p.scale);
  if (std::isfinite(p.soft_cap) && p.soft_cap >= 0) return;
  refuse("soft_cap must be finite and at least 0 (none), got {}", p.soft_cap);
}

void check_dropout(const FmhaProblem& p) {
  if (p.p_drop >= 0 && p.p_drop < 1) return;
  refuse("p_drop must be at least 0 (none) and below 1, got {}", p.p_drop);
}

// ---- factors ----

struct Block {
  std::string_view name;
  std::int64_t given, value;
  bool is_used;
};

void check_qscale(const FmhaProblem& given, const FmhaProblem& p) {
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  const bool of_keys = of_queries || p.qscale == FmhaQscale::kv_block;
  const std::string with = fmt::format("qscale={}", to_string(p.qscale));
  if (scales_pages(p) && given.qscale_block_k != kPacked) {
    refuse(
        "qscale_block_k must be left out with {} and pages={}, where each page of {} tokens has "
        "factors, got {}",
        with, to_string(p.pages), p.page_size, given.qscale_block_k);
  }
  for (const auto& [name, from, value, is_used] :
       {Block{"qscale_block_q", given.qscale_block_q, p.qscale_block_q, of_queries},
        Block{"qscale_block_k", given.qscale_block_k, p.qscale_block_k, of_keys}}) {
    if (is_used) {
      check_counts({{name, value, 1, kMostCount}});
    } else if (from != kPacked) {
      refuse("{} must be left out with {}, got {}", name, with, from);
    }
  }
}

// ---- pages ----

struct Unused {
  std::string_view name;
  std::int64_t value, standard = kPacked;
};

void check_unused(FmhaPages pages, std::initializer_list<Unused> fields) {
  for (const auto& [name, value, standard] : fields) {
    if (value == standard) continue;
    refuse("{} must be left out with pages={}, got {}", name, to_string(pages), value);
  }
}

void check_no_pages(const FmhaProblem& given) {
  check_unused(given.pages, {{"page_size", given.page_size, 0},
                             {"num_pages", given.num_pages},
                             {"max_pages", given.max_pages},
                             {"table_stride", given.table_stride},
                             {"page_entries", given.page_entries},
                             {"check_pages", given.check_pages ? 1 : 0, 0}});
}

// Runs of 16 bytes are cut from the elements of k and from the tokens of v.
void check_runs(const FmhaProblem& given, const FmhaProblem& p) {
  const DType type = kv_type(p);
  const std::int64_t run = 16 / size_of(type);
  for (const auto& [name, value] :
       {std::pair{"hdim", p.hdim}, std::pair{"page_size", p.page_size}}) {
    if (value % run == 0) continue;
    refuse("{} must be a multiple of {}, 16 bytes of {}, with cache_layout=vectorized, got {}",
           name, run, to_string(type), value);
  }
  check_left_out({"k", given.k_strides}, "cache_layout=vectorized");
  check_left_out({"v", given.v_strides}, "cache_layout=vectorized");
}

void check_table(const FmhaProblem& given, const FmhaProblem& p) {
  check_unused(given.pages, {{"page_entries", given.page_entries}});
  const std::int64_t needed = pages_needed(p);
  check_counts({{"max_pages", p.max_pages, 0, kMostCount}});
  if (p.max_pages < needed) {
    refuse("max_pages must be at least {}, the pages of {} tokens that seqlen_k={} needs, got {}",
           needed, p.page_size, p.seqlen_k, p.max_pages);
  }
  if (p.table_stride >= 0) return;
  refuse("table_stride must be at least 0, got {}", p.table_stride);
}

// Where lengths vary, a list of fewer entries has room for all. The lengths of appended tokens say
// nothing of how many keys a sequence may have.
void check_list(const FmhaProblem& given, const FmhaProblem& p) {
  check_unused(given.pages, {{"max_pages", given.max_pages}, {"table_stride", given.table_stride}});
  check_counts({{"page_entries", p.page_entries, 0, kMostCount}});
  const std::int64_t needed = pages_needed(p);
  const bool varies = p.lengths != FmhaLengths::equal || appends(p);
  if (varies || p.page_entries >= p.batch * needed) return;
  refuse(
      "page_entries must be at least {} with lengths=equal, {} pages of {} tokens for each of {} "
      "sequences, got {}",
      p.batch * needed, needed, p.page_size, p.batch, p.page_entries);
}

}  // namespace

void check_pages(const FmhaProblem& given, const FmhaProblem& p) {
  if (p.pages == FmhaPages::none) return check_no_pages(given);
  check_counts(
      {{"page_size", p.page_size, 1, kMostCount}, {"num_pages", p.num_pages, 0, kMostCount}});
  if (p.num_pages == 0 && p.batch > 0 && p.seqlen_k > 0) {
    refuse("num_pages must be at least 1 with seqlen_k={}, got 0", p.seqlen_k);
  }
  if (p.cache_layout == FmhaCacheLayout::vectorized) check_runs(given, p);
  p.pages == FmhaPages::table ? check_table(given, p) : check_list(given, p);
}

// ---- memory ----

void check_product(std::string_view what, std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (!__builtin_mul_overflow(product, std::max<std::int64_t>(factor, 1), &product)) continue;
    refuse("{} must be below 2^63, got {}", what, fmt::join(factors, " x "));
  }
}

void check_batch_stride(std::string_view name, std::int64_t stride) {
  if (stride == kPacked || stride == 0) return;
  refuse(
      "{}_stride_b must be left out or 0 with lengths=packed, where all sequences are one run of "
      "tokens, got {}",
      name, stride);
}

void check_tensors(const Problem& problem) {
  for (const Tensor& tensor : tensors(problem)) {
    const std::string wrong = tile::strides_reason(tensor);
    if (!wrong.empty()) refuse("{}", wrong);
  }
}

namespace {

// Neither the bytes of a tensor without gaps nor the operations may be 2^63 or more.
void check_products(const FmhaProblem& p) {
  const auto [batch, q, parts, k, part] = token_counts(p);
  const std::string_view of_parts = is_paged(p) ? "num_pages x page_size" : "batch x tokens";
  check_product("bytes of q, batch x tokens x heads x hdim x 4,", {batch, q, p.heads, p.hdim, 4});
  check_product(fmt::format("bytes of k, {} x heads_kv x hdim x 4,", of_parts),
                {parts, k, p.heads_kv, p.hdim, 4});
  check_product(fmt::format("bytes of v, {} x heads_kv x hdim_v x 4,", of_parts),
                {parts, k, p.heads_kv, p.hdim_v, 4});
  check_product("bytes of out, batch x tokens x heads x hdim_v x 4,",
                {batch, q, p.heads, p.hdim_v, 4});
  check_product("operations, 2 x batch x heads x seqlen_q x seqlen_k x (hdim + hdim_v),",
                {2, p.batch, p.heads, p.seqlen_q, p.seqlen_k, p.hdim + p.hdim_v});
  if (!p.random) return;
  check_product("bytes of random_values, batch x heads x tokens x seqlen_k,",
                {batch, p.heads, q, p.seqlen_k});
}

// What has values of its own: strides of them, caches that are appended to, gradients, and the
// vectorised layout, in which keys and values lie differently.
void check_values(const FmhaProblem& given, const FmhaProblem& p) {
  if (!p.v_in_k) return;
  if (p.hdim_v > p.hdim) {
    refuse("hdim_v must be at most hdim={} with v_in_k=1, got {}", p.hdim, p.hdim_v);
  }
  for (std::size_t i = 0; i < kOfTokens.size(); ++i) {
    if (given.v_strides[i] == kPacked || given.v_strides[i] == p.k_strides[i]) continue;
    refuse("v_stride_{} must be left out with v_in_k=1, got {}", kOfTokens[i], given.v_strides[i]);
  }
  if (p.kind != FmhaKind::forward) {
    refuse("v_in_k must be 0 with kind={}, got 1", to_string(p.kind));
  }
  if (p.cache_layout == FmhaCacheLayout::linear) return;
  refuse("v_in_k must be 0 with cache_layout={}, got 1", to_string(p.cache_layout));
}

void check_batch_strides(const FmhaProblem& given) {
  if (given.lengths != FmhaLengths::packed) return;
  const std::pair<std::string_view, std::int64_t> strides[] = {{"q", given.q_strides[0]},
                                                               {"k", given.k_strides[0]},
                                                               {"v", given.v_strides[0]},
                                                               {"out", given.out_strides[0]}};
  for (const auto& [name, stride] : strides) {
    const bool is_cache = given.pages != FmhaPages::none && (name == "k" || name == "v");
    if (!is_cache) check_batch_stride(name, stride);
  }
}

bool is_plain(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

// Keys and values of 8 bits beside other queries.
std::string kv_reason(const FmhaSignature& s) {
  if (!has_own_kv(s)) return {};
  if (!is_plain(s.in)) {
    return fmt::format("kv must be same with in={}, got {}", to_string(s.in), to_string(s.kv));
  }
  if (s.kind != FmhaKind::backward) return {};
  return fmt::format("kv must be same with kind={}, got {}", to_string(s.kind), to_string(s.kv));
}

// Numbers of 8 bits have factors, queries of 16 bits none. Factors that belong to several tokens
// are not known when the first one is appended.
std::string factors_reason(const FmhaSignature& s) {
  if (s.qscale == FmhaQscale::none) return {};
  if (!is_eight_bits(kv_type(s))) {
    return fmt::format("qscale must be none with in={}, only fp8 and bf8 have factors, got {}",
                       to_string(s.in), to_string(s.qscale));
  }
  const bool appends = s.kind == FmhaKind::append || s.kind == FmhaKind::extend;
  const bool is_refused = (has_own_kv(s) && s.qscale == FmhaQscale::per_block) ||
                          (appends && s.qscale == FmhaQscale::kv_block);
  if (!is_refused) return {};
  return fmt::format(
      "qscale must be none, per_tensor, {}per_head or per_token with kind={} and "
      "kv={}, got {}",
      appends ? "" : "kv_block, ", to_string(s.kind), to_string(s.kv), to_string(s.qscale));
}

// Numbers of 8 bits are read by attention itself alone, but for a cache (kv). An output or a bias
// has them where the inputs have.
std::string types_reason(const FmhaSignature& s) {
  constexpr std::string_view kPlain = "fp32, fp16 or bf16";
  constexpr std::string_view kAll = "fp32, fp16, bf16, fp8 or bf8";
  const bool may_be_eight = s.kind == FmhaKind::forward;
  if (!is_plain(s.in) && !(may_be_eight && is_eight_bits(s.in))) {
    return fmt::format("in must be {}, got {}", may_be_eight ? kAll : kPlain, to_string(s.in));
  }
  if (std::string why = kv_reason(s); !why.empty()) return why;
  const bool is_eight = is_eight_bits(s.in);
  if (!is_plain(s.out) && !(is_eight && is_eight_bits(s.out))) {
    return fmt::format("out must be {} with in={}, got {}", is_eight ? kAll : kPlain,
                       to_string(s.in), to_string(s.out));
  }
  if (!is_plain(s.dtype_bias) && s.dtype_bias != s.in) {
    return fmt::format("dtype_bias must be {}, got {}",
                       is_eight ? fmt::format("fp32, fp16, bf16 or {} like in", to_string(s.in))
                                : std::string(kPlain),
                       to_string(s.dtype_bias));
  }
  return factors_reason(s);
}

// ---- gradients ----

std::array<Strides, 4> gradients_of(const FmhaProblem& p) {
  return {
      {{"dout", p.dout_strides}, {"dq", p.dq_strides}, {"dk", p.dk_strides}, {"dv", p.dv_strides}}};
}

std::string backward_signature_reason(const FmhaSignature& s) {
  if (s.kind != FmhaKind::backward) {
    return s.dbias ? fmt::format("dbias must be 0 with kind={}, got 1", to_string(s.kind)) : "";
  }
  if (s.out != s.in) {
    return fmt::format("out must be {} like in with kind=backward, got {}", to_string(s.in),
                       to_string(s.out));
  }
  if (s.pages != FmhaPages::none) {
    return fmt::format("pages must be none with kind=backward, got {}", to_string(s.pages));
  }
  for (const auto& [name, value] : {std::pair{"lse", s.lse}, std::pair{"random", s.random}}) {
    if (value) return fmt::format("{} must be 0 with kind=backward, got 1", name);
  }
  if (!s.dbias || s.bias != FmhaBias::none) return {};
  return "dbias must be 0 with bias=none, got 1";
}

void refuse_backward_fields(const FmhaProblem& given) {
  for (const Strides& strides : gradients_of(given)) {
    check_left_out(strides, fmt::format("kind={}", to_string(given.kind)));
  }
  if (given.dlse) refuse("dlse must be 0 with kind={}, got 1", to_string(given.kind));
}

void check_backward(const FmhaProblem& given, const FmhaProblem& p) {
  if (given.num_splits != 0 && given.num_splits != 1) {
    refuse("num_splits must be 0 or 1 with kind=backward, got {}", given.num_splits);
  }
  check_product("operations, 2 x batch x heads x seqlen_q x seqlen_k x (3 hdim + 2 hdim_v),",
                {2, p.batch, p.heads, p.seqlen_q, p.seqlen_k, 3 * p.hdim + 2 * p.hdim_v});
  if (p.lengths == FmhaLengths::packed) {
    for (const Strides& strides : gradients_of(given)) {
      check_batch_stride(strides.name, strides.values[0]);
    }
  }
  if (!p.dbias) return;
  check_product("bytes of dbias, batch x heads x seqlen_q x seqlen_k x 4,",
                {p.batch, p.heads, p.seqlen_q, p.seqlen_k, 4});
}

}  // namespace

std::string signature_reason(const FmhaSignature& s) {
  if (std::string why = types_reason(s); !why.empty()) return why;
  if (s.random && !s.dropout) {
    return "random must be 0 without dropout (p_drop 0), which draws no random values, got 1";
  }
  if (s.pages == FmhaPages::none && s.cache_layout != FmhaCacheLayout::linear) {
    return fmt::format("cache_layout must be linear with pages=none, got {}",
                       to_string(s.cache_layout));
  }
  if (std::string why = append_signature_reason(s); !why.empty()) return why;
  if (std::string why = backward_signature_reason(s); !why.empty()) return why;
  if (s.bias == FmhaBias::elementwise || s.dtype_bias == s.in) return {};
  return fmt::format("dtype_bias must be {} like in with bias={}, got {}", to_string(s.in),
                     to_string(s.bias), to_string(s.dtype_bias));
}

void validate(const Problem& problem) {
  const FmhaProblem& given = fmha_of(problem);
  check_numbers("fmha", given);
  if (!goes_back(given)) refuse_backward_fields(given);
  if (appends(given)) return validate_append(given);
  if (!extends(given)) refuse_append_fields(given);
  const std::string reason = signature_reason(std::get<FmhaSignature>(signature_of(problem)));
  if (!reason.empty()) refuse("{}", reason);
  const FmhaProblem p = with_strides(given);
  check_sizes(p);
  check_tokens(given, p);
  check_skipped(p);
  check_splits(p);
  check_pages(given, p);
  check_qscale(given, p);
  check_mask(p);
  check_bias(given);
  check_scalars(p);
  check_dropout(p);
  check_products(p);
  check_batch_strides(given);
  check_values(given, p);
  if (extends(given)) check_extended(given, p);
  if (goes_back(given)) check_backward(given, p);
  check_tensors(problem);
}

}  // namespace tessera::fmha
