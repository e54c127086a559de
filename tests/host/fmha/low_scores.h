// Attention whose bias hides keys by a number so low that scores of hidden keys are all equal to
// it, as masks in other libraries do. Queries are zeros, so that the answer is plain: means of the
// values of the keys that are not hidden, or of all values where all keys are.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tessera/measure/operands.h"
#include "tessera/spec/numeric.h"
#include "tessera/spec/problem.h"

namespace tessera::fmha {

// All fields must be plain: no mask, lengths that are equal, no pages, no dropout.
class LowScores {
 public:
  LowScores(const FmhaProblem& problem, const measure::OwnedOperands& owned, double low)
      : p_(with_strides(problem)), o_(std::get<FmhaOperands>(owned.operands)), low_(low) {
    if (p_.bias == FmhaBias::none) return;
    std::uint32_t rounded = 0;
    store_element(p_.dtype_bias, &rounded, 0, low);
    low_ = load_element(p_.dtype_bias, &rounded, 0);
  }

  // Queries of zeros, and a bias that hides keys.
  void hide_keys() const {
    for_each_query([this](const At& at) {
      for (std::int64_t d = 0; d < p_.hdim; ++d) put(p_.in, o_.q, place(p_.q_strides, at, d), 0);
      for (std::int64_t key = 0; key < p_.seqlen_k; ++key) {
        const bool hidden = is_hidden(at, key);
        put(p_.dtype_bias, o_.bias, place(p_.bias_strides, at, key), hidden ? low_ : 0);
      }
    });
  }
  // Products that are all equal to `low`, which is minus a power of 4 times the heads' elements.
  void level_products() const {
    const double each = std::sqrt(-low_ / (static_cast<double>(p_.hdim) * p_.scale));
    for_each_query([&](const At& at) {
      for (std::int64_t d = 0; d < p_.hdim; ++d) {
        put(p_.in, o_.q, place(p_.q_strides, at, d), each);
        for (std::int64_t key = 0; key < p_.seqlen_k; ++key) {
          put(p_.in, o_.k, place(p_.k_strides, {at.batch, head_kv(at), key}, d), -each);
        }
      }
    });
  }

  // What attention gives, where its gradients read it.
  void put_results() const {
    for_each_query([this](const At& at) {
      const std::vector<double> means = means_of(at);
      for (std::int64_t d = 0; d < p_.hdim_v; ++d) {
        put(p_.out, o_.out, place(p_.out_strides, at, d), means[static_cast<std::size_t>(d)]);
      }
      o_.lse[place_of_lse(at)] = static_cast<float>(lse_of(at));
    });
  }

  void expect_means() const {
    for_each_query([this](const At& at) {
      const std::vector<double> means = means_of(at);
      for (std::int64_t d = 0; d < p_.hdim_v; ++d) {
        const double x = load_element(p_.out, o_.out, place(p_.out_strides, at, d));
        ASSERT_NEAR(x, means[static_cast<std::size_t>(d)], 0.01) << words_of(at) << d;
      }
      if (!p_.lse) return;
      const double lse = lse_of(at);
      ASSERT_NEAR(o_.lse[place_of_lse(at)], lse, 1e-3 + 1e-6 * std::abs(lse)) << words_of(at);
    });
  }

