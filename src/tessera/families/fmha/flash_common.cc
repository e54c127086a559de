#include "tessera/families/fmha/flash_common.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/families/fmha/token_windows.h"
#include "tessera/families/tile/blocks.h"

namespace tessera::fmha {
namespace {

constexpr std::int64_t kSectionBytes = std::int64_t{32} << 20;
constexpr std::int64_t kLeastSection = 8;  // heads

}  // namespace

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
  const std::int64_t sections = tile::blocks_of(heads, std::max(kLeastSection, fit));
  return static_cast<int>(tile::blocks_of(heads, sections));
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
