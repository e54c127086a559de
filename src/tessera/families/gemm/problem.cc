// The family's table, and what a problem is: its types, its operands as they lie in memory, and
// what is valid.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "tessera/base/error.h"
#include "tessera/families/gemm/arranged.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/types.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::gemm {

using enum DType;

// An output of 8 bits is one more conversion of what an output of fp32 has, and so its D tensors
// may have any type that such products store.
Verdict types_fit(const GemmSignature& s) {
  if (s.quant == NormQuant::none || size_of(s.out) != 1 || s.out == int8) {
    return {tile::types_reason({s.a, s.b, s.acc, s.out, s.d, {}})};
  }
  const bool d_fits = s.epilogue.num_d == 0 || s.d == fp32 || s.d == fp16 || s.d == bf16;
  if (d_fits) return {tile::types_reason({s.a, s.b, s.acc, fp32, fp32, {}})};
  return {fmt::format("d must be fp32, fp16 or bf16 with quant={}, got {}", to_string(s.quant),
                      to_string(s.d))};
}

Verdict epilogue_fits(const GemmSignature& s) {
  if (std::string reason = invalid_reason(s.epilogue); !reason.empty()) return {reason};
  if (s.out == int32 && num_ops(s.epilogue) > 0) {
    return {fmt::format("out=int32 is exact and takes no epilogue, got {}; use out=fp32",
                        to_string(s.epilogue))};
  }
  return {};
}

const Instruction* find_word_instruction(const GemmSignature& s, int products_per_lane,
                                         const Target& target) {
  return tile::find_word_instruction(s.a, s.acc, products_per_lane, target);
}

Problem plain(const Problem& problem) {
  GemmProblem p = std::get<GemmProblem>(problem);
  p.epilogue = {};
  p.ld_d = {};
  p.batch_stride_d = {};
  return p;
}

// Tensor cores multiply fp16 at the rate of bf16, and int8 at the rate of fp8. Everything else
// depends on the bytes of an element only, except that an output may have another size.
Problem twin(const Problem& problem, const Target& target) {
  GemmProblem p = std::get<GemmProblem>(problem);
  if (!backend_facts(target).has_twins) return p;
  if (p.a == DType::int8) {
    p.a = p.b = DType::fp8;
    p.acc = DType::fp32;
    p.out = p.d = DType::fp16;
  }
  if (p.a != DType::fp16) return p;
  for (DType* type : {&p.a, &p.b, &p.out, &p.d}) {
    if (*type == DType::fp16) *type = DType::bf16;
  }
  return p;
}

namespace {

// ---- operands ----

// The pointers of GemmOperands in their order.
constexpr std::size_t kOperandA = 0;
constexpr std::size_t kOperandB = 1;
constexpr std::size_t kOperandC = 2;
constexpr std::size_t kOperandD = 3;  // operand of D0; D1 to D3 follow
constexpr std::size_t kOperandOut = kOperandD + kMaxD;
constexpr std::size_t kOperandEnds = kOperandOut + 1;
constexpr std::size_t kOperandIndex = kOperandEnds + 1;
constexpr std::size_t kOperandRows = kOperandIndex + 1;
constexpr std::size_t kOperandBad = kOperandRows + 1;
constexpr std::size_t kOperandScaleA = kOperandBad + 1;
constexpr std::size_t kOperandScaleB = kOperandScaleA + 1;
constexpr std::size_t kOperandRowIndex = kOperandScaleB + 1;
constexpr std::size_t kOperandOutScale = kOperandRowIndex + 1;
constexpr std::size_t kOperandOutScales = kOperandOutScale + 1;
constexpr std::size_t kOperandSizes = kOperandOutScales + 1;  // of m; n and k follow
constexpr std::size_t kOperandLds = kOperandSizes + 3;        // of a, b, c, out, d0 to d3

static_assert(kOperandMoreA == kOperandLds + 4 + kMaxD);

constexpr std::array<std::string_view, kOperandMoreB + kMaxSources - 1> kOperandNames = {
    "a",           "b",           "c",           "d0",          "d1",         "d2",
    "d3",          "out",         "group_ends",  "group_index", "group_rows", "bad_group",
    "scale_a",     "scale_b",     "row_index",   "out_scale",   "out_scales", "group_m",
    "group_n",     "group_k",     "group_ld_a",  "group_ld_b",  "group_ld_c", "group_ld_out",
    "group_ld_d0", "group_ld_d1", "group_ld_d2", "group_ld_d3", "a1",         "a2",
    "a3",          "b1",          "b2",          "b3"};

// A matrix of `rows` runs of `row` contiguous elements; a run is a row or a column.
struct Runs {
  std::int64_t rows, row, ld, batch_stride;
  bool of_groups = false;  // with groups: whether each has a matrix
};

// The tensor is written in its place field by field, because copies would cost a good part of a
// call.
Tensor& add_matrix(const GemmProblem& p, std::size_t operand, DType dtype, const Runs& matrix,
                   Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kOperandNames[operand];
  tensor.operand = operand;
  tensor.dtype = dtype;
  tensor.rank = 2;
  tensor.sizes[0] = matrix.row;
  tensor.sizes[1] = matrix.rows;
  tensor.strides[0] = 1;
  tensor.strides[1] = matrix.ld;
  tensor.batches = matrices(p, matrix.of_groups);
  tensor.batch_stride = matrix.batch_stride;
  tensor.in_array = p.pointer_arrays || is_list(p);
  return tensor;
}

// Whether each element of C and of D tensors goes to the same place of the output.
bool keeps_places(const GemmProblem& p) { return p.gate == GemmGate::none; }

}  // namespace

