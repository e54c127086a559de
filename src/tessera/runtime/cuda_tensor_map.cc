#include "tessera/runtime/cuda_tensor_map_internal.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "tessera/base/hash.h"

namespace tessera::runtime::cuda {
namespace {

// CUtensorMapDataType. tf32 is rounded to its 10 bits of mantissa on the way; to the copy engine
// 8-bit types are bytes.
int driver_type(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return 7;
    case DType::tf32:
      return 11;
    case DType::fp16:
      return 6;
    case DType::bf16:
      return 9;
    case DType::int32:
      return 3;
    default:
      return 0;
  }
}

// CUtensorMapSwizzle of a width in bytes; -1 for a width that there is none for.
int driver_swizzle(int bytes) {
  constexpr std::array kWidths = {0, 32, 64, 128};
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    if (kWidths[i] == bytes) return static_cast<int>(i);
  }
  return -1;
}

constexpr int kNoInterleave = 0;
constexpr int kPromote256Bytes = 3;
constexpr int kFillWithZeros = 0;

bool is_same_window(const TensorMap& a, const TensorMap& b) {
  return a.base == b.base && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides &&
         a.box == b.box && a.swizzle_bytes == b.swizzle_bytes;
}

std::uint64_t hash_of(const TensorMap& map) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(map.base);
  hash = hash_combine(hash, map.sizes[0] << 32 | map.sizes[1]);
  hash = hash_combine(hash, map.strides[0] ^ map.sizes[2] << 48);
  return hash_combine(hash, std::uint64_t{map.box[0]} << 32 | map.box[1]);
}

// A thread's own: nothing to lock, and bounded. A map holds addresses and sizes only, so that it
// outlives contexts.
struct KnownMap {
  TensorMap window{};
  alignas(64) std::array<std::byte, kTensorMapBytes> encoded{};
};
constexpr std::size_t kKnownMaps = 64;
thread_local std::array<KnownMap, kKnownMaps> t_known;

std::string describe(const TensorMap& map) {
  return fmt::format(
      "{} at {}, {} x {} x {} elements with strides of {} and {} bytes, copied in boxes of "
      "{} x {} x {}",
      to_string(map.dtype), map.base, map.sizes[0], map.sizes[1], map.sizes[2], map.strides[0],
      map.strides[1], map.box[0], map.box[1], map.box[2]);
}

// What the driver would only call an invalid value.
std::string broken_rule(const TensorMap& map) {
  constexpr std::uint64_t kUnit = 16;
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(map.base) % kUnit;
  if (excess != 0) {
    return fmt::format("its address must be a multiple of {} bytes, got one {} past", kUnit,
                       excess);
  }
  for (const std::uint64_t stride : map.strides) {
    if (stride % kUnit != 0) {
      return fmt::format("its strides must be multiples of {} bytes, got {}", kUnit, stride);
    }
  }
  return {};
}

[[noreturn]] void refuse(const TensorMap& map, const std::string& kernel, const std::string& why) {
  throw Error(
      ErrorCode::launch_failed,
      fmt::format("{}: the copy engine cannot move the window {}: {}", kernel, describe(map), why));
}

}  // namespace

void encode(Gpu& gpu, const TensorMap& map, const std::string& kernel, void* to) {
  KnownMap& known = t_known[hash_of(map) % kKnownMaps];
  if (map.base == nullptr || !is_same_window(known.window, map)) {
    if (const std::string why = broken_rule(map); !why.empty()) refuse(map, kernel, why);
    constexpr std::array<unsigned, 3> kEveryElement = {1, 1, 1};
    alignas(64) std::array<std::byte, kTensorMapBytes> encoded;
    const Result result = gpu.driver().encode_tiled(
        encoded.data(), driver_type(map.dtype), 3, const_cast<void*>(map.base), map.sizes.data(),
        map.strides.data(), map.box.data(), kEveryElement.data(), kNoInterleave,
        driver_swizzle(map.swizzle_bytes), kPromote256Bytes, kFillWithZeros);
    if (result != kSuccess) {
      gpu.note_reported(result);
      refuse(map, kernel, fmt::format("{} on {}", cuda::describe(result), gpu.label()));
    }
    known.window = map;
    known.encoded = encoded;
  }
  std::memcpy(to, known.encoded.data(), kTensorMapBytes);
}

}  // namespace tessera::runtime::cuda
