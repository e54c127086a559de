// Background: cuDNN has no operation for attention that its versions share. One writes attention
// down as two products with pointwise operations and reductions between them, and the library
// recognises the graph and has one kernel for it. It recognises only some orders of operations, so
// that this file keeps to the order of NVIDIA's own front end: product, scale, cap, bias, lengths,
// right end of the mask, left end, softmax in five steps, product. All numbers between the products
// are fp32; the softmax goes into the second product in the type of v.
#include "peers/cudnn_fmha.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "peers/fmha_fields.h"

namespace tessera::peers::cudnn {
namespace {

using Sizes = std::vector<std::int64_t>;

enum Dimension : std::size_t { kBatch, kHead, kToken, kElement };

constexpr std::int64_t kMostOffset = std::numeric_limits<std::int32_t>::max();
// Up to this version cuDNN wants the lowest number in place of minus infinity.
constexpr std::size_t kFirstWithInfinity = 91000;

// ---- which problems ----

bool is_packed(const FmhaProblem& p) { return p.lengths == FmhaLengths::packed; }
bool has_left_end(const FmhaProblem& p) { return p.mask != FmhaMask::none && p.window_left >= 0; }
bool has_right_end(const FmhaProblem& p) { return p.mask != FmhaMask::none && p.window_right >= 0; }

bool are_sizes_known(const FmhaProblem& p) {
  const bool is_empty =
      p.batch == 0 || p.seqlen_q == 0 || p.seqlen_k == 0 || p.tokens_q == 0 || p.tokens_k == 0;
  return p.kind == FmhaKind::forward && !is_empty && p.pages == FmhaPages::none &&
         p.hdim % 8 == 0 && p.hdim_v % 8 == 0 && p.skip_q == 0;
}

// Attention of 16 bits. Its bias may be wider, but not narrower.
bool are_types_known(const FmhaProblem& p) {
  const auto is_half = [](DType type) { return type == DType::fp16 || type == DType::bf16; };
  const bool is_bias_known =
      p.bias != FmhaBias::elementwise || p.dtype_bias == DType::fp32 || is_half(p.dtype_bias);
  return is_half(p.in) && p.out == p.in && is_bias_known;
}

// Elements of a head lie one behind the other, and nothing is shared.
bool are_strides_known(const FmhaProblem& p) {
  const auto is_known = [&](const FmhaStrides& strides) {
    const bool is_apart = is_packed(p) || strides[kBatch] > 0;
    return is_apart && strides[kHead] > 0 && strides[kToken] > 0 && strides[kElement] == 1;
  };
  return is_known(p.q_strides) && is_known(p.k_strides) && is_known(p.v_strides) &&
         is_known(p.out_strides);
}

// Without lengths every query must see a key. The first keys are never kept.
bool is_mask_known(const FmhaProblem& p) {
  const bool is_shifted = p.mask == FmhaMask::bottom_right;
  const bool may_see_nothing = (is_shifted && has_right_end(p)) || has_left_end(p);
  if (may_see_nothing && p.lengths == FmhaLengths::equal && p.seqlen_q > p.seqlen_k) return false;
  return (p.mask == FmhaMask::none || p.sink == 0) && (!is_shifted || p.bias == FmhaBias::none);
}

// cuDNN's slopes are multiplied by j - i, and ours by minus the distance of key j from query
// i + keys - queries. The difference is the same for all keys up to the diagonal of a causal mask
// where there are as many keys as queries or more. It shows in lse only.
bool is_bias_known(const FmhaProblem& p) {
  if (p.bias != FmhaBias::alibi) return true;
  const bool is_causal = p.mask == FmhaMask::top_left && p.window_right == 0;
  const bool is_near = p.seqlen_k >= p.seqlen_q && p.lengths == FmhaLengths::equal;
  return is_causal && is_near && p.slope_stride == 0 && (!p.lse || p.seqlen_k == p.seqlen_q);
}

// Offsets of packed sequences are elements in int32, and our lse has no batches to begin at one.
bool is_packing_known(const FmhaProblem& p) {
  if (!is_packed(p)) return true;
  const std::int64_t q = p.tokens_q * std::max(p.q_strides[kToken], p.out_strides[kToken]);
  const std::int64_t k = p.tokens_k * std::max(p.k_strides[kToken], p.v_strides[kToken]);
  return !p.lse && q <= kMostOffset && k <= kMostOffset;
}

bool is_computed(const FmhaProblem& p) {
  return are_sizes_known(p) && are_types_known(p) && are_strides_known(p) && is_mask_known(p) &&
         is_bias_known(p) && is_packing_known(p) && p.p_drop == 0;  // its random numbers differ
}

// ---- lengths ----

// One kind of tokens of packed sequences, read from the prefix sums.
struct PackedTokens {
  std::vector<std::int32_t> first;   // batch + 1
  std::vector<std::int32_t> counts;  // batch
};

PackedTokens packed_tokens(const runtime::Place& place, const std::int32_t* sums,
                           std::int64_t batch, std::int64_t tokens, std::int64_t longest) {
  PackedTokens all;
  all.first.resize(static_cast<std::size_t>(batch) + 1);
  place.backend->copy_to_host(all.first.data(), sums, all.first.size() * sizeof(std::int32_t),
                              place.options);
  for (std::int32_t& first : all.first) {
    first = static_cast<std::int32_t>(std::clamp<std::int64_t>(first, 0, tokens));
  }
  for (std::size_t i = 0; i + 1 < all.first.size(); ++i) {
    const std::int64_t count = all.first[i + 1] - all.first[i];
    all.counts.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(count, 0, longest)));
  }
  return all;
}

