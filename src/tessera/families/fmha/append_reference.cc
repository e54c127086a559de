// The slow obvious answer of appending: each head of a token in fp64, and what the cache held where
// nothing is written.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/families/fmha/append.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/families/tile/values.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using tile::Bounded;

constexpr double kAppendUnit = 0x1p-24;      // half an ulp of fp32
constexpr double kAppendFlushed = 0x1p-125;  // below it some machines read and write zero
constexpr double kAppendCost = 4;            // of an element, in multiplications
constexpr double kAnyBits = std::numeric_limits<double>::infinity();

device::FmhaNewTokens tokens_at(FmhaLengths lengths, const device::FmhaAppendArguments& g,
                                std::int64_t batch) {
  switch (lengths) {
    case FmhaLengths::packed:
      return device::new_tokens_of<device::FmhaLengths::packed>(g, batch);
    case FmhaLengths::padded:
      return device::new_tokens_of<device::FmhaLengths::padded>(g, batch);
    default:
      return device::new_tokens_of<device::FmhaLengths::equal>(g, batch);
  }
}

// Two products and a sum in fp32, fused or not. Products beyond fp32's range may be infinite.
Bounded turned_by(double x, double y, double cos, double sin, double value) {
  const double first = std::abs(x * cos), second = std::abs(y * sin);
  for (const double size : {first, second}) {
    if (std::isfinite(size) && size > max_finite(DType::fp32) / 4) return {value, kAnyBits};
  }
  if (!std::isfinite(first + second)) return {value, 0};
  return {value, 4 * kAppendUnit * (first + second) + kAppendFlushed};
}

class Append {
 public:
  Append(const FmhaProblem& p, const FmhaOperands& o, double reads)
      : p_(p),
        g_(append_arguments(p, o)),
        q_(p.in, o.q, p.rotate_q ? reads : 0),
        k_new_(p.in, o.k_new, reads),
        v_new_(p.in, o.v_new, reads),
        k_(p.in, o.k, reads),
        v_(p.in, o.v, reads) {
    for (std::int64_t b = 0; b < p.batch; ++b) sequences_.push_back(tokens_at(p.lengths, g_, b));
    if (p.lengths != FmhaLengths::packed) return;
    std::vector<TokenRun> runs;
    for (const device::FmhaNewTokens& s : sequences_) runs.push_back({s.first, s.count});
    owners_ = owners_of(p.tokens_q, runs);
  }

  // A row of the cache: a head of a position.
  void compute_cache(bool is_k, std::int64_t row, Bounded* to) const {
    const std::int64_t position = row % p_.seqlen_k, head = row / p_.seqlen_k % p_.heads_kv;
    const std::int64_t batch = row / p_.seqlen_k / p_.heads_kv;
    const device::FmhaNewTokens& s = sequences_[static_cast<std::size_t>(batch)];
    const std::int64_t token = position - s.position;
    const std::int64_t hdim = is_k ? p_.hdim : p_.hdim_v;
    std::vector<double> x(static_cast<std::size_t>(hdim));
    if (token >= 0 && token < s.count && device::has_place(g_, position)) {
      const auto& stride = is_k ? g_.k_new_stride : g_.v_new_stride;
      (is_k ? k_new_ : v_new_)
          .read(device::token_offset(stride, batch, head, s.first + token),
                stride[device::kTokenElement], hdim, x.data());
      return place(x, is_k ? position : -1, to);
    }
    const auto& stride = is_k ? g_.k_stride : g_.v_stride;
    (is_k ? k_ : v_)
        .read(device::token_offset(stride, batch, head, position), stride[device::kTokenElement],
              hdim, x.data());
    place(x, -1, to);
  }

  // A row of `out`: a head of a query. Those without a place are not written.
  void compute_query(std::int64_t row, Bounded* to) const {
    const bool is_packed = p_.lengths == FmhaLengths::packed;
    const std::int64_t tokens = is_packed ? p_.tokens_q : p_.seqlen_q;
    const std::int64_t at = row % tokens, head = row / tokens % p_.heads;
    const std::int64_t batch =
        is_packed ? owners_[static_cast<std::size_t>(at)] : row / tokens / p_.heads;
    std::fill_n(to, p_.hdim, Bounded{0, kAnyBits});
    if (batch < 0) return;
    const device::FmhaNewTokens& s = sequences_[static_cast<std::size_t>(batch)];
    const std::int64_t token = at - s.first;
    if (token >= s.count || !device::has_place(g_, s.position + token)) return;
    std::vector<double> x(static_cast<std::size_t>(p_.hdim));
    q_.read(device::token_offset(g_.q_stride, batch, head, at), g_.q_stride[device::kTokenElement],
            p_.hdim, x.data());
    place(x, s.position + token, to);
  }

