// Rules that several pipelines have.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/amx_internal.h"
#include "tessera/families/gemm/legality_internal.h"
#include "tessera/families/tile/fields.h"

namespace tessera::gemm {
namespace {

constexpr int kMaxWave = 1024;  // threads of a CPU along one dimension
constexpr std::int64_t kMaxPackedBytes = std::int64_t{1} << 30;
constexpr int kMaxWarps = 64;   // warps along one side of a block
constexpr int kMaxSlices = 64;  // slices of K that are added through device memory

// Of a block of A and a block of B. The k of a product of tiles is a row of words.
std::int64_t panel_bytes(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  const std::int64_t elements = std::int64_t{t.k} * t.m + std::int64_t{t.k} * t.n;
  const int words = c.algorithm.pipeline == Pipeline::amx ? device::kTileWords : 1;
  return elements / c.algorithm.warp_tile.k * words * 4;
}

}  // namespace

const Instruction* find_instruction_named(const Case& c, std::string_view name) {
  for (const Instruction& i : c.target.instructions) {
    const bool same_types = i.a == c.signature.a && i.b == c.signature.b;
    if (i.name == name && same_types && i.acc == c.signature.acc) return &i;
  }
  // Mixed fp8 and bf8 run at the rate and with the shape of either type.
  const bool mixed = c.signature.a != c.signature.b && size_of(c.signature.a) == 1;
  for (const Instruction& i : c.target.instructions) {
    if (mixed && i.name == name && i.a == c.signature.a && i.acc == c.signature.acc) return &i;
  }
  return nullptr;
}

std::string no_instruction(const Case& c, std::string_view name) {
  return fmt::format("{} has no {} for {} x {}", c.target.name, name, to_string(c.signature.a),
                     to_string(c.signature.b));
}

PipelineLimit limit_of(const Case& c) {
  const auto found = c.target.pipeline_limits.find(c.algorithm.pipeline);
  return found == c.target.pipeline_limits.end() ? PipelineLimit{} : found->second;
}

const AlgorithmSpace* find_space(const Case& c) {
  const auto& spaces = c.by_cktile ? c.target.cktile_spaces : c.target.spaces;
  const auto found = spaces.find(Op::gemm);
  return found == spaces.end() ? nullptr : &found->second;
}

bool warp_tile_listed(const Case& c) {
  const auto& all = warp_tiles_for(*find_space(c), c.signature.a);
  return std::find(all.begin(), all.end(), c.algorithm.warp_tile) != all.end();
}

std::string warp_tile_not_listed(const Case& c) {
  return fmt::format("{} does not list warp tile {} for {}", c.target.name,
                     to_string(c.algorithm.warp_tile), to_string(c.signature.a));
}

bool stages_fit(const Case& c) {
  const PipelineLimit limit = limit_of(c);
  return c.algorithm.stages >= limit.min_stages && c.algorithm.stages <= limit.max_stages;
}
std::string stages_do_not_fit(const Case& c) {
  const PipelineLimit limit = limit_of(c);
  return fmt::format("{} takes {} to {} stages, got {}", to_string(c.algorithm.pipeline),
                     limit.min_stages, limit.max_stages, c.algorithm.stages);
}

bool waves_fit(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  const auto fits = [](int size) { return size >= 1 && size <= kMaxWarps; };
  return fits(w.m) && fits(w.n) && fits(w.k);
}
std::string waves_do_not_fit(const Case& c) {
  return fmt::format("wave sizes must be between 1 and {}, got {}", kMaxWarps,
                     to_string(c.algorithm.wave));
}

bool unused_fields_fit(const Case& c) { return tile::unused_at_default(c.algorithm); }
std::string unused_fields_do_not_fit(const Case& c) { return tile::unused_field(c.algorithm); }

bool slices_fit(const Case& c) {
  return c.algorithm.slices >= 1 && c.algorithm.slices <= kMaxSlices;
}
std::string slices_do_not_fit(const Case& c) {
  return fmt::format("K is cut into 1 to {} slices, got {}", kMaxSlices, c.algorithm.slices);
}

bool threads_fit(const Case& c) {
  const Shape3& w = c.algorithm.wave;
  return std::min({w.m, w.n, w.k}) >= 0 && std::max({w.m, w.n, w.k}) <= kMaxWave;
}
std::string threads_do_not_fit(const Case& c) {
  return fmt::format("wave sizes must be between 0 and {}, got {}", kMaxWave,
                     to_string(c.algorithm.wave));
}

bool packed_bytes_fit(const Case& c) { return panel_bytes(c) <= kMaxPackedBytes; }
std::string packed_bytes_do_not_fit(const Case& c) {
  return fmt::format("tile {} needs {} bytes for packed blocks, at most {} are allowed",
                     to_string(c.algorithm.tile), panel_bytes(c), kMaxPackedBytes);
}

bool takes_plain_b(const Case& c) { return !c.signature.preshuffled_b; }
std::string takes_no_packed_b(const Case& c) {
  return fmt::format("{} takes B as it is, got a preshuffled one", to_string(c.algorithm.pipeline));
}

}  // namespace tessera::gemm
