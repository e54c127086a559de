// How stream-K kernels share out the tiles of an output: first whole waves of tiles, one for each
// block at a time; the steps of K of the last tiles are shared equally among all blocks. With
// clusters, "block" and "tile" here are a cluster and the tiles of its blocks. These are plain
// functions on numbers, for host and device.
#pragma once

namespace tessera::device {

inline constexpr int kStreamBlocks = 144;         // the most that run; no Hopper GPU has more units
inline constexpr int kLeastStreamSteps = 8;       // of K that a block takes
inline constexpr int kStreamSnap = 2;             // steps: so near to the edge of a tile, no cut
inline constexpr int kMostStreamSteps = 1 << 22;  // of a tile
inline constexpr int kMostStreamed = 2 * kStreamBlocks;  // tiles whose steps are shared out

// How blocks share `tiles` of all batches, which have so many steps of K each. First `rounds`
// rounds of whole tiles, one for each block. The tiles from `whole` on are shared out among the
// first `sharers` blocks, `each` steps to every one of them and one more to the first `longer`.
// Without sharers, blocks take whole tiles until none is left.
struct StreamWork {
  int whole, steps, rounds;
  int sharers, each, longer;
};

// With less than half a wave left over, the last whole wave is shared out as well. So every tile is
// cut among two or three blocks, unless there are only few tiles.
constexpr StreamWork stream_work(int tiles, int steps, int blocks) {
  const int waves = tiles / blocks;
  const int rest = tiles - waves * blocks;
  const StreamWork plain = {tiles, steps, waves, 0, 0, 0};
  if (rest == 0 || steps < 2 * kLeastStreamSteps) return plain;
  const bool takes_wave = waves > 0 && 2 * rest < blocks;
  const int shared = takes_wave ? rest + blocks : rest;
  const int total = shared * steps;
  const int most = total / kLeastStreamSteps;
  const int sharers = blocks < most ? blocks : most;
  if (sharers <= rest) return plain;
  const int each = total / sharers;
  return {tiles - shared, steps, takes_wave ? waves - 1 : waves,
          sharers,        each,  total - each * sharers};
}

// Where the share of a block begins and the share of the block before ends: so many steps into a
// tile. Tiles count from w.whole on.
struct StreamCut {
  int tile, step;
};
constexpr StreamCut stream_cut(const StreamWork& w, int block) {
  const int cut = block * w.each + (block < w.longer ? block : w.longer);
  const int tile = cut / w.steps;
  const int step = cut - tile * w.steps;
  if (step <= kStreamSnap) return {tile, 0};
  return w.steps - step <= kStreamSnap ? StreamCut{tile + 1, 0} : StreamCut{tile, step};
}

// The share of a block.
struct StreamShare {
  StreamCut from, to;
};
constexpr StreamShare stream_share(const StreamWork& w, int block) {
  if (block >= w.sharers) return {{0, 0}, {0, 0}};
  return {stream_cut(w, block), stream_cut(w, block + 1)};
}

// What a block multiplies without a break: steps of K from `begin` up to, but not including, `end`.
struct StreamItem {
  int tile;  // -1: there are no more
  int begin, end;
};

// The items of a share: the beginning of the last tile, then the end of the first tile, then what
// lies between. In this order, all blocks go along K nearly side by side, and what they read stays
// in L2.
constexpr StreamItem stream_item(const StreamWork& w, const StreamShare& s, int index) {
  const StreamCut from = s.from, to = s.to;
  if (from.tile == to.tile) {
    return index == 0 && to.step > from.step ? StreamItem{w.whole + from.tile, from.step, to.step}
                                             : StreamItem{-1, 0, 0};
  }
  const int heads = to.step > 0 ? 1 : 0;
  const int tails = from.step > 0 ? 1 : 0;
  if (index < heads) return {w.whole + to.tile, 0, to.step};
  if (index < heads + tails) return {w.whole + from.tile, from.step, w.steps};
  const int tile = from.tile + index - heads;
  return tile < to.tile ? StreamItem{w.whole + tile, 0, w.steps} : StreamItem{-1, 0, 0};
}

// The item of a block with this index, counted over whole tiles and its share.
constexpr StreamItem stream_item(const StreamWork& w, const StreamShare& s, int block, int blocks,
                                 int index) {
  const int tile = block + index * blocks;
  if (tile < w.whole) return {tile, 0, w.steps};
  return w.sharers > 0 ? stream_item(w, s, index - w.rounds) : StreamItem{-1, 0, 0};
}

// The blocks that share a tile: `count` neighbours from `first` on.
struct StreamParts {
  int first, count;
};
// The block that takes a step where no cut moves.
constexpr int stream_block_of(const StreamWork& w, int step) {
  const int of_longer = w.longer * (w.each + 1);
  const bool is_longer = step < of_longer;
  return (is_longer ? 0 : w.longer) +
         (is_longer ? step : step - of_longer) / (is_longer ? w.each + 1 : w.each);
}
constexpr StreamParts stream_parts(const StreamWork& w, int tile) {
  const int of_shared = tile - w.whole;
  const int begin = of_shared * w.steps;
  int first = stream_block_of(w, begin);
  int last = stream_block_of(w, begin + w.steps - 1);
  const StreamCut next = stream_cut(w, first + 1);
  if (next.tile < of_shared || (next.tile == of_shared && next.step == 0)) ++first;
  if (stream_cut(w, last).tile > of_shared) --last;
  return {first, last - first + 1};
}

// The place for the sums of a part: a block has one for the beginning of a tile and one for any
// other part.
inline constexpr int kStreamPlaces = 2 * kStreamBlocks;
constexpr int stream_place(const StreamParts& parts, int part) {
  return 2 * (parts.first + part) + (part > 0 ? 1 : 0);
}

}  // namespace tessera::device
