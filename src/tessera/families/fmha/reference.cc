// The slow obvious answer: each query in fp64, and how far a correct kernel may be from it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/fmha_scales.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/scores.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/families/tile/sum_error.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using device::i64;
using tile::Bounded;

constexpr double kScoreCost = 24;       // of one score besides its products, in multiplications
constexpr double kProductCost = 2;      // of one product
constexpr i64 kLeastKeysTogether = 16;  // whose scores a kernel merges into a row's sums

// ---- one row of scores ----

// The weights of the keys that a query sees, exp(score - most). `errors` are absolute.
struct Weights {
  std::vector<std::int64_t> keys;
  std::vector<double> values, errors;
  std::vector<bool> dropped;  // empty without dropout
  double most = -kInfinity;
  double sum = 0, sum_error = 0;
};

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

// `scores` belong to weights.keys. No score is NaN or above weights.most, which is finite.
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

// ---- weights of 8 bits ----

// Kernels that multiply in 8 bits round weights to e4m3. The largest weight of a row is at least 2
// there (device/cuda/fmha/flash8_rows.h), numbers below 2^-6 have steps of 2^-9, and the others are
// rounded by at most 2^-4 of themselves.
constexpr double kByteRounding = 0x1p-4, kByteNormal = 0x1p-7, kByteStep = 0x1p-11;
// Roundings of different weights have nothing to do with each other: by Hoeffding's inequality
// their sum is above so many times the root of the sum of their squared bounds once in 4e13.
constexpr double kByteDeviations = 8;
// Tensor cores add 1024 products of 8 bits before the sum goes to fp32. Each one loses what is
// below 2^-13 of the sum, half of that on average, while the sum grows: 2^-5 of it. The factor 2
// stands for sums of which only a part is cut as evenly as that.
constexpr double kByteCut = 2 * 0x1p-5;

bool may_round_weights(const FmhaProblem& p) {
  return is_eight_bits(p.in) && p.kind == FmhaKind::forward && p.soft_cap == 0 &&
         p.bias == FmhaBias::none && p.p_drop == 0 && p.pages == FmhaPages::none;
}

// A column's sum of weights times values, as far as its error in 8 bits goes. Neighbouring keys
// with equal weights are rounded alike, so that their errors add up.
struct RoundedColumn {
  double alike = 0;                // magnitudes of the keys that have the last weight, added up
  double squares = 0;              // of such sums of the keys before
  double magnitude = 0;            // of all of them
  double vanishing = 0;            // what small weights lose
  double sum = 0;                  // so far, and
  double lowest = 0, highest = 0;  // what it was at least and at most

  void add(double weight, double value, bool is_like_before) {
    const double size = std::abs(value);
    if (!is_like_before) {
      squares += alike * alike;
      alike = 0;
    }
    if (weight < kByteNormal) {
      vanishing += std::min(weight, kByteStep) * size;
    } else {
      alike += weight * size;
      magnitude += weight * size;
    }
    sum += weight * value;
    lowest = std::min(lowest, sum), highest = std::max(highest, sum);
  }
  double error() const {
    const double usual = kByteDeviations * std::sqrt(squares + alike * alike);
    return kByteRounding * std::min(magnitude, usual) + vanishing + kByteCut * (highest - lowest);
  }
};

// ---- the result ----

// What the columns of v add up to, times the keys' weights.
struct Columns {
  std::vector<tile::Products> products;
  std::vector<double> errors;
  std::vector<RoundedColumn> rounded;  // of weights that may be rounded to 8 bits
  explicit Columns(std::size_t count) : products(count), errors(count) {}
};

// What a value is multiplied by, the largest factor that the query meets, and the stored elements.
struct Factor {
  double own, largest;
  double away;  // how far an element may be off, because new ones may be rounded otherwise
  const std::vector<double>& stored;
};

class Attention {
 public:
  // appended: what `o` points to where new tokens were appended before; null where they were not
  Attention(const FmhaProblem& p, const FmhaOperands& o, double reads,
            const AppendedCopies* appended, Fp8Encoding fp8)
      : p_(p), scores_(p, o, reads, appended, fp8), scale_o_(o.scale_o), fp8_(fp8) {}

