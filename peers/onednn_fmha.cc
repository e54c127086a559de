// Background: oneDNN has no primitive for attention. Its user multiplies q and k, takes the softmax
// of the scores, and multiplies them with v: three primitives over all sequences and heads.
// Approach: the scale is an operation behind the first product; cap, bias and mask are passes over
// the scores, because with them oneDNN has only its plain loops for the product. Heads are two
// dimensions, groups and the heads of a group, so that a group's k and v are one matrix for all its
// heads. A way leaves tensors where they are, or moves them to where the products are fast.
#include "peers/onednn_fmha.h"

#include <algorithm>
#include <array>
#include <limits>

#include "peers/fmha_fields.h"
#include "peers/onednn_conv.h"

namespace tessera::peers::onednn {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of the scores

// ---- which problems ----

// oneDNN accepts tensors whose batches or heads share memory, but what comes out is wrong. It
// accepts gaps between the elements of a head, and fails for some when it runs.
bool is_usual(const FmhaStrides& strides) {
  return strides[0] > 0 && strides[1] > 0 && strides[2] > 0 && strides[3] == 1;
}

bool is_known(const FmhaProblem& p) {
  const bool is_empty = p.batch == 0 || p.seqlen_q == 0 || p.seqlen_k == 0;
  const bool is_type_known = type_of(p.in) && type_of(p.out) && type_of(p.dtype_bias);
  const auto scores = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seqlen_q) *
                      static_cast<double>(p.seqlen_k);
  return p.kind == FmhaKind::forward && !is_empty && is_type_known && p.pages == FmhaPages::none &&
         p.lengths == FmhaLengths::equal && !p.lse && is_usual(p.q_strides) &&
         is_usual(p.k_strides) && is_usual(p.v_strides) && is_usual(p.out_strides) &&
         p.bias != FmhaBias::alibi && p.p_drop == 0 && scores * sizeof(float) <= double{kMostBytes};
}

bool is_seen(const FmhaProblem& p, std::int64_t query, std::int64_t key) {
  if (p.mask == FmhaMask::none) return true;
  const bool is_shifted = p.mask == FmhaMask::bottom_right;
  const std::int64_t diagonal = query + (is_shifted ? p.seqlen_k - p.seqlen_q : 0);
  const bool is_right_of_end = p.window_right >= 0 && key > diagonal + p.window_right;
  const bool is_left_of_end = p.window_left >= 0 && key < diagonal - p.window_left;
  return !is_right_of_end && (!is_left_of_end || key < p.sink);
}

// 0 for the keys that a query sees and minus infinity for others; empty where a query sees none,
// whose output would be the quotient of two zeros.
std::vector<float> mask_of(const FmhaProblem& p) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> mask;
  for (std::int64_t i = 0; i < p.seqlen_q; ++i) {
    bool sees_any = false;
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      mask.push_back(is_seen(p, i, j) ? 0.0F : -kInfinity);
      sees_any = sees_any || mask.back() == 0;
    }
    if (!sees_any) return {};
  }
  return mask;
}

// ---- tensors ----

// Where the elements of a tensor are.
struct FmhaTensor {
  Tensor tensor;
  void* data = nullptr;
};

Tensor dense(const Sizes& dims, Type type) {
  Tensor tensor{dims, type, Sizes(dims.size(), 1)};
  for (std::size_t i = dims.size() - 1; i-- > 0;) {
    tensor.strides[i] = tensor.strides[i + 1] * dims[i + 1];
  }
  return tensor;
}

FmhaTensor transposed(FmhaTensor place) {
  Tensor& tensor = place.tensor;
  std::swap(*(tensor.dims.end() - 1), *(tensor.dims.end() - 2));
  std::swap(*(tensor.strides.end() - 1), *(tensor.strides.end() - 2));
  return place;
}

// {batch, group, head of the group, row, column}. Without groups these are one dimension with the
// heads. A tensor with fewer heads has one for each group. Nobody needs the distance of the next
// row where there is one row, but oneDNN's products look at it.
Tensor tensor_of(const FmhaProblem& p, DType dtype, std::int64_t heads, std::int64_t rows,
                 std::int64_t columns, const FmhaStrides& s) {
  const std::int64_t each = heads / p.heads_kv;
  Tensor tensor{{p.batch, p.heads_kv, each, rows, columns},
                *type_of(dtype),
                {s[0], s[1] * each, s[1], rows == 1 ? std::max(columns, s[2]) : s[2], s[3]}};
  if (p.heads != p.heads_kv) return tensor;
  tensor.dims.erase(tensor.dims.begin() + 2);
  tensor.strides.erase(tensor.strides.begin() + 2);
  return tensor;
}

