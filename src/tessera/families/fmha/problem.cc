// The family's table, and what it says of problems.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/tile/features.h"
#include "tessera/families/tile/usual.h"

namespace tessera::fmha {
namespace {

// ---- operands ----

// The pointers of FmhaOperands in their order.
enum Operand : std::size_t {
  kQ,
  kK,
  kV,
  kBias,
  kSlopes,
  kSeqlensQ,
  kSeqlensK,
  kDropoutRng,
  kOut,
  kLse,
  kRandomValues,
  kOperands
};
constexpr std::array<std::string_view, kOperands> kNames = {
    "q",         "k",           "v",   "bias", "slopes",       "seqlens_q",
    "seqlens_k", "dropout_rng", "out", "lse",  "random_values"};

Tensor& add(Operand operand, DType dtype, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kNames[operand];
  tensor.operand = operand;
  tensor.access = operand >= kOut ? Access::write : Access::read;
  tensor.dtype = dtype;
  return tensor;
}

void set_rows(Tensor& tensor, const std::array<std::int64_t, 4>& sizes, const FmhaStrides& s) {
  tensor.rank = 4;
  std::copy(sizes.begin(), sizes.end(), tensor.sizes.begin());
  tensor.strides = {s[3], s[2], s[1], s[0]};
}

bool is_packed(const FmhaProblem& p) { return p.lengths == FmhaLengths::packed; }

// Packed tokens are one long sequence.
void add_tokens(Operand operand, DType dtype, const FmhaProblem& p, std::int64_t heads,
                std::int64_t hdim, const FmhaStrides& strides, Tensors& all) {
  const bool is_q = operand == kQ || operand == kOut;
  const std::int64_t longest = is_q ? p.seqlen_q : p.seqlen_k;
  const std::int64_t tokens = is_packed(p) ? (is_q ? p.tokens_q : p.tokens_k) : longest;
  FmhaStrides s = strides;
  if (is_packed(p)) s[0] = 0;
  set_rows(add(operand, dtype, all), {hdim, tokens, heads, is_packed(p) ? 1 : p.batch}, s);
}

void add_lengths(Operand operand, std::int64_t longest, std::int64_t tokens, const FmhaProblem& p,
                 Tensors& all) {
  Tensor& tensor = add(operand, DType::int32, all);
  tensor.sizes[0] = p.batch + (is_packed(p) ? 1 : 0);
  tensor.strides[0] = 1;
  tensor.fill = is_packed(p) ? Fill::prefix_sums : Fill::lengths;
  tensor.most = longest, tensor.total = tokens;
}

// Two words of 64 bits, for which there is no type.
void add_dropout_rng(Tensors& all) {
  Tensor& tensor = add(kDropoutRng, DType::int32, all);
  tensor.sizes[0] = 4, tensor.strides[0] = 1;
  tensor.alignment = sizeof(std::uint64_t);
  tensor.may_be_null = true;
}

// Bytes, in the type of one byte that counts; their rows lie as those of lse do.
void add_random_values(const FmhaProblem& p, Tensors& all) {
  const LseLayout rows = lse_layout(p);
  const auto stride = [&](std::size_t i) { return rows.strides[i] * p.seqlen_k; };
  set_rows(add(kRandomValues, DType::int8, all), {p.seqlen_k, rows.tokens, p.heads, rows.batches},
           {stride(0), stride(1), stride(2), 1});
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<FmhaOperands>(operands);
  const std::array<const void**, 4> inputs = {&o.q, &o.k, &o.v, &o.bias};
  if (operand < inputs.size()) *inputs[operand] = data;
  if (operand == kSlopes) o.slopes = static_cast<const float*>(data);
  if (operand == kSeqlensQ) o.seqlens_q = static_cast<const std::int32_t*>(data);
  if (operand == kSeqlensK) o.seqlens_k = static_cast<const std::int32_t*>(data);
  if (operand == kDropoutRng) o.dropout_rng = static_cast<const std::uint64_t*>(data);
  if (operand == kOut) o.out = data;
  if (operand == kLse) o.lse = static_cast<float*>(data);
  if (operand == kRandomValues) o.random_values = static_cast<std::uint8_t*>(data);
}

// ---- what learning and reports ask for ----

std::string model_key(const Signature& signature) {
  return "forward_" + std::string(to_string(std::get<FmhaSignature>(signature).in));
}

tessera::Facts facts(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  const auto bits = [](std::int64_t size) { return static_cast<std::uint64_t>(size); };
  const char* const queries = p.seqlen_q <= 16 ? "decode" : p.seqlen_q < 1024 ? "short" : "long";
  std::uint64_t shape = 0;
  for (const std::int64_t size : {p.batch, p.heads, p.heads_kv, p.seqlen_q, p.seqlen_k, p.hdim}) {
    shape = mix(shape ^ bits(size));
  }
  return {
      .dtype = p.in,
      .types = {{"dtype", std::string(to_string(p.in))}, {"mask", std::string(to_string(p.mask))}},
      .sizes = {{"queries", queries}},
      .axes = {Axis{"seqlen_q", p.seqlen_q}, Axis{"seqlen_k", p.seqlen_k}},
      .shape_hash = shape,
      .bandwidth_bound = p.seqlen_q <= 16};
}

const Instruction* roof(const Problem& problem, const Target& target) {
  const DType in = fmha_of(problem).in;
  return find_instruction(target, in, in, DType::fp32);
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  FmhaProblem p = fmha_of(problem);
  if (!words.dtype.empty()) p.in = p.out = p.dtype_bias = parse_dtype(words.dtype);
  return p;
}

Problem from_words(const ProblemWords& words) {
  return tile::from_words(
      Op::fmha, words,
      std::array<std::string_view, 10>{"batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "hdim",
                                       "hdim_v", "mask", "dtype", "lse"});
}

}  // namespace

Tensors tensors(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  Tensors all;
  add_tokens(kQ, p.in, p, p.heads, p.hdim, p.q_strides, all);
  add_tokens(kK, p.in, p, p.heads_kv, p.hdim, p.k_strides, all);
  add_tokens(kV, p.in, p, p.heads_kv, p.hdim_v, p.v_strides, all);
  if (p.bias == FmhaBias::elementwise) {
    set_rows(add(kBias, p.dtype_bias, all), {p.seqlen_k, p.seqlen_q, p.heads, p.batch},
             p.bias_strides);
  }
  if (p.bias == FmhaBias::alibi) {
    Tensor& slopes = add(kSlopes, DType::fp32, all);
    slopes.rank = 2;
    slopes.sizes[0] = p.heads, slopes.sizes[1] = p.batch;
    slopes.strides[0] = 1, slopes.strides[1] = p.slope_stride;
  }
  if (p.lengths != FmhaLengths::equal) {
    add_lengths(kSeqlensQ, p.seqlen_q, p.tokens_q, p, all);
    add_lengths(kSeqlensK, p.seqlen_k, p.tokens_k, p, all);
  }
  if (p.p_drop != 0) add_dropout_rng(all);
  add_tokens(kOut, p.out, p, p.heads, p.hdim_v, p.out_strides, all);
  if (p.lse) {
    const LseLayout lse = lse_layout(p);
    set_rows(add(kLse, DType::fp32, all), {1, lse.tokens, p.heads, lse.batches},
             {lse.strides[0], lse.strides[1], lse.strides[2], 1});
  }
  if (p.random) add_random_values(p, all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<FmhaOperands>(operands);
  return std::array<const void*, kOperands>{
      o.q,         o.k,           o.v,   o.bias, o.slopes,       o.seqlens_q,
      o.seqlens_k, o.dropout_rng, o.out, o.lse,  o.random_values}
      .at(operand);
}

LseLayout lse_layout(const FmhaProblem& p) {
  const std::int64_t tokens = is_packed(p) ? p.tokens_q : p.seqlen_q;
  return {tokens, is_packed(p) ? 1 : p.batch, {is_packed(p) ? 0 : p.heads * tokens, tokens, 1}};
}

// The rows of a mask are counted one by one up to 4096 queries, then in equal steps.
double scores(const FmhaProblem& problem) {
  const FmhaProblem p = with_strides(problem);
  const double pairs = double(p.batch) * double(p.heads);
  if (p.mask == FmhaMask::none) return pairs * double(p.seqlen_q) * double(p.seqlen_k);
  const device::FmhaArguments g = arguments_of(p, {});
  const device::FmhaSequence all = {p.seqlen_q, p.seqlen_k, 0, 0};
  const std::int64_t step = std::max<std::int64_t>(1, p.seqlen_q / 4096);
  double seen = 0, rows = 0;
  for (std::int64_t query = 0; query < p.seqlen_q; query += step, ++rows) {
    const device::FmhaKeys keys = device::keys_of<true>(g, all, query);
    seen += double(keys.sink) + double(keys.end - keys.begin);
  }
  return rows == 0 ? 0 : pairs * seen * (double(p.seqlen_q) / rows);
}

// A product and a sum for each element of q and k, and of p and v.
double flops(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  return 2 * scores(p) * (double(p.hdim) + double(p.hdim_v));
}

double bytes(const Problem& problem) {
  double sum = 0;
  for (const Tensor& tensor : tensors(problem)) {
    double elements = size_of(tensor.dtype);
    for (std::size_t i = 0; i < tensor.rank; ++i) {
      if (tensor.strides[i] != 0) elements *= double(tensor.sizes[i]);  // 0: one for all
    }
    sum += elements;
  }
  return sum;
}

const Family& family() {
  static constexpr Family kFamily = {
      .op = Op::fmha,
      .abi = kAbi,
      .validate = validate,
      .tensors = tensors,
      .pointer = pointer,
      .set_pointer = set_pointer,
      .is_legal = is_legal,
      .is_deterministic = tile::always,
      .supports = supports,
      .enumerate = enumerate,
      .combinations = combinations,
      .derived = derived,
      .candidates = candidates,
      .general = general,
      .preselected = tile::preselected<Op::fmha>,
      .preselected_names = tile::preselected_names<Op::fmha>,
      .is_essential = tile::is_essential<Op::fmha>,
      .emit = emit,
      .source_name = name_of,
      .estimate = estimate,
      .features = tile::usual_features,
      .features_fit = tile::features_fit,
      .extract = tile::extract_usual,
      .bind = bind,
      .prepack = tile::packs_nothing,
      .unpacked = tile::same,
      .verify = verify,
      .reference = reference,
      .compare = compare,
      .plain = tile::same,
      .twin = tile::no_twin,
      .flops = flops,
      .bytes = bytes,
      .model_key = model_key,
      .facts = facts,
      .roof = roof,
      .retyped = retyped,
      .from_words = from_words,
      .problem_sets = problem_sets,
      .draw = draw,
      .samples = samples,
  };
  return kFamily;
}

}  // namespace tessera::fmha
