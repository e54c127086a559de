// Problem: what is asked. Plain structs, one per operation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/spec/dtype.h"
#include "tessera/spec/epilogue.h"
#include "tessera/spec/fmha_problem.h"
#include "tessera/spec/gemm_problem.h"
#include "tessera/spec/norm_problem.h"
#include "tessera/spec/packed.h"
#include "tessera/spec/route_problem.h"

#pragma GCC visibility push(default)
namespace tessera {

// The operations, in the order of Problem's members.
enum class Op : std::uint8_t { gemm, norm, conv, fmha, route };
std::string_view to_string(Op op);
// Also accepts the CK Tile Dispatcher's words: gemm_universal is gemm, grouped_conv is conv.
Op parse_op(std::string_view text);

// Which tensor of a convolution is computed from the other two.
enum class ConvDirection : std::uint8_t { forward, backward_data, backward_weight };
std::string_view to_string(ConvDirection direction);

// The order of dimensions in memory, for one to three spatial ones. nhwgc: images
// [n][d][h][w][g][c], filters [g][k][z][y][x][c], which are also NHWC and KYXC. nchw: images
// [n][g][c][d][h][w], filters [g][k][c][z][y][x]. c and k count within a group here.
enum class ConvLayout : std::uint8_t { nhwgc, nchw };
std::string_view to_string(ConvLayout layout);
// A value for each spatial dimension: depth, height, width.
using Spatial = std::array<std::int64_t, 3>;
// The strides of images {n, g, c, d, h, w} and of filters {g, k, c, z, y, x}, in elements.
using ConvStrides = std::array<std::int64_t, 6>;
inline constexpr ConvStrides kPackedStrides = {kPacked, kPacked, kPacked,
                                               kPacked, kPacked, kPacked};

// x is an image of n x c channels, y one of n x k channels, w the filters, in g groups of c/g and
// k/g channels. conv(x, w)[o] is the sum of x[o * stride - pad + f * dilation] * w[f] over the
// places f of the filter and the group's channels; x is 0 outside of its borders.
//   forward:         out = epilogue(alpha * conv(in, weight) + beta * C, D0[o], ...)
//   backward_data:   grad_in = alpha * (gradient of <grad_out, conv(x, weight)> by x) + beta * C
//   backward_weight: grad_weight = alpha * (gradient of <grad_out, conv(in, w)> by w) + beta * C
// C and D tensors of the output's size lie in memory as the result does; bias and col_scale have an
// element for each of the k channels.
struct ConvProblem {
  ConvDirection direction = ConvDirection::forward;
  ConvLayout layout = ConvLayout::nhwgc;
  std::int64_t ndim = 2;       // spatial dimensions, 1 to 3; the others have size 1
  DType in = DType::fp32;      // of x: in, grad_in
  DType weight = DType::fp32;  // of w: weight, grad_weight
  DType acc = DType::fp32;
  DType out = DType::fp32;  // of y: out, grad_out
  DType d = DType::fp32;    // of every D tensor
  std::int64_t n = 1;
  std::int64_t c = 0;  // of all groups
  std::int64_t k = 0;  // of all groups
  std::int64_t g = 1;
  Spatial size = {1, 1, 0};  // of x
  Spatial filter = {1, 1, 1};
  Spatial stride = {1, 1, 1};
  Spatial dilation = {1, 1, 1};
  Spatial pad = {0, 0, 0};  // before the first element
  // Behind the last one; kPacked: as pad; below 0: so many elements at the end meet no filter.
  Spatial pad_right = {kPacked, kPacked, kPacked};
  ConvStrides in_strides = kPackedStrides;      // of x
  ConvStrides weight_strides = kPackedStrides;  // of w
  ConvStrides out_strides = kPackedStrides;     // of y
  float alpha = 1.0F;
  float beta = 0.0F;  // 0: C is not read and may be null
  Epilogue epilogue;  // forward
  float clamp_lo = -std::numeric_limits<float>::infinity();
  float clamp_hi = std::numeric_limits<float>::infinity();
  friend bool operator==(const ConvProblem&, const ConvProblem&) = default;
};

// One group, strides of 1, no padding, channels last; types as gemm_problem() has them. The sizes
// of x and the filter are {w}, {h, w} or {d, h, w}, or Error{invalid_argument}.
ConvProblem conv_problem(DType in, ConvDirection direction, std::int64_t n, std::int64_t c,
                         std::int64_t k, std::initializer_list<std::int64_t> size,
                         std::initializer_list<std::int64_t> filter);

// Replaces every kPacked by what it stands for: strides without gaps, pad_right = pad.
ConvProblem with_strides(const ConvProblem& problem);

// The spatial size of y: (size + pad + pad_right - dilation * (filter - 1) - 1) / stride + 1, where
// the division rounds down; 0 where the filter does not fit. Saturates instead of overflowing.
Spatial out_size(const ConvProblem& problem);

using Problem = std::variant<GemmProblem, NormProblem, ConvProblem, FmhaProblem, RouteProblem>;

// The operation of each member of Problem, and of Signature and Operands, in their order.
inline constexpr std::array kVariantOps = {Op::gemm, Op::norm, Op::conv, Op::fmha, Op::route};
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

// The keys that a line of this operation must have. Throws Error{unsupported} for an operation
// without a problem.
std::vector<std::string> required_fields(Op op);
// One field's value as a line spells it; "packed" for a stride that follows from the sizes. Throws
// Error{not_found} with the nearest key.
std::string field_of(const Problem& problem, std::string_view key);

// JSON both ways; from_json throws Error{parse_error} with line and column, or the field's path.
std::string to_json(const Problem& problem);
Problem problem_from_json(std::string_view text);

// The pointers a convolution reads and writes. Those that its direction does not use may be null.
struct ConvOperands {
  const void* in = nullptr;        // forward, backward_weight
  const void* weight = nullptr;    // forward, backward_data
  const void* grad_out = nullptr;  // backward_data, backward_weight
  const void* c = nullptr;         // beta
  std::array<const void*, kMaxD> d{};
  void* out = nullptr;          // forward
  void* grad_in = nullptr;      // backward_data
  void* grad_weight = nullptr;  // backward_weight
};
using Operands =
    std::variant<GemmOperands, NormOperands, ConvOperands, FmhaOperands, RouteOperands>;
// The operands of the problem's operation, all null.
Operands no_operands(const Problem& problem);

}  // namespace tessera
#pragma GCC visibility pop
