#include "tessera/families/fmha/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/device/fmha_scales.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using device::i64;
using device::kToken;
using device::kTokenBatch;
using device::kTokenElement;
using device::kTokenHead;
using tile::Bounded;

device::FmhaSequence sequence_at(const FmhaProblem& p, const device::FmhaArguments& g, i64 batch) {
  switch (p.pages) {
    case FmhaPages::table:
      return sequence_in<device::FmhaPages::table>(p.lengths, g, batch);
    case FmhaPages::list:
      return sequence_in<device::FmhaPages::list>(p.lengths, g, batch);
    default:
      return sequence_in<device::FmhaPages::none>(p.lengths, g, batch);
  }
}

// tanh has a slope of at most 1, and of less the further its argument is from 0. Some kernels make
// tanh of an exponential, whose rounding it then keeps, however small it is itself.
Bounded capped(double cap, Bounded x) {
  const double nearest = std::max(0.0, std::abs(x.value) - x.error) / cap;
  const double slope = 1 - std::tanh(nearest) * std::tanh(nearest);
  const double value = cap * std::tanh(x.value / cap);
  if (x.error == kInfinity || std::isnan(value)) return {value, x.error};
  return {value, std::min(x.error * slope, 2 * cap) + 8 * kUnit * cap};
}

// A few roundings of numbers of this size. Beyond fp32's range a kernel's score is infinite or not
// a number.
Bounded rounded(Bounded x, double size) {
  if (!std::isfinite(size)) return x;
  x.error += 4 * kUnit * std::abs(size) + kFlushed;
  const bool overflows = std::abs(x.value) + x.error > max_finite(DType::fp32) / 2;
  return {x.value, overflows ? kInfinity : x.error};
}

// A kernel may multiply elements or their products by scale and factors, each of which is rounded
// or flushed, and may be infinite.
Bounded scaled(Bounded x, const tile::Products& products, double of_query, double of_key) {
  const double by = of_query * of_key;
  if (x.error < kInfinity) x.error *= std::abs(by);
  x.value *= by;
  const double most = (1 + std::abs(of_query)) * (1 + std::abs(of_key));
  const double sizes = products.operands + products.magnitude;
  if (!std::isfinite(sizes)) return x;
  x.error += 4 * kUnit * products.magnitude * std::abs(by) + kFlushed * most * sizes;
  return {x.value, most * (1 + sizes) > max_finite(DType::fp32) / 2 ? kInfinity : x.error};
}

}  // namespace

Scores::Scores(const FmhaProblem& p, const FmhaOperands& o, double reads,
               const AppendedCopies* appended, Fp8Encoding fp8)
    : p_(p),
      g_(arguments_of(p, o)),
      q_(p.in, o.q, reads, fp8),
      k_(kv_type(p), o.k, reads, fp8),
      v_(kv_type(p), values_of(p, o), reads, fp8),
      bias_(p.dtype_bias, o.bias, p.bias == FmhaBias::elementwise ? reads : 0, fp8),
      appended_(appended) {
  if (p.p_drop != 0 && o.dropout_rng != nullptr) {  // in the type that the caller stored them in
    g_.dropout_rng = nullptr;
    g_.seed = o.dropout_rng[0], g_.offset = o.dropout_rng[1];
  }
  for (i64 b = 0; b < p.batch; ++b) sequences_.push_back(sequence_at(p, g_, b));
  if (p.lengths != FmhaLengths::packed) return;
  std::vector<TokenRun> runs;
  for (const device::FmhaSequence& s : sequences_) runs.push_back({s.first_query, s.queries});
  owners_ = owners_of(p.tokens_q, runs);
}

Query Scores::query_of(std::int64_t row) const {
  const bool is_packed = p_.lengths == FmhaLengths::packed;
  const i64 tokens = is_packed ? p_.tokens_q : p_.seqlen_q;
  Query query;
  query.index = query.token = row % tokens;
  query.head = row / tokens % p_.heads;
  query.batch =
      is_packed ? owners_[static_cast<std::size_t>(query.token)] : row / tokens / p_.heads;
  if (query.batch < 0) return query;
  const device::FmhaSequence& s = sequence(query);
  if (is_packed) query.index = query.token - s.first_query;
  query.is_written = query.index < s.queries;
  return query;
}

