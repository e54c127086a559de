#include "tessera/spec/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/spec/fields_internal.h"
#include "tessera/spec/problem_bytes.h"
#include "tessera/spec/words_internal.h"

namespace tessera {
namespace {

// Saturates instead of overflowing. Validation reports sizes that do not fit.
std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return std::numeric_limits<std::int64_t>::max();
  return result;
}

void fill(std::int64_t& stride, std::int64_t packed) {
  if (stride == kPacked) stride = packed;
}

Operands operands_of(const GemmProblem&) { return GemmOperands{}; }
Operands operands_of(const NormProblem&) { return NormOperands{}; }
Operands operands_of(const ConvProblem&) { return ConvOperands{}; }
Operands operands_of(const FmhaProblem&) { return FmhaOperands{}; }
Operands operands_of(const RouteProblem&) { return RouteOperands{}; }

// Writes the bytes that equality looks at, one field after the other. The sizes are known to the
// compiler, which turns this into plain stores.
class Writer {
 public:
  explicit Writer(char* to) : to_(to) {}
  template <class T>
  void add(const T& value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    std::memcpy(to_, &value, sizeof(value));
    to_ += sizeof(value);
  }
  void add(float value) {
    const float unsigned_zero = value == 0 ? 0.0F : value;  // -0 equals 0
    std::uint32_t bits = 0;
    std::memcpy(&bits, &unsigned_zero, sizeof(bits));
    add(bits);
  }
  template <class T, std::size_t n>
  void add(const std::array<T, n>& values) {
    for (const T& value : values) add(value);
  }
  void add(const Epilogue& epilogue) {
    add(epilogue.ops);
    add(epilogue.num_d);
  }
  void add(const GemmDims& dims) {
    add(dims.count);
    for (const GemmDim& dim : dims) {
      for (const std::int64_t number : {dim.size, dim.a, dim.b, dim.out, dim.c}) add(number);
      add(dim.d);
      add(dim.kind);
    }
  }
  const char* end() const { return to_; }

 private:
  char* to_;
};

template <class Fields>
void write_fields(const Fields& fields, Writer& writer) {
  for_each_value(fields, [&](const auto& value) { writer.add(value); });
}

constexpr std::size_t first_rare_row() {
  std::size_t at = 0;
  bool is_found = false;
  const auto one = [&](const auto& row) {
    is_found = is_found || row.key == "scale_a";
    if (!is_found) ++at;
  };
  Fields<GemmProblem>::kAll([&](const auto&... rows) { (one(rows), ...); });
  return at;
}

// Calls visit(row) for the rows of GEMM's table before scale_a, or from it on.
template <bool kRare, class Visit>
void for_gemm_rows(Visit&& visit) {
  constexpr std::size_t kFirst = first_rare_row();
  std::size_t at = 0;
  const auto one = [&](const auto& row) {
    if ((at++ >= kFirst) == kRare) visit(row);
  };
  Fields<GemmProblem>::kAll([&](const auto&... rows) { (one(rows), ...); });
}

// Scales, gates, indices, outputs of 8 bits and arranged operands are rare, and calls of others
// should not pay for their bytes: a problem without them has one byte in their place. Flattened,
// because the compiler makes calls of so many rows by itself, which take twice as long.
[[gnu::flatten]] void write_fields(const GemmProblem& p, Writer& writer) {
  static constexpr GemmProblem kNone;
  bool has_rare = false;
  for_gemm_rows<false>([&](const auto& row) { writer.add(p.*row.member); });
  for_gemm_rows<true>([&](const auto& row) { has_rare |= p.*row.member != kNone.*row.member; });
  writer.add(has_rare);
  if (!has_rare) return;
  for_gemm_rows<true>([&](const auto& row) { writer.add(p.*row.member); });
}

}  // namespace

// Operations with a problem are counted as the variants' members are.
static_assert([] {
  for (std::size_t i = 0; i < kVariantOps.size(); ++i) {
    if (static_cast<std::size_t>(kVariantOps[i]) != i) return false;
  }
  return kVariantOps.size() == std::variant_size_v<Problem>;
}());

