#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "tessera/base/error.h"
#include "tessera/families/gemm/gemm_internal.h"
#include "tessera/spec/fields_internal.h"

namespace tessera::gemm {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(ErrorCode::invalid_argument,
              "gemm: " + fmt::format(sentence, std::forward<Args>(args)...));
}

constexpr std::array<std::string_view, kMaxD> kDNames = {"d0", "d1", "d2", "d3"};

bool has_output(const GemmProblem& p) { return p.m > 0 && p.n > 0 && p.batch > 0; }

// ---- the problem ----

void check_sizes(const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) refuse("{} must be at least 0, got {}", name, size);
  }
  // An empty dimension does not make the others' operands small.
  const int widest = std::max({size_of(p.a), size_of(p.b), size_of(p.out)});
  std::int64_t product = widest;
  for (const auto& [name, size] : sizes) {
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      refuse("m x n x k x batch x {} bytes must be below 2^63, got {} x {} x {} x {} x {}", widest,
             p.m, p.n, p.k, p.batch, widest);
    }
  }
}

void check_scalars(const GemmProblem& p) {
  const std::pair<std::string_view, float> scalars[] = {{"alpha", p.alpha}, {"beta", p.beta}};
  for (const auto& [name, value] : scalars) {
    if (!std::isfinite(value)) refuse("{} must be finite, got {}", name, value);
    const bool whole = std::trunc(value) == value && std::abs(value) <= 0x1p30F;
    if (p.out == DType::int32 && !whole) {
      refuse("{} must be a whole number of at most 2^30 when out is int32, got {}; use out=fp32",
             name, value);
    }
  }
  if (!(p.clamp_lo <= p.clamp_hi)) {
    refuse("clamp_lo must not be above clamp_hi, got {} and {}", p.clamp_lo, p.clamp_hi);
  }
}

// Batches at equal distances: one, where each has a pointer of its own.
std::int64_t strided_batches(const GemmProblem& p) {
  return p.pointer_arrays ? std::min<std::int64_t>(p.batch, 1) : p.batch;
}

// A matrix in memory: `rows` runs of `row` elements, whichever dimension a row is.
struct Matrix {
  std::string_view name;
  DType dtype;
  std::int64_t rows;
  std::int64_t row;
  std::int64_t ld;
  std::int64_t batch_stride;
  bool empty() const { return rows == 0 || row == 0; }
};

Matrix matrix_a(const GemmProblem& p) {
  const bool by_row = a_is_row_major(p.layout);
  return {"a", p.a, by_row ? p.m : p.k, by_row ? p.k : p.m, p.ld_a, p.batch_stride_a};
}
Matrix matrix_b(const GemmProblem& p) {
  const bool by_row = b_is_row_major(p.layout);
  return {"b", p.b, by_row ? p.k : p.n, by_row ? p.n : p.k, p.ld_b, p.batch_stride_b};
}
Matrix matrix_c(const GemmProblem& p) { return {"c", p.out, p.m, p.n, p.ld_c, p.batch_stride_c}; }
Matrix matrix_out(const GemmProblem& p) {
  return {"out", p.out, p.m, p.n, p.ld_out, p.batch_stride_out};
}
Matrix matrix_d(const GemmProblem& p, std::size_t i) {
  const DShape shape = d_uses(p.epilogue)[i].shape;
  const std::int64_t length = shape == DShape::along_m ? p.m : p.n;
  const bool is_matrix = shape == DShape::matrix;
  return {kDNames[i],         p.d, is_matrix ? p.m : 1, length, is_matrix ? p.ld_d[i] : length,
          p.batch_stride_d[i]};
}

// Elements from the first to the last of all batches; false when that overflows in bytes.
bool extent(const Matrix& matrix, std::int64_t batch, std::int64_t& elements) {
  elements = 0;
  if (matrix.empty() || batch == 0) return true;
  std::int64_t over_rows = 0;
  std::int64_t over_batches = 0;
  std::int64_t bytes = 0;
  return !__builtin_mul_overflow(matrix.rows - 1, matrix.ld, &over_rows) &&
         !__builtin_mul_overflow(batch - 1, matrix.batch_stride, &over_batches) &&
         !__builtin_add_overflow(over_rows, over_batches, &elements) &&
         !__builtin_add_overflow(elements, matrix.row, &elements) &&
         !__builtin_mul_overflow(elements, std::int64_t{size_of(matrix.dtype)}, &bytes);
}

