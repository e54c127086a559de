// The slow obvious gradients of attention: each row in fp64, and how far a correct kernel may be
// from it.
#include <algorithm>
#include <cmath>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/scores.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using device::i64;
using tile::Bounded;
using Doubles = std::vector<double>;

constexpr double kPairCost = 40;  // of a query and a key besides products, in multiplications

bool are_finite(const Doubles& all) {
  return std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
}

Bounded product_of(const Bounded& x, const Bounded& y) {
  const double value = x.value * y.value;
  const double error = x.error * (std::abs(y.value) + y.error) + std::abs(x.value) * y.error;
  return {value, error + 2 * kUnit * std::abs(value) + kFlushed};
}

bool is_unbounded(const Bounded& x) {
  return !(x.error < kInfinity) || std::abs(x.value) + x.error > max_finite(DType::fp32) / 4;
}

// A query with what all of its keys need.
struct GradientRow {
  Query query;
  Doubles q, dout;
  double lse = 0;
  Bounded delta;
};

// What a query and a key give to the sums: the weight that dout is multiplied with, and the
// gradients of the score and of the product before the soft cap.
struct GradientPair {
  Bounded weight, dscore, dproduct;
};
constexpr GradientPair kAnyPair = {kUnbounded, kUnbounded, kUnbounded};

// Sums of a factor times the elements of a row.
struct GradientSums {
  std::vector<tile::Products> products;
  Doubles errors;
  explicit GradientSums(i64 count)
      : products(static_cast<std::size_t>(count)), errors(products.size()) {}

  // `lost` is what a kernel's factor may be off.
  void add(double factor, double lost, const Doubles& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double product = factor * row[i];
      ++products[i].count;
      products[i].sum += product;
      products[i].magnitude += std::abs(product);
      products[i].operands += std::abs(factor) + std::abs(row[i]);
      errors[i] += lost * std::abs(row[i]) + (lost == kInfinity ? kInfinity : 0);
    }
  }
};

class Gradients {
 public:
  Gradients(const FmhaProblem& p, const FmhaOperands& o, double reads)
      : p_(p),
        g_(backward_arguments(p, o)),
        scores_(p, o, reads),
        dout_(p.in, o.dout, reads),
        out_(p.out, o.out, reads) {
    for (i64 b = 0; b < p.batch; ++b) {
      runs_.push_back({sequence(b).first_key, sequence(b).keys});
      for (i64 head = 0; head < p.heads_kv; ++head) spoiled_.push_back(is_spoiled(b, head));
    }
    if (p.lengths == FmhaLengths::packed) key_owners_ = owners_of(p.tokens_k, runs_);
  }

  // A query of a head.
  void compute_dq(i64 row, Bounded* to) const {
    const Query query = scores_.query_of(row);
    if (!query.is_written || is_spoiled(query)) {
      std::fill_n(to, p_.hdim, kUnbounded);
      return;
    }
    const GradientRow at = row_of(query);
    GradientSums sums(p_.hdim);
    Doubles k(at.q.size()), v(at.dout.size());
    for (const i64 key : scores_.keys_of(query)) {
      scores_.read_key(query, key, k.data());
      scores_.read_value(query, key, v.data());
      add(pair_of(at, key, k, v).dproduct, k, sums);
    }
    finish(sums, p_.scale, to);
  }

  // A key of a head: of dk, or of dv.
  void compute_key(bool is_k, i64 row, Bounded* to) const {
    const i64 hdim = is_k ? p_.hdim : p_.hdim_v;
    const bool is_packed = p_.lengths == FmhaLengths::packed;
    const i64 tokens = is_packed ? p_.tokens_k : p_.seqlen_k;
    const i64 token = row % tokens, head = row / tokens % p_.heads_kv;
    const i64 batch =
        is_packed ? key_owners_[static_cast<std::size_t>(token)] : row / tokens / p_.heads_kv;
    const i64 key = batch < 0 ? 0 : token - (is_packed ? sequence(batch).first_key : 0);
    const bool is_written = batch >= 0 && key < sequence(batch).keys;
    if (!is_written || spoiled_[static_cast<std::size_t>(batch * p_.heads_kv + head)]) {
      std::fill_n(to, hdim, kUnbounded);
      return;
    }
    GradientSums sums(hdim);
    add_queries(is_k, batch, head, key, sums);
    finish(sums, is_k ? p_.scale : 1, to);
  }

