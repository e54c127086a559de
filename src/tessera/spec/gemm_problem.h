// What is asked of a GEMM, and the pointers that it gets.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "tessera/spec/dtype.h"
#include "tessera/spec/epilogue.h"
#include "tessera/spec/gemm_dims.h"
#include "tessera/spec/norm_problem.h"
#include "tessera/spec/packed.h"

#pragma GCC visibility push(default)
namespace tessera {

// The layouts of A, B and C: r is row-major, c is column-major. rcr: A[m][k], B[n][k], C[m][n].
enum class GemmLayout : std::uint8_t { rcr, rrr, crr, ccr };
std::string_view to_string(GemmLayout layout);
GemmLayout parse_gemm_layout(std::string_view text);
constexpr bool a_is_row_major(GemmLayout l) { return l == GemmLayout::rcr || l == GemmLayout::rrr; }
constexpr bool b_is_row_major(GemmLayout l) { return l == GemmLayout::rrr || l == GemmLayout::crr; }

// How one launch computes several products of unequal sizes, which lie in the kernel's memory.
// contiguous: rows of A and out go by groups, which end at group_ends; B is groups x n x k.
// indexed:    the same, and group_index names the group of each row; -1: of none.
// masked:     every operand has a matrix for each group; the first group_rows rows of it count.
// along_k:    A and B are cut along k at group_ends; out is groups x m x n.
// lists:      every operand is an array of pointers, one for each group, whose sizes are group_m,
//             group_n and group_k; those of the problem are the greatest.
// Rows of no group are left alone.
enum class GemmGrouping : std::uint8_t { none, contiguous, indexed, masked, along_k, lists };
std::string_view to_string(GemmGrouping grouping);

// How many rows of A, or columns of B, by how many elements along k share one scale.
enum class GemmScale : std::uint8_t { none, by_1x32, by_1x128, by_128x128 };
std::string_view to_string(GemmScale scale);
// e8m0: one byte, 2^(byte - 127); 255 is NaN.
enum class GemmScaleType : std::uint8_t { fp32, e8m0 };
std::string_view to_string(GemmScaleType type);

// What becomes of the two halves of n after the epilogue: out has n / 2 columns, act(x) * y, where
// x is column i and y column n / 2 + i, or with gate_interleaved columns 2 i and 2 i + 1.
enum class GemmGate : std::uint8_t { none, silu_mul, gelu_mul, gelu_tanh_mul };
std::string_view to_string(GemmGate gate);

// What the operand row_index names for row i of the product. gathered: the row of A that is read.
// scattered: the row of out, C and D tensors along m that is read and written; no two are equal.
enum class GemmIndexing : std::uint8_t { none, gathered, scattered };
std::string_view to_string(GemmIndexing indexing);

// How the sources of an operand become one before the product: in fp32, rounded once to its type.
enum class GemmMerge : std::uint8_t { none, add, multiply };
std::string_view to_string(GemmMerge merge);
inline constexpr int kMaxSources = 4;

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
  // With groups batch is 1, and batch strides are the distances between the groups' matrices.
  std::int64_t groups = 0;
  GemmGrouping grouping = GemmGrouping::none;
  bool check_groups = false;   // whether bad_group is written
  bool group_strides = false;  // lists: group_ld_a and so on take the place of ld_a
  bool group_int64 = false;    // group_ends, group_index and group_rows have 64 bits
  // Scales: a product is the sum over blocks of k of scale_a x scale_b x (the block's sum).
  // Blocks are counted from k = 0, also where groups cut k; the last one may be short.
  GemmScale scale_a = GemmScale::none;
  GemmScale scale_b = GemmScale::none;
  GemmScaleType scale_type = GemmScaleType::fp32;
  // e8m0: the scales of four blocks along k lie side by side, and strides along k go from four to
  // four.
  bool scale_quads = false;
  std::int64_t stride_scale_a_m = kPacked;  // from one block of rows to the next
  std::int64_t stride_scale_a_k = kPacked;  // from one block of k to the next; packed: 1
  std::int64_t stride_scale_b_n = kPacked;
  std::int64_t stride_scale_b_k = kPacked;
  std::int64_t batch_stride_scale_a = kPacked;
  std::int64_t batch_stride_scale_b = kPacked;
  GemmGate gate = GemmGate::none;
  bool gate_interleaved = false;
  GemmIndexing indexing = GemmIndexing::none;
  std::int64_t index_room = 0;  // the rows of A, or of out, that row_index names
  // Outputs of 8 bits, see NormProblem: what shares a scale. out_scales goes along rows of out.
  NormQuant quant = NormQuant::none;
  bool scales_by_column = false;
  // The sources of A and B, of which a and b are the first. In a contraction all sources of an
  // operand have its strides; otherwise 0 is a stride like any other, and repeats elements.
  GemmMerge merge_a = GemmMerge::none;
  GemmMerge merge_b = GemmMerge::none;
  std::int64_t sources_a = 1;
  std::int64_t sources_b = 1;
  std::array<std::int64_t, kMaxSources - 1> ld_more_a = {kPacked, kPacked, kPacked};
  std::array<std::int64_t, kMaxSources - 1> ld_more_b = {kPacked, kPacked, kPacked};
  std::array<std::int64_t, kMaxSources - 1> batch_stride_more_a = {kPacked, kPacked, kPacked};
  std::array<std::int64_t, kMaxSources - 1> batch_stride_more_b = {kPacked, kPacked, kPacked};
  // A contraction: m, n, k and batch are the products of its dimensions, which say all strides.
  // They come last, so that a look at a problem without them reads no memory of theirs.
  GemmDims dims;
  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

// Whether operands are arranged before the product, or out after it: contractions and sources.
constexpr bool is_arranged(const GemmProblem& p) {
  return p.dims.count != 0 || p.merge_a != GemmMerge::none || p.merge_b != GemmMerge::none;
}

// The rows of A and of out as they lie in memory, and the columns of out.
constexpr std::int64_t stored_rows_a(const GemmProblem& p) {
  return p.indexing == GemmIndexing::gathered ? p.index_room : p.m;
}
constexpr std::int64_t stored_rows_out(const GemmProblem& p) {
  return p.indexing == GemmIndexing::scattered ? p.index_room : p.m;
}
constexpr std::int64_t stored_columns_out(const GemmProblem& p) {
  return p.gate == GemmGate::none ? p.n : p.n / 2;
}

// What shares a scale: so many rows of A, or columns of B, by so many elements along k.
struct ScaleBlock {
  std::int64_t rows, k;
};
constexpr ScaleBlock block_of(GemmScale scale) {
  if (scale == GemmScale::by_1x32) return {1, 32};
  return {scale == GemmScale::by_128x128 ? 128 : 1, 128};
}
// How many scales an operand of so many rows (of B: columns) has, along both.
constexpr ScaleBlock scale_blocks(GemmScale scale, std::int64_t rows, std::int64_t k) {
  const ScaleBlock block = block_of(scale);
  const auto parts = [](std::int64_t size, std::int64_t part) {
    return size / part + (size % part != 0 ? 1 : 0);
  };
  return {parts(rows, block.rows), parts(k, block.k)};
}

// The operand types that go with `a`: b = a, the default accumulator and output, d = out.
GemmProblem gemm_problem(DType a, GemmLayout layout, std::int64_t m, std::int64_t n,
                         std::int64_t k);

// Replaces every kPacked by the stride that it stands for.
GemmProblem with_strides(const GemmProblem& problem);

// The pointers a GEMM reads and writes. Host pointers on CPU targets, device pointers on GPUs.
//
// With pointer_arrays each is the address of an array of `batch` pointers, one for each batch's
// matrix or vector (a: `const void* const*`, out: `void* const*`), which lies where the kernel can
// read it: in the host's memory for CPU targets, in the device's for GPUs. Pointers of a, b, c and
// d may be equal. Pointers of out must differ, and their memory must not overlap. Only the address
// of an array is checked (null, misaligned, another device's): reading a device's memory would mean
// waiting for it. The caller must make sure that each pointer is aligned to its element, and that
// no out overlaps an operand other than its own batch's C or D.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;  // the packed B when preshuffled_b is set
  const void* c = nullptr;
  std::array<const void*, kMaxD> d{};
  void* out = nullptr;
  // Groups, where the kernel can read them; see GemmGrouping. int32, or with group_int64 int64.
  const void* group_ends = nullptr;   // one for each group: the sum of its and earlier sizes
  const void* group_index = nullptr;  // one for each row
  const void* group_rows = nullptr;   // one for each group
  // check_groups: {1, place, number, bound} of the first number that does not fit, where `bound` is
  // what it must be at least or at most; nothing else is then written. {0, -1, -1, -1} where all
  // fit.
  std::int32_t* bad_group = nullptr;
  // lists: m, n and k of each group. With group_strides, distances of rows of A, B, C, out and D0
  // to D3; null where the operand is not read or has no rows.
  std::array<const std::int32_t*, 3> group_sizes{};
  std::array<const std::int32_t*, 4 + kMaxD> group_lds{};
  const void* scale_a = nullptr;  // one for each block, of scale_type
  const void* scale_b = nullptr;
  const std::int32_t* row_index = nullptr;  // one for each of m
  const void* out_scale = nullptr;          // fp32, one: quant=tensor
  void* out_scales = nullptr;  // fp32, one for each row of out, or for each 128 columns of a row
  // The sources of A and B behind the first.
  std::array<const void*, kMaxSources - 1> more_a{};
  std::array<const void*, kMaxSources - 1> more_b{};
};

}  // namespace tessera
#pragma GCC visibility pop
