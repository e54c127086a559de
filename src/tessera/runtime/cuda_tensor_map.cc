#include "tessera/runtime/cuda_tensor_map_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/hash.h"

namespace tessera::runtime::gpu {
namespace {

// CUtensorMapDataType. The copy engine rounds tf32 to 10 bits of mantissa on the way, and treats
// 8-bit types as bytes.
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

// CUtensorMapSwizzle of a width in bytes; -1 for a width that has none.
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

// The bits in which two lists differ. Comparing with == would call a function for each list.
template <class Numbers>
std::uint64_t difference(const Numbers& a, const Numbers& b) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) bits |= static_cast<std::uint64_t>(a[i] ^ b[i]);
  return bits;
}

bool is_same_window(const TensorMap& a, const void* base, const TensorMap& b) {
  if (a.base != base || a.dtype != b.dtype || a.rank != b.rank) return false;
  if (a.swizzle_bytes != b.swizzle_bytes || a.im2col.pixels != b.im2col.pixels) return false;
  const std::uint64_t lists = difference(a.sizes, b.sizes) | difference(a.strides, b.strides) |
                              difference(a.box, b.box) | difference(a.steps, b.steps);
  return lists == 0 && (a.im2col.pixels == 0 || a.im2col == b.im2col);
}

std::uint64_t hash_of(const TensorMap& map, const void* base) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(base);
  hash = hash_combine(hash, map.sizes[0] << 32 | map.sizes[1]);
  hash = hash_combine(hash, map.strides[0] ^ map.sizes[2] << 48);
  return hash_combine(hash, std::uint64_t{map.box[0]} << 32 | map.box[1]);
}

// Each thread has its own bounded cache, which needs no lock. A map holds only addresses and sizes,
// so it stays valid when a context is lost.
struct KnownMap {
  TensorMap window{};
  alignas(64) std::array<std::byte, kTensorMapBytes> encoded{};
};
constexpr std::size_t kKnownMaps = 64;
thread_local std::array<KnownMap, kKnownMaps> t_known;

// "100 x 50 x 2", of the first `count` numbers.
template <class Numbers>
std::string listed(const Numbers& numbers, int count, std::string_view between = " x ") {
  const auto end = numbers.begin() + std::clamp<int>(count, 0, static_cast<int>(numbers.size()));
  return fmt::format("{}", fmt::join(numbers.begin(), end, between));
}

std::string describe(const TensorMap& map, const void* base) {
  const std::string copied =
      map.im2col.pixels == 0
          ? fmt::format("in boxes of {}", listed(map.box, map.rank))
          : fmt::format("as {} pixels of {} channels, from {} to {}", map.im2col.pixels,
                        map.im2col.channels, listed(map.im2col.low, map.rank - 2),
                        listed(map.im2col.high, map.rank - 2));
  return fmt::format("{} at {}, {} elements with strides of {} bytes, copied {}",
                     to_string(map.dtype), base, listed(map.sizes, map.rank),
                     listed(map.strides, map.rank - 1, " and "), copied);
}

// The rule that a refused map breaks. The driver itself only says "invalid value".
std::string broken_rule(const TensorMap& map, const void* base) {
  constexpr std::uint64_t kUnit = 16;
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(base) % kUnit;
  if (excess != 0) {
    return fmt::format("its address must be a multiple of {} bytes, got one {} past", kUnit,
                       excess);
  }
  for (int i = 0; i + 1 < map.rank; ++i) {
    const std::uint64_t stride = map.strides[static_cast<std::size_t>(i)];
    if (stride % kUnit != 0) {
      return fmt::format("its strides must be multiples of {} bytes, got {}", kUnit, stride);
    }
  }
  return {};
}

[[noreturn]] void refuse(const TensorMap& map, const void* base, const std::string& kernel,
                         const std::string& why) {
  throw Error(ErrorCode::launch_failed,
              fmt::format("{}: the copy engine cannot move the window {}: {}", kernel,
                          describe(map, base), why));
}

void check_rank(const TensorMap& map, const std::string& kernel) {
  const int least = map.im2col.pixels == 0 ? 1 : 3;
  if (map.rank >= least && map.rank <= 5) return;
  throw Error(ErrorCode::internal,
              fmt::format("{}: a window of the copy engine has {} to 5 dimensions, got {}", kernel,
                          least, map.rank));
}

using Encoded = std::array<std::byte, kTensorMapBytes>;

Result ask_driver(const Driver& driver, const TensorMap& map, const void* base, Encoded& to) {
  std::array<unsigned, 5> steps = map.steps;
  for (unsigned& step : steps) step = std::max(step, 1U);
  const auto rank = static_cast<unsigned>(map.rank);
  void* const address = const_cast<void*>(base);
  const TensorMap::Im2col& image = map.im2col;
  if (image.pixels == 0) {
    return driver.encode_tiled(to.data(), driver_type(map.dtype), rank, address, map.sizes.data(),
                               map.strides.data(), map.box.data(), steps.data(), kNoInterleave,
                               driver_swizzle(map.swizzle_bytes), kPromote256Bytes, kFillWithZeros);
  }
  return driver.encode_im2col(to.data(), driver_type(map.dtype), rank, address, map.sizes.data(),
                              map.strides.data(), image.low.data(), image.high.data(),
                              image.channels, image.pixels, steps.data(), kNoInterleave,
                              driver_swizzle(map.swizzle_bytes), kPromote256Bytes, kFillWithZeros);
}

}  // namespace

void encode(Gpu& gpu, const TensorMap& map, const void* base, const std::string& kernel, void* to) {
  KnownMap& known = t_known[hash_of(map, base) % kKnownMaps];
  if (base == nullptr || !is_same_window(known.window, base, map)) {
    check_rank(map, kernel);
    if (const std::string why = broken_rule(map, base); !why.empty()) {
      refuse(map, base, kernel, why);
    }
    alignas(64) Encoded encoded;
    const Result result = ask_driver(gpu.driver(), map, base, encoded);
    if (result != kSuccess) {
      gpu.note_reported(result);
      refuse(map, base, kernel,
             fmt::format("{} on {}", gpu::describe(gpu.vendor(), result), gpu.label()));
    }
    known.window = map;
    known.window.base = base;
    known.encoded = encoded;
  }
  std::memcpy(to, known.encoded.data(), kTensorMapBytes);
}

}  // namespace tessera::runtime::gpu
