#include "tessera/spec/contraction.h"

#include <algorithm>
#include <optional>

namespace tessera {
namespace {

using enum GemmDimKind;
using Kind = GemmDimKind;

constexpr std::int64_t kMatrixLine = 256;  // bytes at whose multiples matrices begin

std::size_t d_index(Arranged operand) {
  return static_cast<std::size_t>(operand) - static_cast<std::size_t>(Arranged::d0);
}
bool is_d(Arranged operand) { return operand >= Arranged::d0 && operand <= Arranged::d3; }

DShape shape_of(const GemmProblem& p, Arranged operand) {
  return is_d(operand) ? d_uses(p.epilogue).at(d_index(operand)).shape : DShape::matrix;
}

bool is_used(const GemmProblem& p, Arranged operand) {
  if (operand == Arranged::c) return p.beta != 0;
  return !is_d(operand) || d_index(operand) < p.epilogue.num_d;
}

// The kinds along which an operand's matrix has rows, and elements of a row; a vector has no rows.
struct Sides {
  std::optional<Kind> rows;
  Kind row;
};
Sides sides_of(const GemmProblem& p, Arranged operand) {
  if (operand == Arranged::a) {
    return a_is_row_major(p.layout) ? Sides{m, k} : Sides{k, m};
  }
  if (operand == Arranged::b) {
    return b_is_row_major(p.layout) ? Sides{k, n} : Sides{n, k};
  }
  const DShape shape = shape_of(p, operand);
  if (shape == DShape::along_n) return {std::nullopt, n};
  if (shape == DShape::along_m) return {std::nullopt, m};
  return {m, n};
}

std::int64_t stride_of(const GemmDim& dim, Arranged operand) {
  const auto or_out = [&](std::int64_t stride) { return stride == kPacked ? dim.out : stride; };
  if (operand == Arranged::a) return dim.a;
  if (operand == Arranged::b) return dim.b;
  if (operand == Arranged::c) return or_out(dim.c);
  return is_d(operand) ? or_out(dim.d.at(d_index(operand))) : dim.out;
}

// The dimensions of a kind as a single one.
struct DimAxis {
  std::int64_t size = 1, stride = 0;
  bool merges = true;
};
DimAxis axis_of(const GemmDims& dims, Kind kind, Arranged operand) {
  DimAxis axis;
  for (std::size_t i = dims.count; i-- > 0;) {
    const GemmDim& dim = dims.all.at(i);
    if (dim.kind != kind || dim.size == 1) continue;
    const std::int64_t stride = stride_of(dim, operand);
    if (axis.size == 1) axis.stride = stride;
    axis.merges = axis.merges && stride == axis.stride * axis.size;
    axis.size *= dim.size;
  }
  return axis;
}

// Whether batches of an output lie one after the other, or within a row.
bool batches_lie_apart(const DimAxis& batch, const DimAxis& rows, const DimAxis& row) {
  if (batch.size <= 1) return true;
  const bool after = batch.stride >= (rows.size - 1) * rows.stride + row.size;
  const bool within = rows.size <= 1 || rows.stride >= (batch.size - 1) * batch.stride + row.size;
  return after || (batch.stride >= row.size && within);
}

std::int64_t whole(std::int64_t size, std::int64_t unit) { return (size + unit - 1) / unit * unit; }

ArrangedMatrix matrix_of(const GemmProblem& p, const GemmDims& dims, Arranged operand) {
  const Sides sides = sides_of(p, operand);
  const DimAxis row = axis_of(dims, sides.row, operand);
  const DimAxis rows = sides.rows ? axis_of(dims, *sides.rows, operand) : DimAxis{};
  const DimAxis batch = axis_of(dims, g, operand);
  ArrangedMatrix matrix{.is_used = true};
  const bool is_empty = row.size == 0 || rows.size == 0 || batch.size == 0;
  const bool is_row = row.size <= 1 || (row.merges && row.stride == 1);
  const bool are_rows = rows.size <= 1 || (rows.merges && rows.stride >= row.size);
  const bool apart = operand != Arranged::out || batches_lie_apart(batch, rows, row);
  const bool in_place = sources_of(p, operand) == 1 && is_row && are_rows && batch.merges && apart;
  if (is_empty || in_place) {
    matrix.ld = rows.size > 1 && !is_empty ? rows.stride : std::max<std::int64_t>(row.size, 1);
    matrix.batch_stride = is_empty ? 0 : batch.stride;
    return matrix;
  }
  matrix.is_copy = true;
  const std::int64_t bytes = size_of(type_of(p, operand));
  matrix.ld = sides.rows ? whole(row.size, 16 / bytes) : row.size;
  const std::int64_t length = rows.size * matrix.ld;
  const bool is_shared =
      operand != Arranged::out && batch.merges && batch.stride == 0 && sources_of(p, operand) == 1;
  matrix.batch_stride = is_shared || batch.size <= 1 ? 0 : length;
  matrix.bytes = whole((is_shared ? 1 : batch.size) * length * bytes, kMatrixLine);
  return matrix;
}

// A product's dimensions in an operand without any of its own.
GemmDim plain_dim(const GemmProblem& p, Kind kind, std::int64_t size) {
  GemmDim dim{.size = size, .kind = kind};
  const bool a_rows = a_is_row_major(p.layout), b_rows = b_is_row_major(p.layout);
  if (kind == g) {
    dim.a = p.batch_stride_a, dim.b = p.batch_stride_b, dim.out = p.batch_stride_out;
    dim.c = p.batch_stride_c, dim.d = p.batch_stride_d;
  } else if (kind == m) {
    dim.a = a_rows ? p.ld_a : 1, dim.out = p.ld_out, dim.c = p.ld_c;
    for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
      const bool is_matrix = d_uses(p.epilogue).at(i).shape == DShape::matrix;
      dim.d.at(i) = is_matrix ? p.ld_d.at(i) : 1;
    }
  } else if (kind == n) {
    dim.b = b_rows ? 1 : p.ld_b, dim.out = 1, dim.c = 1;
    dim.d.fill(1);
  } else {
    dim.a = a_rows ? 1 : p.ld_a, dim.b = b_rows ? p.ld_b : 1;
  }
  return dim;
}

void place(GemmProblem& q, Arranged operand, const ArrangedMatrix& matrix) {
  const std::size_t d = is_d(operand) ? d_index(operand) : 0;
  std::int64_t* const lds[] = {&q.ld_a, &q.ld_b, &q.ld_c};
  std::int64_t* const batches[] = {&q.batch_stride_a, &q.batch_stride_b, &q.batch_stride_c};
  const auto at = static_cast<std::size_t>(operand);
  std::int64_t* ld = operand == Arranged::out ? &q.ld_out : is_d(operand) ? &q.ld_d[d] : lds[at];
  std::int64_t* batch = operand == Arranged::out ? &q.batch_stride_out
                        : is_d(operand)          ? &q.batch_stride_d[d]
                                                 : batches[at];
  *ld = matrix.ld, *batch = matrix.batch_stride;
}

}  // namespace