void add_a(const GemmProblem& p, Tensors& all) {
  const bool by_row = a_is_row_major(p.layout);
  const std::int64_t rows = stored_rows_a(p);
  const Runs a = {by_row ? rows : p.k, by_row ? p.k : rows, p.ld_a, p.batch_stride_a,
                  group_matrices(p.grouping).a};
  add_matrix(p, kOperandA, p.a, a, all);
}

void add_b(const GemmProblem& p, Tensors& all) {
  const bool by_row = b_is_row_major(p.layout);
  const Runs b = {by_row ? p.k : p.n, by_row ? p.n : p.k, p.ld_b, p.batch_stride_b,
                  group_matrices(p.grouping).b};
  Tensor& tensor = add_matrix(p, kOperandB, p.b, b, all);
  if (!p.preshuffled_b) return;
  tensor.strides[1] = tensor.sizes[0];  // packed B: at least as many 32-bit words
  tensor.batches = std::min<std::int64_t>(p.batch, 1);
  tensor.alignment = 4;
}

void add_c(const GemmProblem& p, Tensors& all) {
  const Runs c = {stored_rows_out(p), p.n, p.ld_c, p.batch_stride_c,
                  group_matrices(p.grouping).out};
  add_matrix(p, kOperandC, p.out, c, all).may_be_output = keeps_places(p);
}

void add_d(const GemmProblem& p, Tensors& all) {
  if (p.epilogue.num_d == 0) return;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const bool is_matrix = uses[i].shape == DShape::matrix;
    const std::int64_t rows = stored_rows_out(p);
    const std::int64_t length = uses[i].shape == DShape::along_m ? rows : p.n;
    const Runs d = {is_matrix ? rows : 1, length, is_matrix ? p.ld_d[i] : length,
                    p.batch_stride_d[i], group_matrices(p.grouping).d(uses[i].shape)};
    Tensor& tensor = add_matrix(p, kOperandD + i, p.d, d, all);
    tensor.rank = is_matrix ? 2 : 1;
    tensor.may_be_output = is_matrix && keeps_places(p);
  }
}

void add_out(const GemmProblem& p, Tensors& all) {
  const Runs out = {stored_rows_out(p), stored_columns_out(p), p.ld_out, p.batch_stride_out,
                    group_matrices(p.grouping).out};
  add_matrix(p, kOperandOut, p.out, out, all).access = Access::write;
}

