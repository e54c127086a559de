#include "tessera/families/operands.h"

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Operands>> kOperandTypes = {
    "GemmOperands", "NormOperands", "ConvOperands", "FmhaOperands", "RouteOperands"};

template <class... Args>
[[noreturn]] void refuse_operand(Op op, fmt::format_string<Args...> sentence, Args&&... args) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: {}", to_string(op), fmt::format(sentence, std::forward<Args>(args)...)));
}

// A tensor and the caller's pointer to it.
struct Region {
  Op op;
  const Tensor* tensor;
  const void* data;
  std::size_t bytes;
};

std::uintptr_t address(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

// Only the array itself is checked. The pointers that it holds may lie in a device's memory, where
// only the kernel can read them.
void check_array(const Region& region) {
  constexpr std::uintptr_t kAlignment = alignof(void*);
  const Tensor& tensor = *region.tensor;
  if (region.data == nullptr) {
    refuse_operand(region.op,
                   "{} must not be null: with pointer_arrays it is an array of {} pointers",
                   tensor.name, tensor.batches);
  }
  if (const auto excess = address(region.data) % kAlignment; excess != 0) {
    refuse_operand(region.op,
                   "{} must be aligned to {} bytes, an array of pointers, got an address {} past a "
                   "multiple of that",
                   tensor.name, kAlignment, excess);
  }
}

void check_pointer(const Region& region) {
  const Tensor& tensor = *region.tensor;
  if (tensor.in_array) return check_array(region);
  if (region.data == nullptr) {
    refuse_operand(region.op, "{} must not be null: {} rows of {} elements are needed", tensor.name,
                   tensor.rows(), tensor.sizes[0]);
  }
  const auto alignment =
      static_cast<std::uintptr_t>(tensor.alignment != 0 ? tensor.alignment : size_of(tensor.dtype));
  if (const auto excess = address(region.data) % alignment; excess != 0) {
    refuse_operand(region.op,
                   "{} must be aligned to {} bytes for {}, got an address {} past a multiple of "
                   "that",
                   tensor.name, alignment, to_string(tensor.dtype), excess);
  }
}

// The bytes that a tensor spans within one period of so many bytes, when all of its other parts lie
// whole periods away; 0 when it spans more.
std::int64_t bytes_within(const Tensor& tensor, std::int64_t period) {
  const std::int64_t width = size_of(tensor.dtype);
  std::int64_t span = width;
  const auto add = [&](std::int64_t size, std::int64_t stride) {
    if (size > 1 && stride * width % period != 0) span += (size - 1) * stride * width;
  };
  for (std::size_t i = 0; i < tensor.rank; ++i) add(tensor.sizes[i], tensor.strides[i]);
  add(tensor.batches, tensor.batch_stride);
  return span <= period ? span : 0;
}

// Two tensors with rows at equal distances that occupy different columns never overlap, although
// their address ranges do: parts of wider matrices, or heads of queries and of keys of one tensor
// of tokens.
bool columns_apart(const Region& out, const Region& other) {
  for (std::size_t i = 1; i < out.tensor->rank; ++i) {
    const std::int64_t period = out.tensor->strides[i] * size_of(out.tensor->dtype);
    if (period <= 0) continue;
    const std::int64_t own = bytes_within(*out.tensor, period);
    const std::int64_t its = bytes_within(*other.tensor, period);
    if (own == 0 || its == 0) continue;
    std::int64_t shift =
        static_cast<std::int64_t>(address(out.data) - address(other.data)) % period;
    if (shift < 0) shift += period;
    if (shift >= its && shift + own <= period) return true;
  }
  return false;
}

bool overlap(const Region& out, const Region& other) {
  const std::uintptr_t a = address(out.data);
  const std::uintptr_t b = address(other.data);
  if (a + out.bytes <= b || b + other.bytes <= a) return false;
  return !columns_apart(out, other);
}

bool same_place(const Region& out, const Region& other) {
  const Tensor& x = *out.tensor;
  const Tensor& y = *other.tensor;
  if (out.data != other.data || x.dtype != y.dtype || x.rank != y.rank) return false;
  for (std::size_t i = 0; i < x.rank; ++i) {
    if (x.sizes[i] != y.sizes[i]) return false;
    if (x.sizes[i] > 1 && x.strides[i] != y.strides[i]) return false;
  }
  return x.batches == y.batches && (x.batches <= 1 || x.batch_stride == y.batch_stride);
}

// The pointers in arrays are not checked.
void check_apart(const Region& out, const Region& other) {
  if (out.tensor->in_array || other.tensor->in_array) return;
  const std::size_t which = other.tensor->may_be;
  const bool may_be_same =
      other.tensor->may_be_output && (which == kAnyOperand || which == out.tensor->operand);
  if (may_be_same && same_place(out, other)) return;
  if (!overlap(out, other)) return;
  const auto shift = static_cast<std::int64_t>(address(out.data) - address(other.data));
  refuse_operand(
      out.op, "{} must not overlap {}{}, got {} {} bytes {} the start of {}, which spans {} bytes",
      out.tensor->name, other.tensor->name,
      may_be_same ? " unless it is the same matrix with equal strides" : "", out.tensor->name,
      shift < 0 ? -shift : shift, shift < 0 ? "before" : "after", other.tensor->name, other.bytes);
}

}  // namespace

