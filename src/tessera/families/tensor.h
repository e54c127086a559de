// How operands lie in memory. Every stage that checks, fills, guards, moves or compares operands
// loops over this list of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>

#include "tessera/spec/dtype.h"

#pragma GCC visibility push(default)
namespace tessera {

inline constexpr std::size_t kMaxRank = 5;  // dimensions of a tensor, without the batches
inline constexpr std::size_t kMaxTensors = 20;
inline constexpr std::size_t kAnyOperand = ~std::size_t{0};

// What a kernel does with an operand. `update` means that it reads the elements and then overwrites
// them.
enum class Access : std::uint8_t { read, write, update };

// What measurements and tests fill an operand with: numbers of its type, or, in int32,
//   lengths:     of sequences
//   prefix_sums: 0 and the sums of the first one, two, ... of them
//   even_sums:   the same where all of them are as long as the longest
//   indices:     numbers from 0 to `most`, each of which comes once before any of them comes again
//   ends:        sums of the first one, two, ... of random lengths, at most `total`
//   runs:        numbers from 0 to `most` in their order, each as often as it comes, and some -1
// or, in int8,
//   exponents:   bytes from 120 to 134, which are scales between 2^-7 and 2^7
// or, in fp32,
//   positive:    numbers without their sign
//   log_sums:    logarithms of `most` and up to e times more, as of a sum of exponentials
enum class Fill : std::uint8_t {
  numbers,
  lengths,
  prefix_sums,
  even_sums,
  indices,
  positive,
  log_sums,
  ends,
  runs,
  exponents
};

// A stride that is less than the elements that all smaller strides span.
struct Fold {
  std::int64_t stride = 0, span = 0;
};

// One operand of a problem. Sizes and strides begin with the innermost dimension; strides count
// elements.
struct Tensor {
  std::string_view name;    // as messages call it: "a", "dq"
  std::size_t operand = 0;  // index of the tensor's pointer, see pointer_of()
  Access access = Access::read;
  DType dtype = DType::fp32;
  std::size_t rank = 1;                        // 1 to kMaxRank
  std::array<std::int64_t, kMaxRank> sizes;    // the first `rank` entries count
  std::array<std::int64_t, kMaxRank> strides;  // the first `rank` entries count
  std::int64_t batches = 1;
  std::int64_t batch_stride = 0;
  // The operand is an array of `batches` pointers. The batch stride then describes memory that the
  // library allocates for all batches together.
  bool in_array = false;
  // An output of equal type, sizes and strides may lie in the same place: any output, or the one
  // of this operand.
  bool may_be_output = false;
  std::size_t may_be = kAnyOperand;
  bool may_be_null = false;  // values beside the pointers then take the operand's place
  bool is_report = false;    // an output that says something of the launch, without a reference
  int alignment = 0;         // of the address, in bytes; 0: the size of an element
  Fill fill = Fill::numbers;
  std::int64_t least = 0;  // lengths: the shortest
  std::int64_t most = 0;   // lengths and sums: the longest length; indices: the largest; log_sums
  std::int64_t total = 0;  // sums: the largest

  bool is_read() const { return access != Access::write; }
  bool is_written() const { return access != Access::read; }
  bool is_empty() const {
    for (std::size_t i = 0; i < rank; ++i) {
      if (sizes[i] == 0) return true;
    }
    return batches == 0;
  }
  // The number of elements from the first to the last, with all gaps and all batches; 0 when the
  // tensor is empty.
  std::int64_t elements() const {
    if (is_empty()) return 0;
    std::int64_t last = (batches - 1) * batch_stride;
    for (std::size_t i = 0; i < rank; ++i) last += (sizes[i] - 1) * strides[i];
    return last + 1;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements() * size_of(dtype)); }
  // The bytes that one batch spans.
  std::size_t batch_bytes() const;
  // Whether bytes that belong to no element lie between its elements.
  bool has_gaps() const;
  // Whether the last byte lies 2^63 bytes or more behind the first byte. With in_array, whether
  // this holds within one batch.
  bool is_too_long() const;
  // The first stride that lets elements share a place, if there is one. The tensor is not too long.
  std::optional<Fold> fold() const;

  // The number of rows of one batch. A row is a run of elements along the innermost dimension.
  std::int64_t rows() const;
  // The offset of a row's first element, in elements. Rows are counted through all batches.
  std::int64_t row_offset(std::int64_t row) const;
};

// The operands that a problem reads or writes. Every call lists them, so the list allocates nothing
// and leaves unused places unwritten.
class Tensors {
 public:
  Tensors() {}
  Tensors(const Tensors& other) { *this = other; }
  Tensors& operator=(const Tensors& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    std::copy_n(other.all_, size_, all_);
    return *this;
  }
  // Throws Error{internal} when the list already holds kMaxTensors tensors.
  Tensor& add() {
    if (size_ == kMaxTensors) refuse_one_more();
    return *new (all_ + size_++) Tensor;  // its sizes and strides stay unwritten
  }
  void push(const Tensor& tensor) { add() = tensor; }
  Tensor& back() { return all_[size_ - 1]; }
  std::size_t size() const { return size_; }
  const Tensor& operator[](std::size_t i) const { return all_[i]; }
  const Tensor* begin() const { return all_; }
  const Tensor* end() const { return all_ + size_; }

 private:
  [[noreturn]] static void refuse_one_more();

  std::size_t size_ = 0;
  union {
    Tensor all_[kMaxTensors];  // the first size_ exist
  };
};

// Whether every output is empty, so that no operand is read or written at all.
inline bool writes_nothing(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    return !tensor.is_written() || tensor.is_empty();
  });
}

}  // namespace tessera
#pragma GCC visibility pop