namespace {

Tensor& add_words(std::size_t operand, std::int64_t count, Tensors& all) {
  Tensor& tensor = all.add();
  tensor.name = kOperandNames[operand];
  tensor.operand = operand;
  tensor.dtype = DType::int32;
  tensor.sizes[0] = count, tensor.strides[0] = 1;
  return tensor;
}

void add_lengths(std::size_t operand, std::int64_t count, std::int64_t least, std::int64_t most,
                 Tensors& all) {
  Tensor& lengths = add_words(operand, count, all);
  lengths.fill = Fill::lengths, lengths.least = least, lengths.most = most;
}

// Measurements have random sizes, and matrices whose rows are as far apart as the problem says.
void add_list_numbers(const GemmProblem& p, Tensors& all) {
  const std::array<std::int64_t, 3> most = {p.m, p.n, p.k};
  for (std::size_t i = 0; i < most.size(); ++i) {
    add_lengths(kOperandSizes + i, p.groups, 0, most.at(i), all);
  }
  if (!p.group_strides) return;
  const auto add = [&](std::size_t which, std::int64_t ld) {
    add_lengths(kOperandLds + which, p.groups, ld, ld, all);
  };
  add(0, p.ld_a), add(1, p.ld_b);
  if (p.beta != 0) add(2, p.ld_c);
  add(3, p.ld_out);
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (uses[i].shape == DShape::matrix) add(4 + i, p.ld_d[i]);
  }
}

// A number of 64 bits is a row of two words.
Tensor& add_group_numbers(const GemmProblem& p, std::size_t operand, std::int64_t count,
                          Tensors& all) {
  Tensor& numbers = add_words(operand, p.group_int64 ? 2 : count, all);
  if (!p.group_int64) return numbers;
  numbers.rank = 2, numbers.sizes[1] = count, numbers.strides[1] = 2;
  numbers.alignment = 8;
  return numbers;
}

// What measurements fill the numbers with: groups of random sizes, some of them empty.
void add_numbers(const GemmProblem& p, Tensors& all) {
  if (is_list(p)) return add_list_numbers(p, all);
  if (p.grouping == GemmGrouping::indexed) {
    Tensor& index = add_group_numbers(p, kOperandIndex, p.m, all);
    index.fill = Fill::runs, index.most = p.groups - 1;
  } else if (p.grouping == GemmGrouping::masked) {
    Tensor& rows = add_group_numbers(p, kOperandRows, p.groups, all);
    rows.fill = Fill::lengths, rows.most = p.m;
  } else {
    Tensor& ends = add_group_numbers(p, kOperandEnds, p.groups, all);
    ends.fill = Fill::ends, ends.total = p.grouping == GemmGrouping::along_k ? p.k : p.m;
  }
}

void add_bad_group(Tensors& all) {
  Tensor& tensor = add_words(kOperandBad, 4, all);
  tensor.access = Access::write, tensor.is_report = true;
}

// ---- scales, indices and outputs of 8 bits ----

// Scales of `count` blocks `rows` and `k` apart.
void add_scales(const GemmProblem& p, std::size_t operand, ScaleBlock count, ScaleBlock strides,
                Tensors& all) {
  const bool is_byte = p.scale_type == GemmScaleType::e8m0;
  Tensor& tensor = all.add();
  tensor.name = kOperandNames[operand];
  tensor.operand = operand;
  tensor.dtype = is_byte ? DType::int8 : DType::fp32;
  tensor.fill = is_byte ? Fill::exponents : Fill::positive;
  std::size_t rank = 0;
  if (p.scale_quads) {
    tensor.sizes[0] = 4, tensor.strides[0] = 1, ++rank;
    count.k = tiles(count.k, 4);
  }
  tensor.sizes[rank] = count.k, tensor.strides[rank] = strides.k;
  tensor.sizes[rank + 1] = count.rows, tensor.strides[rank + 1] = strides.rows;
  tensor.rank = rank + 2;
}

void add_scale_a(const GemmProblem& p, Tensors& all) {
  add_scales(p, kOperandScaleA, scale_blocks(p.scale_a, stored_rows_a(p), p.k),
             {p.stride_scale_a_m, p.stride_scale_a_k}, all);
  Tensor& tensor = all.back();
  tensor.batches = matrices(p, group_matrices(p.grouping).a);
  tensor.batch_stride = p.batch_stride_scale_a;
}