  // The row of the cache that a head of a new token goes to, counted through all sequences; -1:
  // there is none.
  std::int64_t cache_row(std::int64_t index) const {
    const std::int64_t token = index % p_.seqlen_q, head = index / p_.seqlen_q % p_.heads_kv;
    const std::int64_t batch = index / p_.seqlen_q / p_.heads_kv;
    const device::FmhaNewTokens& s = sequences_[static_cast<std::size_t>(batch)];
    const std::int64_t position = s.position + token;
    if (token >= s.count || !device::has_place(g_, position)) return -1;
    return (batch * p_.heads_kv + head) * p_.seqlen_k + position;
  }

 private:
  // Elements as they are, and those in front turned by a position that is not negative.
  void place(const std::vector<double>& x, std::int64_t position, Bounded* to) const {
    for (std::size_t i = 0; i < x.size(); ++i) to[i] = {x[i], 0};
    if (position < 0) return;
    const auto rotary = static_cast<device::FmhaRotary>(p_.rotary);
    const std::int64_t row = position * (p_.rotary_dim / 2);
    for (std::int64_t i = 0; i < p_.rotary_dim; ++i) {
      const device::FmhaPair pair = device::pair_of(rotary, i, p_.rotary_dim);
      if (i != pair.first) continue;
      const double a = x[static_cast<std::size_t>(pair.first)];
      const double b = x[static_cast<std::size_t>(pair.second)];
      const double cos = g_.cos[row + pair.index], sin = g_.sin[row + pair.index];
      const auto both = device::turned(a, b, cos, sin);
      to[pair.first] = turned_by(a, b, cos, sin, both.x);
      to[pair.second] = turned_by(b, a, cos, sin, both.y);
    }
  }

  const FmhaProblem& p_;
  device::FmhaAppendArguments g_;
  tile::Values q_, k_new_, v_new_, k_, v_;
  std::vector<device::FmhaNewTokens> sequences_;
  std::vector<std::int64_t> owners_;
};

// All rows of the cache, or as many of those that are written as of all.
std::vector<std::int64_t> cache_rows(const Append& append, const FmhaProblem& p,
                                     const Tensor& tensor, const ReferenceLimits& limits) {
  std::vector<std::int64_t> rows = tile::spread_rows(tensor, limits, kAppendCost);
  const std::int64_t all = tensor.rows(), count = std::ssize(rows);
  const std::int64_t fresh = p.batch * p.heads_kv * p.seqlen_q;
  if (count == all || fresh == 0) return rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::int64_t>(double(fresh) * double(i) / double(count));
    const std::int64_t row = append.cache_row(index);
    if (row >= 0) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace

Reference append_reference(const Problem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  const Append append(p, operands, limits.multiplications / kAppendCost);
  std::vector<const Tensor*> outputs;
  const Tensors all = tensors(problem);
  for (const Tensor& tensor : all) {
    if (tensor.is_written()) outputs.push_back(&tensor);
  }
  ReferenceLimits of_one = limits;
  of_one.multiplications /= double(2 * outputs.size());
  of_one.elements /= std::ssize(outputs) * 2;
  std::vector<std::vector<std::int64_t>> rows;
  for (std::size_t i = 0; i < 2; ++i) rows.push_back(cache_rows(append, p, *outputs[i], of_one));
  if (p.rotate_q) rows.push_back(tile::spread_rows(*outputs[2], of_one, kAppendCost));
  return tile::reference_of_rows(family(), problem, std::move(rows), limits.threads,
                                 [&](std::size_t output, std::int64_t row, Bounded* to) {
                                   if (output == 2) return append.compute_query(row, to);
                                   append.compute_cache(output == 0, row, to);
                                 });
}

Mismatch verify_append(const Problem& problem, const FmhaOperands& operands) {
  if (fmha_of(problem).rotate_q && operands.q == operands.out) {
    throw Error(ErrorCode::invalid_argument,
                "fmha: verify needs q as it was before the kernel ran, but q is out; pass a copy");
  }
  return compare(problem, operands, append_reference(problem, operands, {}));
}

}  // namespace tessera::fmha