void check_strides(const Matrix& matrix, const GemmProblem& p, std::string_view row_name) {
  if (matrix.ld < matrix.row) {
    refuse("ld_{} must be at least {} ({}), got {}", matrix.name, matrix.row, row_name, matrix.ld);
  }
  if (matrix.batch_stride < 0) {
    refuse("batch_stride_{} must be at least 0, got {}", matrix.name, matrix.batch_stride);
  }
  std::int64_t elements = 0;
  if (!extent(matrix, strided_batches(p), elements)) {
    refuse("the last byte of {} must be below 2^63, got {} rows {} apart and {} batches {} apart",
           matrix.name, matrix.rows, matrix.ld, p.batch, matrix.batch_stride);
  }
}

// Batches of the output may lie one after the other or interleaved within a row.
void check_output_batches(const GemmProblem& p) {
  if (p.batch <= 1 || p.pointer_arrays || !has_output(p)) return;
  const std::int64_t behind = (p.m - 1) * p.ld_out + p.n;
  const bool after = p.batch_stride_out >= behind;
  const bool within_row = p.batch_stride_out >= p.n &&
                          (p.m == 1 || p.ld_out >= (p.batch - 1) * p.batch_stride_out + p.n);
  if (after || within_row) return;
  refuse("batch_stride_out must be at least {} so that batches do not overlap, got {}", behind,
         p.batch_stride_out);
}

// Each batch has a pointer of its own, and nothing is packed ahead through an array.
void check_arrays(const GemmProblem& given) {
  if (!given.pointer_arrays) return;
  if (given.preshuffled_b) {
    refuse(
        "preshuffle and pointer_arrays do not go together: a packed B has one address; leave one "
        "of them out");
  }
  const auto check = [](std::string_view name, std::int64_t stride) {
    if (stride == kPacked) return;
    refuse(
        "batch_stride_{} must be left out with pointer_arrays, where each batch has a pointer of "
        "its own, got {}",
        name, stride);
  };
  check("a", given.batch_stride_a);
  check("b", given.batch_stride_b);
  check("c", given.batch_stride_c);
  check("out", given.batch_stride_out);
  for (std::size_t i = 0; i < kMaxD; ++i) check(kDNames[i], given.batch_stride_d[i]);
}

// ---- the operands ----

struct Region {
  Matrix matrix;
  const void* data;
  std::int64_t bytes;  // from the first to the last
};

Region region(const Matrix& matrix, const GemmProblem& p, const void* data) {
  std::int64_t elements = 0;
  extent(matrix, p.batch, elements);
  return {matrix, data, elements * size_of(matrix.dtype)};
}

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

void check_pointer(const Region& region, std::uintptr_t alignment) {
  const std::string_view name = region.matrix.name;
  if (region.data == nullptr) {
    refuse("{} must not be null: {} rows of {} elements are needed", name, region.matrix.rows,
           region.matrix.row);
  }
  if (const auto excess = address(region.data) % alignment; excess != 0) {
    refuse("{} must be aligned to {} bytes for {}, got an address {} past a multiple of that", name,
           alignment, to_string(region.matrix.dtype), excess);
  }
}

// Rows of equal pitch that keep to columns of their own never meet, though their ranges do.
bool columns_apart(const Region& out, const Region& other, std::int64_t batch) {
  const std::int64_t size_out = size_of(out.matrix.dtype);
  const std::int64_t size_other = size_of(other.matrix.dtype);
  const std::int64_t pitch = out.matrix.ld * size_out;
  if (other.matrix.ld * size_other != pitch || pitch == 0) return false;
  if (batch > 1 && (out.matrix.batch_stride * size_out % pitch != 0 ||
                    other.matrix.batch_stride * size_other % pitch != 0)) {
    return false;
  }
  std::int64_t shift = static_cast<std::int64_t>(address(out.data) - address(other.data)) % pitch;
  if (shift < 0) shift += pitch;
  return shift >= other.matrix.row * size_other && shift + out.matrix.row * size_out <= pitch;
}

bool overlap(const Region& out, const Region& other, std::int64_t batch) {
  const std::uintptr_t a = address(out.data);
  const std::uintptr_t b = address(other.data);
  if (a + static_cast<std::uintptr_t>(out.bytes) <= b) return false;
  if (b + static_cast<std::uintptr_t>(other.bytes) <= a) return false;
  return !columns_apart(out, other, batch);
}