  // The keys of a query of dbias, each added up over what shares its bias.
  void compute_dbias(i64 row, Bounded* to) const {
    const device::FmhaBiasSizes sizes =
        device::sizes_of_dbias(g_.forward, static_cast<device::FmhaBias>(p_.bias));
    std::vector<tile::Products> sums(static_cast<std::size_t>(sizes.of[3]));
    Doubles errors(sums.size());
    const auto each = [](i64 at, i64 size, i64 all, const auto& visit) {
      for (i64 i = size == all ? at : 0; i < (size == all ? at + 1 : all); ++i) visit(i);
    };
    each(row / sizes.of[2] / sizes.of[1], sizes.of[0], p_.batch, [&](i64 batch) {
      each(row / sizes.of[2] % sizes.of[1], sizes.of[1], p_.heads, [&](i64 head) {
        each(row % sizes.of[2], sizes.of[2], p_.seqlen_q, [&](i64 query) {
          if (query < sequence(batch).queries)
            add_scores(query_at(batch, head, query), sums, errors);
        });
      });
    });
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const Bounded sum =
          tile::sum_of({DType::fp32, DType::fp32, DType::fp32, DType::fp32}, sums[i]);
      to[i] = {sum.value, sum.error + errors[i]};
    }
  }

 private:
  device::FmhaSequence sequence(i64 batch) const { return scores_.sequence({.batch = batch}); }
  Query query_at(i64 batch, i64 head, i64 index) const {
    const bool is_packed = p_.lengths == FmhaLengths::packed;
    return {batch, head, index, index + (is_packed ? sequence(batch).first_query : 0), true};
  }
  bool is_spoiled(const Query& query) const {
    return spoiled_[static_cast<std::size_t>(query.batch * p_.heads_kv + scores_.head_of(query))];
  }

  void read(const tile::Values& values, const device::i64 (&stride)[device::kTokenStrides],
            const Query& query, Doubles& to) const {
    values.read(scores_.place(stride, query.batch, query.head, query.token),
                stride[device::kTokenElement], std::ssize(to), to.data());
  }

  // Whether a NaN or an infinity is in what all queries and keys of a key-value head share. Kernels
  // multiply such numbers with zeros of pairs that do not see each other.
  bool is_spoiled(i64 batch, i64 head_kv) const {
    const i64 group = p_.heads / p_.heads_kv;
    Doubles q(static_cast<std::size_t>(p_.hdim)), v(static_cast<std::size_t>(p_.hdim_v));
    for (i64 key = 0; key < sequence(batch).keys; ++key) {
      const Query query = query_at(batch, head_kv * group, 0);
      scores_.read_key(query, key, q.data());
      scores_.read_value(query, key, v.data());
      if (!are_finite(q) || !are_finite(v)) return true;
    }
    for (i64 i = 0; i < sequence(batch).queries * group; ++i) {
      const Query query = query_at(batch, head_kv * group + i % group, i / group);
      scores_.read_query(query, q.data());
      read(dout_, g_.dout_stride, query, v);
      if (!are_finite(q) || !are_finite(v)) return true;
      read(out_, g_.forward.out_stride, query, v);
      if (!are_finite(v) || !std::isfinite(dlse_of(query))) return true;
    }
    return false;
  }

  double dlse_of(const Query& query) const {
    const i64 batch = p_.lengths == FmhaLengths::packed ? 0 : query.batch;
    return device::dlse_at(g_, device::offset_of_lse(g_.forward, batch, query.head, query.token));
  }

  GradientRow row_of(const Query& query) const {
    GradientRow row = {query,
                       Doubles(static_cast<std::size_t>(p_.hdim)),
                       Doubles(static_cast<std::size_t>(p_.hdim_v)),
                       0,
                       {}};
    scores_.read_query(query, row.q.data());
    read(dout_, g_.dout_stride, query, row.dout);
    Doubles out(row.dout.size());
    read(out_, g_.forward.out_stride, query, out);
    const i64 batch = p_.lengths == FmhaLengths::packed ? 0 : query.batch;
    row.lse = g_.forward.lse[device::offset_of_lse(g_.forward, batch, query.head, query.token)];
    row.delta = product_sum(row.dout, out);
    if (!p_.dlse) return row;
    const double dlse = dlse_of(query);
    row.delta.error += kUnit * (std::abs(row.delta.value) + row.delta.error + std::abs(dlse));
    row.delta.value -= dlse;
    return row;
  }

  Bounded product_sum(const Doubles& x, const Doubles& y) const {
    tile::Products products;
    tile::add_products(x.data(), y.data(), std::ssize(x), products);
    return tile::sum_of(scores_.sum_types(), products);
  }

  // exp(score - lse)
  static Bounded weight_of(const Bounded& score, double lse) {
    const double size = std::abs(score.value) + std::abs(lse);
    const double share = score.error + kUnit * (4 * size + 16);
    const double value = std::exp(score.value - lse);
    return {value, value * std::expm1(share) + kFlushed};
  }

  GradientPair pair_of(const GradientRow& row, i64 key, const Doubles& k, const Doubles& v) const {
    if (row.lse == -kInfinity) return {};
    const Score score = scores_.score_of(row.query, key, row.q.data(), k.data());
    if (score.value.value == -kInfinity && score.value.error < kInfinity) return {};
    if (!std::isfinite(row.lse) || !std::isfinite(score.value.value)) return kAnyPair;
    const Bounded weight = weight_of(score.value, row.lse);
    const double kept = p_.p_drop != 0 && scores_.is_dropped(scores_.random_byte(row.query, key))
                            ? 0
                            : scores_.scale_of_kept();
    const Bounded dweight = product_sum(row.dout, v);
    if (is_unbounded(weight) || is_unbounded(dweight) || is_unbounded(row.delta)) return kAnyPair;
    Bounded difference = {device::score_gradient(1.0, kept, dweight.value, row.delta.value),
                          kept * dweight.error + row.delta.error};
    const double size = kept * std::abs(dweight.value) + std::abs(row.delta.value);
    difference.error += 4 * kUnit * size + kFlushed;
    GradientPair pair;
    pair.weight = product_of({kept, 0}, weight);
    pair.dscore = pair.dproduct = product_of(weight, difference);
    if (p_.soft_cap != 0) pair.dproduct = product_of(pair.dscore, cap_slope(score.capped));
    return pair;
  }

  // Kernels take the square of a share that is rounded.
  Bounded cap_slope(const Bounded& capped) const {
    const double cap = p_.soft_cap;
    const double share = std::abs(capped.value) / cap;
    const double error = capped.error / cap + 2 * kUnit;
    return {device::cap_gradient(capped.value, cap), error * (2 * share + error) + 4 * kUnit};
  }

  // A factor is rounded to a type of two bytes before tensor cores, or a CPU's instruction for
  // bf16, multiply it.
  void add(const Bounded& factor, const Doubles& row, GradientSums& sums) const {
    double lost = factor.error;
    const double size = std::abs(factor.value) + factor.error;
    if (size_of(p_.in) == 2) {
      lost += epsilon(p_.in) / 2 * size + epsilon(p_.in) * min_normal(p_.in) + kFlushed;
    }
    if (is_unbounded(factor) || size > max_finite(p_.in) / 2) lost = kInfinity;
    sums.add(factor.value, lost, row);
  }

  void add_queries(bool is_k, i64 batch, i64 head_kv, i64 key, GradientSums& sums) const {
    const i64 group = p_.heads / p_.heads_kv;
    Doubles k(static_cast<std::size_t>(p_.hdim)), v(static_cast<std::size_t>(p_.hdim_v));
    for (i64 i = 0; i < sequence(batch).queries * group; ++i) {
      const Query query = query_at(batch, head_kv * group + i % group, i / group);
      if (!scores_.sees(query, key)) continue;
      scores_.read_key(query, key, k.data());
      scores_.read_value(query, key, v.data());
      const GradientRow row = row_of(query);
      const GradientPair pair = pair_of(row, key, k, v);
      is_k ? add(pair.dproduct, row.q, sums) : add(pair.weight, row.dout, sums);
    }
  }

  // What the bias, or the slope, is multiplied with in a score.
  Bounded factor_of(const Query& query, i64 key) const {
    if (p_.bias != FmhaBias::alibi) return {1, 0};
    return {device::bias_factor<device::FmhaBias::alibi>(sequence(query.batch), query.index, key),
            0};
  }

  // The gradients of a query's scores, which go to one sum where all keys share the bias.
  void add_scores(const Query& query, std::vector<tile::Products>& sums, Doubles& errors) const {
    const GradientRow row = row_of(query);
    Doubles k(row.q.size()), v(row.dout.size());
    for (const i64 key : scores_.keys_of(query)) {
      scores_.read_key(query, key, k.data());
      scores_.read_value(query, key, v.data());
      const Bounded dscore = product_of(
          is_spoiled(query) ? kUnbounded : pair_of(row, key, k, v).dscore, factor_of(query, key));
      const std::size_t at = std::ssize(sums) == p_.seqlen_k ? static_cast<std::size_t>(key) : 0;
      ++sums[at].count;
      sums[at].sum += dscore.value;
      sums[at].magnitude += std::abs(dscore.value);
      errors[at] += is_unbounded(dscore) ? kInfinity : dscore.error;
    }
  }

  void finish(const GradientSums& sums, double scale, Bounded* to) const {
    for (std::size_t i = 0; i < sums.products.size(); ++i) {
      if (!(sums.errors[i] < kInfinity)) {
        to[i] = kUnbounded;
        continue;
      }
      const Bounded sum = tile::sum_of(scores_.sum_types(), sums.products[i]);
      to[i] = product_of({scale, 0}, {sum.value, sum.error + sums.errors[i]});
    }
  }

  const FmhaProblem& p_;
  device::FmhaBackwardArguments g_;
  Scores scores_;
  tile::Values dout_, out_;
  std::vector<TokenRun> runs_;
  std::vector<std::int64_t> key_owners_;
  std::vector<bool> spoiled_;  // of each key-value head of each sequence
};

