// How attention with split keys on Hopper divides its memory, for host and device; fmha_parts.h
// says how it divides its work.
#pragma once

#include "tessera/device/fmha_parts.h"

namespace tessera::device {

inline constexpr int kSplitRows = 16;       // of a warp
inline constexpr int kSplitFieldBits = 10;  // of a counter, which hold numbers of parts

// The shape of a kernel: rows and keys of a block, the longest head, stages of a ring, teams. The
// warps of a team share keys and have different rows; teams have different keys.
struct SplitShape {
  int rows, keys, hdim, stages, teams;
  int bytes = 2;             // of an element of a key
  bool has_factors = false;  // whether each key has factors
};

// Shared memory: a ring of stages for each team, in which a block of values follows one of keys,
// and both blocks' factors these; behind all rings the queries, and a factor of each where keys
// have 8 bits. The sums of the teams take the place of all that at the end: a row of `sum_pitch`
// floats for each team and row, and behind these the maxima and totals.
struct SplitSizes {
  int block, stage, ring;  // bytes
  int queries, scales;     // where they begin
  int sum_pitch, heads;    // floats of a row; where maxima and totals begin, in bytes
  int bytes;
};

constexpr SplitSizes split_sizes(const SplitShape& s) {
  const int block = s.keys * s.hdim * s.bytes;
  const int stage = 2 * block + (s.has_factors ? 2 * s.keys * 4 : 0);
  const int ring = s.stages * stage;
  const int queries = s.teams * ring;
  const int sum_pitch = s.hdim + 4;  // rows begin in different banks
  const int heads = s.teams * s.rows * sum_pitch * 4;
  const int scales = queries + s.rows * s.hdim * 2;
  const int loaded = scales + (s.bytes == 1 ? s.rows * 4 : 0);
  const int merged = heads + s.teams * s.rows * 2 * 4;
  return {block, stage, ring, queries, scales, sum_pitch, heads, loaded > merged ? loaded : merged};
}

// Whether each key has factors of its own, or those of a few keys.
constexpr bool splits_factors(FmhaQscale how) {
  return how == FmhaQscale::per_block || how == FmhaQscale::kv_block ||
         how == FmhaQscale::per_token;
}
template <class C>
constexpr SplitShape split_shape_of() {
  return {C::kTileM,
          C::kTileN,
          C::kTileK,
          C::kStages,
          C::kWaveN,
          static_cast<int>(sizeof(typename C::Kv)),
          splits_factors(C::kQscale)};
}

// ---- latent attention ----

// The one shape of its kernels: rows, keys of a block, the longest head, the longest values, and
// the columns of these that a warpgroup adds up.
inline constexpr int kLatentRows = 64, kLatentKeys = 32, kLatentHead = 576, kLatentValues = 512;
inline constexpr int kLatentColumns = kLatentValues / 2;
inline constexpr int kLatentProduct = 128;  // of them in one instruction
inline constexpr int kLatentStages = 4;
// Keys of 8 bits have stages for what they become, and raw ones for what arrives.
inline constexpr int kLatentByteStages = 3, kLatentRaws = 2;
inline constexpr int kLatentRawBytes = kLatentKeys * kLatentHead;
inline constexpr int kLatentSlots = 2;         // of weights, between warpgroups
inline constexpr int kLatentSlotBytes = 5120;  // 32 of weights and 8 of factors a thread
inline constexpr int kLatentWorkBytes = 128;   // what a block is to do
inline constexpr int kLatentThreads = 384;     // of three warpgroups

// Shared memory: queries, a ring of stages of keys, or of keys and values in turn, those of 8 bits
// as they arrive, weights, barriers, what there is to do, and factors of queries beside keys of 8
// bits. The sums take the place of queries and keys at the end, as in
// SplitSizes.
struct LatentSizes {
  int stages, stage;            // where they begin, bytes of one
  int raws, scales;             // where they begin
  int weights, barriers, work;  // where they begin
  int sum_pitch, heads;
  int bytes;
};
constexpr LatentSizes latent_sizes(int stages, bool of_bytes = false) {
  const int first = kLatentRows * kLatentHead * 2, stage = kLatentKeys * kLatentHead * 2;
  const int raws = first + stages * stage;
  const int weights = raws + (of_bytes ? kLatentRaws * kLatentRawBytes : 0);
  const int barriers = weights + kLatentSlots * kLatentSlotBytes;
  const int work = barriers + (stages + 2 * kLatentSlots) * 8;
  const int sum_pitch = kLatentValues + 8;  // rows begin in different banks
  const int scales = work + kLatentWorkBytes;
  return {first,
          stage,
          raws,
          scales,
          weights,
          barriers,
          work,
          sum_pitch,
          kLatentRows * sum_pitch * 4,
          scales + (of_bytes ? kLatentRows * 4 : 0)};
}

// Whether the values are the first elements of the keys.
template <FmhaPages kPages>
inline bool values_in_keys(const FmhaArguments& g) {
  const i64 sequences = kPages == FmhaPages::none ? g.batch : g.num_pages;
  return g.k == g.v && g.hdim_v <= g.hdim && g.k_stride[kToken] == g.v_stride[kToken] &&
         (g.heads_kv == 1 || g.k_stride[kTokenHead] == g.v_stride[kTokenHead]) &&
         (sequences == 1 || g.k_stride[kTokenBatch] == g.v_stride[kTokenBatch]);
}

// ---- the partial sums in the workspace ----

// Floats of a row of sums: whole vectors of four.
constexpr i64 split_row_floats(i64 hdim_v) { return (hdim_v + 3) / 4 * 4; }
// Floats of one part of the keys of a tile of rows: all sums, and behind them maxima and totals.
constexpr i64 split_part_floats(int rows, i64 hdim_v) {
  return rows * (split_row_floats(hdim_v) + 2);
}

}  // namespace tessera::device
