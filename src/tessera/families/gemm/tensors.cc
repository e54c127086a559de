// The operands of a GEMM as they lie in memory.
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

// The pointers of GemmOperands in their order.
constexpr std::size_t kOperandA = 0;
constexpr std::size_t kOperandB = 1;
constexpr std::size_t kOperandC = 2;
constexpr std::size_t kOperandD = 3;  // operand of D0; D1 to D3 follow
constexpr std::size_t kOperandOut = kOperandD + kMaxD;

constexpr std::array<std::string_view, kOperandOut + 1> kOperandNames = {"a",  "b",  "c",  "d0",
                                                                         "d1", "d2", "d3", "out"};

// A matrix of `rows` runs of `row` contiguous elements; a run is a row or a column.
struct Runs {
  std::int64_t rows, row, ld, batch_stride;
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
  tensor.batches = p.batch;
  tensor.batch_stride = matrix.batch_stride;
  tensor.in_array = p.pointer_arrays;
  return tensor;
}

}  // namespace

void add_a(const GemmProblem& p, Tensors& all) {
  const bool by_row = a_is_row_major(p.layout);
  const Runs a = {by_row ? p.m : p.k, by_row ? p.k : p.m, p.ld_a, p.batch_stride_a};
  add_matrix(p, kOperandA, p.a, a, all);
}

void add_b(const GemmProblem& p, Tensors& all) {
  const bool by_row = b_is_row_major(p.layout);
  const Runs b = {by_row ? p.k : p.n, by_row ? p.n : p.k, p.ld_b, p.batch_stride_b};
  Tensor& tensor = add_matrix(p, kOperandB, p.b, b, all);
  if (!p.preshuffled_b) return;
  tensor.strides[1] = tensor.sizes[0];  // packed B: at least as many 32-bit words
  tensor.batches = std::min<std::int64_t>(p.batch, 1);
  tensor.alignment = 4;
}

void add_c(const GemmProblem& p, Tensors& all) {
  const Runs c = {p.m, p.n, p.ld_c, p.batch_stride_c};
  add_matrix(p, kOperandC, p.out, c, all).may_be_output = true;
}

void add_d(const GemmProblem& p, Tensors& all) {
  if (p.epilogue.num_d == 0) return;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const bool is_matrix = uses[i].shape == DShape::matrix;
    const std::int64_t length = uses[i].shape == DShape::along_m ? p.m : p.n;
    const Runs d = {is_matrix ? p.m : 1, length, is_matrix ? p.ld_d[i] : length,
                    p.batch_stride_d[i]};
    Tensor& tensor = add_matrix(p, kOperandD + i, p.d, d, all);
    tensor.rank = is_matrix ? 2 : 1;
    tensor.may_be_output = is_matrix;
  }
}

void add_out(const GemmProblem& p, Tensors& all) {
  const Runs out = {p.m, p.n, p.ld_out, p.batch_stride_out};
  add_matrix(p, kOperandOut, p.out, out, all).access = Access::write;
}

Tensors tensors(const Problem& problem) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  Tensors all;
  add_a(p, all);
  add_b(p, all);
  if (p.beta != 0) add_c(p, all);
  add_d(p, all);
  add_out(p, all);
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<GemmOperands>(operands);
  if (operand == kOperandA) return o.a;
  if (operand == kOperandB) return o.b;
  if (operand == kOperandC) return o.c;
  return operand == kOperandOut ? o.out : o.d.at(operand - kOperandD);
}

void set_pointer(Operands& operands, std::size_t operand, void* data) {
  auto& o = std::get<GemmOperands>(operands);
  const std::array<const void**, kOperandOut> inputs = {&o.a,    &o.b,    &o.c,   &o.d[0],
                                                        &o.d[1], &o.d[2], &o.d[3]};
  if (operand == kOperandOut) {
    o.out = data;
  } else {
    *inputs.at(operand) = data;
  }
}

}  // namespace tessera::gemm
