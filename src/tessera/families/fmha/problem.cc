// The family's table, and what it says of problems.
#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/ways.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/defaults.h"

namespace tessera::fmha {
namespace {

// ---- operands ----

// A pointer of FmhaOperands.
struct OperandRow {
  std::string_view name;
  Access access;
  const void* (*get)(const FmhaOperands&);
  void (*set)(FmhaOperands&, void*);
};
template <auto kPointer>
constexpr OperandRow row(std::string_view name, Access access = Access::read) {
  return {name, access, [](const FmhaOperands& o) -> const void* { return o.*kPointer; },
          [](FmhaOperands& o, void* data) {
            o.*kPointer = static_cast<std::remove_reference_t<decltype(o.*kPointer)>>(data);
          }};
}

enum Operand : std::size_t {
  kQ,
  kK,
  kV,
  kBias,
  kSlopes,
  kSeqlensQ,
  kSeqlensK,
  kPageTable,
  kPageStarts,
  kDropoutRng,
  kDescaleQ,
  kDescaleK,
  kDescaleV,
  kScaleO,
  kOut,
  kLse,
  kRandomValues,
  kBadPage,
  kKNew,
  kVNew,
  kCos,
  kSin,
  kQTurned,
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,
  kDbias,
  kOperands
};
using O = FmhaOperands;
constexpr Access kWritten = Access::write;
constexpr std::array<OperandRow, kOperands> kOperandRows = {
    row<&O::q>("q"),
    row<&O::k>("k"),
    row<&O::v>("v"),
    row<&O::bias>("bias"),
    row<&O::slopes>("slopes"),
    row<&O::seqlens_q>("seqlens_q"),
    row<&O::seqlens_k>("seqlens_k"),
    row<&O::page_table>("page_table"),
    row<&O::page_starts>("page_starts"),
    row<&O::dropout_rng>("dropout_rng"),
    row<&O::descale_q>("descale_q"),
    row<&O::descale_k>("descale_k"),
    row<&O::descale_v>("descale_v"),
    row<&O::scale_o>("scale_o"),
    row<&O::out>("out", kWritten),
    row<&O::lse>("lse", kWritten),
    row<&O::random_values>("random_values", kWritten),
    row<&O::bad_page>("bad_page", kWritten),
    row<&O::k_new>("k_new"),
    row<&O::v_new>("v_new"),
    row<&O::cos>("cos"),
    row<&O::sin>("sin"),
    row<&O::q_turned>("q_turned", kWritten),
    row<&O::dout>("dout"),
    row<&O::dlse>("dlse"),
    row<&O::dq>("dq", kWritten),
    row<&O::dk>("dk", kWritten),
    row<&O::dv>("dv", kWritten),
    row<&O::dbias>("dbias", kWritten)};

Tensor& add(Operand operand, DType dtype, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kOperandRows[operand].name;
  tensor.operand = operand;
  tensor.access = kOperandRows[operand].access;
  tensor.dtype = dtype;
  return tensor;
}

void set_rows(Tensor& tensor, const std::array<std::int64_t, 4>& sizes, const FmhaStrides& s) {
  tensor.rank = 4;
  std::copy(sizes.begin(), sizes.end(), tensor.sizes.begin());
  tensor.strides = {s[3], s[2], s[1], s[0]};
}

// Packed tokens are one long sequence.
Tensor& add_tokens(Operand operand, DType dtype, const FmhaProblem& p, std::int64_t heads,
                   std::int64_t hdim, const FmhaStrides& strides, Tensors& all) {
  const bool is_q = operand != kK && operand != kV && operand != kDk && operand != kDv;
  const std::int64_t longest = is_q ? p.seqlen_q : p.seqlen_k;
  const std::int64_t tokens = is_packed(p) ? (is_q ? p.tokens_q : p.tokens_k) : longest;
  FmhaStrides s = strides;
  if (is_packed(p)) s[0] = 0;
  Tensor& tensor = add(operand, dtype, all);
  set_rows(tensor, {hdim, tokens, heads, is_packed(p) ? 1 : p.batch}, s);
  return tensor;
}

// Pages as if each were a sequence; with `vectorized` runs of elements of k, of tokens of v.
Tensor& add_cache(Operand operand, const FmhaProblem& p, std::int64_t hdim, const FmhaStrides& s,
                  Tensors& all) {
  Tensor& tensor = add(operand, kv_type(p), all);
  if (p.cache_layout == FmhaCacheLayout::linear) {
    set_rows(tensor, {hdim, p.page_size, p.heads_kv, p.num_pages}, s);
    return tensor;
  }
  const std::int64_t run = 16 / size_of(kv_type(p));
  const std::int64_t together = operand == kK ? p.page_size : hdim;
  const std::int64_t runs = (operand == kK ? hdim : p.page_size) / run;
  tensor.rank = 5;
  tensor.sizes = {run, together, runs, p.heads_kv, p.num_pages};
  tensor.strides = {1, run, run * together, s[1], s[0]};
  return tensor;
}

void add_keys(Operand operand, const FmhaProblem& p, std::int64_t hdim, const FmhaStrides& strides,
              Tensors& all) {
  if (is_paged(p)) {
    add_cache(operand, p, hdim, strides, all);
    return;
  }
  add_tokens(operand, kv_type(p), p, p.heads_kv, hdim, strides, all);
}

Tensor& add_indices(Operand operand, std::int64_t count, Fill fill, Tensors& all) {
  Tensor& tensor = add(operand, DType::int32, all);
  tensor.sizes[0] = count;
  tensor.strides[0] = 1;
  tensor.fill = fill;
  return tensor;
}

void add_sums(Operand operand, std::int64_t longest, std::int64_t tokens, const FmhaProblem& p,
              Tensors& all) {
  Tensor& sums = add_indices(operand, p.batch + 1, Fill::prefix_sums, all);
  sums.most = longest, sums.total = tokens;
}

void add_query_lengths(const FmhaProblem& p, Tensors& all) {
  if (is_packed(p)) {
    add_sums(kSeqlensQ, p.seqlen_q, p.tokens_q, p, all);
  } else {
    Tensor& lengths = add_indices(kSeqlensQ, p.batch, Fill::lengths, all);
    lengths.most = p.seqlen_q;
    // Without its only query a sequence would show nothing.
    if (p.seqlen_q == 1) lengths.least = 1;
  }
}

// With pages the keys have lengths, because each sequence begins with a page of its own.
void add_lengths(const FmhaProblem& p, Tensors& all) {
  add_query_lengths(p, all);
  if (is_packed(p) && !is_paged(p)) {
    add_sums(kSeqlensK, p.seqlen_k, p.tokens_k, p, all);
  } else {
    Tensor& lengths = add_indices(kSeqlensK, p.batch, Fill::lengths, all);
    lengths.most = p.seqlen_k;
    if (extends(p)) lengths.least = std::min(p.seqlen_q, p.seqlen_k);
  }
}

void add_pages(const FmhaProblem& p, Tensors& all) {
  const bool is_table = p.pages == FmhaPages::table;
  Tensor& table =
      add_indices(kPageTable, is_table ? p.max_pages : p.page_entries, Fill::indices, all);
  table.most = p.num_pages - 1;
  if (is_table) {
    table.rank = 2;
    table.sizes[1] = p.batch, table.strides[1] = p.table_stride;
    return;
  }
  Tensor& starts = add_indices(kPageStarts, p.batch + 1, Fill::even_sums, all);
  starts.most = pages_needed(p), starts.total = p.page_entries;
}

void add_bad_page(Tensors& all) { add_indices(kBadPage, 4, Fill::numbers, all).is_report = true; }

// Two words of 64 bits, for which there is no type.
void add_dropout_rng(Tensors& all) {
  Tensor& tensor = add(kDropoutRng, DType::int32, all);
  tensor.sizes[0] = 4, tensor.strides[0] = 1;
  tensor.alignment = sizeof(std::uint64_t);
  tensor.may_be_null = true;
}

// Factors lie without gaps; `sizes` begin with the innermost dimension.
Tensor& add_factors(Operand operand, std::initializer_list<std::int64_t> sizes, Tensors& all) {
  Tensor& tensor = add(operand, DType::fp32, all);
  tensor.rank = sizes.size();
  std::copy(sizes.begin(), sizes.end(), tensor.sizes.begin());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < tensor.rank; ++i) {
    tensor.strides[i] = stride;
    stride *= tensor.sizes[i];
  }
  return tensor;
}

// Appending writes the factors of new tokens, and keeps the others.
void add_key_factors(Operand operand, const FmhaProblem& p, Tensors& all) {
  if (p.qscale == FmhaQscale::per_tensor) {
    add_factors(operand, {1}, all);
  } else if (p.qscale == FmhaQscale::per_head) {
    add_factors(operand, {p.heads_kv}, all);
  } else if (scales_pages(p)) {
    add_factors(operand, {p.heads_kv, p.num_pages}, all);
  } else if (p.qscale == FmhaQscale::per_token) {
    const bool has_pages = is_paged(p);
    add_factors(
        operand,
        {has_pages ? p.page_size : p.seqlen_k, p.heads_kv, has_pages ? p.num_pages : p.batch}, all)
        .access = appends(p) || extends(p) ? Access::update : Access::read;
  } else {
    add_factors(operand, {blocks_of_keys(p), p.heads_kv, p.batch}, all);
  }
}

void add_scales(const FmhaProblem& p, Tensors& all) {
  if (p.qscale == FmhaQscale::per_block) {
    add_factors(kDescaleQ, {blocks_of_queries(p), p.heads, p.batch}, all);
  } else if (is_eight_bits(p.in)) {
    add_factors(kDescaleQ, {1}, all);
  }
  for (const Operand operand : {kDescaleK, kDescaleV}) add_key_factors(operand, p, all);
  if (is_eight_bits(p.out)) add_factors(kScaleO, {1}, all);
}

// Bytes, in the type of one byte that counts; their rows lie as lse's rows do.
void add_random_values(const FmhaProblem& p, Tensors& all) {
  const LseLayout rows = lse_layout(p);
  const auto stride = [&](std::size_t i) { return rows.strides[i] * p.seqlen_k; };
  set_rows(add(kRandomValues, DType::int8, all), {p.seqlen_k, rows.tokens, p.heads, rows.batches},
           {stride(0), stride(1), stride(2), 1});
}

// The cache keeps what is not written.
void add_updated_cache(const FmhaProblem& p, Tensors& all) {
  for (const auto& [operand, hdim, strides] :
       {std::tuple{kK, p.hdim, &p.k_strides}, {kV, p.hdim_v, &p.v_strides}}) {
    if (is_paged(p)) {
      add_cache(operand, p, hdim, *strides, all).access = Access::update;
      continue;
    }
    Tensor& tensor = add(operand, kv_type(p), all);
    tensor.access = Access::update;
    set_rows(tensor, {hdim, p.seqlen_k, p.heads_kv, p.batch}, *strides);
  }
}

// New keys and values, and what turns them.
void add_new_tokens(const FmhaProblem& p, Tensors& all) {
  add_tokens(kKNew, p.in, p, p.heads_kv, p.hdim, p.k_new_strides, all);
  add_tokens(kVNew, p.in, p, p.heads_kv, p.hdim_v, p.v_new_strides, all);
  for (const Operand table : {kCos, kSin}) {
    if (p.rotary == FmhaRotary::none) continue;
    Tensor& tensor = add(table, DType::fp32, all);
    tensor.rank = 2;
    tensor.sizes[0] = tensor.strides[1] = p.rotary_dim / 2;
    tensor.sizes[1] = p.rotary_positions, tensor.strides[0] = 1;
  }
}

// How long sequences are before the call leaves room for the longest new part, as callers do.
Tensors append_tensors(const FmhaProblem& p) {
  Tensors all;
  add_updated_cache(p, all);
  add_indices(kSeqlensK, p.batch, Fill::lengths, all).most =
      std::max<std::int64_t>(0, end_of_positions(p) - p.seqlen_q);
  add_new_tokens(p, all);
  if (p.lengths != FmhaLengths::equal) add_query_lengths(p, all);
  if (is_paged(p)) add_pages(p, all);
  if (p.qscale != FmhaQscale::none) {
    for (const Operand operand : {kDescaleK, kDescaleV}) add_key_factors(operand, p, all);
  }
  if (p.rotate_q) {
    Tensor& q = add_tokens(kQ, p.in, p, p.heads, p.hdim, p.q_strides, all);
    q.may_be_output = true, q.may_be = kOut;
    add_tokens(kOut, p.out, p, p.heads, p.hdim, p.out_strides, all);
  }
  if (p.check_pages) add_bad_page(all);
  return all;
}

// What attention reads. With kind=extend the cache is updated before, and q may be turned.
void add_attended(const FmhaProblem& p, Tensors& all) {
  Tensor& q = add_tokens(kQ, p.in, p, p.heads, p.hdim, p.q_strides, all);
  if (!extends(p)) {
    add_keys(kK, p, p.hdim, p.k_strides, all);
    if (!p.v_in_k) add_keys(kV, p, p.hdim_v, p.v_strides, all);
    return;
  }
  if (p.rotate_q) {
    q.may_be_output = true, q.may_be = kQTurned;
    add_tokens(kQTurned, p.in, p, p.heads, p.hdim, p.q_turned_strides, all);
  }
  add_updated_cache(p, all);
  add_new_tokens(p, all);
}

// What lies as lse does.
Tensor& add_like_lse(Operand operand, const FmhaProblem& p, Tensors& all) {
  const LseLayout lse = lse_layout(p);
  Tensor& tensor = add(operand, DType::fp32, all);
  set_rows(tensor, {1, lse.tokens, p.heads, lse.batches},
           {lse.strides[0], lse.strides[1], lse.strides[2], 1});
  return tensor;
}

void add_lse(const FmhaProblem& p, Tensors& all) {
  Tensor& tensor = add_like_lse(kLse, p, all);
  if (!goes_back(p)) return;
  tensor.access = Access::read;
  tensor.fill = Fill::log_sums, tensor.most = p.seqlen_k;
}

// What scores and weights are made of.
void add_inputs(const FmhaProblem& p, Tensors& all) {
  add_attended(p, all);
  if (p.bias == FmhaBias::elementwise) {
    set_rows(add(kBias, p.dtype_bias, all), {p.seqlen_k, p.seqlen_q, p.heads, p.batch},
             p.bias_strides);
  }
  if (p.bias == FmhaBias::alibi) {
    Tensor& slopes = add(kSlopes, DType::fp32, all);
    slopes.rank = 2;
    slopes.sizes[0] = p.heads, slopes.sizes[1] = p.batch;
    slopes.strides[0] = 1, slopes.strides[1] = p.slope_stride;
    if (goes_back(p)) slopes.fill = Fill::positive;  // so that weights stay below 1
  }
  if (p.lengths != FmhaLengths::equal) add_lengths(p, all);
  if (is_paged(p)) add_pages(p, all);
  if (p.p_drop != 0) add_dropout_rng(all);
}

// Without gaps, and with one index where the bias, or a slope, is shared.
void add_dbias(const FmhaProblem& p, Tensors& all) {
  const auto [sizes] =
      device::sizes_of_dbias(arguments_of(p, {}), static_cast<device::FmhaBias>(p.bias));
  set_rows(add(kDbias, p.bias == FmhaBias::alibi ? DType::fp32 : p.dtype_bias, all),
           {sizes[3], sizes[2], sizes[1], sizes[0]},
           {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1});
}

Tensors backward_tensors(const FmhaProblem& p) {
  Tensors all;
  add_inputs(p, all);
  add_tokens(kOut, p.out, p, p.heads, p.hdim_v, p.out_strides, all).access = Access::read;
  add_lse(p, all);
  add_tokens(kDout, p.in, p, p.heads, p.hdim_v, p.dout_strides, all);
  if (p.dlse) add_like_lse(kDlse, p, all);
  add_tokens(kDq, p.in, p, p.heads, p.hdim, p.dq_strides, all);
  add_tokens(kDk, p.in, p, p.heads_kv, p.hdim, p.dk_strides, all);
  add_tokens(kDv, p.in, p, p.heads_kv, p.hdim_v, p.dv_strides, all);
  if (p.dbias) add_dbias(p, all);
  return all;
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  kOperandRows.at(operand).set(std::get<FmhaOperands>(operands), data);
}

// ---- what learning and reports ask for ----

std::string model_key(const Signature& signature) {
  const auto& s = std::get<FmhaSignature>(signature);
  return std::string(to_string(s.kind)) + "_" + std::string(to_string(s.in));
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
      .bandwidth_bound = p.seqlen_q <= 16 || appends(p)};
}