// ---- the graph ----

class Attention {
 public:
  Attention(Graph& graph, const FmhaProblem& p, const FmhaOperands& o)
      : graph_(graph), lib_(graph.library()), p_(p), o_(o), place_(place_of_peer("cudnn")) {}

  void add_operations() {
    if (p_.lengths != FmhaLengths::equal) set_lengths();
    const Descriptor scores = inner_scores();
    multiply(q(), transposed_k(), scores, counts_q_, counts_k_, nullptr);
    const Descriptor weights = softmax(masked(biased(capped(scaled(scores)))));
    multiply(weights, v(), out(), counts_q_, nullptr, counts_k_);
  }

 private:
  // ---- tensors ----

  Descriptor inner_scores(DataType type = DataType::fp32) {
    return graph_.inner(dense(type, {p_.batch, p_.heads, p_.seqlen_q, p_.seqlen_k}));
  }
  Layout row_layout() const { return dense(DataType::fp32, {p_.batch, p_.heads, p_.seqlen_q, 1}); }
  Descriptor minus_infinity() {
    using Limits = std::numeric_limits<float>;
    const bool has_infinity = lib_.version_number() >= kFirstWithInfinity;
    return graph_.value(has_infinity ? -Limits::infinity() : Limits::lowest());
  }

  Descriptor tokens(const void* memory, std::int64_t heads, std::int64_t count, std::int64_t hdim,
                    const FmhaStrides& strides, const PackedTokens& packed,
                    bool is_transposed = false) {
    Layout layout{*data_type_of(p_.in), {p_.batch, heads, count, hdim}, {}};
    layout.strides.assign(strides.begin(), strides.end());
    if (is_packed(p_)) layout.strides[kBatch] = count * strides[kToken];
    if (is_transposed) {
      std::swap(layout.dims[kToken], layout.dims[kElement]);
      std::swap(layout.strides[kToken], layout.strides[kElement]);
    }
    return graph_.stored(layout, memory, offsets_of(packed, strides[kToken]));
  }
  Descriptor q() { return tokens(o_.q, p_.heads, p_.seqlen_q, p_.hdim, p_.q_strides, packed_q_); }
  Descriptor transposed_k() {
    return tokens(o_.k, p_.heads_kv, p_.seqlen_k, p_.hdim, p_.k_strides, packed_k_, true);
  }
  Descriptor v() {
    return tokens(o_.v, p_.heads_kv, p_.seqlen_k, p_.hdim_v, p_.v_strides, packed_k_);
  }
  Descriptor out() {
    return tokens(o_.out, p_.heads, p_.seqlen_q, p_.hdim_v, p_.out_strides, packed_q_);
  }

