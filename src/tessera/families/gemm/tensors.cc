// The operands of a GEMM as they lie in memory.
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

// The pointers of GemmOperands in their order.
constexpr std::size_t kOperandA = 0;
constexpr std::size_t kOperandB = 1;
constexpr std::size_t kOperandC = 2;
constexpr std::size_t kOperandD = 3;  // of D0; the others follow
constexpr std::size_t kOperandOut = kOperandD + kMaxD;

constexpr std::array<std::string_view, kOperandOut + 1> kOperandNames = {"a",  "b",  "c",  "d0",
                                                                         "d1", "d2", "d3", "out"};

// `rows` runs of `row` elements, whichever dimension a row is.
Tensor matrix(const GemmProblem& p, std::size_t operand, DType dtype, std::int64_t rows,
              std::int64_t row, std::int64_t ld, std::int64_t batch_stride) {
  return {.name = kOperandNames[operand],
          .operand = operand,
          .dtype = dtype,
          .rank = 2,
          .sizes = {row, rows},
          .strides = {1, ld},
          .batches = p.batch,
          .batch_stride = batch_stride,
          .in_array = p.pointer_arrays};
}

// At least as long as B itself, in 32-bit words; all batches share it.
Tensor packed_b(const GemmProblem& p) {
  Tensor tensor = tensor_b(p);
  tensor.strides[1] = tensor.sizes[0];
  tensor.batches = std::min<std::int64_t>(p.batch, 1);
  tensor.alignment = 4;
  return tensor;
}

}  // namespace

Tensor tensor_a(const GemmProblem& p) {
  const bool by_row = a_is_row_major(p.layout);
  return matrix(p, kOperandA, p.a, by_row ? p.m : p.k, by_row ? p.k : p.m, p.ld_a,
                p.batch_stride_a);
}

Tensor tensor_b(const GemmProblem& p) {
  const bool by_row = b_is_row_major(p.layout);
  return matrix(p, kOperandB, p.b, by_row ? p.k : p.n, by_row ? p.n : p.k, p.ld_b,
                p.batch_stride_b);
}

Tensor tensor_c(const GemmProblem& p) {
  Tensor tensor = matrix(p, kOperandC, p.out, p.m, p.n, p.ld_c, p.batch_stride_c);
  tensor.may_be_output = true;
  return tensor;
}

Tensor tensor_d(const GemmProblem& p, std::size_t i) {
  const DShape shape = d_uses(p.epilogue)[i].shape;
  const bool is_matrix = shape == DShape::matrix;
  const std::int64_t length = shape == DShape::along_m ? p.m : p.n;
  Tensor tensor = matrix(p, kOperandD + i, p.d, is_matrix ? p.m : 1, length,
                         is_matrix ? p.ld_d[i] : length, p.batch_stride_d[i]);
  if (!is_matrix) tensor.rank = 1;
  tensor.may_be_output = is_matrix;
  return tensor;
}

Tensor tensor_out(const GemmProblem& p) {
  Tensor tensor = matrix(p, kOperandOut, p.out, p.m, p.n, p.ld_out, p.batch_stride_out);
  tensor.access = Access::write;
  return tensor;
}

Tensors tensors(const Problem& problem) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  Tensors all;
  all.push(tensor_a(p));
  all.push(p.preshuffled_b ? packed_b(p) : tensor_b(p));
  if (p.beta != 0) all.push(tensor_c(p));
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) all.push(tensor_d(p, i));
  all.push(tensor_out(p));
  return all;
}

const void* pointer(const Operands& operands, std::size_t operand) {
  const auto& o = std::get<GemmOperands>(operands);
  const std::array<const void*, kOperandOut + 1> all = {o.a,    o.b,    o.c,    o.d[0],
                                                        o.d[1], o.d[2], o.d[3], o.out};
  return all.at(operand);
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
