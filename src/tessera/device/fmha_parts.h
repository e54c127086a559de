// How attention with keys in parts divides its work, for hosts and GPUs: which blocks of keys a
// tile of rows sees, into how many parts they are cut, and which ones are in a part.
#pragma once

#include "tessera/device/fmha.h"

namespace tessera::device {

inline constexpr i64 kMostSplitParts = 512;

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