void add_scale_b(const GemmProblem& p, Tensors& all) {
  add_scales(p, kOperandScaleB, scale_blocks(p.scale_b, p.n, p.k),
             {p.stride_scale_b_n, p.stride_scale_b_k}, all);
  Tensor& tensor = all.back();
  tensor.batches = matrices(p, group_matrices(p.grouping).b);
  tensor.batch_stride = p.batch_stride_scale_b;
}

void add_row_index(const GemmProblem& p, Tensors& all) {
  Tensor& index = add_words(kOperandRowIndex, p.m, all);
  index.fill = Fill::indices, index.most = p.index_room - 1;
}

void add_out_scale(Tensors& all) {
  Tensor& tensor = add_words(kOperandOutScale, 1, all);
  tensor.dtype = DType::fp32, tensor.fill = Fill::positive;
}

// One for each row of out, or for each 128 columns of a row, in either order.
void add_out_scales(const GemmProblem& p, Tensors& all) {
  const std::int64_t rows = stored_rows_out(p);
  const std::int64_t blocks = p.quant == NormQuant::row ? 1 : tiles(stored_columns_out(p), 128);
  Tensor& tensor = add_words(kOperandOutScales, blocks, all);
  tensor.dtype = DType::fp32, tensor.access = Access::write;
  tensor.rank = 2, tensor.sizes[1] = rows;
  tensor.strides[0] = p.scales_by_column ? rows : 1;
  tensor.strides[1] = p.scales_by_column ? 1 : blocks;
  tensor.batches = matrices(p, group_matrices(p.grouping).out);
  tensor.batch_stride = rows * blocks;
}

// Of C and the D tensors.
const void* added_pointer(const GemmOperands& o, std::size_t operand) {
  return operand == kOperandC ? o.c : o.d.at(operand - kOperandD);
}

const void* group_pointer(const GemmOperands& o, std::size_t operand) {
  if (operand >= kOperandMoreB) return o.more_b.at(operand - kOperandMoreB);
  if (operand >= kOperandMoreA) return o.more_a.at(operand - kOperandMoreA);
  if (operand >= kOperandLds) return o.group_lds.at(operand - kOperandLds);
  if (operand >= kOperandSizes) return o.group_sizes.at(operand - kOperandSizes);
  const std::array<const void*, 9> pointers = {o.group_ends, o.group_index, o.group_rows,
                                               o.bad_group,  o.scale_a,     o.scale_b,
                                               o.row_index,  o.out_scale,   o.out_scales};
  return pointers.at(operand - kOperandEnds);
}

void set_group_pointer(GemmOperands& o, std::size_t operand, void* data) {
  auto* const words = static_cast<std::int32_t*>(data);
  if (operand == kOperandEnds) o.group_ends = data;
  if (operand == kOperandIndex) o.group_index = data;
  if (operand == kOperandRows) o.group_rows = data;
  if (operand == kOperandBad) o.bad_group = words;
  if (operand == kOperandScaleA) o.scale_a = data;
  if (operand == kOperandScaleB) o.scale_b = data;
  if (operand == kOperandRowIndex) o.row_index = words;
  if (operand == kOperandOutScale) o.out_scale = data;
  if (operand == kOperandOutScales) o.out_scales = data;
  if (operand >= kOperandMoreB) {
    o.more_b.at(operand - kOperandMoreB) = data;
  } else if (operand >= kOperandMoreA) {
    o.more_a.at(operand - kOperandMoreA) = data;
  } else if (operand >= kOperandLds) {
    o.group_lds.at(operand - kOperandLds) = words;
  } else if (operand >= kOperandSizes) {
    o.group_sizes.at(operand - kOperandSizes) = words;
  }
}

}  // namespace

std::string_view operand_name(std::size_t operand) { return kOperandNames.at(operand); }

