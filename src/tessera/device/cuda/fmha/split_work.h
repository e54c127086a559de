// How attention with split keys divides its work and its memory, for host and device.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

inline constexpr int kSplitRows = 16;  // of a warp
inline constexpr i64 kMostSplitParts = 512;
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

// ---- which keys ----

// The blocks of keys that some row of a tile sees: the first `sink` blocks, and those from `begin`
// on, `count` in all. What lies between is left out.
struct SplitBlocks {
  int sink, begin, count;
  int block(int index) const { return index < sink ? index : index - sink + begin; }
};

// Queries of a tile from the first to the last, at least one.
template <bool kMasked>
inline SplitBlocks split_blocks(const FmhaArguments& g, const FmhaSequence& s, i64 first, i64 last,
                                int keys) {
  const FmhaKeys low = keys_of<kMasked>(g, s, first);
  const FmhaKeys high = keys_of<kMasked>(g, s, last);
  const int begin = static_cast<int>(low.begin / keys);
  const int end = static_cast<int>((high.end + keys - 1) / keys);
  const int of_sink = static_cast<int>((high.sink + keys - 1) / keys);
  const int sink = of_sink < begin ? of_sink : begin;
  return {sink, begin, end < begin ? sink : sink + end - begin};
}

// ---- parts ----

// In sixteenths of a step: what a block takes to read the sums of a part from L2, at about twice
// the pace at which a step's keys come from memory.
constexpr i64 split_merge_cost(i64 sum_bytes, i64 step_bytes) {
  const i64 cost = 8 * sum_bytes / step_bytes;
  return cost < 1 ? 1 : cost;
}

// Into how many parts the keys are cut. `items` are tiles of rows of all sequences and heads,
// `steps` the blocks of keys that a thread block takes one after the other for the longest of them,
// `slices` how many thread blocks run at once. A thread block that begins costs as much as two
// steps. Where all blocks run at once, each of them stores a part's sums and reads as many for its
// share of the merging, which takes `merge` sixteenths of a step each, as split_merge_cost() has
// it, and what takes longer with more parts is an eighth of a sixteenth for each. Otherwise the
// last block of a tile reads the sums of all parts. For each number of rounds of thread blocks the
// largest number of parts is looked at, and smaller ones down to 1, each three quarters of the one
// before.
constexpr i64 split_parts(i64 items, i64 steps, i64 slices, i64 merge) {
  constexpr i64 kBegin = 2, kMostRounds = 4;
  if (items <= 0 || items >= kMostRounds * slices) return 1;
  const auto merging = [=](i64 parts) {
    if (parts == 1) return i64{0};
    return items * parts <= slices ? 2 * merge + parts / 8 : parts * merge;
  };
  const auto cost = [=](i64 parts) {
    const i64 rounds = (items * parts + slices - 1) / slices;
    const i64 own = (steps + parts - 1) / parts;
    return rounds * (own + kBegin) * 16 + merging(parts);
  };
  i64 best = 1, least = cost(1);
  for (i64 rounds = 1; rounds <= kMostRounds; ++rounds) {
    i64 parts = rounds * slices / items;
    if (parts > steps) parts = steps;
    if (parts > kMostSplitParts) parts = kMostSplitParts;
    for (; parts > 1; parts = parts * 3 / 4) {
      const i64 now = cost(parts);
      if (now < least) best = parts, least = now;
    }
  }
  return best;
}

// ---- parts that follow each sequence alone ----

// Keys of a part, about, and the most parts: a part this long takes several times as long as a
// block's begin, and so many parts of one sequence's heads fill a machine.
inline constexpr i64 kSplitOwnKeys = 512, kMostSplitOwnParts = 64;

// Steps of a part, of so many keys each.
constexpr i64 split_own_steps(i64 step_keys) {
  const i64 steps = (kSplitOwnKeys + step_keys - 1) / step_keys;
  return steps < 1 ? 1 : steps;
}
// Steps that a tile may have beyond those of the longest sequence's last one, for which a launch
// has parts: a window may lie so, or that tile may have fewer queries.
inline constexpr i64 kSplitSpareSteps = 3;
// Parts of a tile that has so many steps.
constexpr i64 split_own_parts(i64 steps, i64 part_steps) {
  const i64 parts = (steps + part_steps - 1) / part_steps;
  return parts < 1 ? 1 : parts < kMostSplitOwnParts ? parts : kMostSplitOwnParts;
}

// ---- the blocks of a part ----

// The blocks of one part, [first, last) of `blocks`. A sequence has its own number of parts: as
// many as the launch, if it has as many steps. `asked` is FmhaArguments::num_splits.
struct SplitPart {
  int parts, first, last;
};
inline SplitPart split_part(int blocks, int teams, int parts, int part, i64 asked) {
  const int steps = (blocks + teams - 1) / teams;
  int own = steps < 1 ? 1 : steps < parts ? steps : parts;
  if (asked < 0) {
    const i64 wanted = split_own_parts(steps, -asked);
    own = wanted < parts ? static_cast<int>(wanted) : parts;
  }
  const int each = steps / own, more = steps % own;  // the first `more` parts have a step more
  const int first = (part * each + (part < more ? part : more)) * teams;
  const int last = first + (each + (part < more ? 1 : 0)) * teams;
  return {own, first, last < blocks ? last : blocks};
}

}  // namespace tessera::device
