// Problem: what is asked. Plain structs, one per operation.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "tessera/spec/dtype.h"
#include "tessera/spec/epilogue.h"

#pragma GCC visibility push(default)
namespace tessera {

// The operations that have a name. An operation without a problem type here has no kernels yet.
enum class Op : std::uint8_t { gemm, conv, fmha };
std::string_view to_string(Op op);
// Also accepts the CK Tile Dispatcher's words: gemm_universal is gemm, grouped_conv is conv.
Op parse_op(std::string_view text);
// Throws Error{unsupported}: "conv: this build has no kernels for convolution yet; ...".
[[noreturn]] void refuse_operation(Op op);

// The layouts of A, B and C: r is row-major, c is column-major. rcr: A[m][k], B[n][k], C[m][n].
enum class GemmLayout : std::uint8_t { rcr, rrr, crr, ccr };
std::string_view to_string(GemmLayout layout);
GemmLayout parse_gemm_layout(std::string_view text);
constexpr bool a_is_row_major(GemmLayout l) { return l == GemmLayout::rcr || l == GemmLayout::rrr; }
constexpr bool b_is_row_major(GemmLayout l) { return l == GemmLayout::rrr || l == GemmLayout::crr; }

// A stride left at kPacked follows from the sizes: no gap between rows, columns or batches.
inline constexpr std::int64_t kPacked = std::numeric_limits<std::int64_t>::min();

// out[b] = epilogue(alpha * A[b] x B[b] + beta * C[b], D0[b], ...), for b in [0, batch).
// A is m x k, B is k x n, C, D and out are m x n, row-major. Strides count elements.
struct GemmProblem {
  DType a = DType::fp32;
  DType b = DType::fp32;
  DType acc = DType::fp32;
  DType out = DType::fp32;  // of C too
  DType d = DType::fp32;    // of every D tensor
  GemmLayout layout = GemmLayout::rcr;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t ld_a = kPacked;  // distance between rows (row-major) or columns (column-major)
  std::int64_t ld_b = kPacked;
  std::int64_t ld_c = kPacked;
  std::int64_t ld_out = kPacked;
  std::array<std::int64_t, kMaxD> ld_d = {kPacked, kPacked, kPacked, kPacked};
  std::int64_t batch_stride_a = kPacked;  // 0: every batch reads the same A
  std::int64_t batch_stride_b = kPacked;
  std::int64_t batch_stride_c = kPacked;
  std::int64_t batch_stride_out = kPacked;
  std::array<std::int64_t, kMaxD> batch_stride_d = {kPacked, kPacked, kPacked, kPacked};
  float alpha = 1.0F;
  float beta = 0.0F;  // 0: C is not read and may be null
  Epilogue epilogue;
  float clamp_lo = -std::numeric_limits<float>::infinity();
  float clamp_hi = std::numeric_limits<float>::infinity();
  bool preshuffled_b = false;  // B was packed by the chosen kernel, see Dispatcher::pack()
  // Each operand is an array of `batch` pointers, see GemmOperands; batch strides stay kPacked.
  bool pointer_arrays = false;
  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

// The operand types that go with `a`: b = a, the default accumulator and output, d = out.
GemmProblem gemm_problem(DType a, GemmLayout layout, std::int64_t m, std::int64_t n,
                         std::int64_t k);

// Replaces every kPacked by the stride that it stands for.
GemmProblem with_strides(const GemmProblem& problem);

using Problem = std::variant<GemmProblem>;

// The operation of each member of Problem, and of Signature and Operands, in their order.
inline constexpr std::array kVariantOps = {Op::gemm};

Op op_of(const Problem& problem);

// Equal problems have equal hashes, with one seed; no allocation.
std::uint64_t hash_of(const Problem& problem, std::uint64_t seed = 0);
struct ProblemHash {
  std::size_t operator()(const Problem& problem) const { return hash_of(problem); }
};

// The line one types after `tessera run`, without fields at their default; lossless.
std::string to_string(const Problem& problem);

// Reads such a line: "gemm m=128 n=3072 k=768 dtype=bf16 layout=rcr epilogue=bias+gelu". Throws
// Error{parse_error} with the nearest key or word.
Problem parse_problem(std::string_view line);

// JSON both ways; from_json throws Error{parse_error} with line and column, or the field's path.
std::string to_json(const Problem& problem);
Problem problem_from_json(std::string_view text);

// The pointers a GEMM reads and writes. Host pointers on CPU targets, device pointers on GPUs.
//
// With pointer_arrays each is the address of an array of `batch` pointers, one for each batch's
// matrix or vector (a: `const void* const*`, out: `void* const*`), which lies where the kernel can
// read it: in the host's memory for CPU targets, in the device's for GPUs. Pointers of a, b, c and
// d may be equal. Pointers of out must differ, and their memory must not overlap. Only the address
// of an array is checked (null, misaligned, another device's). Only the kernel reads the pointers
// in it, because reading a device's memory would mean waiting for the device. The caller must make
// sure that each pointer is aligned to its element, and that no out overlaps an operand other than
// its own batch's C or D.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;  // the packed B when preshuffled_b is set
  const void* c = nullptr;
  std::array<const void*, kMaxD> d{};
  void* out = nullptr;
};
using Operands = std::variant<GemmOperands>;

// The operands of the problem's operation, all null.
Operands no_operands(const Problem& problem);

}  // namespace tessera
#pragma GCC visibility pop
