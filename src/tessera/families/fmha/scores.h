// The scores of attention in fp64, with how far a correct kernel's may be off: what the references
// of attention and of its gradients share.
#pragma once

#include <limits>
#include <vector>

#include "tessera/device/fmha.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/families/fmha/append.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/sum_error.h"

namespace tessera::fmha {

inline constexpr double kUnit = 0x1p-24;      // half an ulp of fp32
inline constexpr double kFlushed = 0x1p-125;  // below it some machines read and write zero
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr tile::Bounded kUnbounded = {0, kInfinity};  // any bits are right

// A query of a head: where it lies in its sequence, and where in its tensor.
struct Query {
  std::int64_t batch = 0, head = 0, index = 0, token = 0;
  bool is_written = false;
};

// A score, and what it was before the bias.
struct Score {
  tile::Bounded value, capped;
};

class Scores {
 public:
  // The problem has its strides and outlives this.
  // `appended` is what the operands point to where new tokens were appended before; null where they
  // were not.
  // `fp8` is the encoding of numbers of 8 bits.
  Scores(const FmhaProblem& problem, const FmhaOperands& operands, double reads,
         const AppendedCopies* appended = nullptr, Fp8Encoding fp8 = Fp8Encoding::ocp);

  const device::FmhaArguments& arguments() const { return g_; }
  const device::FmhaSequence& sequence(const Query& query) const {
    return sequences_[static_cast<std::size_t>(query.batch)];
  }

  // Queries are counted through a tensor's rows.
  Query query_of(std::int64_t row) const;
  std::int64_t head_of(const Query& query) const { return query.head * p_.heads_kv / p_.heads; }
  // The place of a token's head. Packed sequences lie one behind the other in one batch.
  std::int64_t place(const device::i64* strides, std::int64_t batch, std::int64_t head,
                     std::int64_t token) const;

  std::vector<std::int64_t> keys_of(const Query& query) const;
  bool sees(const Query& query, std::int64_t key) const;
  // For each element of a head of a query, of a key and of a value.
  void read_query(const Query& query, double* to) const;
  void read_key(const Query& query, std::int64_t key, double* to) const;
  void read_value(const Query& query, std::int64_t key, double* to) const;
  // What the elements of a value are multiplied by.
  double value_factor(const Query& query, std::int64_t key) const;
  // How far they may be off, because a kernel may have rounded new ones otherwise.
  double value_error(const Query& query, std::int64_t key) const;

  // `q` and `k` are the elements of the query and the key.
  Score score_of(const Query& query, std::int64_t key, const double* q, const double* k) const;

  // The random byte of a weight, and whether dropout makes the weight 0.
  device::u32 random_byte(const Query& query, std::int64_t key) const;
  bool is_dropped(device::u32 byte) const { return byte >= static_cast<device::u32>(g_.kept); }
  // What dropout multiplies the other weights with.
  double scale_of_kept() const { return p_.p_drop == 0 ? 1 : 256.0 / g_.kept; }

  // The types in which queries and keys are added up. Tensor cores lose bits of products of 8 bits.
  tile::SumTypes sum_types() const;

 private:
  bool is_linear() const { return p_.cache_layout == FmhaCacheLayout::linear; }
  std::int64_t key_place(const device::i64* strides, const Query& query, std::int64_t key) const {
    return place(strides, query.batch, head_of(query), sequence(query).first_key + key);
  }
  device::FmhaKeys seen(const Query& query) const;
  double factor_of(const Query& query) const;
  double factor_of(const float* factors, const Query& query, std::int64_t key) const;
  double bias_of(const Query& query, std::int64_t key) const;
  double turning_error(const Query& query, std::int64_t key, const double* q,
                       const double* k) const;
  std::int64_t place_in_cache(const Query& query, std::int64_t key) const;
  std::size_t row_of(const Query& query) const;

  const FmhaProblem& p_;
  const std::int64_t run_ = 16 / size_of(kv_type(p_));  // elements of 16 bytes
  device::FmhaArguments g_;
  tile::Values q_, k_, v_, bias_;
  std::vector<device::FmhaSequence> sequences_;
  std::vector<std::int64_t> owners_;
  const AppendedCopies* appended_;
};

// backward_reference.cc
Reference backward_reference(const Problem& problem, const FmhaOperands& operands,
                             const ReferenceLimits& limits);

}  // namespace tessera::fmha