Tensors tensors(const Problem& problem) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  if (is_arranged(p)) return arranged_tensors(p);
  Tensors all;
  add_a(p, all);
  add_b(p, all);
  if (p.beta != 0) add_c(p, all);
  add_d(p, all);
  if (p.scale_a != GemmScale::none) add_scale_a(p, all);
  if (p.scale_b != GemmScale::none) add_scale_b(p, all);
  if (has_groups(p)) add_numbers(p, all);
  if (p.indexing != GemmIndexing::none) add_row_index(p, all);
  if (p.quant == NormQuant::tensor) add_out_scale(all);
  if (p.quant >= NormQuant::row) add_out_scales(p, all);
  add_out(p, all);
  if (p.check_groups) add_bad_group(all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<GemmOperands>(operands);
  if (operand == kOperandA) return o.a;
  if (operand == kOperandB) return o.b;
  if (operand == kOperandOut) return o.out;
  return operand > kOperandOut ? group_pointer(o, operand) : added_pointer(o, operand);
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<GemmOperands>(operands);
  if (operand > kOperandOut) return set_group_pointer(o, operand, data);
  const std::array<const void**, kOperandOut> inputs = {&o.a,    &o.b,    &o.c,   &o.d[0],
                                                        &o.d[1], &o.d[2], &o.d[3]};
  if (operand == kOperandOut) {
    o.out = data;
  } else {
    *inputs.at(operand) = data;
  }
}

namespace {

// ---- what is valid ----

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "gemm: " + fmt::format(sentence, std::forward<Args>(args)...));
}

constexpr std::array<std::string_view, kMaxD> kDNames = {"d0", "d1", "d2", "d3"};

bool has_output(const GemmProblem& p) { return p.m > 0 && p.n > 0 && p.batch > 0; }

void check_sizes(const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", has_groups(p) ? p.groups : p.batch}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) refuse("{} must be at least 0, got {}", name, size);
  }
  // An empty dimension does not make operands over the other dimensions small.
  const int widest = std::max({size_of(p.a), size_of(p.b), size_of(p.out)});
  std::int64_t product = widest;
  for (const auto& [name, size] : sizes) {
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      refuse("m x n x k x batch x {} bytes must be below 2^63, got {} x {} x {} x {} x {}", widest,
             p.m, p.n, p.k, p.batch, widest);
    }
  }
}

void check_strides(const Tensor& tensor, std::string_view row_name) {
  const std::int64_t row = tensor.sizes[0];
  const std::int64_t ld = tensor.rank > 1 ? tensor.strides[1] : row;
  if (ld < row) {
    refuse("ld_{} must be at least {} ({}), got {}", tensor.name, row, row_name, ld);
  }
  if (tensor.batch_stride < 0) {
    refuse("batch_stride_{} must be at least 0, got {}", tensor.name, tensor.batch_stride);
  }
  if (tensor.is_too_long()) {
    refuse("the last byte of {} must be below 2^63, got {} rows {} apart and {} batches {} apart",
           tensor.name, tensor.rows(), ld, tensor.batches, tensor.batch_stride);
  }
}

// Batches of the output may lie one after the other or interleaved within a row.
void check_output_batches(const GemmProblem& p) {
  const std::int64_t batch = matrices(p, group_matrices(p.grouping).out);
  if (batch <= 1 || p.pointer_arrays || is_list(p) || !has_output(p)) return;
  const std::int64_t n = stored_columns_out(p);
  const std::int64_t behind = (p.m - 1) * p.ld_out + n;
  const bool after = p.batch_stride_out >= behind;
  const bool within_row =
      p.batch_stride_out >= n && (p.m == 1 || p.ld_out >= (batch - 1) * p.batch_stride_out + n);
  if (after || within_row) return;
  refuse("batch_stride_out must be at least {} so that batches do not overlap, got {}", behind,
         p.batch_stride_out);
}