std::string_view to_string(Op op) { return word_of(op); }
Op parse_op(std::string_view text) { return parse_word<Op>(text); }

std::string_view to_string(GemmLayout layout) { return word_of(layout); }
GemmLayout parse_gemm_layout(std::string_view text) { return parse_word<GemmLayout>(text); }
std::string_view to_string(GemmGrouping grouping) { return word_of(grouping); }
std::string_view to_string(GemmScale scale) { return word_of(scale); }
std::string_view to_string(GemmScaleType type) { return word_of(type); }
std::string_view to_string(GemmGate gate) { return word_of(gate); }
std::string_view to_string(GemmIndexing indexing) { return word_of(indexing); }
std::string_view to_string(GemmMerge merge) { return word_of(merge); }
std::string_view to_string(GemmDimKind kind) { return word_of(kind); }
std::string_view to_string(NormKind kind) { return word_of(kind); }
std::string_view to_string(NormQuant quant) { return word_of(quant); }
std::string_view to_string(RouteScoring scoring) { return word_of(scoring); }
std::string_view to_string(ConvDirection direction) { return word_of(direction); }
std::string_view to_string(ConvLayout layout) { return word_of(layout); }
std::string_view to_string(FmhaKind kind) { return word_of(kind); }
std::string_view to_string(FmhaLengths lengths) { return word_of(lengths); }
std::string_view to_string(FmhaMask mask) { return word_of(mask); }
std::string_view to_string(FmhaBias bias) { return word_of(bias); }
std::string_view to_string(FmhaPages pages) { return word_of(pages); }
std::string_view to_string(FmhaCacheLayout layout) { return word_of(layout); }
std::string_view to_string(FmhaKv kv) { return word_of(kv); }
std::string_view to_string(FmhaQscale qscale) { return word_of(qscale); }
std::string_view to_string(FmhaRotary rotary) { return word_of(rotary); }

GemmProblem gemm_problem(DType a, GemmLayout layout, std::int64_t m, std::int64_t n,
                         std::int64_t k) {
  GemmProblem problem;
  problem.a = a;
  problem.b = a;
  problem.acc = default_accumulator(a);
  problem.out = default_output(a);
  problem.d = problem.out;
  problem.layout = layout;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

ConvProblem conv_problem(DType in, ConvDirection direction, std::int64_t n, std::int64_t c,
                         std::int64_t k, std::initializer_list<std::int64_t> size,
                         std::initializer_list<std::int64_t> filter) {
  if (size.size() != filter.size() || size.size() < 1 || size.size() > 3) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("conv: images and filters have the same 1 to 3 dimensions, got {} and {}",
                    size.size(), filter.size()));
  }
  const DType out = default_output(in);
  ConvProblem problem = {.direction = direction,
                         .ndim = static_cast<std::int64_t>(size.size()),
                         .in = in,
                         .weight = in,
                         .acc = default_accumulator(in),
                         .out = out,
                         .d = out,
                         .n = n,
                         .c = c,
                         .k = k,
                         .size = {1, 1, 1},
                         .epilogue = {}};
  std::copy_backward(size.begin(), size.end(), problem.size.end());
  std::copy_backward(filter.begin(), filter.end(), problem.filter.end());
  return problem;
}

FmhaProblem fmha_problem(DType in, std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
                         std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t hdim) {
  return {.in = in,
          .out = default_output(in),
          .dtype_bias = in,
          .batch = batch,
          .heads = heads,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .hdim = hdim};
}

