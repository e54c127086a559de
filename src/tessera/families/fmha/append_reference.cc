// The slow obvious answer of appending: each head of a token in fp64, and what the cache held where
// nothing is written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/families/tile/sum_error.h"
#include "tessera/spec/numeric.h"

namespace tessera::fmha {
namespace {

using tile::Bounded;

constexpr double kAppendUnit = 0x1p-24;      // half an ulp of fp32
constexpr double kAppendFlushed = 0x1p-125;  // below it some machines read and write zero
constexpr double kAppendCost = 4;            // of an element, in multiplications
constexpr double kAnyBits = std::numeric_limits<double>::infinity();
constexpr double kLeastFactor = 0x1p-110;

// Two products and a sum in fp32, fused or not. Products beyond fp32's range may be infinite.
Bounded turned_by(double x, double y, double cos, double sin, double value) {
  const double first = std::abs(x * cos), second = std::abs(y * sin);
  for (const double size : {first, second}) {
    if (std::isfinite(size) && size > max_finite(DType::fp32) / 4) return {value, kAnyBits};
  }
  if (!std::isfinite(first + second)) return {value, 0};
  return {value, 4 * kAppendUnit * (first + second) + kAppendFlushed};
}

// A head of a token in the cache. `part` is the sequence, or the page.
struct Cell {
  std::int64_t part, head, token;
};

class Append {
 public:
  Append(const FmhaProblem& p, const FmhaOperands& o, double reads, Fp8Encoding fp8)
      : p_(p),
        fp8_(fp8),
        g_(append_arguments(p, o)),
        room_(p.pages == FmhaPages::none ? p.seqlen_k : p.page_size),
        q_(p.in, o.q, p.rotate_q ? reads : 0),
        k_new_(p.in, o.k_new, reads),
        v_new_(p.in, o.v_new, reads),
        k_(kv_type(p), o.k, reads, fp8),
        v_(kv_type(p), o.v, reads, fp8) {
    if (p.check_pages) refuse_bad_page(p, g_);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      sequences_.push_back(tokens_at(b));
      const device::FmhaPagedTokens& s = sequences_.back();
      for (std::int64_t t = 0; t < s.count; ++t) add_writer(b, t);
    }
    if (p.lengths != FmhaLengths::packed) return;
    std::vector<TokenRun> runs;
    for (const device::FmhaPagedTokens& s : sequences_) runs.push_back({s.first, s.count});
    owners_ = owners_of(p.tokens_q, runs);
  }

  // A row of k or v is the elements of a head of a token. In a vectorized cache it is a run of
  // elements of a token of k, or a run of tokens of an element of v.
  void compute_cache(bool is_k, std::int64_t row, Bounded* to) const {
    const std::int64_t hdim = is_k ? p_.hdim : p_.hdim_v;
    if (p_.cache_layout == FmhaCacheLayout::linear) {
      const Cell cell = {row / room_ / p_.heads_kv, row / room_ % p_.heads_kv, row % room_};
      for (std::int64_t i = 0; i < hdim; ++i) to[i] = element_of(is_k, cell, i);
      return;
    }
    const std::int64_t together = is_k ? room_ : hdim, runs = (is_k ? hdim : room_) / run_;
    const std::int64_t inner = row % together, first = row / together % runs * run_;
    const std::int64_t head = row / together / runs;
    Cell cell = {head / p_.heads_kv, head % p_.heads_kv, inner};
    for (std::int64_t i = first; i < first + run_; ++i) {
      if (!is_k) cell.token = i;
      *to++ = element_of(is_k, cell, is_k ? i : inner);
    }
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
    const device::FmhaPagedTokens& s = sequences_[static_cast<std::size_t>(batch)];
    const std::int64_t token = at - s.first;
    if (token >= s.count || !device::has_place(g_, s, s.position + token)) return;
    const std::int64_t first = device::token_offset(g_.q_stride, batch, head, at);
    for (std::int64_t i = 0; i < p_.hdim; ++i) {
      to[i] = turned_element(q_, first, g_.q_stride[device::kTokenElement], i, s.position + token);
    }
  }