// A stride of 0 is a dimension of size 1. Sums with a tensor that has an unusual stride in such a
// dimension are wrong, where no other is unusual.
Tensor bias_of(const FmhaProblem& p) {
  Tensor bias = tensor_of(p, p.dtype_bias, p.heads, p.seqlen_q, p.seqlen_k, p.bias_strides);
  for (std::size_t i = bias.dims.size(); i-- > 0;) {
    if (bias.strides[i] == 0) bias.dims[i] = 1;
    if (bias.dims[i] > 1) continue;
    bias.strides[i] = i + 1 == bias.dims.size() ? 1 : bias.strides[i + 1] * bias.dims[i + 1];
  }
  return bias;
}

// ---- the steps ----

// One run of the peer.
struct FmhaRun {
  std::shared_ptr<const Library> library;
  std::vector<Step> steps;
  std::vector<std::shared_ptr<void>> memory;

  void operator()() const {
    if (library->run(steps)) return;
    throw Error(ErrorCode::unsupported, "onednn refused to run attention it had accepted");
  }
};

struct FmhaWay {
  const char* how;
  bool moves;  // q, k and v to matrices without gaps, and the output back
};
constexpr std::array kFmhaWays = {FmhaWay{"matmul, softmax, matmul", false},
                                  FmhaWay{"matmul, softmax, matmul, all reordered", true}};

using Mask = std::shared_ptr<std::vector<float>>;

// The steps of one way; empty where oneDNN refuses one of them.
class FmhaBuilder {
 public:
  FmhaBuilder(const std::shared_ptr<const Library>& library, const FmhaProblem& p,
              const FmhaOperands& o, const Mask& mask, const FmhaWay& way)
      : library_(*library), p_(p), o_(o), mask_(mask), way_(way) {
    run_.library = library;
  }

  std::optional<FmhaRun> build() {
    const FmhaTensor q = input(p_.heads, p_.seqlen_q, p_.hdim, p_.q_strides, o_.q);
    const FmhaTensor k = input(p_.heads_kv, p_.seqlen_k, p_.hdim, p_.k_strides, o_.k);
    const FmhaTensor v = input(p_.heads_kv, p_.seqlen_k, p_.hdim_v, p_.v_strides, o_.v);
    Sizes dims = q.tensor.dims;
    dims.back() = p_.seqlen_k;
    const FmhaTensor scores = own(dense(dims, Type::f32));
    const FmhaTensor weights = p_.in == DType::fp32 ? scores : own(dense(dims, *type_of(p_.in)));
    const PostOp scale = {Eltwise::linear, p_.scale};
    multiply(q, transposed(k), scores, std::span(&scale, 1));
    finish_scores(scores);
    take_softmax(scores, weights);
    const FmhaTensor out = {tensor_of(p_, p_.out, p_.heads, p_.seqlen_q, p_.hdim_v, p_.out_strides),
                            o_.out};
    const FmhaTensor result = way_.moves ? own(dense(out.tensor.dims, out.tensor.type)) : out;
    multiply(weights, v, result);
    if (way_.moves) reorder(result, out);
    return is_refused_ ? std::nullopt : std::optional(std::move(run_));
  }

 private:
  Handle describe(const FmhaTensor& place) {
    Handle described = library_.describe(place.tensor);
    is_refused_ = is_refused_ || described == nullptr;
    return described;
  }

  Handle memory(const FmhaTensor& place) {
    const Handle described = describe(place);
    return described == nullptr ? nullptr : library_.memory(described, place.data);
  }

  void add(const Handle& primitive, std::vector<Operand> operands) {
    is_refused_ = is_refused_ || primitive == nullptr;
    run_.steps.push_back({primitive, std::move(operands)});
  }

  void reorder(const FmhaTensor& from, const FmhaTensor& to) {
    const Handle source = describe(from), destination = describe(to);
    if (is_refused_) return;
    add(library_.reorder(source, destination),
        {{Argument::source, memory(from)}, {Argument::destination, memory(to)}});
  }

