// Attention as its definition in spec/problem.h stands, one loop inside the other, in long double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "host/fmha/plain_case.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {

// Philox4x32-10 as its authors define it.
inline std::array<std::uint32_t, 4> plain_philox(std::array<std::uint32_t, 4> c,
                                                 std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return c;
}

// One query of one head of one sequence.
struct PlainRow {
  const PlainCase& c;
  std::int64_t b, h, i;
  std::int64_t queries, keys, first_query, first_key;

  bool sees(std::int64_t j) const {
    const FmhaProblem& p = c.p;
    if (p.mask == FmhaMask::none) return true;
    const std::int64_t at = i + (p.mask == FmhaMask::bottom_right ? keys - queries : 0);
    const bool from = p.window_left == -1 || at - p.window_left <= j || j < p.sink;
    const bool to = p.window_right == -1 || j <= at + p.window_right;
    return from && to;
  }

  // Where element d of key j lies in k or v, by the definition in spec/fmha_problem.h.
  std::int64_t key_place(bool of_k, std::int64_t j, std::int64_t d) const {
    const FmhaProblem& p = c.p;
    const FmhaStrides& s = of_k ? p.k_strides : p.v_strides;
    if (p.pages == FmhaPages::none) return place(s, kv_head(), first_key + j) + d * s[3];
    const std::int64_t entry = first_key + j / p.page_size, t = j % p.page_size;
    const auto page = static_cast<std::int64_t>(c.load("page_table", entry));
    if (p.cache_layout == FmhaCacheLayout::linear) {
      return page * s[0] + kv_head() * s[1] + t * s[2] + d * s[3];
    }
    const std::int64_t x = 16 / size_of(kv_type(p)), hdim = of_k ? p.hdim : p.hdim_v;
    const std::int64_t first = (page * p.heads_kv + kv_head()) * hdim * p.page_size;
    if (of_k) return first + (d / x * p.page_size + t) * x + d % x;
    return first + (t / x * hdim + d) * x + t % x;
  }

  std::int64_t place(const FmhaStrides& s, std::int64_t head, std::int64_t token) const {
    const std::int64_t batch = c.p.lengths == FmhaLengths::packed ? 0 : b * s[0];
    return batch + head * s[1] + token * s[2];
  }
  // Byte j % 16 of the 16 that belong to the keys from j / 16 * 16 on.
  int random_byte(std::int64_t j) const {
    std::uint64_t words[2];
    std::memcpy(words, c.memory[c.index_of("dropout_rng")].data(), sizeof(words));
    const auto [seed, offset] = words;
    const auto low = [](auto x) { return static_cast<std::uint32_t>(x); };
    const std::array<std::uint32_t, 4> counter = {low(j / 16), low(i), low(b * c.p.heads + h),
                                                  low(offset)};
    const auto bits = plain_philox(counter, {low(seed), low(seed >> 32) ^ low(offset >> 32)});
    unsigned char bytes[16];
    std::memcpy(bytes, bits.data(), sizeof(bytes));
    return bytes[j % 16];
  }
  // How many of the 256 values of the byte keep the weight.
  int kept() const {
    return std::max(1, static_cast<int>(std::lround(256.0 * (1.0 - c.p.p_drop))));
  }
  // What a weight is multiplied with.
  double factor(std::int64_t j) const {
    if (c.p.p_drop == 0) return 1;
    return random_byte(j) < kept() ? 256.0 / kept() : 0;
  }

  std::int64_t kv_head() const { return h * c.p.heads_kv / c.p.heads; }

  // Factors of 8 bits, by the definition in spec/fmha_problem.h.
  double query_factor() const {
    const FmhaProblem& p = c.p;
    if (p.qscale == FmhaQscale::none || size_of(p.in) > 1) return 1;
    if (p.qscale != FmhaQscale::per_block) return c.load("descale_q", 0);
    const std::int64_t blocks = (p.seqlen_q - 1) / p.qscale_block_q + 1;
    return c.load("descale_q", (b * p.heads + h) * blocks + i / p.qscale_block_q);
  }
  double key_factor(std::string_view name, std::int64_t j) const {
    const FmhaProblem& p = c.p;
    if (p.qscale == FmhaQscale::none) return 1;
    if (p.qscale == FmhaQscale::per_tensor) return c.load(name, 0);
    if (p.qscale == FmhaQscale::per_head) return c.load(name, kv_head());
    const bool is_per_token = p.qscale == FmhaQscale::per_token;
    if (p.pages != FmhaPages::none && (is_per_token || p.qscale == FmhaQscale::kv_block)) {
      const double page = c.load("page_table", first_key + j / p.page_size);
      const std::int64_t row = static_cast<std::int64_t>(page) * p.heads_kv + kv_head();
      return c.load(name, is_per_token ? row * p.page_size + j % p.page_size : row);
    }
    if (is_per_token) return c.load(name, (b * p.heads_kv + kv_head()) * p.seqlen_k + j);
    const std::int64_t blocks = (p.seqlen_k - 1) / p.qscale_block_k + 1;
    return c.load(name, (b * p.heads_kv + kv_head()) * blocks + j / p.qscale_block_k);
  }
  // What is stored of a result.
  double stored(double x) const {
    const DType out = c.p.out;
    if (out != DType::fp8 && out != DType::bf8) return x;
    if (c.p.qscale != FmhaQscale::none) x *= c.load("scale_o", 0);
    return std::isnan(x) ? x : std::clamp(x, -max_finite(out), max_finite(out));
  }