const Instruction* roof(const Problem& problem, const Target& target) {
  const DType in = fmha_of(problem).in;
  return find_instruction(target, in, in, DType::fp32);
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  FmhaProblem p = fmha_of(problem);
  if (words.dtype.empty()) return p;
  p.in = p.dtype_bias = parse_dtype(words.dtype);
  p.out = default_output(p.in);
  if (is_eight_bits(p.in)) p.kv = FmhaKv::same;
  if (is_eight_bits(kv_type(p))) return p;
  p.qscale = FmhaQscale::none;
  p.qscale_block_q = p.qscale_block_k = kPacked;
  return p;
}

Problem from_words(const ProblemWords& words) {
  return tile::from_words(
      Op::fmha, words,
      std::array<std::string_view, 16>{"batch", "heads", "heads_kv", "seqlen_q", "seqlen_k", "hdim",
                                       "hdim_v", "mask", "dtype", "lse", "kind", "rotary",
                                       "rotary_dim", "rotate_q", "qscale", "kv"});
}

}  // namespace

Tensors tensors(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (appends(p)) return append_tensors(p);
  if (goes_back(p)) return backward_tensors(p);
  Tensors all;
  add_inputs(p, all);
  if (p.qscale != FmhaQscale::none) add_scales(p, all);
  add_tokens(kOut, p.out, p, p.heads, p.hdim_v, p.out_strides, all);
  if (p.lse) add_lse(p, all);
  if (p.random) add_random_values(p, all);
  if (p.check_pages) add_bad_page(all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  return kOperandRows.at(operand).get(std::get<FmhaOperands>(operands));
}

std::int64_t blocks_of_queries(const FmhaProblem& p) {
  return p.qscale_block_q < 1 ? 0 : tile::ceil_div(p.seqlen_q, p.qscale_block_q);
}

std::int64_t blocks_of_keys(const FmhaProblem& p) {
  return p.qscale_block_k < 1 ? 0 : tile::ceil_div(p.seqlen_k, p.qscale_block_k);
}

TokenCounts token_counts(const FmhaProblem& p) {
  TokenCounts n = {p.batch, p.seqlen_q, p.batch, p.seqlen_k, "sequence"};
  if (is_packed(p)) n = {1, p.tokens_q, 1, p.tokens_k, "sequence"};
  if (is_paged(p)) n.parts = p.num_pages, n.keys = p.page_size, n.part = "page";
  return n;
}

LseLayout lse_layout(const FmhaProblem& p) {
  const TokenCounts n = token_counts(p);
  return {n.queries, n.sequences, {is_packed(p) ? 0 : p.heads * n.queries, n.queries, 1}};
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
  if (appends(p)) return append_flops(p);
  // Gradients have five products: of q and k, of dout and v, and those that give dq, dk and dv.
  if (goes_back(p)) return 2 * scores(p) * (3 * double(p.hdim) + 2 * double(p.hdim_v));
  const double attention = 2 * scores(p) * (double(p.hdim) + double(p.hdim_v));
  return extends(p) ? attention + append_flops(p) : attention;
}

// In a cache of pages, only the tokens count that all sequences may have.
double bytes(const Problem& problem) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  if (appends(p)) return append_bytes(p);
  if (extends(p)) return bytes(attention_part(p)) + append_bytes(p);
  const double tokens = double(p.num_pages) * double(p.page_size);
  const double share = std::min(1.0, double(p.batch) * double(p.seqlen_k) / std::max(1.0, tokens));
  double sum = 0;
  for (const Tensor& tensor : tensors(problem)) {
    double elements = size_of(tensor.dtype);
    for (std::size_t i = 0; i < tensor.rank; ++i) {
      if (tensor.strides[i] != 0) elements *= double(tensor.sizes[i]);  // 0: one for all
    }
    if (is_paged(p) && (tensor.operand == kK || tensor.operand == kV)) elements *= share;
    sum += elements;
  }
  return sum;
}