  // A row of the factors of k or v: a head of a sequence, or of a page. Those of other tokens stay.
  void compute_factors(bool is_k, std::int64_t row, Bounded* to) const {
    const float* const held = is_k ? g_.descale_k : g_.descale_v;
    Cell cell = {row / p_.heads_kv, row % p_.heads_kv, 0};
    for (; cell.token < room_; ++cell.token) {
      const auto found = writers_.find(cell.part * room_ + cell.token);
      if (found == writers_.end()) {
        *to++ = {held[row * room_ + cell.token], 0};
      } else {
        const Writer& writer = found->second;
        *to++ = writer.batch == kSeveral ? Bounded{0, kAnyBits} : factor_of(is_k, writer, cell);
      }
    }
  }

  // Rows of k, or of v, that hold elements of a head of one token.
  std::int64_t pieces(bool is_k) const {
    if (p_.cache_layout == FmhaCacheLayout::linear) return 1;
    return is_k ? p_.hdim / run_ : p_.hdim_v;
  }

  // A row of k, or of v, that a piece of a head of a new token goes to, counted through all
  // sequences; -1: there is none.
  std::int64_t cache_row(bool is_k, std::int64_t index) const {
    const std::int64_t piece = index % pieces(is_k);
    index /= pieces(is_k);
    const std::int64_t token = index % p_.seqlen_q, head = index / p_.seqlen_q % p_.heads_kv;
    const std::int64_t batch = index / p_.seqlen_q / p_.heads_kv;
    if (token >= sequences_[static_cast<std::size_t>(batch)].count) return -1;
    const std::int64_t place = place_of(batch, token);
    if (place < 0) return -1;
    const std::int64_t heads = place / room_ * p_.heads_kv + head;
    if (p_.cache_layout == FmhaCacheLayout::linear) return heads * room_ + place % room_;
    if (is_k) return (heads * pieces(is_k) + piece) * room_ + place % room_;
    return (heads * (room_ / run_) + place % room_ / run_) * pieces(is_k) + piece;
  }

  // The cache and the queries as a kernel leaves them, in `copies` of what was there.
  void write_to(AppendedCopies& copies) const {
    for (const auto& [place, writer] : writers_) {
      for (std::int64_t head = 0; head < p_.heads_kv; ++head) {
        const Cell cell = {place / room_, head, place % room_};
        const std::int64_t at = place * p_.heads_kv + head;
        double& error = copies.key_errors[at];
        double size = 0;
        for (std::int64_t i = 0; i < p_.hdim; ++i) {
          const Stored x =
              store(kv_type(p_), element_of(true, cell, i), key_offset(cell, i), copies.k);
          error += x.away * x.away, size += x.value * x.value;
        }
        error = std::sqrt(error);
        for (std::int64_t i = 0; i < p_.hdim_v; ++i) {
          const Stored x =
              store(kv_type(p_), element_of(false, cell, i), value_offset(cell, i), copies.v);
          if (has_own_kv(p_)) copies.value_errors[at] = std::max(copies.value_errors[at], x.away);
        }
        if (p_.qscale != FmhaQscale::per_token) continue;
        error += kFactorError * std::sqrt(size);
        write_factor(true, writer, cell, copies.k_factors);
        write_factor(false, writer, cell, copies.v_factors);
      }
    }
    if (p_.rotate_q) write_queries(copies);
  }

 private:
  static constexpr std::int64_t kSeveral = -1;
  struct Writer {
    std::int64_t batch, token;
  };

  // A correct kernel may round to either side where the element lies near the middle: what is
  // stored here, and how far a kernel may then be from it.
  struct Stored {
    double value, away;
  };
  Stored store(DType type, const Bounded& x, std::int64_t offset,
               std::vector<std::byte>& to) const {
    if (x.error == kAnyBits) return {0, kAnyBits};
    const auto stored = [&](double value) {
      store_element(type, to.data(), offset, value, fp8_);
      return load_element(type, to.data(), offset, fp8_);
    };
    const double low = stored(x.value - x.error), high = stored(x.value + x.error);
    const double here = stored(x.value);
    if (!std::isfinite(here)) return {0, 0};
    return {here, std::max(high - here, here - low)};
  }

  void write_factor(bool is_k, const Writer& writer, const Cell& cell,
                    std::vector<std::byte>& to) const {
    const std::int64_t at = (cell.part * p_.heads_kv + cell.head) * room_ + cell.token;
    if (writer.batch != kSeveral) store(DType::fp32, factor_of(is_k, writer, cell), at, to);
  }