  // A tensor between two steps, without gaps.
  FmhaTensor own(const Tensor& tensor) {
    const Handle described = library_.describe(tensor);
    is_refused_ = is_refused_ || described == nullptr;
    if (is_refused_) return {tensor, nullptr};
    auto room = std::make_shared<runtime::AlignedBuffer>(library_.bytes(described));
    run_.memory.push_back(room);
    return {tensor, room->data()};
  }

  FmhaTensor input(std::int64_t heads, std::int64_t rows, std::int64_t columns,
                   const FmhaStrides& strides, const void* data) {
    const FmhaTensor place = {tensor_of(p_, p_.in, heads, rows, columns, strides),
                              const_cast<void*>(data)};
    if (!way_.moves) return place;
    const FmhaTensor moved = own(dense(place.tensor.dims, place.tensor.type));
    reorder(place, moved);
    return moved;
  }

  void add_eltwise(Eltwise op, float alpha, const FmhaTensor& data) {
    const Handle described = describe(data);
    if (is_refused_) return;
    add(library_.eltwise(op, described, alpha, 0),
        {{Argument::source, memory(data)}, {Argument::destination, memory(data)}});
  }

  void add_tensor(const FmhaTensor& other, const FmhaTensor& data) {
    const Handle described = describe(data), added = describe(other);
    if (is_refused_) return;
    add(library_.binary(Binary::add, described, added), {{Argument::source, memory(data)},
                                                         {Argument::source_1, memory(other)},
                                                         {Argument::destination, memory(data)}});
  }

  // Passes over the products of q and k.
  void finish_scores(const FmhaTensor& scores) {
    if (p_.soft_cap != 0) {
      add_eltwise(Eltwise::linear, 1 / p_.soft_cap, scores);
      add_eltwise(Eltwise::tanh, 0, scores);
      add_eltwise(Eltwise::linear, p_.soft_cap, scores);
    }
    if (p_.bias == FmhaBias::elementwise) {
      add_tensor({bias_of(p_), const_cast<void*>(o_.bias)}, scores);
    }
    if (mask_ == nullptr) return;
    Sizes dims(scores.tensor.dims.size(), 1);
    *(dims.end() - 2) = p_.seqlen_q, *(dims.end() - 1) = p_.seqlen_k;
    run_.memory.push_back(mask_);
    add_tensor({dense(dims, Type::f32), mask_->data()}, scores);
  }

  void take_softmax(const FmhaTensor& scores, const FmhaTensor& weights) {
    const Handle source = describe(scores), destination = describe(weights);
    if (is_refused_) return;
    add(library_.softmax(source, destination, static_cast<int>(scores.tensor.dims.size())),
        {{Argument::source, memory(scores)}, {Argument::destination, memory(weights)}});
  }

  // c = a b, times the scale where there is one.
  void multiply(const FmhaTensor& a, const FmhaTensor& b, const FmhaTensor& c,
                std::span<const PostOp> scale = {}) {
    const Handle source = describe(a), weights = describe(b), destination = describe(c);
    if (is_refused_) return;
    const auto matmul = library_.matmul(source, weights, destination, scale);
    is_refused_ = !matmul || matmul->code.starts_with("ref");
    if (is_refused_) return;
    add(matmul->primitive, {{Argument::source, memory(a)},
                            {Argument::weights, memory(b)},
                            {Argument::destination, memory(c)}});
  }

  const Library& library_;
  const FmhaProblem& p_;
  const FmhaOperands& o_;
  const Mask& mask_;  // null: none
  const FmhaWay& way_;
  FmhaRun run_;
  bool is_refused_ = false;
};

}  // namespace

std::vector<PeerCall> fmha_calls(const std::shared_ptr<const Library>& library,
                                 const FmhaProblem& problem, const FmhaOperands& operands) {
  const FmhaProblem p = with_strides(problem);
  if (!has_known_fields(problem) || !is_known(p)) return {};
  Mask mask;
  if (p.mask != FmhaMask::none) {
    mask = std::make_shared<std::vector<float>>(mask_of(p));
    if (mask->empty()) return {};
  }
  std::vector<PeerCall> calls;
  for (const FmhaWay& way : kFmhaWays) {
    if (auto run = FmhaBuilder(library, p, operands, mask, way).build()) {
      calls.push_back({"onednn", way.how, std::move(*run)});
    }
  }
  return calls;
}

}  // namespace tessera::peers::onednn