namespace {

struct ScaleStrides {
  std::int64_t *rows, *k, *batch;
};

// The scales of a row (of B: a column) lie side by side where no stride is given.
void fill_scale_strides(const GemmProblem& p, GemmScale scale, std::int64_t rows,
                        ScaleStrides strides) {
  if (scale == GemmScale::none) return;
  const ScaleBlock blocks = scale_blocks(scale, rows, p.k);
  const std::int64_t width = p.scale_quads ? 4 : 1;
  const std::int64_t steps = blocks.k / width + (blocks.k % width != 0 ? 1 : 0);
  fill(*strides.k, width);
  fill(*strides.rows, product(steps, width));
  fill(*strides.batch, product(blocks.rows, *strides.rows));
}

void fill_scale_strides(GemmProblem& p) {
  fill_scale_strides(p, p.scale_a, stored_rows_a(p),
                     {&p.stride_scale_a_m, &p.stride_scale_a_k, &p.batch_stride_scale_a});
  fill_scale_strides(p, p.scale_b, p.n,
                     {&p.stride_scale_b_n, &p.stride_scale_b_k, &p.batch_stride_scale_b});
}

// Further sources lie as the first does where no stride is given.
void fill_source_strides(GemmProblem& p) {
  for (std::size_t i = 0; i < p.ld_more_a.size(); ++i) {
    fill(p.ld_more_a[i], p.ld_a), fill(p.ld_more_b[i], p.ld_b);
    fill(p.batch_stride_more_a[i], p.batch_stride_a);
    fill(p.batch_stride_more_b[i], p.batch_stride_b);
  }
}

}  // namespace

GemmProblem with_strides(const GemmProblem& problem) {
  GemmProblem p = problem;
  const std::int64_t rows_a = stored_rows_a(p), rows_out = stored_rows_out(p);
  const bool a_rows = a_is_row_major(p.layout);
  const bool b_rows = b_is_row_major(p.layout);
  fill(p.ld_a, a_rows ? p.k : rows_a);
  fill(p.ld_b, b_rows ? p.n : p.k);
  fill(p.ld_c, p.n);
  fill(p.ld_out, stored_columns_out(p));
  fill(p.batch_stride_a, product(a_rows ? rows_a : p.k, p.ld_a));
  fill(p.batch_stride_b, product(b_rows ? p.k : p.n, p.ld_b));
  fill(p.batch_stride_c, product(rows_out, p.ld_c));
  fill(p.batch_stride_out, product(rows_out, p.ld_out));
  std::array<DUse, kMaxD> uses{};
  if (p.epilogue.num_d > 0) uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const DShape shape = i < p.epilogue.num_d ? uses[i].shape : DShape::matrix;
    const std::int64_t length = shape == DShape::along_m ? rows_out : p.n;
    fill(p.ld_d[i], length);
    fill(p.batch_stride_d[i], shape == DShape::matrix ? product(rows_out, p.ld_d[i]) : length);
  }
  if (p.scale_a != GemmScale::none || p.scale_b != GemmScale::none) fill_scale_strides(p);
  if (is_arranged(p)) fill_source_strides(p);
  return p;
}

NormProblem with_strides(const NormProblem& problem) {
  NormProblem p = problem;
  fill(p.ld_in, columns_of_in(p));
  for (std::int64_t* ld : {&p.ld_residual, &p.ld_out, &p.ld_sum}) fill(*ld, p.columns);
  return p;
}

RouteProblem with_strides(const RouteProblem& problem) {
  RouteProblem p = problem;
  fill(p.ld_logits, p.experts);
  return p;
}

namespace {

// Fills in the strides of the dimensions in this order, innermost first: each is as long as all of
// the dimension before.
struct Dimension {
  std::int64_t* stride;
  std::int64_t size;
};
void fill_strides(std::initializer_list<Dimension> dimensions) {
  std::int64_t packed = 1;
  for (const Dimension& dimension : dimensions) {
    fill(*dimension.stride, packed);
    packed = product(*dimension.stride, std::max<std::int64_t>(dimension.size, 1));
  }
}

// `strides` are {n, g, c, d, h, w}; g and c are counts.
void fill_image(ConvStrides& strides, ConvLayout layout, std::int64_t g, std::int64_t c,
                const Spatial& size) {
  const Dimension n = {strides.data(), 1}, group = {&strides[1], g}, channel = {&strides[2], c};
  const Dimension d = {&strides[3], size[0]}, h = {&strides[4], size[1]},
                  w = {&strides[5], size[2]};
  if (layout == ConvLayout::nhwgc) return fill_strides({channel, group, w, h, d, n});
  fill_strides({w, h, d, channel, group, n});
}

// `strides` are {g, k, c, z, y, x}.
void fill_filters(ConvStrides& strides, ConvLayout layout, std::int64_t k, std::int64_t c,
                  const Spatial& size) {
  const Dimension group = {strides.data(), 1}, out = {&strides[1], k}, in = {&strides[2], c};
  const Dimension z = {&strides[3], size[0]}, y = {&strides[4], size[1]},
                  x = {&strides[5], size[2]};
  if (layout == ConvLayout::nhwgc) return fill_strides({in, x, y, z, out, group});
  fill_strides({x, y, z, in, out, group});
}

}  // namespace