// Gaps of an operand count as the operand's.
void check_memory_apart(const Family& family, const Tensors& tensors, const Operands& operands,
                        const CallerMemory& memory) {
  if (memory.data == nullptr || memory.bytes == 0) return;
  for (const Tensor& tensor : tensors) {
    const void* const data = family.pointer(operands, tensor.operand);
    if (data == nullptr || tensor.is_empty()) continue;
    const std::size_t bytes =
        tensor.in_array ? static_cast<std::size_t>(tensor.batches) * sizeof(void*) : tensor.bytes();
    if (address(memory.data) - address(data) >= bytes &&
        address(data) - address(memory.data) >= memory.bytes) {
      continue;
    }
    const auto shift = static_cast<std::int64_t>(address(memory.data) - address(data));
    refuse_operand(family.op,
                   "{} must not overlap {}, got {} bytes that begin {} bytes {} the start of {}, "
                   "which spans {} bytes",
                   memory.name, tensor.name, memory.bytes, shift < 0 ? -shift : shift,
                   shift < 0 ? "before" : "after", tensor.name, bytes);
  }
}

void validate_operands(const Family& family, const Problem& problem, const Operands& operands,
                       const CallerMemory& workspace) {
  validate_operands(family, family.tensors(problem), operands, workspace);
}

// Outputs come first, and every other operand is compared with them.
void validate_operands(const Family& family, const Tensors& tensors, const Operands& operands,
                       const CallerMemory& workspace) {
  const Op op = family.op;
  const auto wanted = static_cast<std::size_t>(op);
  if (operands.index() != wanted) {
    refuse_operand(op, "the operands must be {}, got {}", kOperandTypes[wanted],
                   kOperandTypes[operands.index()]);
  }
  if (writes_nothing(tensors)) return;
  std::array<Region, kMaxTensors> outputs;
  std::size_t num_outputs = 0;
  for (const bool is_output : {true, false}) {
    for (const Tensor& tensor : tensors) {
      if (tensor.is_written() != is_output || tensor.is_empty()) continue;
      const Region region = {op, &tensor, family.pointer(operands, tensor.operand), tensor.bytes()};
      if (region.data == nullptr && tensor.may_be_null) continue;
      check_pointer(region);
      for (std::size_t i = 0; i < num_outputs; ++i) check_apart(outputs[i], region);
      if (is_output) outputs[num_outputs++] = region;
    }
  }
  if (workspace.bytes > 0) check_memory_apart(family, tensors, operands, workspace);
}

}  // namespace tessera