std::int64_t Scores::place(const i64* strides, std::int64_t batch, std::int64_t head,
                           std::int64_t token) const {
  const i64 first = p_.lengths == FmhaLengths::packed ? 0 : batch * strides[kTokenBatch];
  return first + head * strides[kTokenHead] + token * strides[kToken];
}

// ---- keys and values ----

device::FmhaKeys Scores::seen(const Query& query) const {
  const device::FmhaSequence& s = sequence(query);
  return p_.mask == FmhaMask::none ? device::keys_of<false>(g_, s, query.index)
                                   : device::keys_of<true>(g_, s, query.index);
}

std::vector<std::int64_t> Scores::keys_of(const Query& query) const {
  const device::FmhaKeys all = seen(query);
  std::vector<std::int64_t> keys;
  for (i64 key = 0; key < all.sink; ++key) keys.push_back(key);
  for (i64 key = all.begin; key < all.end; ++key) keys.push_back(key);
  return keys;
}

bool Scores::sees(const Query& query, std::int64_t key) const { return seen(query).has(key); }

void Scores::read_query(const Query& query, double* to) const {
  q_.read(place(g_.q_stride, query.batch, query.head, query.token), g_.q_stride[kTokenElement],
          p_.hdim, to);
}

void Scores::read_key(const Query& query, std::int64_t key, double* to) const {
  if (p_.pages == FmhaPages::none) {
    return k_.read(key_place(g_.k_stride, query, key), g_.k_stride[kTokenElement], p_.hdim, to);
  }
  const device::FmhaSlot slot = device::slot_of(g_, key);
  const i64 page = device::page_of(g_, sequence(query), slot.entry);
  const i64 first = device::key_token(g_, page, head_of(query), slot.token);
  if (is_linear()) return k_.read(first, g_.k_stride[kTokenElement], p_.hdim, to);
  for (i64 i = 0; i < p_.hdim; i += run_) {
    const i64 more = device::key_element<device::FmhaCacheLayout::vectorized>(g_, i, run_);
    k_.read(first + more, 1, run_, to + i);
  }
}

void Scores::read_value(const Query& query, std::int64_t key, double* to) const {
  const i64 step = g_.v_stride[kTokenElement];
  if (p_.pages == FmhaPages::none) {
    return v_.read(key_place(g_.v_stride, query, key), step, p_.hdim_v, to);
  }
  using enum device::FmhaCacheLayout;
  const device::FmhaSlot slot = device::slot_of(g_, key);
  const i64 page = device::page_of(g_, sequence(query), slot.entry), head = head_of(query);
  const i64 first = is_linear() ? device::value_token<linear>(g_, page, head, slot.token, run_)
                                : device::value_token<vectorized>(g_, page, head, slot.token, run_);
  v_.read(first, step, p_.hdim_v, to);
}

// ---- factors ----

tile::SumTypes Scores::sum_types() const { return {p_.in, kv_type(p_), DType::fp32, DType::fp32}; }

double Scores::factor_of(const Query& query) const {
  if (p_.qscale == FmhaQscale::none || !is_eight_bits(p_.in)) return 1;
  if (p_.qscale != FmhaQscale::per_block) return *g_.descale_q;
  return device::query_factor<device::FmhaQscale::per_block>(g_, query.batch, query.head,
                                                             query.index);
}

// The factor of a key, from the factors of k or of v.
double Scores::factor_of(const float* factors, const Query& query, std::int64_t key) const {
  if (p_.qscale == FmhaQscale::none) return 1;
  if (p_.qscale == FmhaQscale::per_tensor) return *factors;
  using enum device::FmhaQscale;
  const device::FmhaSequence& s = sequence(query);
  const i64 head = head_of(query);
  if (p_.qscale == FmhaQscale::per_head) return factors[head];
  if (scales_pages(p_)) {
    return factors[device::key_factor_place<kv_block, device::FmhaPages::table>(g_, s, query.batch,
                                                                                head, key)];
  }
  if (p_.qscale == FmhaQscale::per_token && is_paged(p_)) {
    return factors[device::key_factor_place<per_token, device::FmhaPages::table>(g_, s, query.batch,
                                                                                 head, key)];
  }
  return factors[device::key_factor_place<per_block, device::FmhaPages::none>(g_, s, query.batch,
                                                                              head, key)];
}