  void write_queries(AppendedCopies& copies) const {
    const bool is_packed = p_.lengths == FmhaLengths::packed;
    const std::int64_t tokens = is_packed ? p_.tokens_q : p_.seqlen_q;
    std::vector<Bounded> row(static_cast<std::size_t>(p_.hdim));
    copies.query_errors.resize(
        static_cast<std::size_t>((is_packed ? 1 : p_.batch) * p_.heads * tokens));
    for (std::size_t at = 0; at < copies.query_errors.size(); ++at) {
      const auto index = static_cast<std::int64_t>(at);
      compute_query(index, row.data());
      const std::int64_t head = index / tokens % p_.heads, batch = index / tokens / p_.heads;
      const std::int64_t first = device::token_offset(g_.out_stride, batch, head, index % tokens);
      double error = 0;
      for (std::int64_t i = 0; i < p_.hdim; ++i) {
        const std::int64_t offset = first + i * g_.out_stride[device::kTokenElement];
        const double away = store(p_.in, row[static_cast<std::size_t>(i)], offset, copies.q).away;
        error += away * away;
      }
      copies.query_errors[at] = std::sqrt(error);
    }
  }

  // Without pages, the end is the end of all positions.
  device::FmhaPagedTokens tokens_at(std::int64_t batch) const {
    using enum device::FmhaPages;
    if (p_.pages == FmhaPages::table) return sequence_in<table>(p_.lengths, g_, batch);
    if (p_.pages == FmhaPages::list) return sequence_in<list>(p_.lengths, g_, batch);
    const device::FmhaNewTokens s = sequence_in<none>(p_.lengths, g_, batch);
    return {s.count, s.first, s.position, g_.end, 0};
  }

  // Which token of the cache a new one becomes, counted through all sequences or pages; -1: none.
  std::int64_t place_of(std::int64_t batch, std::int64_t token) const {
    const device::FmhaPagedTokens& s = sequences_[static_cast<std::size_t>(batch)];
    const std::int64_t position = s.position + token;
    if (!device::has_place(g_, s, position)) return -1;
    if (p_.pages == FmhaPages::none) return batch * room_ + position;
    const device::FmhaSlot slot = device::slot_of(g_, position);
    return device::page_of(g_, s, slot.entry) * room_ + slot.token;
  }

  // Sequences that share a page may both write a token of it.
  void add_writer(std::int64_t batch, std::int64_t token) {
    const std::int64_t place = place_of(batch, token);
    if (place < 0) return;
    const auto [found, is_first] = writers_.try_emplace(place, Writer{batch, token});
    if (!is_first) found->second.batch = kSeveral;
  }

  Bounded element_of(bool is_k, const Cell& cell, std::int64_t element) const {
    const auto found = writers_.find(cell.part * room_ + cell.token);
    if (found == writers_.end())
      return {is_k ? old_key(cell, element) : old_value(cell, element), 0};
    const Writer& writer = found->second;
    if (writer.batch == kSeveral) return {0, kAnyBits};
    const Bounded x = new_element(is_k, writer, cell.head, element);
    return has_own_kv(p_) ? divided(x, factor_of(is_k, writer, cell)) : x;
  }

  // An element of a new token, before it is stored.
  Bounded new_element(bool is_k, const Writer& writer, std::int64_t head,
                      std::int64_t element) const {
    const device::FmhaPagedTokens& s = sequences_[static_cast<std::size_t>(writer.batch)];
    const auto& stride = is_k ? g_.k_new_stride : g_.v_new_stride;
    const std::int64_t first =
        device::token_offset(stride, writer.batch, head, s.first + writer.token);
    return turned_element(is_k ? k_new_ : v_new_, first, stride[device::kTokenElement], element,
                          is_k ? s.position + writer.token : -1);
  }

  // ---- caches of 8 bits ----