std::int64_t sources_of(const GemmProblem& p, Arranged operand) {
  if (operand == Arranged::a) return p.merge_a == GemmMerge::none ? 1 : p.sources_a;
  if (operand == Arranged::b) return p.merge_b == GemmMerge::none ? 1 : p.sources_b;
  return 1;
}

DType type_of(const GemmProblem& p, Arranged operand) {
  if (operand == Arranged::a) return p.a;
  if (operand == Arranged::b) return p.b;
  return is_d(operand) ? p.d : p.out;
}

GemmDims dims_of(const GemmProblem& p) {
  if (p.dims.count != 0) return p.dims;
  GemmDims dims;
  dims.all[0] = plain_dim(p, g, p.batch);
  dims.all[1] = plain_dim(p, m, p.m);
  dims.all[2] = plain_dim(p, n, p.n);
  dims.all[3] = plain_dim(p, k, p.k);
  dims.count = 4;
  return dims;
}

DenseProduct dense_product(const GemmProblem& p) {
  DenseProduct dense;
  GemmProblem& q = dense.problem;
  q = p;
  q.dims = {}, q.merge_a = q.merge_b = GemmMerge::none, q.sources_a = q.sources_b = 1;
  for (auto* strides :
       {&q.ld_more_a, &q.ld_more_b, &q.batch_stride_more_a, &q.batch_stride_more_b}) {
    strides->fill(kPacked);
  }
  const GemmDims dims = dims_of(p);
  for (std::size_t i = 0; i < kArrangedOperands; ++i) {
    const auto operand = static_cast<Arranged>(i);
    if (!is_used(p, operand)) continue;
    ArrangedMatrix& matrix = dense.matrices.at(i) = matrix_of(p, dims, operand);
    matrix.offset = dense.bytes;
    dense.bytes += matrix.bytes;
    place(q, operand, matrix);
  }
  return dense;
}

ArrangedView whole_view_of(const GemmProblem& p, const DenseProduct& dense, Arranged operand) {
  DenseProduct whole = dense;
  whole.matrices.at(static_cast<std::size_t>(operand)).is_copy = false;
  return view_of(p, whole, operand);
}

ArrangedView view_of(const GemmProblem& p, const DenseProduct& dense, Arranged operand) {
  const ArrangedMatrix& matrix = dense.of(operand);
  const Sides sides = sides_of(p, operand);
  const GemmDims dims = dims_of(p);
  ArrangedView view;
  // The dimensions of a kind lie one within the other in the matrix.
  const auto add = [&](Kind kind, std::int64_t step) {
    for (std::size_t i = dims.count; i-- > 0;) {
      const GemmDim& dim = dims.all.at(i);
      if (dim.kind != kind || dim.size == 1) continue;
      view.sizes.at(view.rank) = dim.size;
      view.strides.at(view.rank) = stride_of(dim, operand);
      view.dense.at(view.rank++) = step;
      view.elements *= dim.size;
      step *= dim.size;
    }
  };
  add(sides.row, 1);
  if (sides.rows) add(*sides.rows, matrix.ld);
  const bool is_shared = matrix.is_copy && matrix.batch_stride == 0;
  if (!is_shared) add(g, matrix.batch_stride);
  return view;
}

std::array<std::int64_t, kMostDims> source_strides(const GemmProblem& p, const ArrangedView& view,
                                                   Arranged operand, std::size_t source) {
  if (source == 0 || p.dims.count != 0) return view.strides;
  GemmProblem q = p;
  const std::size_t more = source - 1;
  if (operand == Arranged::a) {
    q.ld_a = p.ld_more_a.at(more), q.batch_stride_a = p.batch_stride_more_a.at(more);
  } else {
    q.ld_b = p.ld_more_b.at(more), q.batch_stride_b = p.batch_stride_more_b.at(more);
  }
  return whole_view_of(q, dense_product(p), operand).strides;
}

}  // namespace tessera