  // The gradient of v: what each key weighs, times dout.
  void expect_gradients() const {
    const auto elements = static_cast<std::size_t>(p_.hdim_v);
    for (std::int64_t batch = 0; batch < p_.batch; ++batch) {
      for (std::int64_t own = 0; own < p_.heads_kv; ++own) {
        for (std::int64_t key = 0; key < p_.seqlen_k; ++key) {
          std::vector<double> sums(elements), sizes(elements);
          for_each_query([&](const At& at) {
            if (at.batch != batch || head_kv(at) != own) return;
            const double weight = weights_of(at)[static_cast<std::size_t>(key)];
            for (std::size_t d = 0; d < elements; ++d) {
              const auto place_of_d = place(p_.dout_strides, at, static_cast<std::int64_t>(d));
              const double product = weight * load_element(p_.in, o_.dout, place_of_d);
              sums[d] += product, sizes[d] += std::abs(product);
            }
          });
          for (std::size_t d = 0; d < elements; ++d) {
            const At at = {batch, own, key};
            const auto place_of_d = place(p_.dv_strides, at, static_cast<std::int64_t>(d));
            const double x = load_element(p_.in, o_.dv, place_of_d);
            ASSERT_NEAR(x, sums[d], 0.01 * sizes[d] + 1e-4) << words_of(at) << d;
          }
        }
      }
    }
  }

 private:
  struct At {
    std::int64_t batch, head, token;
  };

  static void put(DType dtype, const void* data, std::int64_t index, double x) {
    store_element(dtype, const_cast<void*>(data), index, x);
  }
  static std::int64_t place(const FmhaStrides& strides, const At& at, std::int64_t last) {
    return at.batch * strides[0] + at.head * strides[1] + at.token * strides[2] + last * strides[3];
  }
  std::int64_t place_of_lse(const At& at) const {
    return (at.batch * p_.heads + at.head) * p_.seqlen_q + at.token;
  }
  std::int64_t head_kv(const At& at) const { return at.head * p_.heads_kv / p_.heads; }
  static std::string words_of(const At& at) {
    return fmt::format("batch {} head {} token {} element ", at.batch, at.head, at.token);
  }

  template <class Visit>
  void for_each_query(Visit visit) const {
    for (At at = {0, 0, 0}; at.batch < p_.batch; ++at.batch) {
      for (at.head = 0; at.head < p_.heads; ++at.head) {
        for (at.token = 0; at.token < p_.seqlen_q; ++at.token) visit(at);
      }
    }
  }

  // All keys but the last, all but the first, all, or every other one.
  bool is_hidden(const At& at, std::int64_t key) const {
    if (p_.bias == FmhaBias::none) return true;
    switch ((at.head + at.token) % 4) {
      case 0:
        return key + 1 < p_.seqlen_k;
      case 1:
        return key > 0;
      case 2:
        return true;
      default:
        return key % 2 == 0;
    }
  }
  std::int64_t seen_of(const At& at) const {
    std::int64_t seen = 0;
    for (std::int64_t key = 0; key < p_.seqlen_k; ++key) seen += is_hidden(at, key) ? 0 : 1;
    return seen;
  }
  std::vector<double> weights_of(const At& at) const {
    std::vector<double> weights;
    const std::int64_t seen = seen_of(at);
    const double each = 1 / static_cast<double>(seen == 0 ? p_.seqlen_k : seen);
    for (std::int64_t key = 0; key < p_.seqlen_k; ++key) {
      weights.push_back(seen == 0 || !is_hidden(at, key) ? each : 0);
    }
    return weights;
  }
  std::vector<double> means_of(const At& at) const {
    std::vector<double> means(static_cast<std::size_t>(p_.hdim_v));
    const std::vector<double> weights = weights_of(at);
    for (std::int64_t key = 0; key < p_.seqlen_k; ++key) {
      const double weight = weights[static_cast<std::size_t>(key)];
      if (weight == 0) continue;
      for (std::size_t d = 0; d < means.size(); ++d) {
        const At own = {at.batch, head_kv(at), key};
        means[d] += weight * load_element(p_.in, o_.v,
                                          place(p_.v_strides, own, static_cast<std::int64_t>(d)));
      }
    }
    return means;
  }
  double lse_of(const At& at) const {
    const std::int64_t seen = seen_of(at);
    if (seen > 0) return std::log(static_cast<double>(seen));
    return low_ + std::log(static_cast<double>(p_.seqlen_k));
  }

  const FmhaProblem p_;
  const FmhaOperands& o_;
  double low_;
};

}  // namespace tessera::fmha