namespace {
constexpr hipdnn::Export kHipdnn = {.engine = nullptr, .kernel = refuse_hipdnn};
constexpr Extras kExtras = {.receipts = receipts,
                            .receipt_problems = receipt_problems,
                            .tuned_length = tuned_length,
                            .from_settings = from_settings,
                            .instances = instances,
                            .stage = stage,
                            .twin = twin,
                            .hipdnn = &kHipdnn};
}  // namespace

constinit const Family kFamily = {
    .op = Op::fmha,
    .abi = kAbi,
    .verb = "attend",
    .extras = &kExtras,
    .validate = validate,
    .tensors = tensors,
    .pointer = pointer,
    .set_pointer = set_pointer,
    .is_legal = tile::is_legal<Types>,
    .is_deterministic = is_deterministic,
    .is_batch_invariant = is_batch_invariant,
    .order_of_sums = order_of_sums,
    .any_batch = any_batch,
    .supports = tile::supports<Types>,
    .enumerate = tile::enumerate<Types>,
    .combinations = combinations,
    .derived = derived,
    .candidates = tile::candidates<Types>,
    .legal_candidates = tile::legal_candidates<Types>,
    .general = general,
    .emit = tile::emit<Types>,
    .estimate = estimate,
    .features = features,
    .features_fit = features_fit,
    .is_described = is_described,
    .extract = extract,
    .bind = bind,
    .verify = verify,
    .reference = reference,
    .compare = compare,
    .plain = plain,
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

}  // namespace tessera::fmha
