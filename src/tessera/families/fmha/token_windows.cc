// What the copy engine asks of tensors of tokens.
#include "tessera/families/fmha/token_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/fmha.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::fmha {
namespace {

constexpr std::int64_t kMostStride = (std::int64_t{1} << 40) / 2;  // elements

// {token, head, sequence or page}: how many, and their distance.
struct Dimension {
  std::string_view name;
  std::int64_t size, stride;
};
std::array<Dimension, 3> dimensions(const WindowTokens& t) {
  return {{{"token", t.tokens, t.strides[device::kToken]},
           {"head", t.heads, t.strides[device::kTokenHead]},
           {t.part, t.parts, t.strides[device::kTokenBatch]}}};
}

}  // namespace

std::int64_t tma_elements(DType dtype) { return tile::kTmaBytes / size_of(dtype); }

std::string window_reason(const WindowTokens& t) {
  if (t.hdim > 1 && t.strides[device::kTokenElement] != 1) {
    return fmt::format("tmaws reads elements of {} that are neighbours, got a stride of {}", t.name,
                       t.strides[device::kTokenElement]);
  }
  const std::int64_t unit = tma_elements(t.dtype);
  for (const auto& [name, size, stride] : dimensions(t)) {
    if (size <= 1 || (stride > 0 && stride % unit == 0 && stride < kMostStride)) continue;
    return fmt::format(
        "the strides of {} must be multiples of {} elements, above 0 and below {}, with tmaws, got "
        "{} from {} to {}",
        t.name, unit, kMostStride, stride, name, name);
  }
  return {};
}

void refuse_unaligned(std::string_view name, const void* base) {
  const auto excess = reinterpret_cast<std::uintptr_t>(base) % tile::kTmaBytes;
  if (excess == 0) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("fmha: {} must be aligned to {} bytes for tmaws, got an address {} past "
                          "a multiple of that; use a direct kernel",
                          name, tile::kTmaBytes, excess));
}

TensorMap window_of(const WindowTokens& t, const void* base, std::size_t offset, int rows,
                    int elements) {
  refuse_unaligned(t.name, base);
  TensorMap map{};
  map.offset = offset;
  map.base = base;
  map.dtype = t.dtype;
  map.rank = 4;
  map.sizes[0] = static_cast<std::uint64_t>(t.hdim);
  const int line = device::kLineBytes / size_of(t.dtype);
  map.box = {static_cast<std::uint32_t>(elements > 0 ? elements : line),
             static_cast<std::uint32_t>(rows), 1, 1};
  map.swizzle_bytes = elements > 0 ? 0 : device::kLineBytes;
  std::size_t i = 0;
  for (const auto& [name, size, stride] : dimensions(t)) {
    // A dimension of one element has any stride; the copy engine wants a multiple of 16 bytes.
    const std::int64_t distance = size == 1 ? tma_elements(t.dtype) : stride;
    map.strides[i++] = static_cast<std::uint64_t>(distance * size_of(t.dtype));
    map.sizes[i] = static_cast<std::uint64_t>(size);
  }
  return map;
}

}  // namespace tessera::fmha