// Each batch has a pointer of its own. A packed B cannot be given through an array.
void check_arrays(const GemmProblem& given) {
  if (!given.pointer_arrays && !is_list(given)) return;
  if (given.preshuffled_b) {
    refuse(
        "preshuffle and pointer_arrays do not go together: a packed B has one address; leave one "
        "of them out");
  }
  const auto check = [&](std::string_view name, std::int64_t stride) {
    if (stride == kPacked) return;
    refuse(
        "batch_stride_{} must be left out with {}, where each {} has a pointer of its own, got {}",
        name, is_list(given) ? "grouping=lists" : "pointer_arrays",
        is_list(given) ? "group" : "batch", stride);
  };
  check("a", given.batch_stride_a);
  check("b", given.batch_stride_b);
  check("c", given.batch_stride_c);
  check("out", given.batch_stride_out);
  for (std::size_t i = 0; i < kMaxD; ++i) check(kDNames[i], given.batch_stride_d[i]);
}

// Sources may repeat elements, so that their strides are any.
bool is_merged(const GemmProblem& p, const Tensor& tensor) {
  if (tensor.name != "a" && tensor.name != "b") return false;
  const bool is_a = tensor.name == "a";
  if ((is_a ? p.merge_a : p.merge_b) == GemmMerge::none) return false;
  const std::int64_t ld = is_a ? p.ld_a : p.ld_b;
  const std::int64_t batch = is_a ? p.batch_stride_a : p.batch_stride_b;
  if (ld < 0) refuse("ld_{} must be at least 0, got {}", tensor.name, ld);
  if (batch < 0) refuse("batch_stride_{} must be at least 0, got {}", tensor.name, batch);
  return true;
}

// Of a contraction's operands, whose strides arranged_reason() has looked at.
void check_ends(const Tensors& all) {
  for (const Tensor& tensor : all) {
    if (tensor.is_too_long()) refuse("the last byte of {} must be below 2^63", tensor.name);
  }
}

}  // namespace

void validate(const Problem& problem) {
  const GemmProblem& given = std::get<GemmProblem>(problem);
  check_numbers("gemm", given);
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  if (const Verdict fits = types_fit(signature); !fits) refuse("{}", fits.reason);
  if (const Verdict fits = epilogue_fits(signature); !fits) refuse("{}", fits.reason);
  if (has_extras(signature)) {
    if (const Verdict fits = extras_fit(signature); !fits) refuse("{}", fits.reason);
  }
  if (std::string why = groups_reason(given); !why.empty()) refuse("{}", why);
  if (std::string why = arranged_reason(given); !why.empty()) refuse("{}", why);
  if (has_extras(given)) {
    if (std::string why = extras_reason(given); !why.empty()) refuse("{}", why);
  }
  check_sizes(given);
  const tile::Scalars scalars = {given.out, given.alpha, given.beta, given.clamp_lo,
                                 given.clamp_hi};
  if (std::string why = tile::scalars_reason(scalars); !why.empty()) refuse("{}", why);
  check_arrays(given);
  if (given.dims.count != 0) return check_ends(tensors(given));
  GemmProblem p = with_strides(given);
  p.preshuffled_b = false;  // the strides describe B before it was packed
  const std::string layout(to_string(p.layout));
  Tensors all;
  add_a(p, all);
  add_b(p, all);
  add_c(p, all);
  add_out(p, all);
  add_d(p, all);
  for (const Tensor& tensor : all) {
    if (is_merged(p, tensor)) continue;
    check_strides(tensor, tensor.name == "a"   ? "the row length of A for " + layout
                          : tensor.name == "b" ? "the row length of B for " + layout
                          : tensor.name == "out" && p.gate != GemmGate::none ? "n / 2 with a gate"
                                                                             : "n");
  }
  check_output_batches(p);
  if (is_arranged(p)) check_ends(tensors(p));
}

namespace {
constexpr Extras kExtras = {.instances = instances,
                            .prepack = prepack,
                            .unpacked = unpacked,
                            .twin = twin,
                            .value_check = value_check,
                            .batch_bytes = batch_bytes,
                            .hipdnn = &kHipdnn};
}  // namespace

constinit const Family kFamily = {
    .op = Op::gemm,
    .abi = kAbi,
    .verb = "multiply",
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
    .supports = supports,
    .enumerate = enumerate,
    .combinations = combinations,
    .derived = derived,
    .candidates = candidates,
    .legal_candidates = legal_candidates,
    .general = general,
    .emit = emit,
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

}  // namespace tessera::gemm
