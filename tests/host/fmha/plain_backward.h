// The gradients of attention by the definition of spec/fmha_problem.h, in plain loops.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "host/fmha/backward_problems.h"
#include "host/fmha/plain_fmha.h"

namespace tessera::fmha {

// A case whose out and lse are what attention gives for its other operands, and its gradients,
// which are NaN where nothing is written.
class PlainBackward {
 public:
  // `forward` has the operands of attention and its results.
  explicit PlainBackward(const PlainCase& forward, const FmhaProblem& p)
      : forward_(forward), p_(with_strides(p)) {
    const PlainCase shapes(p);
    for (const Tensor& tensor : shapes.list) {
      if (!tensor.is_written()) continue;
      names_.emplace_back(tensor.name);
      const double untouched = tensor.name == "dbias" ? 0 : std::nan("");
      values_.emplace_back(static_cast<std::size_t>(tensor.elements()), untouched);
    }
  }

  std::vector<long double>& of(std::string_view name) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return values_[i];
    }
    return values_.front();
  }

  // `dout_at(row, column)` is the loss's gradient by an element of out, `dlse_at(row)` by lse.
  template <class DoutAt, class DlseAt>
  void compute(const DoutAt& dout_at, const DlseAt& dlse_at) {
    set_zeros();
    for_each_row(forward_, [&](const PlainRow& row) { add_row(row, dout_at, -dlse_at(row)); });
  }

 private:
  static long double& at(std::vector<long double>& all, std::int64_t place) {
    return all[static_cast<std::size_t>(place)];
  }
  std::int64_t place(const FmhaStrides& s, std::int64_t b, std::int64_t head,
                     std::int64_t token) const {
    return (p_.lengths == FmhaLengths::packed ? 0 : b * s[0]) + head * s[1] + token * s[2];
  }
  std::int64_t length(std::string_view name, std::int64_t i) const {
    return static_cast<std::int64_t>(forward_.load(name, i));
  }

  // Keys of all sequences, and queries of those that are not left out.
  void set_zeros() {
    for (std::int64_t b = 0; b < p_.batch; ++b) {
      std::int64_t first = 0, keys = p_.seqlen_k;
      if (p_.lengths == FmhaLengths::padded) keys = length("seqlens_k", b);
      if (p_.lengths == FmhaLengths::packed) {
        first = length("seqlens_k", b), keys = length("seqlens_k", b + 1) - first;
      }
      for (std::int64_t head = 0; head < p_.heads_kv; ++head) {
        for (std::int64_t j = 0; j < keys; ++j) {
          clear(of("dk"), p_.dk_strides, {b, head, first + j, p_.hdim});
          clear(of("dv"), p_.dv_strides, {b, head, first + j, p_.hdim_v});
        }
      }
    }
    for_each_row(forward_, [&](const PlainRow& row) {
      clear(of("dq"), p_.dq_strides, {row.b, row.h, row.first_query + row.i, p_.hdim});
    });
  }
  void clear(std::vector<long double>& all, const FmhaStrides& s,
             const std::array<std::int64_t, 4>& where) {
    for (std::int64_t d = 0; d < where[3]; ++d) {
      at(all, place(s, where[0], where[1], where[2]) + d * s[3]) = 0;
    }
  }

  template <class DoutAt>
  void add_row(const PlainRow& row, const DoutAt& dout_at, long double delta) {
    const double lse = forward_.load("lse", row.lse_place());
    if (lse == -std::numeric_limits<double>::infinity()) return;
    for (std::int64_t d = 0; d < p_.hdim_v; ++d) {
      delta += static_cast<long double>(dout_at(row, d)) * forward_.load("out", row.out_place(d));
    }
    for (std::int64_t j = 0; j < row.keys; ++j) {
      if (row.sees(j)) add_pair(row, j, lse, delta, dout_at);
    }
  }

  template <class DoutAt>
  void add_pair(const PlainRow& row, std::int64_t j, double lse, long double delta,
                const DoutAt& dout_at) {
    const long double p = std::exp(row.score(j) - lse);
    const long double z = row.factor(j);
    long double dweight = 0;
    for (std::int64_t d = 0; d < p_.hdim_v; ++d) {
      const long double dout = dout_at(row, d);
      dweight += dout * row.value(j, d);
      const FmhaStrides& s = p_.dv_strides;
      at(of("dv"), place(s, row.b, row.kv_head(), row.first_key + j) + d * s[3]) += z * p * dout;
    }
    const long double ds = p * (z * dweight - delta);
    long double dx = ds * p_.scale;
    if (p_.soft_cap != 0) {
      const long double share = std::tanh(product(row, j) / p_.soft_cap);
      dx *= 1 - share * share;
    }
    for (std::int64_t d = 0; d < p_.hdim; ++d) {
      const FmhaStrides &sq = p_.dq_strides, &sk = p_.dk_strides;
      at(of("dq"), place(sq, row.b, row.h, row.first_query + row.i) + d * sq[3]) +=
          dx * key(row, j, d);
      at(of("dk"), place(sk, row.b, row.kv_head(), row.first_key + j) + d * sk[3]) +=
          dx * query(row, d);
    }
    if (p_.dbias) at(of("dbias"), dbias_place(row, j)) += ds * bias_factor(row, j);
  }

  // ALiBi multiplies a slope with minus the distance.
  long double bias_factor(const PlainRow& row, std::int64_t j) const {
    if (p_.bias != FmhaBias::alibi) return 1;
    return -std::abs(static_cast<long double>(row.i + row.keys - row.queries - j));
  }

  double query(const PlainRow& row, std::int64_t d) const {
    const FmhaStrides& s = p_.q_strides;
    return forward_.load("q", place(s, row.b, row.h, row.first_query + row.i) + d * s[3]);
  }
  double key(const PlainRow& row, std::int64_t j, std::int64_t d) const {
    const FmhaStrides& s = p_.k_strides;
    return forward_.load("k", place(s, row.b, row.kv_head(), row.first_key + j) + d * s[3]);
  }
  long double product(const PlainRow& row, std::int64_t j) const {
    long double sum = 0;
    for (std::int64_t d = 0; d < p_.hdim; ++d) {
      sum += static_cast<long double>(query(row, d)) * key(row, j, d);
    }
    return sum * p_.scale;
  }

  std::int64_t dbias_place(const PlainRow& row, std::int64_t j) const {
    const std::array<std::int64_t, 4> sizes = {p_.batch, p_.heads, p_.seqlen_q, p_.seqlen_k};
    const std::array<std::int64_t, 4> index = {row.b, row.h, row.i, j};
    if (p_.bias == FmhaBias::alibi) return (p_.slope_stride == 0 ? 0 : row.b * p_.heads) + row.h;
    std::int64_t place = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const bool is_shared = p_.bias_strides[i] == 0;
      place = place * (is_shared ? 1 : sizes[i]) + (is_shared ? 0 : index[i]);
    }
    return place;
  }

  const PlainCase& forward_;
  FmhaProblem p_;
  std::vector<std::string> names_;
  std::vector<std::vector<long double>> values_;
};

// The attention whose gradients the problem asks for.
inline FmhaProblem forward_of(FmhaProblem p) {
  p.kind = FmhaKind::forward;
  p.dout_strides = p.dq_strides = p.dk_strides = p.dv_strides = kPackedTokens;
  p.dbias = p.dlse = false;
  p.lse = true;
  return p;
}

// Fills the operands of both. `backward` gets what attention gave.
inline void fill_both(RandomFmhas& random, PlainCase& forward, PlainCase& backward) {
  forward.fill(random);
  forward.compute();
  backward.fill(random);
  for (std::size_t i = 0; i < backward.list.size(); ++i) {
    const std::size_t from = forward.index_of(backward.list[i].name);
    if (from < forward.list.size()) {
      std::copy(forward.memory[from].begin(), forward.memory[from].end(),
                backward.memory[i].begin());
    }
  }
}

}  // namespace tessera::fmha
