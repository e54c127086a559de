#include "tessera/families/fmha/flash_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/fmha.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/tmaws.h"

namespace tessera::fmha {
namespace {

constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;
constexpr std::int64_t kLeastSection = 8;                          // heads
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

std::string limit_reason(const Algorithm& a, const FmhaProblem& p,
                         std::span<const SizeLimit> limits) {
  for (const auto& [name, value, least, most] : limits) {
    if (value >= least && value <= most) continue;
    return fmt::format("{} must be {} to {} with tmaws and tile {}, got {}", name, least, most,
                       to_string(a.tile), value);
  }
  const std::int64_t unit = tma_elements(p.in);
  for (const auto& [name, value] : {std::pair{"hdim", p.hdim}, {"hdim_v", p.hdim_v}}) {
    if (value % unit == 0) continue;
    return fmt::format("{} must be a multiple of {} with tmaws, got {}", name, unit, value);
  }
  return {};
}

std::string sink_reason(const FmhaProblem& p) {
  if (p.mask == FmhaMask::none || p.window_left < 0 || p.sink == 0) return {};
  return fmt::format(
      "tmaws keeps no keys outside of a window, got a sink of {} with a window_left of {}", p.sink,
      p.window_left);
}

SeenKeys seen_keys(const FmhaProblem& p) {
  constexpr std::int64_t kAll = 2 * kMostTokens;
  const bool is_known = p.lengths == FmhaLengths::equal && p.pages == FmhaPages::none &&
                        p.mask == FmhaMask::bottom_right;
  const std::int64_t diagonal = is_known ? p.seqlen_k - p.seqlen_q : 0;
  const std::int64_t right = p.window_right < 0 ? kAll : std::min(p.window_right, kAll);
  const std::int64_t left = p.window_left < 0 ? kAll : std::min(p.window_left, kAll);
  return {static_cast<int>(std::clamp(diagonal - left, -kAll, kAll)),
          static_cast<int>(std::clamp(diagonal + right + 1, -kAll, kAll))};
}

int section_of(std::int64_t heads, std::int64_t bytes, std::int64_t sharing) {
  const std::int64_t fit = kSectionBytes / std::max<std::int64_t>(1, bytes) * sharing;
  const std::int64_t sections = tile::ceil_div(heads, std::max(kLeastSection, fit));
  return static_cast<int>(tile::ceil_div(heads, sections));
}

Step flash_step(int items, int consumers, std::int64_t shared_bytes) {
  Step step;
  step.extent = Step::Extent::resident;
  step.grid = {static_cast<unsigned>(items), 1, 1};
  step.block = {static_cast<unsigned>(device::flash_threads(consumers)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(shared_bytes);
  return step;
}

}  // namespace tessera::fmha