  long double score(std::int64_t j) const {
    const FmhaProblem& p = c.p;
    long double dot = 0;
    for (std::int64_t d = 0; d < p.hdim; ++d) {
      const std::int64_t q = place(p.q_strides, h, first_query + i) + d * p.q_strides[3];
      dot += static_cast<long double>(c.load("q", q)) * c.load("k", key_place(true, j, d));
    }
    dot *= p.scale * query_factor() * key_factor("descale_k", j);
    if (p.soft_cap != 0) dot = p.soft_cap * std::tanh(dot / p.soft_cap);
    if (p.bias == FmhaBias::elementwise) {
      const FmhaStrides& s = p.bias_strides;
      dot += c.load("bias", b * s[0] + h * s[1] + i * s[2] + j * s[3]);
    }
    if (p.bias == FmhaBias::alibi) {
      const auto distance = static_cast<long double>(std::abs(i + keys - queries - j));
      dot -= c.load("slopes", b * p.slope_stride + h) * distance;
    }
    return dot;
  }

  std::int64_t out_place(std::int64_t column) const {
    const FmhaStrides& s = c.p.out_strides;
    return place(s, h, first_query + i) + column * s[3];
  }
  std::int64_t lse_place() const {
    if (c.p.lengths == FmhaLengths::packed) return h * c.p.tokens_q + first_query + i;
    return (b * c.p.heads + h) * c.p.seqlen_q + i;
  }
  std::int64_t random_place(std::int64_t j) const { return lse_place() * c.p.seqlen_k + j; }
  double stored_byte(std::int64_t j) const { return static_cast<std::int8_t>(random_byte(j)); }
  double value(std::int64_t j, std::int64_t column) const {
    return c.load("v", key_place(false, j, column)) * key_factor("descale_v", j);
  }
};

// Calls visit(row) for each query that is written.
template <class Visit>
void for_each_row(const PlainCase& c, const Visit& visit) {
  const FmhaProblem& p = c.p;
  const auto length = [&](std::string_view name, std::int64_t at) {
    return static_cast<std::int64_t>(c.load(name, at));
  };
  for (std::int64_t b = 0; b < p.batch; ++b) {
    PlainRow row{c, b, 0, 0, p.seqlen_q, p.seqlen_k, 0, 0};
    if (p.lengths == FmhaLengths::padded) {
      row.queries = length("seqlens_q", b), row.keys = length("seqlens_k", b);
    }
    if (p.lengths == FmhaLengths::packed) {
      row.first_query = length("seqlens_q", b);
      row.queries = length("seqlens_q", b + 1) - row.first_query;
      row.keys = length("seqlens_k", b);  // with pages
    }
    if (p.lengths == FmhaLengths::packed && p.pages == FmhaPages::none) {
      row.first_key = length("seqlens_k", b);
      row.keys = length("seqlens_k", b + 1) - row.first_key;
    }
    if (p.pages == FmhaPages::table) row.first_key = b * p.table_stride;
    if (p.pages == FmhaPages::list) {
      row.first_key = length("page_starts", b);
      const std::int64_t entries = length("page_starts", b + 1) - row.first_key;
      row.keys = std::min(row.keys, entries * p.page_size);
    }
    if (row.queries <= p.skip_q) continue;
    for (row.h = 0; row.h < p.heads; ++row.h) {
      for (row.i = 0; row.i < row.queries; ++row.i) visit(row);
    }
  }
}

inline void PlainCase::compute() {
  for_each_row(*this, [this](const PlainRow& row) {
    std::vector<long double> sums(static_cast<std::size_t>(p.hdim_v), 0);
    long double total = 0, most = -std::numeric_limits<long double>::infinity();
    for (std::int64_t j = 0; j < row.keys; ++j) {
      if (row.sees(j)) most = std::max(most, row.score(j));
    }
    for (std::int64_t j = 0; j < row.keys; ++j) {
      if (!row.sees(j)) continue;
      const long double weight = std::exp(row.score(j) - most);
      total += weight;
      for (std::size_t d = 0; d < sums.size(); ++d) {
        sums[d] += weight * row.factor(j) * row.value(j, static_cast<std::int64_t>(d));
      }
      if (p.random) store("random_values", row.random_place(j), row.stored_byte(j));
    }
    for (std::size_t d = 0; d < sums.size(); ++d) {
      const long double value = total == 0 ? 0 : sums[d] / total;
      store("out", row.out_place(static_cast<std::int64_t>(d)),
            row.stored(static_cast<double>(value)));
    }
    if (p.lse) store("lse", row.lse_place(), static_cast<double>(most + std::log(total)));
  });
}

}  // namespace tessera::fmha
