// A target's space as lists of values, in the order of kernels' names.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/spec/kernel_spec.h"
#include "tessera/spec/target.h"

namespace tessera::tile {

// The target's space for an operation; throws Error{unsupported} when its row has none.
const AlgorithmSpace& space_of(Op op, const Target& target);

// The warp tiles that the target lists for operands of this type (tf32 falls back to fp32).
const std::vector<Shape3>& warp_tiles_for(const AlgorithmSpace& space, DType operand);

// Each value once, in the order in which the words stand in sorted names. In a name a word ends
// with '_', so "12x768x512" comes after "120x3072x256".
template <class Value>
std::vector<Value> in_name_order(const std::vector<Value>& values) {
  std::vector<std::pair<std::string, Value>> words;
  for (const Value& value : values) words.emplace_back(std::string(to_string(value)) + "_", value);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::vector<Value> sorted;
  for (const auto& word : words) sorted.push_back(word.second);
  return sorted;
}

// Calls visit(algorithm) for each pipeline, tile, wave and warp tile of the lists, in name order.
template <class Visit>
void for_each_shape(const AlgorithmSpace& space, const std::vector<Shape3>& tiles,
                    const std::vector<Shape3>& warp_tiles, Visit visit) {
  const auto sorted_tiles = in_name_order(tiles);
  const auto waves = in_name_order(space.waves);
  const auto sorted_warp_tiles = in_name_order(warp_tiles);
  for (const Pipeline pipeline : in_name_order(space.pipelines)) {
    for (const Shape3& tile : sorted_tiles) {
      for (const Shape3& wave : waves) {
        for (const Shape3& warp_tile : sorted_warp_tiles) {
          visit(
              Algorithm{.pipeline = pipeline, .tile = tile, .wave = wave, .warp_tile = warp_tile});
        }
      }
    }
  }
}

// What for_each_shape() visits with this pipeline.
std::vector<Algorithm> shapes_with(const AlgorithmSpace& space, Pipeline pipeline,
                                   const std::vector<Shape3>& warp_tiles);

void sort_by_name(std::vector<KernelSpec>& specs);

}  // namespace tessera::tile