// What an element of an output costs, in multiplications.
double cost_of(const FmhaProblem& p, const Tensor& tensor) {
  const auto hdim = static_cast<double>(p.hdim), hdim_v = static_cast<double>(p.hdim_v);
  const double pairs = 2 * (2 * hdim + 2 * hdim_v) + kPairCost;
  if (tensor.name == "dq") return std::max(1.0, double(p.seqlen_k) * pairs / hdim);
  if (tensor.name != "dbias") {
    const double queries = double(p.seqlen_q) * double(p.heads) / double(p.heads_kv);
    return std::max(1.0, queries * pairs / double(tensor.sizes[0]));
  }
  double shared = 1;
  for (const double ratio : {double(p.seqlen_k) / double(std::max<i64>(1, tensor.sizes[0])),
                             double(p.seqlen_q) / double(std::max<i64>(1, tensor.sizes[1])),
                             double(p.heads) / double(std::max<i64>(1, tensor.sizes[2])),
                             double(p.batch) / double(std::max<i64>(1, tensor.sizes[3]))}) {
    shared *= std::max(1.0, ratio);
  }
  return shared * pairs;
}

}  // namespace

Reference backward_reference(const Problem& problem, const FmhaOperands& operands,
                             const ReferenceLimits& limits) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  const Gradients gradients(p, operands, limits.multiplications);
  ReferenceLimits of_one = limits;
  const double outputs = p.dbias ? 4 : 3;
  of_one.multiplications /= outputs;
  of_one.elements = static_cast<std::int64_t>(double(of_one.elements) / outputs);
  std::vector<std::vector<std::int64_t>> rows;
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_written()) continue;
    rows.push_back(tile::spread_rows(tensor, of_one, cost_of(p, tensor)));
  }
  return tile::reference_of_rows(family(), problem, std::move(rows), limits,
                                 [&](std::size_t output, std::int64_t row, Bounded* to) {
                                   if (output == 0) return gradients.compute_dq(row, to);
                                   if (output == 3) return gradients.compute_dbias(row, to);
                                   gradients.compute_key(output == 1, row, to);
                                 });
}

}  // namespace tessera::fmha
