// The rules of GPU pipelines. Hopper: the limits that a measured prototype found and the PTX ISA's
// wgmma shapes. CK Tile: the checks of its own architecture filter.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {
namespace {

constexpr int kWgmmaRows = 64;           // of a warpgroup's instruction
constexpr int kWgmmaBytesK = 32;         // of k that one wgmma instruction takes
constexpr int kMaxAccumulators = 208;    // per thread; 192 were tried without spills
constexpr int kMaxColumnsOf3 = 192;      // 3 consumers: 128 registers a thread at entry
constexpr int kMaxMulticast = 4;         // cluster_m + cluster_n - 1
constexpr std::int64_t kTmaBytes = 16;   // alignment of global rows that TMA moves
constexpr int kMinTile[] = {16, 16, 8};  // CK Tile, m n k
constexpr int kMinPreshuffle[] = {64, 64, 32};
constexpr int kPreshuffleUnit[] = {32, 32, 16};

int waves_of(const Algorithm& a) { return a.wave.m * a.wave.n * a.wave.k; }

const Instruction* find_instruction_named(const Case& c, std::string_view name) {
  for (const Instruction& i : c.target.instructions) {
    const bool same_types = i.a == c.signature.a && i.b == c.signature.b;
    if (i.name == name && same_types && i.acc == c.signature.acc) return &i;
  }
  // Mixed fp8 and bf8 run at either's rate and shape.
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

// ---- limits that every GPU pipeline shares ----

PipelineLimit limit_of(const Case& c) {
  const auto found = c.target.pipeline_limits.find(c.algorithm.pipeline);
  return found == c.target.pipeline_limits.end() ? PipelineLimit{} : found->second;
}

bool warp_tile_listed(const Case& c) {
  const auto& all = warp_tiles_for(c.target.spaces.at(Op::gemm), c.signature.a);
  return std::find(all.begin(), all.end(), c.algorithm.warp_tile) != all.end();
}

constexpr Rule kStagesRule = {
    [](const Case& c) {
      const PipelineLimit limit = limit_of(c);
      return c.algorithm.stages >= limit.min_stages && c.algorithm.stages <= limit.max_stages;
    },
    [](const Case& c) {
      const PipelineLimit limit = limit_of(c);
      return fmt::format("{} takes {} to {} stages, got {}", to_string(c.algorithm.pipeline),
                         limit.min_stages, limit.max_stages, c.algorithm.stages);
    }};
constexpr Rule kWaveRule = {[](const Case& c) {
                              const Shape3& w = c.algorithm.wave;
                              return w.m >= 1 && w.n >= 1 && w.k >= 1 && w.m <= 64 && w.n <= 64 &&
                                     w.k <= 64;
                            },
                            [](const Case& c) {
                              return fmt::format("wave sizes must be between 1 and 64, got {}",
                                                 to_string(c.algorithm.wave));
                            }};
constexpr Rule kWarpTileRule = {[](const Case& c) { return warp_tile_listed(c); },
                                [](const Case& c) {
                                  return fmt::format(
                                      "{} does not list warp tile {} for {}", c.target.name,
                                      to_string(c.algorithm.warp_tile), to_string(c.signature.a));
                                }};
constexpr Rule kNoPreshuffleRule = {[](const Case& c) { return !c.signature.preshuffled_b; },
                                    [](const Case& c) {
                                      return fmt::format(
                                          "{} takes B as it is, got a preshuffled one",
                                          to_string(c.algorithm.pipeline));
                                    }};

// ---- tmaws: a producer warp moves tiles by TMA, consumer warpgroups multiply by wgmma ----
// tile_m are the rows that feed wgmma's M and tile_n those that feed its N. With swap_ab these are
// B's and A's: a tall tile for problems with few rows.

std::int64_t bytes_of_stage(const Case& c) {
  const Shape3& t = c.algorithm.tile;
  return std::int64_t{t.m} * t.k * size_of(c.signature.a) +
         std::int64_t{t.n} * t.k * size_of(c.signature.b);
}

// Blocks of 64 rows that one consumer owns; 0 when they do not divide.
int row_blocks(const Case& c) {
  const bool pingpong = c.algorithm.scheduler == Scheduler::pingpong;
  const int owned = kWgmmaRows * (pingpong ? 1 : c.algorithm.wave.m);
  return c.algorithm.tile.m % owned == 0 ? c.algorithm.tile.m / owned : 0;
}
int accumulators_per_thread(const Case& c) { return row_blocks(c) * c.algorithm.tile.n / 2; }

int chunk_of(int n) {
  for (const int width : {64, 32, 16}) {
    if (n % width == 0) return width;
  }
  return 8;
}

int wgmma_k(const Case& c) { return kWgmmaBytesK / size_of(c.signature.a); }

bool splits_fit(const Algorithm& a) {
  if (a.splits == 1) return a.split_k == SplitK::none;
  return a.split_k == SplitK::ordered && a.splits >= 2 && a.splits <= 8 && a.cluster_m == 1 &&
         a.cluster_n == 1 && a.scheduler != Scheduler::pingpong && a.tile.n % 8 == 0 &&
         a.tile.n % (8 * std::min(a.splits, a.tile.n / 8)) == 0;
}

constexpr Rule kTmaws[] = {
    kWaveRule,
    kStagesRule,
    kNoPreshuffleRule,
    {[](const Case& c) { return find_instruction_named(c, "wgmma") != nullptr; },
     [](const Case& c) { return no_instruction(c, "wgmma"); }},
    {[](const Case& c) {
       return size_of(c.signature.a) == 2 || c.signature.layout == GemmLayout::rcr;
     },
     [](const Case& c) {
       return fmt::format("wgmma takes {} operands with k contiguous only (rcr), got {}",
                          to_string(c.signature.a), to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const Scheduler s = c.algorithm.scheduler;
       return s == Scheduler::cooperative || s == Scheduler::pingpong;
     },
     [](const Case& c) {
       return fmt::format("tmaws is scheduled cooperative or pingpong, got {}",
                          to_string(c.algorithm.scheduler));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m <= 3 && w.n == 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("tmaws has 1 to 3 consumers over m (1x1x1, 2x1x1, 3x1x1), got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return c.algorithm.scheduler != Scheduler::pingpong || c.algorithm.wave.m == 2;
     },
     [](const Case& c) {
       return fmt::format("pingpong needs 2 consumers, got {}", c.algorithm.wave.m);
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return w.m == kWgmmaRows && w.n == c.algorithm.tile.n && w.k == wgmma_k(c) &&
              warp_tile_listed(c);
     },
     [](const Case& c) {
       return fmt::format("the warp tile is one wgmma: {}x{}x{} for {} with tile_n {}, got {}",
                          kWgmmaRows, c.algorithm.tile.n, wgmma_k(c), to_string(c.signature.a),
                          c.algorithm.tile.n, to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) { return row_blocks(c) >= 1; },
     [](const Case& c) {
       const bool pingpong = c.algorithm.scheduler == Scheduler::pingpong;
       return fmt::format("tile_m {} is not a multiple of the {} rows of {} consumer{}",
                          c.algorithm.tile.m, kWgmmaRows * (pingpong ? 1 : c.algorithm.wave.m),
                          pingpong ? 1 : c.algorithm.wave.m,
                          pingpong || c.algorithm.wave.m == 1 ? "" : "s");
     }},
    {[](const Case& c) { return accumulators_per_thread(c) <= kMaxAccumulators; },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a thread ({} x {} rows by {} columns over 128 "
           "threads), at most {} fit",
           accumulators_per_thread(c), row_blocks(c), kWgmmaRows, c.algorithm.tile.n,
           kMaxAccumulators);
     }},
    {[](const Case& c) { return c.algorithm.wave.m < 3 || c.algorithm.tile.n <= kMaxColumnsOf3; },
     [](const Case& c) {
       return fmt::format("3 consumers leave registers for tile_n <= {}, got {}", kMaxColumnsOf3,
                          c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.cluster_m >= 1 && a.cluster_n >= 1 && a.cluster_m <= kMaxMulticast &&
              a.cluster_n <= kMaxMulticast && a.cluster_m + a.cluster_n - 1 <= kMaxMulticast;
     },
     [](const Case& c) {
       return fmt::format("a cluster shares tiles between at most {} blocks, got {}x{}",
                          kMaxMulticast, c.algorithm.cluster_m, c.algorithm.cluster_n);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.tile.n % (8 * a.cluster_m) == 0 && a.tile.m % (8 * a.cluster_n) == 0;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile {}x{} does not split into parts of 8 rows over a {}x{} cluster",
                          a.tile.m, a.tile.n, a.cluster_m, a.cluster_n);
     }},
    {[](const Case& c) { return splits_fit(c.algorithm); },
     [](const Case& c) {
       return fmt::format(
           "split over K takes 2 to 8 ordered splits, a 1x1 cluster, no pingpong and "
           "tile_n in parts of 8, got {} {} splits of tile_n {}",
           c.algorithm.splits, to_string(c.algorithm.split_k), c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       return c.algorithm.store == Store::standard || c.algorithm.store == Store::tma ||
              c.algorithm.store == Store::direct;
     },
     [](const Case& c) {
       return fmt::format("tmaws stores by tma or direct, got {}", to_string(c.algorithm.store));
     }},
    {[](const Case& c) { return tmaws_shared_bytes(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format(
           "needs {} bytes of shared memory ({} stages of {} and the rest), {} has "
           "{}",
           tmaws_shared_bytes(c), c.algorithm.stages, bytes_of_stage(c), c.target.name,
           c.target.shared_memory_bytes);
     }},
};

// ---- cpasync: every warp copies and multiplies by mma ----

std::string_view cpasync_instruction(const Case& c) {
  return c.signature.a == DType::fp32 ? "fma" : "mma";
}

int cpasync_threads(const Case& c) { return waves_of(c.algorithm) * c.target.warp_size; }

std::int64_t cpasync_accumulators(const Case& c) {
  return std::int64_t{c.algorithm.tile.m} * c.algorithm.tile.n / cpasync_threads(c);
}

constexpr Rule kCpasync[] = {
    kWaveRule,
    kStagesRule,
    kNoPreshuffleRule,
    {[](const Case& c) { return find_instruction_named(c, cpasync_instruction(c)) != nullptr; },
     [](const Case& c) { return no_instruction(c, cpasync_instruction(c)); }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.scheduler == Scheduler::standard && a.cluster_m == 1 && a.cluster_n == 1 &&
              a.splits == 1 && a.split_k == SplitK::none && !a.swap_ab &&
              (a.store == Store::standard || a.store == Store::direct) && a.wave.k == 1;
     },
     [](const Case&) {
       return std::string(
           "cpasync has the standard scheduler, stores directly, and has no cluster, "
           "split over K or swap_ab");
     }},
    {[](const Case& c) { return warp_tile_listed(c) && c.algorithm.warp_tile.m < kWgmmaRows; },
     [](const Case& c) {
       return fmt::format("cpasync multiplies by mma, and {} does not list a mma of {} for {}",
                          c.target.name, to_string(c.algorithm.warp_tile),
                          to_string(c.signature.a));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.tile.m % (a.wave.m * a.warp_tile.m) == 0 &&
              a.tile.n % (a.wave.n * a.warp_tile.n) == 0;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile {}x{} does not divide over {}x{} warps of {}x{}", a.tile.m,
                          a.tile.n, a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n);
     }},
    {[](const Case& c) { return cpasync_accumulators(c) <= kMaxAccumulators; },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread ({}x{} over {} threads), at most {} fit",
                          cpasync_accumulators(c), c.algorithm.tile.m, c.algorithm.tile.n,
                          cpasync_threads(c), kMaxAccumulators);
     }},
    {[](const Case& c) { return cpasync_threads(c) <= c.target.max_threads_per_block; },
     [](const Case& c) {
       return fmt::format("needs {} threads a block, {} has {}", cpasync_threads(c), c.target.name,
                          c.target.max_threads_per_block);
     }},
    {[](const Case& c) {
       return cpasync_shared_bytes(c.signature, c.algorithm) <= c.target.shared_memory_bytes;
     },
     [](const Case& c) {
       return fmt::format("needs {} bytes of shared memory ({} stages of {}), {} has {}",
                          cpasync_shared_bytes(c.signature, c.algorithm), c.algorithm.stages,
                          bytes_of_stage(c), c.target.name, c.target.shared_memory_bytes);
     }},
};

// ---- CK Tile ----

std::int64_t lds_budget(const Case& c) {
  return static_cast<std::int64_t>(static_cast<double>(c.target.shared_memory_bytes) *
                                   limit_of(c).shared_memory_fraction);
}

bool wave_listed(const Case& c) {
  const auto& all = c.target.spaces.at(Op::gemm).waves;
  return std::find(all.begin(), all.end(), c.algorithm.wave) != all.end();
}

bool divides_over_waves(const Algorithm& a) {
  return a.tile.m % (a.wave.m * a.warp_tile.m) == 0 && a.tile.n % (a.wave.n * a.warp_tile.n) == 0 &&
         a.tile.k % (a.wave.k * a.warp_tile.k) == 0;
}

std::int64_t accumulators_per_lane(const Case& c) {
  const Algorithm& a = c.algorithm;
  return std::int64_t{a.tile.m} * a.tile.n / (a.wave.m * a.wave.n * c.target.warp_size);
}

// An odd number above one of 32-wide warp tiles a wave stores wrong values through LDS.
bool cshuffle_stores_right(const Algorithm& a) {
  const int repeat_m = a.tile.m / (a.wave.m * a.warp_tile.m);
  const int repeat_n = a.tile.n / (a.wave.n * a.warp_tile.n);
  const bool odd_m = a.warp_tile.m == 32 && repeat_m > 1 && repeat_m % 2 == 1;
  const bool odd_n = a.warp_tile.n == 32 && repeat_n > 1 && repeat_n % 2 == 1;
  return !odd_m && !odd_n;
}

bool preshuffle_fits(const Case& c) {
  if (!c.signature.preshuffled_b) return true;
  const Shape3& t = c.algorithm.tile;
  return t.m >= kMinPreshuffle[0] && t.n >= kMinPreshuffle[1] && t.k >= kMinPreshuffle[2] &&
         t.m % kPreshuffleUnit[0] == 0 && t.n % kPreshuffleUnit[1] == 0 &&
         t.k % kPreshuffleUnit[2] == 0;
}

// Each lane of a wave loads its part of A's warp tile in vectors of 16 bytes.
bool preshuffle_vectors_fit(const Case& c) {
  if (!c.signature.preshuffled_b) return true;
  const Algorithm& a = c.algorithm;
  const int repeat_m = a.tile.m / (a.wave.m * a.warp_tile.m);
  const int bytes = a.warp_tile.m * a.warp_tile.k * size_of(c.signature.a) * repeat_m;
  return bytes / c.target.warp_size % 16 == 0;
}

constexpr Rule kCk[] = {
    kWaveRule,
    kStagesRule,
    {[](const Case& c) {
       const Scheduler s = c.algorithm.scheduler;
       return s == Scheduler::intrawave || s == Scheduler::interwave;
     },
     [](const Case& c) {
       return fmt::format("CK Tile schedules intrawave or interwave, got {}",
                          to_string(c.algorithm.scheduler));
     }},
    {[](const Case& c) {
       return c.algorithm.scheduler == Scheduler::intrawave ||
              c.algorithm.pipeline == Pipeline::mem;
     },
     [](const Case& c) {
       return fmt::format("interwave needs the mem pipeline, got {}",
                          to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.cluster_m == 1 && a.cluster_n == 1 && !a.swap_ab &&
              (a.store == Store::standard || a.store == Store::cshuffle) &&
              a.split_k != SplitK::ordered && (a.splits == 1) == (a.split_k == SplitK::none);
     },
     [](const Case&) {
       return std::string(
           "CK Tile has no clusters, swap_ab, direct or tma stores, and splits K "
           "only with atomic");
     }},
    {[](const Case& c) { return find_instruction_named(c, "mfma") != nullptr; },
     [](const Case& c) { return no_instruction(c, "mfma"); }},
    {[](const Case& c) { return wave_listed(c); },
     [](const Case& c) {
       return fmt::format("{} does not list wave {}", c.target.name, to_string(c.algorithm.wave));
     }},
    kWarpTileRule,
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       return t.m >= kMinTile[0] && t.n >= kMinTile[1] && t.k >= kMinTile[2];
     },
     [](const Case& c) {
       return fmt::format("tiles must be at least {}x{}x{}, got {}", kMinTile[0], kMinTile[1],
                          kMinTile[2], to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return divides_over_waves(c.algorithm); },
     [](const Case& c) {
       return fmt::format("tile {} does not divide over waves {} of warp tile {}",
                          to_string(c.algorithm.tile), to_string(c.algorithm.wave),
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       return waves_of(c.algorithm) * c.target.warp_size <= c.target.max_threads_per_block;
     },
     [](const Case& c) {
       return fmt::format("needs {} threads a block, {} has {}",
                          waves_of(c.algorithm) * c.target.warp_size, c.target.name,
                          c.target.max_threads_per_block);
     }},
    {[](const Case& c) { return accumulators_per_lane(c) <= c.target.registers_per_thread / 2; },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a lane ({}x{} over {} waves of {}), half of {}'s {} "
           "registers are for them",
           accumulators_per_lane(c), c.algorithm.tile.m, c.algorithm.tile.n,
           c.algorithm.wave.m * c.algorithm.wave.n, c.target.warp_size, c.target.name,
           c.target.registers_per_thread);
     }},
    {[](const Case& c) {
       return c.algorithm.store != Store::cshuffle || cshuffle_stores_right(c.algorithm);
     },
     [](const Case& c) {
       return fmt::format(
           "cshuffle stores wrong values for an odd number of 32-wide warp tiles a "
           "wave, got tile {} over waves {}",
           to_string(c.algorithm.tile), to_string(c.algorithm.wave));
     }},
    {[](const Case& c) { return preshuffle_fits(c); },
     [](const Case& c) {
       return fmt::format(
           "preshuffle needs tiles of at least 64x64x32 in steps of 32x32x16, got {}",
           to_string(c.algorithm.tile));
     }},
    {[](const Case& c) { return preshuffle_vectors_fit(c); },
     [](const Case& c) {
       return fmt::format(
           "preshuffle loads 16 bytes a lane, which does not divide warp tile {} of "
           "{} over {} lanes",
           to_string(c.algorithm.warp_tile), to_string(c.signature.a), c.target.warp_size);
     }},
    {[](const Case& c) { return bytes_of_stage(c) <= lds_budget(c); },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS, {} allows {} of {}'s {}", bytes_of_stage(c),
                          to_string(c.algorithm.pipeline), lds_budget(c), c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

constexpr Rule kNone[] = {
    {[](const Case&) { return false; },
     [](const Case& c) {
       return fmt::format("{} is not a GPU pipeline", to_string(c.algorithm.pipeline));
     }},
};

}  // namespace

std::int64_t tmaws_shared_bytes(const Case& c) {
  const Algorithm& a = c.algorithm;
  const std::int64_t consumers = a.wave.m;
  const int owners = std::max(1, std::min(a.splits, a.tile.n / 8));
  const int chunk = chunk_of(a.tile.n / owners);
  const std::int64_t store_bytes =
      std::max<std::int64_t>(1024, std::int64_t{kWgmmaRows} * chunk * size_of(c.signature.out));
  const std::int64_t fixed =
      a.stages * bytes_of_stage(c) + (2 * std::int64_t{a.stages} + 1) * 8 +
      (a.splits - 1) * consumers * 128 * row_blocks(c) * (a.tile.n / owners / 8) * 16;
  if (a.store == Store::direct) return fixed;
  // Two store buffers a consumer where they fit, else one.
  const std::int64_t two = fixed + 2 * consumers * store_bytes;
  return two <= c.target.shared_memory_bytes ? two : fixed + consumers * store_bytes;
}

std::span<const Rule> gpu_rules(Pipeline pipeline) {
  switch (pipeline) {
    case Pipeline::tmaws:
      return kTmaws;
    case Pipeline::cpasync:
      return kCpasync;
    case Pipeline::compv3:
    case Pipeline::compv4:
    case Pipeline::compv5:
    case Pipeline::mem:
      return kCk;
    default:
      return kNone;
  }
}

Verdict gpu_supports(const KernelSpec& spec, const GemmProblem& problem) {
  if (spec.algorithm.pipeline != Pipeline::tmaws) return {};
  const GemmProblem p = with_strides(problem);
  struct Run {
    std::string_view name;
    std::int64_t value;
    DType dtype;
  };
  const bool a_rows = a_is_row_major(p.layout);
  const bool b_rows = b_is_row_major(p.layout);
  const bool batched = p.batch > 1;
  const Run runs[] = {{a_rows ? "k" : "m", a_rows ? p.k : p.m, p.a},
                      {"ld_a", p.ld_a, p.a},
                      {"batch_stride_a", batched ? p.batch_stride_a : 0, p.a},
                      {b_rows ? "n" : "k", b_rows ? p.n : p.k, p.b},
                      {"ld_b", p.ld_b, p.b},
                      {"batch_stride_b", batched ? p.batch_stride_b : 0, p.b}};
  for (const auto& [name, value, dtype] : runs) {
    const std::int64_t unit = kTmaBytes / size_of(dtype);
    if (value % unit == 0) continue;
    return {fmt::format("{0} must be a multiple of {1} for {2} operands with tmaws, got {0}={3}",
                        name, unit, to_string(dtype), value)};
  }
  if (spec.algorithm.store == Store::direct) return {};
  const std::int64_t unit = kTmaBytes / size_of(p.out);
  const std::int64_t batch_stride = batched ? p.batch_stride_out : 0;
  if (p.n % unit != 0 || p.ld_out % unit != 0 || batch_stride % unit != 0) {
    return {
        fmt::format("n and the strides of out must be multiples of {} for {} output stored by "
                    "tma, got n={} ld_out={} batch_stride_out={}; use the direct store",
                    unit, to_string(p.out), p.n, p.ld_out, p.batch_stride_out)};
  }
  return {};
}

}  // namespace tessera::gemm