  // The row is one query of one head; behind out come its lse and its random values, where these
  // are stored.
  void compute_row(i64 row, Bounded* const* outputs) const {
    const Query query = scores_.query_of(row);
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
  // An output of 8 bits.
  Bounded stored(Bounded x) const {
    if (!is_eight_bits(p_.out) || x.error == kInfinity || std::isnan(x.value)) return x;
    if (p_.qscale != FmhaQscale::none) {
      const double by = *scale_o_;
      if (std::isfinite(x.value) && std::abs(x.value) + x.error > max_finite(DType::fp32) / 2) {
        return kUnbounded;
      }
      x = {x.value * by, x.error * std::abs(by)};
      if (std::isfinite(x.value)) x.error += 2 * kUnit * std::abs(x.value) + kFlushed;
    }
    const double most = max_finite_of(p_.out, fp8_);
    return {std::clamp(x.value, -most, most), x.error};
  }

  std::vector<Bounded> scores_of(const Query& query, Weights& weights) const {
    std::vector<double> q(static_cast<std::size_t>(p_.hdim)), k(q.size());
    scores_.read_query(query, q.data());
    weights.keys = scores_.keys_of(query);
    std::vector<Bounded> scores;
    for (const i64 key : weights.keys) {
      scores_.read_key(query, key, k.data());
      scores.push_back(scores_.score_of(query, key, q.data(), k.data()).value);
      const double value = scores.back().value;
      if (!(value <= weights.most)) weights.most = std::isnan(weights.most) ? weights.most : value;
    }
    return scores;
  }

  // Which keys are dropped. Their random bytes are stored as signed ones.
  void draw(const Query& query, Weights& weights, Bounded* random) const {
    for (const i64 j : weights.keys) {
      const device::u32 byte = scores_.random_byte(query, j);
      weights.dropped.push_back(scores_.is_dropped(byte));
      if (random != nullptr) random[j] = {double(static_cast<std::int8_t>(byte)), 0};
    }
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
  // multiply it with v: to fp16 where v has 8 bits, which fp16 holds exactly, or to 8 bits
  // (RoundedColumn).
  DType weight_type() const { return is_eight_bits(kv_type(p_)) ? DType::fp16 : p_.in; }
  double rounding() const { return p_.in == DType::fp32 ? 0 : epsilon(weight_type()) / 2; }
  double vanishing() const {
    if (p_.in == DType::fp32) return kFlushed;
    if (weight_type() == DType::bf16) return std::ldexp(kFlushed, device::kFlashShift);
    return epsilon(weight_type()) * min_normal(weight_type()) + kFlushed;
  }

  // Whether a weight of a few times 0 meets an infinity depends on the kernel. It may multiply the
  // weights by the values' factor, in units of the largest one, so that small products vanish.
  void add_key(const Weights& weights, std::size_t at, const Factor& by,
               const std::vector<double>& v, Columns& columns) const {
    const double factor = by.own;
    const double weight = weights.values[at], error = weights.errors[at];
    const bool is_scaled = p_.qscale != FmhaQscale::none;
    const double least = columns.rounded.empty() ? vanishing() : kByteStep;
    const bool is_like_before = at > 0 && weight == weights.values[at - 1];
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
        if (by.away > 0) columns.errors[c] += weight * (by.away + kFactorError * size);
        columns.errors[c] += lost * size + vanishing() * by.largest * std::abs(by.stored[c]);
        if (!columns.rounded.empty()) columns.rounded[c].add(weight, v[c], is_like_before);
      } else if (weight <= 4 * least + error) {
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

  // The largest one that the query meets, where factors differ; else no kernel has units.
  double largest_factor(const Query& query, const Weights& weights) const {
    double largest = 0;
    if (!device::scales_keys(static_cast<device::FmhaQscale>(p_.qscale))) return 0;
    for (const std::int64_t key : weights.keys) {
      largest = std::max(largest, std::abs(scores_.value_factor(query, key)));
    }
    return largest;
  }

  void set_out(const Query& query, const Weights& weights, Bounded* out) const {
    std::vector<double> v(static_cast<std::size_t>(p_.hdim_v)), stored_v(v.size());
    Columns columns(v.size());
    const double largest = largest_factor(query, weights);
    if (may_round_weights(p_)) columns.rounded.resize(v.size());
    for (std::size_t i = 0; i < weights.keys.size(); ++i) {
      scores_.read_value(query, weights.keys[i], v.data());
      const bool is_dropped = !weights.dropped.empty() && weights.dropped[i];
      const double factor = scores_.value_factor(query, weights.keys[i]);
      stored_v = v;
      for (double& x : v) x *= factor;
      is_dropped
          ? add_dropped(v, columns)
          : add_key(weights, i,
                    {factor, largest,
                     scores_.value_error(query, weights.keys[i]) * std::abs(factor), stored_v},
                    v, columns);
    }
    for (std::size_t c = 0; c < v.size(); ++c) {
      const double rounded = columns.rounded.empty() ? 0 : columns.rounded[c].error();
      out[c] = stored(quotient(weights, columns.products[c], columns.errors[c] + rounded));
    }
  }

  Bounded quotient(const Weights& weights, const tile::Products& products, double error) const {
    if (error == kInfinity) return kUnbounded;
    if (weights.sum == 0) return {0, 0};
    const tile::SumTypes types = {weight_type(), weight_type(), DType::fp32, DType::fp32};
    const Bounded sum = tile::sum_of(types, products);
    const double value = sum.value * scores_.scale_of_kept() / weights.sum;
    if (!std::isfinite(value)) return {value, 0};
    const double share = weights.sum_error / weights.sum;
    if (!(share < 0.5)) return kUnbounded;
    const double lost =
        (sum.error + error) * scores_.scale_of_kept() / weights.sum + std::abs(value) * share;
    return {value, lost / (1 - share) + 8 * kUnit * std::abs(value) + kFlushed};
  }

  void fill(const Bounded& value, const Bounded& of_lse, Bounded* out, Bounded* lse) const {
    std::fill_n(out, p_.hdim_v, value);
    if (lse != nullptr) *lse = of_lse;
  }

  const FmhaProblem& p_;
  const Scores scores_;
  const float* scale_o_;
  Fp8Encoding fp8_;
};

double cost_of_row(const FmhaProblem& p) {
  const auto hdims = static_cast<double>(p.hdim + p.hdim_v);
  return std::max(1.0, static_cast<double>(p.seqlen_k) * (kProductCost * hdims + kScoreCost) /
                           static_cast<double>(p.hdim_v));
}

tile::ComputeRow attention_rows(const FmhaProblem& p, const FmhaOperands& operands,
                                const ReferenceLimits& limits, const AppendedCopies* appended) {
  const double reads =
      std::min(limits.multiplications, scores(p) * static_cast<double>(p.hdim + p.hdim_v));
  return [attention = std::make_shared<const Attention>(p, operands, reads, appended, limits.fp8)](
             i64 row, Bounded* const* outputs) { attention->compute_row(row, outputs); };
}

// ---- appending and attending: attention over copies of the cache as it is then ----

// All outputs of attention have the same rows. Each is computed by itself, so that outputs with
// rows of their own can stand beside it.
class ExtendRows {
 public:
  ExtendRows(const FmhaProblem& p, const FmhaOperands& o, const ReferenceLimits& limits)
      : p_(with_strides(attention_part(p))), o_(o), copies_(appended_copies(p, o, limits.fp8)) {
    o_.k = copies_.k.data(), o_.v = copies_.v.data();
    if (p.qscale == FmhaQscale::per_token) {
      o_.descale_k = reinterpret_cast<const float*>(copies_.k_factors.data());
      o_.descale_v = reinterpret_cast<const float*>(copies_.v_factors.data());
    }
    if (p.rotate_q) o_.q = copies_.q.data();
    compute_ = attention_rows(p_, o_, limits, &copies_);
    for (const Tensor& tensor : tensors(p_)) {
      if (tensor.is_written() && !tensor.is_report) columns_.push_back(tensor.sizes[0]);
    }
  }

  std::size_t outputs() const { return columns_.size(); }

  void compute(std::size_t output, std::int64_t row, Bounded* to) const {
    std::vector<std::vector<Bounded>> others;
    std::vector<Bounded*> places;
    for (const std::int64_t columns : columns_) {
      others.emplace_back(static_cast<std::size_t>(columns));
      places.push_back(others.back().data());
    }
    places[output] = to;
    compute_(row, places.data());
  }

 private:
  FmhaProblem p_;
  FmhaOperands o_;
  AppendedCopies copies_;
  tile::ComputeRow compute_;
  std::vector<std::int64_t> columns_;
};

Reference extend_reference(const FmhaProblem& p, const FmhaOperands& operands,
                           const ReferenceLimits& limits) {
  const ExtendRows attention(p, operands, limits);
  // Which rows each output of the appending has, in the order of the tensors.
  std::vector<std::size_t> roles;
  if (p.rotate_q) roles.push_back(2);
  roles.insert(roles.end(), {0, 1});
  if (p.qscale == FmhaQscale::per_token) roles.insert(roles.end(), {3, 4});
  const std::size_t appended = roles.size();
  ReferenceLimits of_one = limits;
  of_one.multiplications /= double(appended + attention.outputs());
  of_one.elements /= static_cast<std::int64_t>(appended + attention.outputs());
  WrittenRows append = written_rows(p, operands, of_one);
  std::vector<std::vector<std::int64_t>> rows;
  for (const std::size_t role : roles) rows.push_back(append.rows[role]);
  for (const Tensor& tensor : tensors(p)) {
    if (tensor.name != "out") continue;
    rows.resize(rows.size() + attention.outputs(),
                tile::spread_rows(tensor, of_one, cost_of_row(p)));
  }
  return tile::reference_of_rows(family(), p, std::move(rows), limits,
                                 [&](std::size_t output, std::int64_t row, Bounded* to) {
                                   if (output >= appended)
                                     return attention.compute(output - appended, row, to);
                                   append.compute(roles[output], row, to);
                                 });
}

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

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (goes_back(p)) return backward_reference(problem, std::get<FmhaOperands>(operands), limits);
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
