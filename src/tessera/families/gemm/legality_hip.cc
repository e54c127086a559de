// The rules of our own kernels for AMD GPUs (src/tessera/device/hip/gemm/).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "tessera/families/gemm/legality_internal.h"
#include "tessera/families/tile/mfma.h"

namespace tessera::gemm {
namespace {

using tile::block_lanes;
using tile::mfma_depth;
using tile::mfma_tiles;

constexpr int kMaxWaveSide = 4;
constexpr int kMaxTileSide = 256;
constexpr int kMaxTileBytes = 512;                                   // along k
constexpr std::int64_t kMostCount = (std::int64_t{1} << 31) - 1024;  // leaves room for a tile
constexpr std::int64_t kMostTileBytes = (std::int64_t{1} << 31) - 1024;

device::MfmaShape shape_of(const Case& c) {
  return tile::mfma_shape(c.algorithm, mfma_operands(c.signature));
}
int registers(const Case& c) { return device::mfma_registers(shape_of(c)); }
int lds_bytes(const Case& c) { return device::mfma_lds_bytes(shape_of(c)); }

// A SIMD has the same registers for one wave as for two together.
int registers_left(const Case& c) {
  return std::min(c.target.registers_per_thread,
                  c.target.registers_per_unit / block_lanes(c.algorithm));
}

bool warp_tile_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  return w.m == w.n && (w.m == 16 || w.m == 32) && w.k == mfma_depth(w.m, size_of(c.signature.a)) &&
         warp_tile_listed(c);
}
std::string warp_tile_does_not_fit(const Case& c) {
  const int size = size_of(c.signature.a);
  const bool only_ck = warp_tile_listed({c.signature, c.algorithm, c.target, true});
  return fmt::format("warp tiles of {} are 32x32x{} and 16x16x{}, got {}{}",
                     to_string(c.signature.a), mfma_depth(32, size), mfma_depth(16, size),
                     to_string(c.algorithm.warp_tile), only_ck ? kOnlyCktile : "");
}

bool cuts_among_waves(const Algorithm& a) {
  return a.tile.m % (a.wave.m * a.warp_tile.m) == 0 && a.tile.n % (a.wave.n * a.warp_tile.n) == 0;
}

// A row of a tile in LDS is a power of two of chunks of 16 bytes, and the lanes of a block move
// whole rounds of chunks.
int row_chunks(const Case& c) {
  return c.algorithm.tile.k * size_of(c.signature.a) / tile::kLaneBytes;
}
bool row_fits(const Case& c) {
  return c.algorithm.tile.k * size_of(c.signature.a) % tile::kLaneBytes == 0 &&
         std::has_single_bit(static_cast<unsigned>(row_chunks(c)));
}

// async copies to LDS as the lanes lie, so that it cannot transpose, and all lanes copy.
bool copies_lines(const Case& c) {
  const GemmSignature& s = c.signature;
  const bool b_fits = s.preshuffled_b || !b_is_row_major(s.layout);
  return c.algorithm.pipeline != Pipeline::async || (a_is_row_major(s.layout) && b_fits);
}
int unmoved_side(const Case& c) {
  const int lanes = block_lanes(c.algorithm);
  for (const int side : {c.algorithm.tile.m, c.algorithm.tile.n}) {
    if (side * row_chunks(c) % lanes != 0) return side;
  }
  return 0;
}
bool copies_whole_rounds(const Case& c) {
  return c.algorithm.pipeline != Pipeline::async || unmoved_side(c) == 0;
}

Verdict far_rows(std::string_view name, std::int64_t ld, std::int64_t most) {
  return {
      fmt::format("ld_{} must be at most {} for the rows of a tile, got {}; use a direct kernel",
                  name, most, ld)};
}

bool has_slices(const Algorithm& a) { return a.slices != 1; }

constexpr Rule kMfmaRules[] = {
    {[](const Case& c) { return tile::is_mfma(c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} is not a pipeline of AMD GPUs", to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return find_instruction_named(c, "mfma") != nullptr; },
     [](const Case& c) { return no_instruction(c, "mfma"); }},
    kStagesRule,
    kUnusedFieldsRule,
    {[](const Case& c) { return c.algorithm.scheduler == Scheduler::intrawave; },
     [](const Case& c) {
       const bool only_ck = c.algorithm.scheduler == Scheduler::interwave;
       return fmt::format("kernels for AMD GPUs are scheduled intrawave, got {}{}",
                          to_string(c.algorithm.scheduler), only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return c.algorithm.store == Store::standard; },
     [](const Case& c) {
       const bool only_ck = c.algorithm.store == Store::cshuffle;
       return fmt::format("kernels for AMD GPUs have the standard store, got {}{}",
                          to_string(c.algorithm.store), only_ck ? kOnlyCktile : "");
     }},
    {[](const Case& c) { return c.algorithm.splits == 1; },
     [](const Case& c) {
       return fmt::format("kernels for AMD GPUs cut K into slices: splits must be 1, got {}{}",
                          c.algorithm.splits, kOnlyCktile);
     }},
    kSlicesRule,
    {[](const Case& c) { return has_slices(c.algorithm) == (c.algorithm.split_k != SplitK::none); },
     [](const Case& c) {
       return fmt::format("split_k must be {} for slices={} on AMD GPUs, got {}",
                          has_slices(c.algorithm) ? "ordered or atomic" : "none",
                          c.algorithm.slices, to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.k == 1 && w.m >= 1 && w.n >= 1 && w.m <= kMaxWaveSide && w.n <= kMaxWaveSide &&
              (w.m * w.n == 4 || w.m * w.n == 8);
     },
     [](const Case& c) {
       return fmt::format(
           "a block has 4 or 8 waves, at most {} along m and along n and one along k, got {}",
           kMaxWaveSide, to_string(c.algorithm.wave));
     }},
    {warp_tile_fits, warp_tile_does_not_fit},
    {[](const Case& c) { return cuts_among_waves(c.algorithm); },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile {}x{} does not divide over {}x{} waves of {}x{}", a.tile.m,
                          a.tile.n, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n);
     }},
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m <= kMaxTileSide && t.n <= kMaxTileSide &&
              t.k * size_of(c.signature.a) <= kMaxTileBytes;
     },
     [](const Case& c) {
       return fmt::format("tiles are at most {0}x{0} and {1} bytes of k, got {2} of {3}",
                          kMaxTileSide, kMaxTileBytes, to_string(c.algorithm.tile),
                          to_string(c.signature.a));
     }},
    {row_fits,
     [](const Case& c) {
       return fmt::format(
           "a row of a tile must be 16 bytes times a power of two, got {} x {} bytes ({})",
           c.algorithm.tile.k, size_of(c.signature.a), to_string(c.signature.a));
     }},
    {copies_lines,
     [](const Case& c) {
       return fmt::format("async copies lines of k (rcr, or rrr with a preshuffled B), got {}",
                          to_string(c.signature.layout));
     }},
    {copies_whole_rounds,
     [](const Case& c) {
       return fmt::format(
           "{} lanes copy whole rounds of 16 bytes, which {} rows of {} such chunks are not",
           block_lanes(c.algorithm), unmoved_side(c), row_chunks(c));
     }},
    {[](const Case& c) { return registers(c) <= registers_left(c); },
     [](const Case& c) {
       return fmt::format(
           "needs about {} registers a lane ({}x{} sums over {} lanes and the rest), {} leaves {} "
           "to each of {} waves",
           registers(c), c.algorithm.tile.m, c.algorithm.tile.n, block_lanes(c.algorithm),
           c.target.name, registers_left(c), tile::all_waves(c.algorithm));
     }},
    {[](const Case& c) { return lds_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS for {} tile{} of K, {} has {}", lds_bytes(c),
                          mfma_tiles(c.algorithm).buffers,
                          mfma_tiles(c.algorithm).buffers == 1 ? "" : "s", c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// The kernel for every problem has one shape.
constexpr Rule kGeneralRules[] = {
    {[](const Case& c) { return find_instruction_named(c, "mfma") != nullptr; },
     [](const Case& c) { return no_instruction(c, "mfma"); }},
    kUnusedFieldsRule,
    kNoPreshuffleRule,
    {[](const Case& c) {
       const Algorithm& g = kGeneralOnHip;
       const Algorithm& a = c.algorithm;
       return a.tile == g.tile && a.wave == g.wave && a.warp_tile == g.warp_tile;
     },
     [](const Case& c) {
       const Algorithm& g = kGeneralOnHip;
       const Algorithm& a = c.algorithm;
       return fmt::format("direct has tile {}, wave {} and warp tile {} only, got {}, {} and {}",
                          to_string(g.tile), to_string(g.wave), to_string(g.warp_tile),
                          to_string(a.tile), to_string(a.wave), to_string(a.warp_tile));
     }},
};

}  // namespace

// All kernels but direct count sizes, tiles and bytes within a tile in 32 bits.
Verdict hip_supports(const KernelSpec& spec, const GemmProblem& problem) {
  const GemmProblem p = with_strides(problem);
  const Algorithm& a = spec.algorithm;
  if (a.pipeline == Pipeline::direct) return {};
  if (Verdict fits = parts_fit(a, p); !fits) return fits;
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}};
  for (const auto& [name, size] : sizes) {
    if (size > kMostCount) {
      return {fmt::format("{} must be at most {} with {}, got {}; use a direct kernel", name,
                          kMostCount, to_string(a.pipeline), size)};
    }
  }
  const double blocks = std::ceil(static_cast<double>(p.m) / a.tile.m) *
                        std::ceil(static_cast<double>(p.n) / a.tile.n) *
                        static_cast<double>(p.batch) * a.slices;
  if (blocks > static_cast<double>(kMostCount)) {
    return {fmt::format("{} counts tiles up to {}, got about {:.0f} of {}x{}; use a direct kernel",
                        to_string(a.pipeline), kMostCount, blocks, a.tile.m, a.tile.n)};
  }
  const std::int64_t most_a = kMostTileBytes / (a_is_row_major(p.layout) ? a.tile.m : a.tile.k);
  const std::int64_t most_b = kMostTileBytes / (b_is_row_major(p.layout) ? a.tile.k : a.tile.n);
  if (p.ld_a > most_a / size_of(p.a)) return far_rows("a", p.ld_a, most_a / size_of(p.a));
  if (!p.preshuffled_b && p.ld_b > most_b / size_of(p.b)) {
    return far_rows("b", p.ld_b, most_b / size_of(p.b));
  }
  return {};
}

std::span<const Rule> hip_rules(Pipeline pipeline) {
  if (pipeline == Pipeline::direct) return kGeneralRules;
  return kMfmaRules;
}

}  // namespace tessera::gemm