bool same_place(const Region& out, const Region& other, std::int64_t batch) {
  const Matrix& x = out.matrix;
  const Matrix& y = other.matrix;
  return out.data == other.data && x.dtype == y.dtype && x.rows == y.rows &&
         (x.rows <= 1 || x.ld == y.ld) && (batch <= 1 || x.batch_stride == y.batch_stride);
}

void check_overlap(const Region& out, const Region& other, std::int64_t batch, bool may_be_same) {
  if (may_be_same && same_place(out, other, batch)) return;
  if (!overlap(out, other, batch)) return;
  const auto shift = static_cast<std::int64_t>(address(out.data) - address(other.data));
  refuse("out must not overlap {}{}, got out {} bytes {} the start of {}, which spans {} bytes",
         other.matrix.name, may_be_same ? " unless it is the same matrix with equal strides" : "",
         shift < 0 ? -shift : shift, shift < 0 ? "before" : "after", other.matrix.name,
         other.bytes);
}

// Addresses of arrays; what is in them is for the kernel to read, perhaps in a device's memory.
void check_array_addresses(const GemmProblem& p, const GemmOperands& o) {
  const auto check = [&p](std::string_view name, const void* array) {
    constexpr std::uintptr_t kAlignment = alignof(void*);
    if (array == nullptr) {
      refuse("{} must not be null: with pointer_arrays it is an array of {} pointers", name,
             p.batch);
    }
    if (const auto excess = address(array) % kAlignment; excess != 0) {
      refuse(
          "{} must be aligned to {} bytes, an array of pointers, got an address {} past a "
          "multiple of that",
          name, kAlignment, excess);
    }
  };
  check("out", o.out);
  if (p.k > 0) check("a", o.a);
  if (p.k > 0) check("b", o.b);
  if (p.beta != 0) check("c", o.c);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) check(kDNames[i], o.d[i]);
}

void check_operand(const Region& out, const Region& other, std::int64_t batch, bool may_be_same) {
  check_pointer(other, static_cast<std::uintptr_t>(size_of(other.matrix.dtype)));
  check_overlap(out, other, batch, may_be_same);
}

}  // namespace

void validate(const Problem& problem) {
  const GemmProblem& given = std::get<GemmProblem>(problem);
  check_numbers("gemm", given);
  const GemmSignature signature = std::get<GemmSignature>(signature_of(problem));
  if (const Verdict fits = types_fit(signature); !fits) refuse("{}", fits.reason);
  if (const Verdict fits = epilogue_fits(signature); !fits) refuse("{}", fits.reason);
  check_sizes(given);
  check_scalars(given);
  check_arrays(given);
  const GemmProblem p = with_strides(given);
  const std::string layout(to_string(p.layout));
  check_strides(matrix_a(p), p, "the row length of A for " + layout);
  check_strides(matrix_b(p), p, "the row length of B for " + layout);
  check_strides(matrix_c(p), p, "n");
  check_strides(matrix_out(p), p, "n");
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) check_strides(matrix_d(p, i), p, "n");
  check_output_batches(p);
}

void validate_operands(const Problem& problem, const Operands& operands) {
  const GemmProblem p = with_strides(std::get<GemmProblem>(problem));
  const auto& given = std::get<GemmOperands>(operands);
  if (!has_output(p)) return;
  if (p.pointer_arrays) return check_array_addresses(p, given);
  const Region out = region(matrix_out(p), p, given.out);
  check_pointer(out, static_cast<std::uintptr_t>(size_of(p.out)));
  if (p.k > 0) {
    check_operand(out, region(matrix_a(p), p, given.a), p.batch, false);
    Region b = region(matrix_b(p), p, given.b);
    if (p.preshuffled_b) {  // at least as long as B itself, in 32-bit words
      b.bytes = p.k * p.n * size_of(p.b);
      b.matrix.ld = 0;
      check_pointer(b, 4);
      check_overlap(out, b, p.batch, false);
    } else {
      check_operand(out, b, p.batch, false);
    }
  }
  if (p.beta != 0) check_operand(out, region(matrix_c(p), p, given.c), p.batch, true);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    const bool is_vector = d_uses(p.epilogue)[i].is_vector();
    check_operand(out, region(matrix_d(p, i), p, given.d[i]), p.batch, !is_vector);
  }
}

}  // namespace tessera::gemm