ConvProblem with_strides(const ConvProblem& problem) {
  ConvProblem p = problem;
  for (std::size_t i = 0; i < p.pad.size(); ++i) fill(p.pad_right[i], p.pad[i]);
  const std::int64_t groups = std::max<std::int64_t>(p.g, 1);
  fill_image(p.in_strides, p.layout, groups, p.c / groups, p.size);
  fill_filters(p.weight_strides, p.layout, p.k / groups, p.c / groups, p.filter);
  fill_image(p.out_strides, p.layout, groups, p.k / groups, out_size(p));
  return p;
}

namespace {

// {batch, token, head, element} in memory; `strides` are {batch, head, token, element}.
void fill_tokens(FmhaStrides& strides, std::int64_t heads, std::int64_t tokens, std::int64_t hdim) {
  fill_strides(
      {{&strides[3], hdim}, {&strides[1], heads}, {&strides[2], tokens}, {&strides[0], 1}});
}

// Each page is as a sequence. In runs, tokens of k are a run apart, and so are elements of v.
void fill_pages(FmhaProblem& p) {
  if (p.cache_layout == FmhaCacheLayout::linear) {
    fill_tokens(p.k_strides, p.heads_kv, p.page_size, p.hdim);
    return fill_tokens(p.v_strides, p.heads_kv, p.page_size, p.hdim_v);
  }
  const std::int64_t run = 16 / size_of(kv_type(p));
  fill(p.k_strides[3], 1), fill(p.k_strides[2], run);
  fill(p.v_strides[3], run), fill(p.v_strides[2], 1);
  for (const auto& [strides, hdim] : {std::pair{&p.k_strides, p.hdim}, {&p.v_strides, p.hdim_v}}) {
    fill((*strides)[1], product(hdim, p.page_size));
    fill((*strides)[0], product((*strides)[1], p.heads_kv));
  }
}

// How many pages there are, and where the keys and values lie.
void fill_cache(FmhaProblem& p) {
  if (p.pages == FmhaPages::none) {
    fill(p.tokens_k, product(p.batch, p.seqlen_k));
    fill_tokens(p.k_strides, p.heads_kv, p.seqlen_k, p.hdim);
    fill_tokens(p.v_strides, p.heads_kv, p.seqlen_k, p.hdim_v);
  } else {
    fill_pages(p);
  }
  if (p.v_in_k) p.v_strides = p.k_strides;
  const bool is_paged = p.pages != FmhaPages::none, is_table = p.pages == FmhaPages::table;
  const std::int64_t needed = pages_needed(p);
  fill(p.tokens_k, 0);
  fill(p.num_pages, is_paged ? product(p.batch, needed) : 0);
  fill(p.max_pages, is_table ? needed : 0);
  fill(p.table_stride, is_table ? p.max_pages : 0);
  fill(p.page_entries, is_paged && !is_table ? product(p.batch, needed) : 0);
}

void fill_blocks(FmhaProblem& p) {
  constexpr std::int64_t kRowsOfFactor = 128;
  const bool of_queries = p.qscale == FmhaQscale::per_block;
  const bool of_keys = of_queries || p.qscale == FmhaQscale::kv_block;
  fill(p.qscale_block_q, of_queries ? kRowsOfFactor : 0);
  if (p.qscale == FmhaQscale::per_token) fill(p.qscale_block_k, 1);
  fill(p.qscale_block_k, scales_pages(p) ? p.page_size : of_keys ? kRowsOfFactor : 0);
}

}  // namespace

