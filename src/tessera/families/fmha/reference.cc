// The slow obvious answer: each query in fp64, and how far a correct kernel may be from it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/device/fmha_scales.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/families/tile/sums.h"
#include "tessera/families/tile/values.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using device::i64;
using device::kToken;
using device::kTokenBatch;
using device::kTokenElement;
using device::kTokenHead;
using tile::Bounded;

constexpr double kUnit = 0x1p-24;       // half an ulp of fp32
constexpr double kFlushed = 0x1p-125;   // below it some machines read and write zero
constexpr double kScoreCost = 24;       // of one score besides its products, in multiplications
constexpr double kProductCost = 2;      // of one product
constexpr i64 kLeastKeysTogether = 16;  // whose scores a kernel merges into a row's sums
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr Bounded kUnbounded = {0, kInfinity};  // any bits are right

// ---- which query ----

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

// A query of a head: where it lies in its sequence, and where in its tensor.
struct Query {
  i64 batch = 0, head = 0, index = 0, token = 0;
  bool is_written = false;
};

// ---- one row of scores ----

// The weights of the keys that a query sees, exp(score - most). `errors` are absolute.
struct Weights {
  std::vector<i64> keys;
  std::vector<double> values, errors;
  std::vector<bool> dropped;  // empty without dropout
  double most = -kInfinity;
  double sum = 0, sum_error = 0;
};

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

// A kernel may multiply scores and maxima by scale and log2(e) before it subtracts them, and merge
// one block of keys after the other, or parts of all keys at the end. The weight of a key then
// carries the roundings of its own score and of a maximum between it and the largest one, of
// exponentials whose arguments add up to their distance, and of a factor for each merge.
double share_of(const Weights& weights, const Bounded& score, double count) {
  const double merges = count / kLeastKeysTogether + 8;
  const double distance = weights.most - score.value;
  const double size = std::abs(score.value) + std::abs(weights.most) + std::log(count + 1);
  return score.error + kUnit * (4 * distance + 4 * size + 6 * merges + 16);
}

// `scores` are those of weights.keys. No score is NaN or above weights.most, which is finite.
void set_weights(const std::vector<Bounded>& scores, Weights& weights) {
  const auto count = static_cast<double>(scores.size());
  for (const Bounded& score : scores) {
    const double weight = std::exp(score.value - weights.most);
    double error = 0;  // of a score of minus infinity, which is exact
    if (score.value > -kInfinity) {
      const double share = share_of(weights, score, count);
      error = std::exp(score.value - weights.most + share) - weight + kFlushed;
    }
    weights.values.push_back(weight);
    weights.errors.push_back(error);
    weights.sum += weight;
    weights.sum_error += error;
  }
  weights.sum_error += weights.sum * kUnit * (count + 8);
}

// ---- the result ----

// What the columns of v add up to, times the keys' weights.
struct Columns {
  std::vector<tile::Products> products;
  std::vector<double> errors;
  explicit Columns(std::size_t count) : products(count), errors(count) {}
};

