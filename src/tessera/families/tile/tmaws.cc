#include "tessera/families/tile/tmaws.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tessera/families/tile/mfma.h"

namespace tessera::tile {
namespace {

constexpr int kMostConsumers = 3;
constexpr int kColumnsOf3 = 192;  // 3 consumers have 128 registers a thread at entry
constexpr int kWithRoom = 160;    // accumulators beside which bias and functions find registers

TmawsOperand operand(const Product& x, const Algorithm& a, bool is_b) {
  const bool is_p = is_b == a.swap_ab;
  TmawsOperand o;
  o.dtype = is_b ? x.b : x.a;
  const bool along_k = is_b ? x.b_k_contiguous : x.a_k_contiguous;
  const bool packed = is_b && x.packed_b;
  o.transposed = a.repack && !along_k && !packed && size_of(o.dtype) != 2;
  o.k_contiguous = along_k || packed || o.transposed;
  o.rows = is_p ? a.tile.m : a.tile.n;
  o.parts = is_p ? a.cluster_n : a.cluster_m;
  o.bytes = device::operand_bytes(o.rows, a.tile.k, size_of(o.dtype), o.k_contiguous);
  return o;
}

device::TmaShape shape_of(const Algorithm& a) {
  return {a.tile.m, a.tile.n, a.wave.m, a.splits, a.scheduler == Scheduler::pingpong, a.swap_ab};
}

constexpr int kChunkBytes = 16;      // that one cp.async moves
constexpr int kSwizzleBytes = 1024;  // after which the swizzle of a tile repeats
constexpr int kMmaRows = 16;         // of A and of B, that a warp loads at a time

int line_bytes(const CopiedTile& t) { return (t.k_contiguous ? t.tile_k : t.rows) * t.size; }
int least_rows(const CopiedTile& t) { return t.size == 1 ? 2 * kMmaRows : kMmaRows; }

}  // namespace

TmawsOperand tmaws_a(const Product& x, const Algorithm& a) { return operand(x, a, false); }
TmawsOperand tmaws_b(const Product& x, const Algorithm& a) { return operand(x, a, true); }

int tmaws_out_chunk(const Product& x, const Algorithm& a) {
  return device::out_chunk_of(device::tma_parts(shape_of(a)).columns,
                              tmaws_d_roles(x.epilogue).matrices, a.swap_ab);
}

int tmaws_accumulators(const Algorithm& a) { return tmaws_store(a).row_blocks * a.tile.n / 2; }

int tmaws_consumers(const Algorithm& a) {
  return a.scheduler == Scheduler::pingpong ? 1 : a.wave.m;
}

const AlgorithmRule kTmawsConsumers = {
    [](const Algorithm& a) {
      return a.wave.m >= 1 && a.wave.m <= kMostConsumers && a.wave.n == 1 && a.wave.k == 1;
    },
    [](const Algorithm& a) {
      return fmt::format("tmaws has 1 to 3 consumers over m (1x1x1, 2x1x1, 3x1x1), got {}",
                         to_string(a.wave));
    }};

const AlgorithmRule kTmawsSchedulers = {
    [](const Algorithm& a) {
      return a.scheduler == Scheduler::cooperative || a.scheduler == Scheduler::pingpong;
    },
    [](const Algorithm& a) {
      return fmt::format("tmaws is scheduled cooperative or pingpong, got {}",
                         to_string(a.scheduler));
    }};

const AlgorithmRule kTmawsPingpong = {
    [](const Algorithm& a) { return a.scheduler != Scheduler::pingpong || a.wave.m == 2; },
    [](const Algorithm& a) { return fmt::format("pingpong needs 2 consumers, got {}", a.wave.m); }};

const AlgorithmRule kTmawsColumnsOf3 = {
    [](const Algorithm& a) { return a.wave.m < kMostConsumers || a.tile.n <= kColumnsOf3; },
    [](const Algorithm& a) {
      return fmt::format("3 consumers leave registers for tile_n <= {}, got {}", kColumnsOf3,
                         a.tile.n);
    }};

TmawsStore tmaws_store(const Algorithm& a) {
  const device::TmaParts parts = device::tma_parts(shape_of(a));
  return {parts.columns, device::chunk_of(parts.columns, a.swap_ab), parts.row_blocks};
}

bool tmaws_prepares(const Algorithm& a) { return a.repack || a.split_k == SplitK::atomic; }

int tmaws_slice_groups(const Algorithm& a) {
  return device::tma_parts(shape_of(a)).owners * a.wave.m;
}

std::int64_t tmaws_slice_bytes(const Algorithm& a) {
  return std::int64_t{device::tma_parts(shape_of(a)).vectors} * device::kGroupThreads * 16;
}

bool tmaws_reads(DType dtype, std::int64_t ld, std::int64_t batch_stride) {
  return (ld | batch_stride) * size_of(dtype) % kTmaBytes == 0;
}

std::array<CopiedTile, 2> copied_tiles(const Product& x, const Algorithm& a, const Target& target) {
  const int threads = block_threads(a, target);
  return {
      {{"A", x.a_k_contiguous, a.tile.m, a.tile.m / a.wave.m, size_of(x.a), a.tile.k, threads},
       {"B", x.b_k_contiguous, a.tile.n, a.tile.n / a.wave.n, size_of(x.b), a.tile.k, threads}}};
}

std::optional<CopiedTile> first_misfit(const CopiedTileRule& rule, const Product& x,
                                       const Algorithm& a, const Target& target) {
  if (x.a == DType::fp32) return std::nullopt;
  for (const CopiedTile& tile : copied_tiles(x, a, target)) {
    if (!rule.holds(tile)) return tile;
  }
  return std::nullopt;
}

// A line of a tile has a power of two of chunks, and the threads copy whole lines.
const CopiedTileRule kCopiedLines = {
    [](const CopiedTile& t) {
      const int chunks = line_bytes(t) / kChunkBytes;
      return line_bytes(t) % kChunkBytes == 0 &&
             std::has_single_bit(static_cast<unsigned>(chunks)) && t.threads % chunks == 0;
    },
    [](const CopiedTile& t) {
      return fmt::format(
          "a line of {}'s tile must be {} bytes times a power of two that divides {} threads, got "
          "{} bytes",
          t.name, kChunkBytes, t.threads, line_bytes(t));
    }};

const CopiedTileRule kCopiedBytes = {
    [](const CopiedTile& t) { return t.rows * t.tile_k * t.size % kSwizzleBytes == 0; },
    [](const CopiedTile& t) {
      return fmt::format("{}'s tile must be a multiple of {} bytes, got {} x {} x {}", t.name,
                         kSwizzleBytes, t.rows, t.tile_k, t.size);
    }};

// When rows are contiguous, the address of each fragment follows from the first by exclusive or.
// Elements of one byte are transposed in blocks of 32 rows.
const CopiedTileRule kCopiedRows = {
    [](const CopiedTile& t) {
      if (t.k_contiguous) return t.warp_rows % kMmaRows == 0;
      return std::has_single_bit(static_cast<unsigned>(t.warp_rows)) &&
             t.warp_rows >= least_rows(t);
    },
    [](const CopiedTile& t) {
      return t.k_contiguous
                 ? fmt::format("a warp takes multiples of {} rows of {}, got {}", kMmaRows, t.name,
                               t.warp_rows)
                 : fmt::format(
                       "a warp takes a power of two of at least {} contiguous rows of {}, got {}",
                       least_rows(t), t.name, t.warp_rows);
    }};

const AlgorithmRule kDividesOverWarps = {
    [](const Algorithm& a) {
      return a.tile.m > 0 && a.tile.n > 0 && a.tile.m % (a.wave.m * a.warp_tile.m) == 0 &&
             a.tile.n % (a.wave.n * a.warp_tile.n) == 0;
    },
    [](const Algorithm& a) {
      return fmt::format("tile {}x{} does not divide over {}x{} warps of {}x{}", a.tile.m, a.tile.n,
                         a.wave.m, a.wave.n, a.warp_tile.m, a.warp_tile.n);
    }};

int block_threads(const Algorithm& a, const Target& target) {
  return a.wave.m * a.wave.n * a.wave.k * target.warp_size;
}
std::string too_many_threads(const Algorithm& a, const Target& target) {
  return fmt::format("needs {} threads a block, {} has {}", block_threads(a, target), target.name,
                     target.max_threads_per_block);
}

bool tmaws_has_room(const Algorithm& a) {
  const device::TmaParts parts = device::tma_parts(shape_of(a));
  return parts.row_blocks * parts.columns / 2 <= kWithRoom;
}

TmawsDRoles tmaws_d_roles(const Epilogue& epilogue) {
  TmawsDRoles roles;
  if (epilogue.num_d == 0) return roles;
  const auto uses = d_uses(epilogue);
  for (int i = 0; i < epilogue.num_d; ++i) {
    const DUse& use = uses[static_cast<std::size_t>(i)];
    if (!use.is_vector() && roles.matrices < kTmawsMatrices) {
      roles.matrix[static_cast<std::size_t>(roles.matrices++)] = i;
    } else if (use.op == EpilogueOp::bias && roles.biases == 0) {
      ++roles.biases;
    } else {
      roles.others = true;
    }
  }
  return roles;
}

// As finishes_in_place() in tma_store_rules.h.
bool tmaws_copies_out(const Product& x, bool has_room) {
  const auto fits = [has_room](EpilogueOp op) {
    using enum EpilogueOp;
    return has_room || op == pass_through || op == relu || op == clamp;
  };
  const TmawsDRoles roles = tmaws_d_roles(x.epilogue);
  return size_of(x.out) == 2 && !roles.others && (roles.matrices == 0 || size_of(x.d) == 2) &&
         std::all_of(x.epilogue.ops.begin(), x.epilogue.ops.end(), fits);
}

bool tmaws_copies_out(const Product& x, const Algorithm& a) {
  if (a.store == Store::direct) return false;
  if (a.swap_ab) return size_of(x.out) == 2 && num_ops(x.epilogue) == 0;
  return tmaws_copies_out(x, tmaws_has_room(a));
}

SharedMemory shared_memory(const Product& x, const Algorithm& a, int matrices) {
  if (a.pipeline == Pipeline::tmaws) {
    const std::int64_t stage = tmaws_a(x, a).bytes + tmaws_b(x, a).bytes;
    const device::TmaSizes sizes = device::tma_sizes(shape_of(a), a.stages, stage, matrices);
    return {stage, sizes.shared_bytes, sizes.chunk};
  }
  if (is_mfma(a.pipeline)) {
    const int all = device::mfma_lds_bytes(mfma_shape(
        a, {size_of(x.a), size_of(x.b), !x.a_k_contiguous, !x.b_k_contiguous && !x.packed_b}));
    return {mfma_stage_bytes(a, size_of(x.a), size_of(x.b)), all, 0};
  }
  const bool cpasync = a.pipeline == Pipeline::cpasync;
  const bool by_fma = cpasync && x.a == DType::fp32;
  const std::int64_t rows = device::fma_line(a.tile.m, by_fma && x.a_k_contiguous);
  const std::int64_t columns = device::fma_line(a.tile.n, by_fma && x.b_k_contiguous);
  const std::int64_t stage = (rows * size_of(x.a) + columns * size_of(x.b)) * a.tile.k;
  if (!cpasync) return {stage, a.stages * stage, 0};
  return {stage, device::cpasync_bytes(a.stages, stage, a.tile.m, a.tile.n), 0};
}

SharedMemory shared_memory(const Product& x, const Algorithm& a) {
  const bool copies_d = a.pipeline == Pipeline::tmaws && tmaws_copies_out(x, a);
  return shared_memory(x, a, copies_d ? tmaws_d_roles(x.epilogue).matrices : 0);
}

}  // namespace tessera::tile