  // ---- lengths ----

  Descriptor column(const std::int32_t* memory, std::int64_t count) {
    return graph_.stored(dense(DataType::int32, {count, 1, 1, 1}), memory);
  }

  const std::int32_t* on_device(const std::vector<std::int32_t>& values) {
    const std::size_t bytes = values.size() * sizeof(std::int32_t);
    auto buffer = std::make_shared<runtime::DeviceBuffer>(place_, bytes);
    place_.backend->copy_to_device(buffer->data(), values.data(), bytes, place_.options);
    graph_.keep(buffer);
    return static_cast<const std::int32_t*>(buffer->data());
  }

  // Null where sequences are not packed. A distance lies between two tokens, in elements.
  Descriptor offsets_of(const PackedTokens& packed, std::int64_t distance) {
    if (packed.first.empty()) return nullptr;
    std::vector<std::int32_t> offsets;
    for (const std::int32_t first : packed.first) {
      offsets.push_back(static_cast<std::int32_t>(first * distance));
    }
    return column(on_device(offsets), p_.batch + 1);
  }

  void set_lengths() {
    const std::int32_t *q = o_.seqlens_q, *k = o_.seqlens_k;
    if (is_packed(p_)) {
      packed_q_ = packed_tokens(place_, q, p_.batch, p_.tokens_q, p_.seqlen_q);
      packed_k_ = packed_tokens(place_, k, p_.batch, p_.tokens_k, p_.seqlen_k);
      q = on_device(packed_q_.counts), k = on_device(packed_k_.counts);
    }
    counts_q_ = column(q, p_.batch);
    counts_k_ = column(k, p_.batch);
  }

  // ---- operations ----