class Attention {
 public:
  // appended: what `o` points to where new tokens were appended before; null where they were not
  Attention(const FmhaProblem& p, const FmhaOperands& o, double reads,
            const AppendedCopies* appended)
      : p_(p),
        g_(arguments_of(p, o)),
        q_(p.in, o.q, reads),
        k_(p.in, o.k, reads),
        v_(p.in, o.v, reads),
        bias_(p.dtype_bias, o.bias, p.bias == FmhaBias::elementwise ? reads : 0),
        appended_(appended) {
    if (p.p_drop != 0) scale_of_kept_ = 256.0 / g_.kept;
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

  // The row is one query of one head; behind out come its lse and its random values, where these
  // are stored.
  void compute_row(i64 row, Bounded* const* outputs) const {
    const Query query = query_of(row);
    Bounded* const lse = p_.lse ? outputs[1] : nullptr;
    Bounded* const random = p_.random ? outputs[p_.lse ? 2 : 1] : nullptr;
    if (random != nullptr) std::fill_n(random, p_.seqlen_k, kUnbounded);
    if (!query.is_written) return fill(kUnbounded, kUnbounded, outputs[0], lse);
    Weights weights;
    const std::vector<Bounded> scores = scores_of(query, weights);
    if (p_.p_drop != 0) draw(query, weights, random);
    const bool is_bounded = std::all_of(scores.begin(), scores.end(),
                                        [](const Bounded& x) { return x.error < kInfinity; });
    if (std::isnan(weights.most)) {
      const Bounded nan = {weights.most, 0};
      return fill(nan, nan, outputs[0], lse);
    }
    if (!is_bounded) return fill(kUnbounded, kUnbounded, outputs[0], lse);
    if (weights.most == kInfinity) {  // infinity minus itself; kernels that subtract it lose lse
      return fill({std::nan(""), 0}, kUnbounded, outputs[0], lse);
    }
    if (weights.most > -kInfinity) {
      set_weights(scores, weights);
    } else {  // scores of minus infinity see no key
      weights.values.resize(scores.size());
      weights.errors.resize(scores.size());
    }
    if (lse != nullptr) *lse = lse_of(weights);
    set_out(query, weights, outputs[0]);
  }

 private:
  Query query_of(i64 row) const {
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

  const device::FmhaSequence& sequence(const Query& query) const {
    return sequences_[static_cast<std::size_t>(query.batch)];
  }

  // The place of a token's head. Packed sequences lie one behind the other in one batch.
  i64 place(const i64* strides, i64 batch, i64 head, i64 token) const {
    const i64 first = p_.lengths == FmhaLengths::packed ? 0 : batch * strides[kTokenBatch];
    return first + head * strides[kTokenHead] + token * strides[kToken];
  }

  i64 key_place(const i64* strides, const Query& query, i64 key) const {
    return place(strides, query.batch, head_of(query), sequence(query).first_key + key);
  }
  i64 head_of(const Query& query) const { return query.head * p_.heads_kv / p_.heads; }

  void read_key(const Query& query, i64 key, double* to) const {
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

  void read_value(const Query& query, i64 key, double* to) const {
    const i64 step = g_.v_stride[kTokenElement];
    if (p_.pages == FmhaPages::none) {
      return v_.read(key_place(g_.v_stride, query, key), step, p_.hdim_v, to);
    }
    using enum device::FmhaCacheLayout;
    const device::FmhaSlot slot = device::slot_of(g_, key);
    const i64 page = device::page_of(g_, sequence(query), slot.entry), head = head_of(query);
    const i64 first = is_linear()
                          ? device::value_token<linear>(g_, page, head, slot.token, run_)
                          : device::value_token<vectorized>(g_, page, head, slot.token, run_);
    v_.read(first, step, p_.hdim_v, to);
  }
  bool is_linear() const { return p_.cache_layout == FmhaCacheLayout::linear; }

  std::vector<i64> keys_of(const Query& query) const {
    const device::FmhaSequence& s = sequence(query);
    const device::FmhaKeys seen = p_.mask == FmhaMask::none
                                      ? device::keys_of<false>(g_, s, query.index)
                                      : device::keys_of<true>(g_, s, query.index);
    std::vector<i64> keys;
    for (i64 key = 0; key < seen.sink; ++key) keys.push_back(key);
    for (i64 key = seen.begin; key < seen.end; ++key) keys.push_back(key);
    return keys;
  }

  // ---- factors ----

  // Numbers of 8 bits are multiplied as fp32.
  tile::SumTypes sum_types() const {
    const DType type = is_eight_bits(p_.in) ? DType::fp32 : p_.in;
    return {type, type, DType::fp32, DType::fp32};
  }

  double factor_of(const Query& query) const {
    if (p_.qscale == FmhaQscale::none) return 1;
    if (p_.qscale != FmhaQscale::per_block) return *g_.descale_q;
    return device::query_factor<device::FmhaQscale::per_block>(g_, query.batch, query.head,
                                                               query.index);
  }

  // Of k or of v.
  double factor_of(const float* factors, const Query& query, i64 key) const {
    if (p_.qscale == FmhaQscale::none) return 1;
    if (p_.qscale == FmhaQscale::per_tensor) return *factors;
    using enum device::FmhaQscale;
    const device::FmhaSequence& s = sequence(query);
    const i64 head = head_of(query);
    return factors[scales_pages(p_) ? device::key_factor_place<kv_block, device::FmhaPages::table>(
                                          g_, s, query.batch, head, key)
                                    : device::key_factor_place<per_block, device::FmhaPages::none>(
                                          g_, s, query.batch, head, key)];
  }

  // A kernel may multiply elements or their products by scale and factors, each of which is rounded
  // or flushed, and may be infinite.
  static Bounded scaled(Bounded x, const tile::Products& products, double of_query, double of_key) {
    const double by = of_query * of_key;
    if (x.error < kInfinity) x.error *= std::abs(by);
    x.value *= by;
    const double most = (1 + std::abs(of_query)) * (1 + std::abs(of_key));
    const double sizes = products.operands + products.magnitude;
    if (!std::isfinite(sizes)) return x;
    x.error += 4 * kUnit * products.magnitude * std::abs(by) + kFlushed * most * sizes;
    return {x.value, most * (1 + sizes) > max_finite(DType::fp32) / 2 ? kInfinity : x.error};
  }

  // An output of 8 bits.
  Bounded stored(Bounded x) const {
    if (!is_eight_bits(p_.out) || x.error == kInfinity || std::isnan(x.value)) return x;
    if (p_.qscale != FmhaQscale::none) {
      const double by = *g_.scale_o;
      if (std::isfinite(x.value) && std::abs(x.value) + x.error > max_finite(DType::fp32) / 2) {
        return kUnbounded;
      }
      x = {x.value * by, x.error * std::abs(by)};
      if (std::isfinite(x.value)) x.error += 2 * kUnit * std::abs(x.value) + kFlushed;
    }
    const double most = max_finite(p_.out);
    return {std::clamp(x.value, -most, most), x.error};
  }

  std::vector<Bounded> scores_of(const Query& query, Weights& weights) const {
    std::vector<double> q(static_cast<std::size_t>(p_.hdim)), k(q.size());
    q_.read(place(g_.q_stride, query.batch, query.head, query.token), g_.q_stride[kTokenElement],
            p_.hdim, q.data());
    weights.keys = keys_of(query);
    std::vector<Bounded> scores;
    for (const i64 key : weights.keys) {
      read_key(query, key, k.data());
      tile::Products products;
      tile::add_products(q.data(), k.data(), p_.hdim, products);
      const double turned = appended_ == nullptr ? 0 : turning_error(query, key, q, k);
      scores.push_back(score_of(query, key, products, turned));
      const double value = scores.back().value;
      if (!(value <= weights.most)) weights.most = std::isnan(weights.most) ? weights.most : value;
    }
    return scores;
  }

  // How far a product may be off, because a kernel may have rounded turned elements otherwise.
  double turning_error(const Query& query, i64 key, const std::vector<double>& q,
                       const std::vector<double>& k) const {
    const auto found =
        appended_->key_errors.find(place_in_cache(query, key) * p_.heads_kv + head_of(query));
    const double of_key = found == appended_->key_errors.end() ? 0 : found->second;
    const double of_query =
        appended_->query_errors.empty() ? 0 : appended_->query_errors[row_of(query)];
    if (of_key == 0 && of_query == 0) return 0;
    if (of_key == kInfinity || of_query == kInfinity) return kInfinity;
    const auto norm = [](const std::vector<double>& x) {
      return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
    };
    return norm(q) * of_key + (norm(k) + of_key) * of_query;
  }
  i64 place_in_cache(const Query& query, i64 key) const {
    if (p_.pages == FmhaPages::none) return query.batch * p_.seqlen_k + key;
    const device::FmhaSlot slot = device::slot_of(g_, key);
    return device::page_of(g_, sequence(query), slot.entry) * p_.page_size + slot.token;
  }
  std::size_t row_of(const Query& query) const {
    const bool is_packed = p_.lengths == FmhaLengths::packed;
    const i64 head = is_packed ? query.head : query.batch * p_.heads + query.head;
    return static_cast<std::size_t>(head * (is_packed ? p_.tokens_q : p_.seqlen_q) + query.token);
  }

  Bounded score_of(const Query& query, i64 key, const tile::Products& products,
                   double turned) const {
    const double scale = p_.scale;
    Bounded x = tile::sum_of(sum_types(), products);
    x.error += turned;
    if (p_.qscale != FmhaQscale::none) {
      x = scaled(x, products, scale * factor_of(query), factor_of(g_.descale_k, query, key));
    } else {
      if (x.error < kInfinity) x.error *= std::abs(scale);
      x.value *= scale;
    }
    x = rounded(x, x.value);
    if (p_.soft_cap != 0) x = capped(p_.soft_cap, x);
    if (p_.bias == FmhaBias::none) return x;
    const double bias = bias_of(query, key);
    return rounded({x.value + bias, x.error}, std::abs(x.value) + std::abs(bias));
  }

  // Which keys are dropped. Their random bytes are stored as signed ones.
  void draw(const Query& query, Weights& weights, Bounded* random) const {
    const device::DropoutKey key = device::dropout_key(g_);
    const device::DropoutRow row = device::dropout_row(g_, query.batch, query.head, query.index);
    for (const i64 j : weights.keys) {
      const auto words = device::dropout_words(key, row, j / device::kKeysOfCounter);
      const device::u32 byte = device::dropout_byte(words, j);
      weights.dropped.push_back(byte >= static_cast<device::u32>(g_.kept));
      if (random != nullptr) random[j] = {double(static_cast<std::int8_t>(byte)), 0};
    }
  }

  double bias_of(const Query& query, i64 key) const {
    if (p_.bias == FmhaBias::alibi) {
      const float slope = g_.slopes[query.batch * g_.slope_stride + query.head];
      return device::alibi_of(slope, sequence(query), query.index, key);
    }
    const i64* const strides = g_.bias_stride;
    return bias_.at(query.batch * strides[0] + query.head * strides[1] + query.index * strides[2] +
                    key * strides[3]);
  }

  static Bounded lse_of(const Weights& weights) {
    if (weights.sum == 0) return {-kInfinity, 0};
    const double share = weights.sum_error / weights.sum;
    if (!(share < 0.5)) return kUnbounded;
    const double logarithm = std::log(weights.sum);
    const double size = std::abs(weights.most) + std::abs(logarithm) + 1;
    return {weights.most + logarithm, 2 * share + 8 * kUnit * size};
  }

  // P is rounded to a type of two bytes before tensor cores, or a CPU's instruction for bf16,
  // multiply it with v.
  double rounding() const { return size_of(p_.in) == 2 ? epsilon(p_.in) / 2 : 0; }
  double vanishing() const {
    return size_of(p_.in) == 2 ? epsilon(p_.in) * min_normal(p_.in) + kFlushed : kFlushed;
  }

  // Whether a weight of a few times 0 meets an infinity depends on the kernel. It may multiply the
  // weights by the values' factor.
  void add_key(const Weights& weights, std::size_t at, double factor, const std::vector<double>& v,
               Columns& columns) const {
    const double weight = weights.values[at], error = weights.errors[at];
    const bool is_scaled = p_.qscale != FmhaQscale::none;
    double lost = error + rounding() * (weight + error) + vanishing();
    if (is_scaled) lost += 2 * kUnit * weight + kFlushed / std::max(std::abs(factor), kFlushed);
    for (std::size_t c = 0; c < v.size(); ++c) {
      tile::Products& all = columns.products[c];
      const double product = weight * v[c];
      const double size = std::abs(v[c]);
      ++all.count;
      all.sum += product;
      all.magnitude += std::abs(product);
      all.operands += weight + size;
      if (std::isfinite(v[c])) {
        columns.errors[c] += lost * size;
      } else if (weight <= 4 * vanishing() + error) {
        columns.errors[c] = kInfinity;
      }
    }
  }

  // The weight is exactly 0, but 0 times an infinity is NaN.
  static void add_dropped(const std::vector<double>& v, Columns& columns) {
    for (std::size_t c = 0; c < v.size(); ++c) {
      if (!std::isfinite(v[c])) columns.errors[c] = kInfinity;
    }
  }

  void set_out(const Query& query, const Weights& weights, Bounded* out) const {
    std::vector<double> v(static_cast<std::size_t>(p_.hdim_v));
    Columns columns(v.size());
    for (std::size_t i = 0; i < weights.keys.size(); ++i) {
      read_value(query, weights.keys[i], v.data());
      const bool is_dropped = !weights.dropped.empty() && weights.dropped[i];
      const double factor = factor_of(g_.descale_v, query, weights.keys[i]);
      for (double& x : v) x *= factor;
      is_dropped ? add_dropped(v, columns) : add_key(weights, i, factor, v, columns);
    }
    for (std::size_t c = 0; c < v.size(); ++c) {
      out[c] = stored(quotient(weights, columns.products[c], columns.errors[c]));
    }
  }

  Bounded quotient(const Weights& weights, const tile::Products& products, double error) const {
    if (error == kInfinity) return kUnbounded;
    if (weights.sum == 0) return {0, 0};
    const Bounded sum = tile::sum_of(sum_types(), products);
    const double value = sum.value * scale_of_kept_ / weights.sum;
    if (!std::isfinite(value)) return {value, 0};
    const double share = weights.sum_error / weights.sum;
    if (!(share < 0.5)) return kUnbounded;
    const double lost =
        (sum.error + error) * scale_of_kept_ / weights.sum + std::abs(value) * share;
    return {value, lost / (1 - share) + 8 * kUnit * std::abs(value) + kFlushed};
  }

  void fill(const Bounded& value, const Bounded& of_lse, Bounded* out, Bounded* lse) const {
    std::fill_n(out, p_.hdim_v, value);
    if (lse != nullptr) *lse = of_lse;
  }

  const FmhaProblem& p_;
  const i64 run_ = 16 / size_of(p_.in);  // elements of 16 bytes
  device::FmhaArguments g_;
  tile::Values q_, k_, v_, bias_;
  double scale_of_kept_ = 1;
  std::vector<device::FmhaSequence> sequences_;
  std::vector<std::int64_t> owners_;
  const AppendedCopies* appended_;
};

// ---- the check of pages ----

std::array<std::int32_t, 4> no_bad_page() {
  std::array<std::int32_t, 4> words{};
  device::report(device::no_bad_page(), words.data());
  return words;
}

std::size_t report_of(const Tensors& all) {
  std::size_t i = 0;
  while (!all[i].is_report) ++i;
  return i;
}

}  // namespace

void throw_bad_page(const FmhaProblem& p, const device::FmhaBadPage& bad, std::int64_t place) {
  const std::string entry = p.pages == FmhaPages::table
                                ? fmt::format("{}, {}", bad.sequence, bad.entry)
                                : fmt::format("{}", place);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("fmha: page_table[{}] must be from 0 to {}, got {}", entry,
                          p.num_pages - 1, bad.index));
}

std::vector<std::int64_t> owners_of(std::int64_t tokens, std::span<const TokenRun> runs) {
  std::vector<std::int64_t> owners(static_cast<std::size_t>(tokens), -1);
  for (std::size_t run = runs.size(); run-- > 0;) {
    std::fill_n(owners.begin() + runs[run].first, runs[run].count, static_cast<std::int64_t>(run));
  }
  return owners;
}

double cost_of_row(const FmhaProblem& p) {
  const auto hdims = static_cast<double>(p.hdim + p.hdim_v);
  return std::max(1.0, static_cast<double>(p.seqlen_k) * (kProductCost * hdims + kScoreCost) /
                           static_cast<double>(p.hdim_v));
}

tile::ComputeRow attention_rows(const FmhaProblem& p, const FmhaOperands& operands,
                                const ReferenceLimits& limits, const AppendedCopies* appended) {
  const double reads =
      std::min(limits.multiplications, scores(p) * static_cast<double>(p.hdim + p.hdim_v));
  return [attention = std::make_shared<const Attention>(p, operands, reads, appended)](
             i64 row, Bounded* const* outputs) { attention->compute_row(row, outputs); };
}

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (appends(p)) {
    Reference found = append_reference(problem, std::get<FmhaOperands>(operands), limits);
    if (p.check_pages) found.runs.push_back({report_of(tensors(problem)), 0, 0, 16});
    return found;
  }
  const auto& o = std::get<FmhaOperands>(operands);
  if (p.check_pages) refuse_bad_page(p, arguments_of(p, o));
  Reference found = extends(p) ? extend_reference(p, o, limits)
                               : tile::row_reference(family(), problem, limits, cost_of_row(p),
                                                     attention_rows(p, o, limits, nullptr));
  if (p.check_pages) found.runs.push_back({report_of(tensors(problem)), 0, 0, 16});
  return found;
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  Mismatch result = tile::compare_rows(family(), problem, operands, reference);
  if (!fmha_of(problem).check_pages) return result;
  const std::int32_t* const bad = std::get<FmhaOperands>(operands).bad_page;
  const std::array<std::int32_t, 4> right = no_bad_page();
  result.checked += std::ssize(right);
  if (std::equal(right.begin(), right.end(), bad)) return result;
  ++result.bad;
  if (!result.ok) return result;
  result.ok = false;
  result.message = fmt::format("fmha: bad_page is {}, but all pages are in range: it must be {}",
                               fmt::join(bad, bad + right.size(), " "), fmt::join(right, " "));
  return result;
}

// Appending reads nothing of the places that it writes, which may hold the result already.
Mismatch verify(const Problem& problem, const Operands& operands) {
  const FmhaProblem& p = fmha_of(problem);
  if (appends(p) || extends(p)) return verify_append(problem, std::get<FmhaOperands>(operands));
  tile::require_unchanged_inputs(family(), problem, operands);
  return compare(problem, operands, reference(problem, operands, {}));
}

}  // namespace tessera::fmha