double Scores::value_factor(const Query& query, std::int64_t key) const {
  return factor_of(g_.descale_v, query, key);
}

double Scores::value_error(const Query& query, std::int64_t key) const {
  if (appended_ == nullptr) return 0;
  const auto found =
      appended_->value_errors.find(place_in_cache(query, key) * p_.heads_kv + head_of(query));
  return found == appended_->value_errors.end() ? 0 : found->second;
}

// ---- scores ----

Score Scores::score_of(const Query& query, std::int64_t key, const double* q,
                       const double* k) const {
  tile::Products products;
  tile::add_products(q, k, p_.hdim, products);
  const double scale = p_.scale;
  Bounded x = tile::sum_of(sum_types(), products);
  if (appended_ != nullptr) x.error += turning_error(query, key, q, k);
  if (p_.qscale != FmhaQscale::none) {
    x = scaled(x, products, scale * factor_of(query), factor_of(g_.descale_k, query, key));
  } else {
    if (x.error < kInfinity) x.error *= std::abs(scale);
    x.value *= scale;
  }
  x = rounded(x, x.value);
  if (p_.soft_cap != 0) x = capped(p_.soft_cap, x);
  if (p_.bias == FmhaBias::none) return {x, x};
  const double bias = bias_of(query, key);
  return {rounded({x.value + bias, x.error}, std::abs(x.value) + std::abs(bias)), x};
}

// How far a product may be off, because a kernel may have rounded turned elements otherwise.
double Scores::turning_error(const Query& query, std::int64_t key, const double* q,
                             const double* k) const {
  const auto found =
      appended_->key_errors.find(place_in_cache(query, key) * p_.heads_kv + head_of(query));
  const double of_key = found == appended_->key_errors.end() ? 0 : found->second;
  const double of_query =
      appended_->query_errors.empty() ? 0 : appended_->query_errors[row_of(query)];
  if (of_key == 0 && of_query == 0) return 0;
  if (of_key == kInfinity || of_query == kInfinity) return kInfinity;
  const auto norm = [&](const double* x) {
    return std::sqrt(std::inner_product(x, x + p_.hdim, x, 0.0));
  };
  return norm(q) * of_key + (norm(k) + of_key) * of_query;
}

std::int64_t Scores::place_in_cache(const Query& query, std::int64_t key) const {
  if (p_.pages == FmhaPages::none) return query.batch * p_.seqlen_k + key;
  const device::FmhaSlot slot = device::slot_of(g_, key);
  return device::page_of(g_, sequence(query), slot.entry) * p_.page_size + slot.token;
}

std::size_t Scores::row_of(const Query& query) const {
  const bool is_packed = p_.lengths == FmhaLengths::packed;
  const std::int64_t head = is_packed ? query.head : query.batch * p_.heads + query.head;
  return static_cast<std::size_t>(head * (is_packed ? p_.tokens_q : p_.seqlen_q) + query.token);
}

double Scores::bias_of(const Query& query, std::int64_t key) const {
  if (p_.bias == FmhaBias::alibi) {
    const float slope = g_.slopes[query.batch * g_.slope_stride + query.head];
    return device::alibi_of(slope, sequence(query), query.index, key);
  }
  const i64* const strides = g_.bias_stride;
  return bias_.at(query.batch * strides[0] + query.head * strides[1] + query.index * strides[2] +
                  key * strides[3]);
}

device::u32 Scores::random_byte(const Query& query, std::int64_t key) const {
  const device::DropoutRow row = device::dropout_row(g_, query.batch, query.head, query.index);
  const auto words =
      device::dropout_words(device::dropout_key(g_), row, key / device::kKeysOfCounter);
  return device::dropout_byte(words, key);
}

}  // namespace tessera::fmha