  // c = a b. The counts say how much of each batch counts; null: all.
  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& c,
                const Descriptor& rows, const Descriptor& columns, const Descriptor& depth) {
    const Descriptor numbers = graph_.make(Kind::matmul);
    lib_.set(numbers, Attribute::matmul_compute, DataType::fp32);
    lib_.finish(numbers);
    const Descriptor operation = graph_.make(Kind::matmul_operation);
    lib_.set(operation, Attribute::matmul_a, a);
    lib_.set(operation, Attribute::matmul_b, b);
    lib_.set(operation, Attribute::matmul_c, c);
    lib_.set(operation, Attribute::matmul_of, numbers);
    if (rows != nullptr) lib_.set(operation, Attribute::matmul_rows, rows);
    if (columns != nullptr) lib_.set(operation, Attribute::matmul_columns, columns);
    if (depth != nullptr) lib_.set(operation, Attribute::matmul_depth, depth);
    graph_.add(operation);
  }

  // y = x or y = x op b, or where the condition holds x, elsewhere b.
  Descriptor pointwise(Pointwise mode, DataType compute, const Descriptor& y, const Descriptor& x,
                       const Descriptor& b = nullptr, const Descriptor& condition = nullptr,
                       std::int64_t axis = -1) {
    const Descriptor numbers = graph_.make(Kind::pointwise);
    lib_.set(numbers, Attribute::pointwise_mode, As::pointwise_mode, 1, &mode);
    lib_.set(numbers, Attribute::pointwise_compute, compute);
    if (axis >= 0) lib_.set(numbers, Attribute::pointwise_axis, axis);
    lib_.finish(numbers);
    const Descriptor operation = graph_.make(Kind::pointwise_operation);
    lib_.set(operation, Attribute::pointwise_of, numbers);
    lib_.set(operation, Attribute::pointwise_x, x);
    lib_.set(operation, Attribute::pointwise_y, y);
    if (b != nullptr) lib_.set(operation, Attribute::pointwise_b, b);
    if (condition != nullptr) lib_.set(operation, Attribute::pointwise_condition, condition);
    graph_.add(operation);
    return y;
  }

  // An operation on scores, in fp32.
  Descriptor with(Pointwise mode, const Descriptor& x, const Descriptor& b = nullptr) {
    return pointwise(mode, DataType::fp32, inner_scores(), x, b);
  }
  // An operation on numbers of keys and queries.
  Descriptor counted(Pointwise mode, const Descriptor& x, const Descriptor& b) {
    return pointwise(mode, DataType::int32, inner_scores(DataType::int32), x, b);
  }
  Descriptor asked(Pointwise mode, const Descriptor& x, const Descriptor& b) {
    return pointwise(mode, DataType::boolean, inner_scores(DataType::boolean), x, b);
  }
  Descriptor index(std::int64_t axis, const Descriptor& scores, DataType compute) {
    return pointwise(Pointwise::index, compute, inner_scores(DataType::int32), scores, nullptr,
                     nullptr, axis);
  }
  Descriptor where(const Descriptor& condition, const Descriptor& scores) {
    return pointwise(Pointwise::select, DataType::fp32, inner_scores(), scores, minus_infinity(),
                     condition);
  }

  Descriptor reduced(Reduction mode, const Descriptor& x) {
    const Descriptor y = graph_.inner(row_layout());
    const Descriptor numbers = graph_.make(Kind::reduction);
    lib_.set(numbers, Attribute::reduction_mode, As::reduction_mode, 1, &mode);
    lib_.set(numbers, Attribute::reduction_compute, DataType::fp32);
    lib_.finish(numbers);
    const Descriptor operation = graph_.make(Kind::reduction_operation);
    lib_.set(operation, Attribute::reduction_x, x);
    lib_.set(operation, Attribute::reduction_y, y);
    lib_.set(operation, Attribute::reduction_of, numbers);
    graph_.add(operation);
    return y;
  }

  // ---- scores ----

  Descriptor scaled(const Descriptor& scores) {
    return with(Pointwise::multiply, scores, graph_.value(p_.scale));
  }

  Descriptor capped(const Descriptor& scores) {
    if (p_.soft_cap == 0) return scores;
    const Descriptor cap = graph_.value(p_.soft_cap);
    const Descriptor share = with(Pointwise::divide, scores, cap);
    return with(Pointwise::multiply, with(Pointwise::tanh, share), cap);
  }

  Descriptor biased(const Descriptor& scores) {
    if (p_.bias == FmhaBias::none) return scores;
    if (p_.bias == FmhaBias::elementwise) return with(Pointwise::add, scores, elements_of_bias());
    const Descriptor row = index(kToken, scores, DataType::int32);
    const Descriptor column = index(kElement, scores, DataType::int32);
    const Descriptor distance = counted(Pointwise::subtract, column, row);
    const Descriptor slopes = graph_.stored(dense(DataType::fp32, {1, p_.heads, 1, 1}), o_.slopes);
    return with(Pointwise::add, scores, with(Pointwise::multiply, distance, slopes));
  }

  // A stride of 0 is a dimension of size 1.
  Descriptor elements_of_bias() {
    Sizes dims = {p_.batch, p_.heads, p_.seqlen_q, p_.seqlen_k};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (p_.bias_strides[i] == 0) dims[i] = 1;
    }
    Layout layout = dense(*data_type_of(p_.dtype_bias), dims);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] > 1) layout.strides[i] = p_.bias_strides[i];
    }
    return graph_.stored(layout, o_.bias);
  }

  Descriptor masked(Descriptor scores) {
    if (counts_q_ != nullptr) scores = within_lengths(scores);
    if (has_right_end(p_)) scores = up_to_right_end(scores);
    if (has_left_end(p_)) scores = from_left_end(scores);
    return scores;
  }

  Descriptor within_lengths(const Descriptor& scores) {
    const Descriptor row = index(kToken, scores, DataType::int32);
    const Descriptor column = index(kElement, scores, DataType::int32);
    const Descriptor is_query = asked(Pointwise::is_less, row, counts_q_);
    const Descriptor is_key = asked(Pointwise::is_less, column, counts_k_);
    return where(asked(Pointwise::logical_and, is_query, is_key), scores);
  }

  // How many queries the sequences have, as one number or a tensor.
  Descriptor queries() {
    return counts_q_ != nullptr ? counts_q_ : graph_.value(static_cast<std::int32_t>(p_.seqlen_q));
  }
  Descriptor keys() {
    return counts_k_ != nullptr ? counts_k_ : graph_.value(static_cast<std::int32_t>(p_.seqlen_k));
  }

  // Keeps the keys with i + shift + window_right >= j.
  Descriptor up_to_right_end(const Descriptor& scores) {
    Descriptor row = index(kToken, scores, DataType::fp32);
    const Descriptor column = index(kElement, scores, DataType::fp32);
    if (p_.mask == FmhaMask::bottom_right) {
      row = counted(Pointwise::add, row, keys());
      row = counted(Pointwise::subtract, row, queries());
    }
    if (p_.window_right > 0) {
      const auto right = static_cast<std::int32_t>(p_.window_right);
      row = counted(Pointwise::add, row, graph_.value(right));
    }
    return where(asked(Pointwise::is_at_least, row, column), scores);
  }

  // Keeps the keys with j + window_left + 1 - shift > i. The library wants the sum in fp32 where
  // the shift is known.
  Descriptor from_left_end(const Descriptor& scores) {
    const Descriptor row = index(kToken, scores, DataType::fp32);
    Descriptor column = index(kElement, scores, DataType::fp32);
    const bool is_shifted = p_.mask == FmhaMask::bottom_right;
    if (is_shifted && counts_q_ != nullptr) {
      const auto left = static_cast<std::int32_t>(p_.window_left + 1);
      column = counted(Pointwise::add, column, graph_.value(left));
      column = counted(Pointwise::subtract, column, keys());
      column = counted(Pointwise::add, column, queries());
    } else {
      const std::int64_t shift = is_shifted ? p_.seqlen_k - p_.seqlen_q : 0;
      column = with(Pointwise::add, column,
                    graph_.value(static_cast<float>(p_.window_left + 1 - shift)));
    }
    return where(asked(Pointwise::is_greater, column, row), scores);
  }

  // The weights go into a product, in the type of its other operand. Without the logarithm of the
  // sum, whether it is stored or not, the library does not recognise the graph.
  Descriptor softmax(const Descriptor& scores) {
    const Descriptor most = reduced(Reduction::max, scores);
    const Descriptor power = with(Pointwise::exp, with(Pointwise::subtract, scores, most));
    const Descriptor sum = reduced(Reduction::add, power);
    const Descriptor log =
        pointwise(Pointwise::log, DataType::fp32, graph_.inner(row_layout()), sum);
    const Descriptor lse =
        p_.lse ? graph_.stored(row_layout(), o_.lse) : graph_.inner(row_layout());
    pointwise(Pointwise::add, DataType::fp32, lse, most, log);
    return pointwise(Pointwise::divide, DataType::fp32, inner_scores(*data_type_of(p_.in)), power,
                     sum);
  }

  Graph& graph_;
  const Library& lib_;
  const FmhaProblem& p_;
  const FmhaOperands& o_;
  runtime::Place place_;
  PackedTokens packed_q_, packed_k_;
  Descriptor counts_q_, counts_k_;  // null: equal lengths
};

}  // namespace

std::optional<Graph> fmha_graph(std::shared_ptr<const Library> library, const FmhaProblem& problem,
                                const FmhaOperands& operands) {
  const FmhaProblem p = with_strides(problem);
  if (!has_known_fields(problem) || !is_computed(p)) return std::nullopt;
  Graph graph(std::move(library));
  Attention(graph, p, operands).add_operations();
  return graph;
}

}  // namespace tessera::peers::cudnn