  // The factor of a head of a new token: what was given, or what follows from its largest element.
  Bounded factor_of(bool is_k, const Writer& writer, const Cell& cell) const {
    const float* const given = is_k ? g_.descale_k : g_.descale_v;
    if (p_.qscale == FmhaQscale::none) return {1, 0};
    if (p_.qscale != FmhaQscale::per_token) {
      return {given[p_.qscale == FmhaQscale::per_head ? cell.head : 0], 0};
    }
    Bounded most = {0, 0};
    for (std::int64_t i = 0; i < (is_k ? p_.hdim : p_.hdim_v); ++i) {
      const Bounded x = new_element(is_k, writer, cell.head, i);
      if (x.error == kAnyBits || !std::isfinite(x.value)) return {0, kAnyBits};
      most = {std::max(most.value, std::abs(x.value)), std::max(most.error, x.error)};
    }
    const double largest = max_finite_of(kv_type(p_), fp8_);
    return {most.value / largest,
            most.error / largest + 2 * kAppendUnit * most.value / largest + kAppendFlushed};
  }

  // A kernel may multiply by the factor's reciprocal. It need not do so with factors near the least
  // number of fp32, whose reciprocal may be infinite.
  Bounded divided(const Bounded& x, const Bounded& factor) const {
    const double by = std::abs(factor.value);
    if (x.error == kAnyBits || factor.error == kAnyBits) return {0, kAnyBits};
    if (std::isnan(x.value)) return x;
    if (by == 0 && std::isfinite(x.value)) return {0, 0};
    if (by < kLeastFactor || factor.error > by / 2) return {0, kAnyBits};
    const double most = max_finite_of(kv_type(p_), fp8_), value = x.value / factor.value;
    if (!std::isfinite(value)) return {std::clamp(value, -most, most), 0};
    const double error = x.error / by + std::abs(value) * (factor.error / by + 4 * kAppendUnit);
    return {std::clamp(value, -most, most), error + kAppendFlushed};
  }

  // What the cache held.
  double old_key(const Cell& c, std::int64_t element) const {
    return k_.at(key_offset(c, element));
  }
  double old_value(const Cell& c, std::int64_t element) const {
    return v_.at(value_offset(c, element));
  }
  std::int64_t key_offset(const Cell& c, std::int64_t element) const {
    using enum device::FmhaCacheLayout;
    const std::int64_t more = p_.cache_layout == FmhaCacheLayout::linear
                                  ? device::key_element<linear>(g_, element, run_)
                                  : device::key_element<vectorized>(g_, element, run_);
    return device::key_token(g_, c.part, c.head, c.token) + more;
  }
  std::int64_t value_offset(const Cell& c, std::int64_t element) const {
    using enum device::FmhaCacheLayout;
    const std::int64_t first =
        p_.cache_layout == FmhaCacheLayout::linear
            ? device::value_token<linear>(g_, c.part, c.head, c.token, run_)
            : device::value_token<vectorized>(g_, c.part, c.head, c.token, run_);
    return first + element * g_.v_stride[device::kTokenElement];
  }

  // An element of a head, turned by a position that is not negative where it is one of those in
  // front.
  Bounded turned_element(const tile::Values& values, std::int64_t first, std::int64_t step,
                         std::int64_t element, std::int64_t position) const {
    const auto at = [&](std::int64_t i) { return values.at(first + i * step); };
    if (position < 0 || element >= p_.rotary_dim) return {at(element), 0};
    const auto rotary = static_cast<device::FmhaRotary>(p_.rotary);
    const device::FmhaPair pair = device::pair_of(rotary, element, p_.rotary_dim);
    const std::int64_t angle = position * (p_.rotary_dim / 2) + pair.index;
    const double a = at(pair.first), b = at(pair.second);
    const double cos = g_.cos[angle], sin = g_.sin[angle];
    const auto both = device::turned(a, b, cos, sin);
    return element == pair.first ? turned_by(a, b, cos, sin, both.x)
                                 : turned_by(b, a, cos, sin, both.y);
  }

  const FmhaProblem& p_;
  const Fp8Encoding fp8_;
  device::FmhaAppendArguments g_;
  const std::int64_t room_;                             // tokens of a sequence, or of a page
  const std::int64_t run_ = 16 / size_of(kv_type(p_));  // elements of 16 bytes
  tile::Values q_, k_new_, v_new_, k_, v_;
  std::vector<device::FmhaPagedTokens> sequences_;
  std::vector<std::int64_t> owners_;
  std::unordered_map<std::int64_t, Writer> writers_;  // of tokens of the cache
};

// All rows of the cache, or as many of those that are written as of all.
std::vector<std::int64_t> cache_rows(const Append& append, const FmhaProblem& p, bool is_k,
                                     const Tensor& tensor, const ReferenceLimits& limits) {
  std::vector<std::int64_t> rows = tile::spread_rows(tensor, limits, kAppendCost);
  const std::int64_t all = tensor.rows(), count = std::ssize(rows);
  const std::int64_t fresh = p.batch * p.heads_kv * p.seqlen_q * append.pieces(is_k);
  if (count == all || fresh == 0) return rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::int64_t>(double(fresh) * double(i) / double(count));
    const std::int64_t row = append.cache_row(is_k, index);
    if (row >= 0) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::vector<std::byte> copy_of(const Tensor& tensor, const void* data) {
  std::vector<std::byte> bytes(tensor.bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), data, bytes.size());
  return bytes;
}

}  // namespace

