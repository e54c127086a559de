// Elements in memory by their types: sizes, numbers, and whether two tensors agree.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ck_tile/dispatcher/backends/host_numbers.hpp"
#include "ck_tile/dispatcher/kernel_enums.hpp"

namespace ck_tile::dispatcher::backends {

// An element of memory as a number.
inline double element(DataType type, const void* data, std::size_t i) {
  switch (type) {
    case DataType::FP16:
      return static_cast<const half_t*>(data)[i];
    case DataType::BF16:
      return static_cast<const bf16_t*>(data)[i];
    case DataType::FP8:
      return static_cast<const fp8_t*>(data)[i];
    case DataType::BF8:
      return static_cast<const bf8_t*>(data)[i];
    case DataType::INT8:
      return static_cast<const std::int8_t*>(data)[i];
    case DataType::INT32:
      return static_cast<const std::int32_t*>(data)[i];
    case DataType::FP64:
      return static_cast<const double*>(data)[i];
    default:
      return static_cast<double>(static_cast<const float*>(data)[i]);
  }
}
inline std::size_t bytes_of(DataType type) {
  constexpr std::size_t kBytes[] = {2, 2, 4, 8, 1, 1, 1, 1, 4, 4, 4};
  return kBytes[static_cast<std::size_t>(type)];
}

// Whether two tensors agree, each element to `tolerance` of its size or of 1.
inline bool agree(DataType type, const void* one, const void* other, std::size_t count,
                  float tolerance) {
  if (std::memcmp(one, other, count * bytes_of(type)) == 0) return true;
  for (std::size_t i = 0; i < count; ++i) {
    const double wanted = element(type, other, i);
    const double limit = static_cast<double>(tolerance) * std::fmax(1, std::fabs(wanted));
    if (!(std::fabs(element(type, one, i) - wanted) <= limit)) return false;
  }
  return true;
}

}  // namespace ck_tile::dispatcher::backends
