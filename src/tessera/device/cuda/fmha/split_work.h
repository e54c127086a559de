// How attention with split keys divides its work and its memory, for host and device.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

inline constexpr int kSplitRows = 16;  // of a warp
inline constexpr i64 kMostSplitParts = 512;

// The shape of a kernel: rows and keys of a block, the longest head, stages of a ring, teams. The
// warps of a team share keys and have different rows; teams have different keys.
struct SplitShape {
  int rows, keys, hdim, stages, teams;
};

// Shared memory: a ring of stages for each team, in which a block of values follows one of keys;
// behind all rings the queries. The sums of the teams take the place of all that at the end: a row
// of `sum_pitch` floats for each team and row, and behind these the maxima and totals.
struct SplitSizes {
  int block, stage, ring;  // bytes
  int queries;             // where they begin
  int sum_pitch, heads;    // floats of a row; where maxima and totals begin, in bytes
  int bytes;
};

constexpr SplitSizes split_sizes(const SplitShape& s) {
  const int block = s.keys * s.hdim * 2;
  const int ring = s.stages * 2 * block;
  const int queries = s.teams * ring;
  const int sum_pitch = s.hdim + 4;  // rows begin in different banks
  const int heads = s.teams * s.rows * sum_pitch * 4;
  const int loaded = queries + s.rows * s.hdim * 2;
  const int merged = heads + s.teams * s.rows * 2 * 4;
  return {block, 2 * block, ring, queries, sum_pitch, heads, loaded > merged ? loaded : merged};
}

// ---- the partial sums in the workspace ----

// Floats of a row of sums: whole vectors of four.
constexpr i64 split_row_floats(i64 hdim_v) { return (hdim_v + 3) / 4 * 4; }
// Of a part of the keys of a tile of rows: all sums, and behind them maxima and totals.
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

// In sixteenths of a step. A row of sums has about as many bytes as a key with its value. The last
// block reads rows from L2 at about twice the pace at which a step's keys come from memory.
constexpr i64 split_merge_cost(i64 rows, i64 keys_of_step) {
  const i64 cost = 8 * rows / keys_of_step;
  return cost < 1 ? 1 : cost;
}

// Into how many parts the keys are cut. `items` are tiles of rows of all sequences and heads,
// `steps` the blocks of keys that a thread block takes one after the other for the longest of them,
// `slices` how many thread blocks run at once. A thread block that begins costs as much as two
// steps. A part that is merged costs the last thread block `merge` sixteenths of a step, as
// split_merge_cost() has it. Of each number of rounds of thread blocks the largest number of parts
// is looked at, and smaller ones down to 1, each three quarters of the one before.
constexpr i64 split_parts(i64 items, i64 steps, i64 slices, i64 merge) {
  constexpr i64 kBegin = 2, kMostRounds = 4;
  if (items <= 0 || items >= kMostRounds * slices) return 1;
  const auto cost = [=](i64 parts) {
    const i64 rounds = (items * parts + slices - 1) / slices;
    const i64 own = (steps + parts - 1) / parts;
    return rounds * (own + kBegin) * 16 + (parts == 1 ? 0 : parts * merge);
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

// The blocks of one part, [first, last) of `blocks`. A sequence has its own number of parts: as
// many as the launch, if it has as many steps.
struct SplitPart {
  int parts, first, last;
};
inline SplitPart split_part(int blocks, int teams, int parts, int part) {
  const int steps = (blocks + teams - 1) / teams;
  const int own = steps < 1 ? 1 : steps < parts ? steps : parts;
  const int each = steps / own, more = steps % own;  // the first `more` parts have a step more
  const int first = (part * each + (part < more ? part : more)) * teams;
  const int last = first + (each + (part < more ? 1 : 0)) * teams;
  return {own, first, last < blocks ? last : blocks};
}

}  // namespace tessera::device