AppendedCopies appended_copies(const FmhaProblem& p, const FmhaOperands& operands,
                               Fp8Encoding fp8) {
  AppendedCopies copies;
  for (const Tensor& tensor : tensors(p)) {
    if (tensor.name == "k") copies.k = copy_of(tensor, operands.k);
    if (tensor.name == "v") copies.v = copy_of(tensor, operands.v);
    if (tensor.name == "descale_k") copies.k_factors = copy_of(tensor, operands.descale_k);
    if (tensor.name == "descale_v") copies.v_factors = copy_of(tensor, operands.descale_v);
    if (tensor.name == "q_turned") copies.q.resize(tensor.bytes());
  }
  Append(p, operands, 0, fp8).write_to(copies);
  return copies;
}

WrittenRows written_rows(const FmhaProblem& p, const FmhaOperands& operands,
                         const ReferenceLimits& limits) {
  const auto append =
      std::make_shared<const Append>(p, operands, limits.multiplications / kAppendCost, limits.fp8);
  WrittenRows found;
  for (const Tensor& tensor : tensors(p)) {
    if (tensor.name == "k") found.rows[0] = cache_rows(*append, p, true, tensor, limits);
    if (tensor.name == "v") found.rows[1] = cache_rows(*append, p, false, tensor, limits);
    if (tensor.is_written() && tensor.name == "descale_k") {
      found.rows[3] = tile::spread_rows(tensor, limits, kAppendCost * double(p.hdim));
    }
    if (tensor.is_written() && tensor.name == "descale_v") {
      found.rows[4] = tile::spread_rows(tensor, limits, kAppendCost * double(p.hdim_v));
    }
    if (p.rotate_q && tensor.name == (extends(p) ? "q_turned" : "out")) {
      found.rows[2] = tile::spread_rows(tensor, limits, kAppendCost);
    }
  }
  found.compute = [append](std::size_t output, std::int64_t row, Bounded* to) {
    if (output == 2) return append->compute_query(row, to);
    if (output > 2) return append->compute_factors(output == 3, row, to);
    append->compute_cache(output == 0, row, to);
  };
  return found;
}

Reference append_reference(const Problem& problem, const FmhaOperands& operands,
                           const ReferenceLimits& limits) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  // Which rows each output has, in the order of the tensors.
  std::vector<std::size_t> roles = {0, 1};
  if (p.qscale == FmhaQscale::per_token) roles.insert(roles.end(), {3, 4});
  if (p.rotate_q) roles.push_back(2);
  const std::size_t outputs = roles.size();
  ReferenceLimits of_one = limits;
  of_one.multiplications /= double(2 * outputs);
  of_one.elements /= static_cast<std::int64_t>(2 * outputs);
  WrittenRows all = written_rows(p, operands, of_one);
  std::vector<std::vector<std::int64_t>> rows;
  for (const std::size_t role : roles) rows.push_back(all.rows[role]);
  return tile::reference_of_rows(family(), problem, std::move(rows), limits,
                                 [&](std::size_t output, std::int64_t row, Bounded* to) {
                                   all.compute(roles[output], row, to);
                                 });
}

Mismatch verify_append(const Problem& problem, const FmhaOperands& operands) {
  const FmhaProblem& p = fmha_of(problem);
  const void* const turned = extends(p) ? operands.q_turned : operands.out;
  if (p.rotate_q && operands.q == turned) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("fmha: verify needs q as it was before the kernel ran, but q is {}; "
                            "pass a copy",
                            extends(p) ? "q_turned" : "out"));
  }
  return compare(problem, operands, reference(problem, operands, {}));
}

}  // namespace tessera::fmha
