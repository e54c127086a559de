// Sizes that kernels, their launches and the estimates all compute: how a block divides a tile, and
// what its shared memory holds. These are plain functions on numbers, for host and device. Sizes in
// bytes are `long long`, so that they do not overflow for tiles that are too large for any machine.
#pragma once

namespace tessera::device {

inline constexpr int kSharedLimit = 232448;  // bytes of a Hopper block, as in the target's row
inline constexpr int kSharedReserve = 1024;  // bytes that the machine keeps of each block
inline constexpr int kSharedPerUnit = kSharedLimit + kSharedReserve;
inline constexpr int kRegistersBesides = 88;  // of a tmaws thread, besides the accumulators

inline constexpr int kGroupThreads = 128;  // threads of a warpgroup
inline constexpr int kWgmmaRows = 64;      // rows of one wgmma
inline constexpr int kLineBytes = 128;     // bytes of a swizzled line in shared memory
inline constexpr int kMatrixSlots = 4;     // buffers of a store area for D tensors
inline constexpr int kStagingPad = 8;      // floats: rows of a staged tile start 8 banks apart
inline constexpr int kTransposedPad = 4;   // floats at the end of a line that was transposed

constexpr int rounded_up(int value, int unit) { return (value + unit - 1) / unit * unit; }
constexpr int least_of(int a, int b) { return a < b ? a : b; }

// ---- tmaws: operands in lines of 128 bytes, a ring of stages, store areas, partial sums ----

// Bytes of an operand's tile for one stage. Contiguous rows are rounded up to whole lines.
constexpr long long operand_bytes(int rows, int k, int size, bool k_contiguous) {
  const int stored = k_contiguous ? rows : rounded_up(rows, kLineBytes / size);
  return static_cast<long long>(stored) * k * size;
}

// Threads of a block: the consumers' threads, and one warp or a whole warpgroup that fetches.
constexpr int tma_threads(int consumers) {
  return consumers * kGroupThreads + (consumers == 1 ? 32 : kGroupThreads);
}

struct TmaShape {
  int tile_m, tile_n;
  int consumers;       // warpgroups that multiply
  int splits;          // blocks of a cluster that share K
  bool pingpong;       // each of two consumers computes every other tile
  bool swaps = false;  // columns are the output's rows
};

// The part of a consumer. With splits, each of `owners` blocks adds up and stores a part of the
// columns.
struct TmaParts {
  int row_blocks;  // blocks of 64 rows; 0: the tile's rows are not a multiple
  int owners;
  int columns;  // columns that an owner stores
  int vectors;  // vectors of 4 sums that a thread of an owner holds
};
constexpr TmaParts tma_parts(const TmaShape& s) {
  const int rows = kWgmmaRows * (s.pingpong ? 1 : s.consumers);
  const int blocks = s.tile_m % rows == 0 ? s.tile_m / rows : 0;
  const int owners = s.tile_n < 8 || s.splits < 1 ? 1 : least_of(s.splits, s.tile_n / 8);
  const int columns = owners == 1 ? s.tile_n : s.tile_n / owners;
  return {blocks, owners, columns, blocks * columns / 8};
}

// The widest of 64, 32, 16 and 8 columns that divides n. Columns that are the output's rows need
// not fill a line: of these the largest multiple of 8.
constexpr int chunk_of(int n, bool swaps = false) {
  for (int chunk = 64; chunk > 8; chunk = swaps ? chunk - 8 : chunk / 2) {
    if (n % chunk == 0) return chunk;
  }
  return 8;
}

// How many columns (a chunk) are written at a time when the copy engine brings `matrices` D
// tensors. With D tensors chunks are narrower. So more chunks are on their way at a time, and the
// buffers of two chunks fit into an area of half the usual size.
constexpr int out_chunk_of(int columns, int matrices, bool swaps = false) {
  if (matrices == 0) return chunk_of(columns, swaps);
  if (columns % 64 == 0) return 32;
  const int chunk = chunk_of(columns);
  return matrices == 1 || chunk == 8 ? chunk : chunk / 2;
}

// The bytes of a store area: `least`, or up to `most` when that gives D tensors more slots.
constexpr long long area_bytes(long long least, long long most, int columns, int matrices) {
  const long long slot = matrices * out_chunk_of(columns, matrices) * kWgmmaRows * 2;
  for (int slots = kMatrixSlots; slots > 0; --slots) {
    if (slots * slot <= least) break;
    if (slots * slot <= most) return slots * slot;
  }
  return least;
}

// The store areas of `consumers` consumers, when `fixed` bytes of the block's shared memory are
// used already. An area holds one chunk of columns as raw accumulators, or half a chunk when there
// is no room.
struct StoreArea {
  int pass;         // columns of raw accumulators that fit
  long long bytes;  // bytes of one consumer's area
};
constexpr StoreArea store_area(long long fixed, int consumers, int columns, int matrices,
                               bool swaps = false) {
  constexpr long long kColumnBytes = kWgmmaRows * 4;
  const int chunk = chunk_of(columns, swaps);
  const bool whole = chunk % 16 != 0 || fixed + consumers * chunk * kColumnBytes <= kSharedLimit;
  const int pass = whole ? chunk : chunk / 2;
  const long long least = pass * kColumnBytes;
  if (matrices == 0) return {pass, least};
  return {pass, area_bytes(least, (kSharedLimit - fixed) / consumers, columns, matrices)};
}

// Shared memory of a block: the ring, the store areas, partial sums, barriers.
struct TmaSizes {
  long long partial_bytes;
  int barriers;
  StoreArea area;
  long long shared_bytes;
  int chunk;  // columns written at a time when there are no D tensors
};
constexpr TmaSizes tma_sizes(const TmaShape& s, int stages, long long stage_bytes, int matrices) {
  const TmaParts parts = tma_parts(s);
  const long long vector = 16LL * s.consumers * kGroupThreads;  // bytes: 4 sums of every thread
  const long long partial = vector * parts.vectors * (s.splits - 1);
  const int barriers = 2 * stages + 1 + (matrices > 0 ? s.consumers * kMatrixSlots : 0);
  const long long fixed = stages * stage_bytes + partial + barriers * 8;
  const StoreArea area = store_area(fixed, s.consumers, parts.columns, matrices, s.swaps);
  return {partial, barriers, area, fixed + s.consumers * area.bytes,
          chunk_of(parts.columns, s.swaps)};
}

// ---- cpasync: a ring of tiles; the accumulators use its memory when they are stored ----

// The floats in a line of fp32 rows. The line is padded when a copy transposes the tile.
constexpr int fma_line(int rows, bool transposes) {
  return rows + (transposes ? kTransposedPad : 0);
}

// A tile of accumulators, one row after the other.
constexpr long long staging_bytes(int tile_m, int tile_n) {
  return static_cast<long long>(tile_m) * (tile_n + kStagingPad) * 4;
}

constexpr long long cpasync_bytes(int stages, long long stage_bytes, int tile_m, int tile_n) {
  const long long ring = stages * stage_bytes;
  const long long staging = staging_bytes(tile_m, tile_n);
  return ring > staging ? ring : staging;
}

}  // namespace tessera::device