DType kv_type(const FmhaProblem& p) {
  switch (p.kv) {
    case FmhaKv::fp8:
      return DType::fp8;
    case FmhaKv::bf8:
      return DType::bf8;
    default:
      return p.in;
  }
}

bool scales_pages(const FmhaProblem& p) {
  return p.qscale == FmhaQscale::kv_block && p.pages != FmhaPages::none;
}

std::int64_t pages_needed(const FmhaProblem& p) {
  if (p.page_size < 1 || p.seqlen_k < 1) return 0;
  return (p.seqlen_k - 1) / p.page_size + 1;
}

FmhaProblem with_strides(const FmhaProblem& problem) {
  FmhaProblem p = problem;
  fill(p.heads_kv, p.heads);
  fill(p.hdim_v, p.hdim);
  fill(p.tokens_q, product(p.batch, p.seqlen_q));
  fill_tokens(p.q_strides, p.heads, p.seqlen_q, p.hdim);
  fill_cache(p);
  fill_blocks(p);
  const bool appends = p.kind == FmhaKind::append;
  fill_tokens(p.out_strides, p.heads, p.seqlen_q, appends ? p.hdim : p.hdim_v);
  fill_tokens(p.k_new_strides, p.heads_kv, p.seqlen_q, p.hdim);
  fill_tokens(p.v_new_strides, p.heads_kv, p.seqlen_q, p.hdim_v);
  fill_tokens(p.q_turned_strides, p.heads, p.seqlen_q, p.hdim);
  fill_tokens(p.dout_strides, p.heads, p.seqlen_q, p.hdim_v);
  fill_tokens(p.dq_strides, p.heads, p.seqlen_q, p.hdim);
  fill_tokens(p.dk_strides, p.heads_kv, p.seqlen_k, p.hdim);
  fill_tokens(p.dv_strides, p.heads_kv, p.seqlen_k, p.hdim_v);
  const bool rotates = p.rotary != FmhaRotary::none;
  if (rotates && p.rotary_dim == 0) p.rotary_dim = p.hdim;
  fill(p.rotary_positions, rotates ? p.seqlen_k : 0);
  fill_strides({{&p.bias_strides[3], p.seqlen_k},
                {&p.bias_strides[2], p.seqlen_q},
                {&p.bias_strides[1], p.heads},
                {p.bias_strides.data(), 1}});
  if (p.scale == 0 && p.hdim > 0) p.scale = static_cast<float>(1 / std::sqrt(double(p.hdim)));
  return p;
}

Spatial out_size(const ConvProblem& problem) {
  Spatial out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t right =
        problem.pad_right[i] == kPacked ? problem.pad[i] : problem.pad_right[i];
    const std::int64_t extent = product(problem.dilation[i], problem.filter[i] - 1);
    std::int64_t room = 0;
    bool too_long = __builtin_add_overflow(problem.size[i], problem.pad[i], &room);
    too_long = too_long || __builtin_add_overflow(room, right, &room);
    if (too_long) room = std::numeric_limits<std::int64_t>::max();
    const std::int64_t last = room - extent - 1;  // the last place of the filter's first element
    out[i] = last < 0 ? 0 : last / std::max<std::int64_t>(problem.stride[i], 1) + 1;
  }
  return out;
}

Op op_of(const Problem& problem) { return kVariantOps[problem.index()]; }

std::size_t write_bytes(const Problem& problem, char* to) {
  return std::visit(
      [&](const auto& fields) {
        static_assert(sizeof(fields) < kMostProblemBytes);
        Writer writer(to);
        write_fields(fields, writer);
        return static_cast<std::size_t>(writer.end() - to);
      },
      problem);
}

std::uint64_t hash_of(const Problem& problem, std::uint64_t seed) {
  std::array<char, kMostProblemBytes> bytes;
  return hash64({bytes.data(), write_bytes(problem, bytes.data())}, seed + problem.index());
}

Operands no_operands(const Problem& problem) {
  static_assert(std::variant_size_v<Operands> == std::variant_size_v<Problem>);
  return std::visit([](const auto& fields) { return operands_of(fields); }, problem);
}

}  // namespace tessera
