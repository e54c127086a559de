#include <algorithm>
#include <array>

#include "tessera/base/forever.h"
#include "tessera/families/gemm/small_internal.h"
#include "tessera/families/tile/specs.h"

namespace tessera::gemm {
namespace {

constexpr int kKeptRows = 3072;  // rows that share a panel: all of a usual problem

// Sums of dot products: rows by columns that fill the registers.
constexpr Shape3 kDots[] = {{1, 16, 1}, {2, 12, 1}, {3, 8, 1}, {4, 6, 1}};
constexpr Shape3 kFewDots[] = {{1, 8, 1}, {2, 4, 1}, {3, 4, 1}, {4, 3, 1}};  // of 16 registers

int lanes_of(const Target& target) { return std::max(1, target.vector_bytes / 4); }
bool has_few_registers(int lanes) { return lanes <= device::kSmallFewLanes; }

Algorithm shape_of(const Shape3& tile, const Shape3& warp_tile) {
  return {.pipeline = Pipeline::small, .tile = tile, .warp_tile = warp_tile};
}

// Blocks of so many vectors that read B as it lies for each of their rows anew.
Algorithm blocks_of(int vectors, int per_word, bool transposes, int lanes) {
  const Shape3 block = {device::small_rows(vectors, transposes, lanes), vectors * lanes, per_word};
  return shape_of(block, block);
}
// Blocks that keep the words of two vectors in a panel.
Algorithm kept_blocks(int per_word, int lanes) {
  const Shape3 block = {device::small_rows(2, false, lanes), 2 * lanes, per_word};
  return shape_of({kKeptRows, block.n, per_word}, block);
}

std::vector<Algorithm> shapes_along_k(int per_word, int lanes) {
  std::vector<Algorithm> all;
  for (const Shape3& dots : has_few_registers(lanes) ? kFewDots : kDots) {
    const Shape3 block = {dots.m, dots.n, per_word * lanes};
    all.push_back(shape_of(block, block));
  }
  all.push_back(blocks_of(1, per_word, true, lanes));
  if (!has_few_registers(lanes)) all.push_back(blocks_of(2, per_word, true, lanes));
  all.push_back(kept_blocks(per_word, lanes));
  return all;
}

std::vector<Algorithm> shapes_by_rows(int per_word, int lanes) {
  std::vector<Algorithm> all = {blocks_of(2, per_word, false, lanes)};
  if (!has_few_registers(lanes)) all.push_back(blocks_of(4, per_word, false, lanes));
  if (per_word > 1) {
    all.push_back(kept_blocks(per_word, lanes));
    return all;
  }
  all.push_back(blocks_of(3, per_word, false, lanes));
  for (const int rows : {1, 2}) {
    const Shape3 block = {rows, device::small_strip_vectors(rows, lanes) * lanes, 1};
    all.push_back(shape_of(block, block));
  }
  return all;
}

// What names are sorted by.
std::string words_of(const Algorithm& a) {
  return to_string(a.tile) + "_" + to_string(a.wave) + "_" + to_string(a.warp_tile) + "_";
}
bool is_before(const Algorithm& a, const Algorithm& b) { return words_of(a) < words_of(b); }

// Lists for words of 1, 2 and 4 elements, k contiguous or by rows, vectors of 8 or 16 lanes.
constexpr int kMostPerWord = 4;
struct Shapes {
  std::array<std::vector<Algorithm>, (kMostPerWord + 1) * 4> lists;
  static std::size_t index(int per_word, bool by_rows, int lanes) {
    return static_cast<std::size_t>(per_word * 4 + (by_rows ? 2 : 0) + (lanes > 8 ? 1 : 0));
  }
  Shapes() {
    for (const int per_word : {1, 2, kMostPerWord}) {
      for (const int lanes : {8, 16}) {
        lists[index(per_word, false, lanes)] = shapes_along_k(per_word, lanes);
        lists[index(per_word, true, lanes)] = shapes_by_rows(per_word, lanes);
      }
    }
    for (auto& list : lists) std::sort(list.begin(), list.end(), is_before);
  }
};

}  // namespace

int words_in_memory(DType dtype) {
  const bool is_word = is_fp32(dtype) || dtype == DType::bf16 || dtype == DType::int8;
  return is_word ? static_cast<int>(4 / size_of(dtype)) : 0;
}

SmallKind small_kind(const Algorithm& a, const Target& target) {
  const int lanes = lanes_of(target);
  if (a.warp_tile.n > device::kSmallVectors * lanes) return SmallKind::rows;
  return a.warp_tile.n % lanes == 0 && a.warp_tile.k <= 4 ? SmallKind::blocks : SmallKind::dots;
}

const std::vector<Algorithm>& small_shapes(const GemmSignature& s, const Target& target) {
  static const Forever<Shapes> kShapes;
  return kShapes
      ->lists[Shapes::index(words_in_memory(s.a), b_is_row_major(s.layout), lanes_of(target))];
}

void add_small(const GemmSignature& s, const Target& target, std::vector<Algorithm>& all) {
  if (!tile::has_pipeline(Op::gemm, target, Pipeline::small)) return;
  std::vector<Algorithm> small;
  for (Algorithm a : small_shapes(s, target)) {
    for (const Shape3& wave : tile::space_of(Op::gemm, target).waves) {
      a.wave = wave;
      if (wave.k == 1) small.push_back(a);
    }
  }
  std::sort(small.begin(), small.end(), is_before);
  small.erase(std::unique(small.begin(), small.end()), small.end());
  const auto behind = std::find_if(all.begin(), all.end(), [](const Algorithm& a) {
    return to_string(a.pipeline) > to_string(Pipeline::small);
  });
  all.insert(behind, small.begin(), small.end());
}

}  // namespace tessera::gemm
