// Operands as they lie in memory: what every stage that checks, fills, guards, moves or compares
// operands loops over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/spec/dtype.h"

namespace tessera {

inline constexpr std::size_t kMaxRank = 5;  // dimensions of a tensor, batches left out
inline constexpr std::size_t kMaxTensors = 16;

// What a kernel does with an operand; update: it reads what it then writes over.
enum class Access : std::uint8_t { read, write, update };

// One operand of a problem. Sizes and strides begin with the innermost dimension; strides count
// elements.
struct Tensor {
  std::string_view name;    // as messages call it: "a", "dq"
  std::size_t operand = 0;  // which pointer of the operands is its own, see Family::pointer
  Access access = Access::read;
  DType dtype = DType::fp32;
  std::size_t rank = 1;  // 1 to kMaxRank
  std::array<std::int64_t, kMaxRank> sizes = {};
  std::array<std::int64_t, kMaxRank> strides = {};
  std::int64_t batches = 1;
  std::int64_t batch_stride = 0;
  // The operand is an array of `batches` pointers. The batch stride is then that of memory which
  // the library allocates for all batches together.
  bool in_array = false;
  // An output of equal type, sizes and strides may lie in the same place.
  bool may_be_output = false;
  int alignment = 0;  // of its address in bytes; 0: an element's size

  bool is_read() const { return access != Access::write; }
  bool is_written() const { return access != Access::read; }
  bool is_empty() const;
  // From the first element to the last, gaps and all batches included; 0 when it is empty.
  std::int64_t elements() const;
  std::size_t bytes() const;
  // The bytes that one batch spans.
  std::size_t batch_bytes() const;
  // Whether bytes that belong to no element lie between its elements.
  bool has_gaps() const;
  // Whether the last byte lies 2^63 bytes behind the first, or further; in_array: that of a batch.
  bool is_too_long() const;

  // A row is what lies along the innermost dimension. Of one batch.
  std::int64_t rows() const;
  // Where a row begins. Rows are counted through all batches.
  std::int64_t row_offset(std::int64_t row) const;
};

// The operands that a problem reads or writes.
class Tensors {
 public:
  // Throws Error{internal} when there are kMaxTensors.
  void push(const Tensor& tensor);
  std::size_t size() const { return size_; }
  const Tensor& operator[](std::size_t i) const { return all_[i]; }
  const Tensor* begin() const { return all_.data(); }
  const Tensor* end() const { return all_.data() + size_; }

 private:
  std::array<Tensor, kMaxTensors> all_;
  std::size_t size_ = 0;
};

// Whether every output is empty, so that no operand is read or written at all.
bool writes_nothing(const Tensors& tensors);

}  // namespace tessera
