// Lists of problems to learn from, and of those that learning never sees.
//
// "wide": sides log-uniform over what the target computes in a moment, and layers of models.
// "edge": sides of 1, primes, tiny, huge, next to powers of 2, no multiples of 8.
// "models": layers of common networks for many numbers of tokens and images.
// "experts": groups of unequal sizes; half contiguous, a quarter each masked and along k.
// "block_scaled": operands of 8 bits with scales of 1x128 and 128x128, one in four with groups.
//
// The lists follow from the name, the kind of target (CPU or GPU), its peak and the types, and from
// nothing else. On CPUs a problem has at most 10 Gflop and 256 MB; on GPUs at most 1.5 GB and 1 ms
// at the target's peak. Sizes m, n, k decide the side of the split, so that a shape on the learned
// side of one list is on the unseen side of none.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tessera/base/error.h"
#include "tessera/families/gemm/groups.h"
#include "tessera/families/gemm/model_shapes_internal.h"
#include "tessera/families/gemm/problem_sets_internal.h"
#include "tessera/families/rule_counts.h"

namespace tessera::gemm {
namespace {

constexpr double kCpuFlops = 1e10;
constexpr double kCpuBytes = 256e6;
constexpr double kGpuSeconds = 1e-3;  // at the peak, so that a good kernel takes less than 2 ms
constexpr double kGpuBytes = 1.5e9;
constexpr std::uint64_t kMaxDraws = 1000000;

std::uint64_t hash_of_sizes(const Shape& s) { return shape_hash(s.m, s.n, s.k); }

bool fits(const Shape& s, const Bounds& bounds) {
  const auto m = static_cast<double>(s.m);
  const auto n = static_cast<double>(s.n);
  const auto k = static_cast<double>(s.k);
  const GroupMatrices has = group_matrices(s.grouping);
  const auto count = [&](bool of_groups) {
    const bool is_grouped = s.grouping != GemmGrouping::none;
    return static_cast<double>(!is_grouped ? s.batch : of_groups ? s.groups : 1);
  };
  const double elements = m * k * count(has.a) + k * n * count(has.b) + m * n * count(has.out);
  return 2 * m * n * k * count(has.a) <= bounds.flops && elements * bounds.size <= bounds.bytes;
}

// ---- wide ----

Shape wide_shape(Draw& draw, const Bounds& bounds) {
  const int most = bounds.on_cpu ? 13 : 14;
  const bool whole_m = draw.below(2) == 0;
  const std::int64_t m = draw.log_uniform(0, bounds.on_cpu ? 12 : 14);
  return {.m = whole_m ? rounded(draw, m) : m,
          .n = rounded(draw, draw.log_uniform(4, most)),
          .k = rounded(draw, draw.log_uniform(4, most))};
}

// ---- edge ----

constexpr std::int64_t kPrimes[] = {2,    3,    5,    7,    11,   13,   17,   31,  61,   67,
                                    97,   127,  131,  251,  257,  509,  521,  769, 1021, 1031,
                                    1543, 2039, 2053, 3079, 4093, 4099, 6151, 8191};

Shape in_some_order(Draw& draw, std::int64_t x, std::int64_t y, std::int64_t z) {
  switch (draw.below(3)) {
    case 0:
      return {.m = x, .n = y, .k = z};
    case 1:
      return {.m = z, .n = x, .k = y};
    default:
      return {.m = y, .n = z, .k = x};
  }
}

// Each draw is a statement of its own, because the compiler may reorder draws within an expression.
std::int64_t no_multiple_of_8(Draw& draw) {
  const std::int64_t eights = draw.below(512);
  return eights * 8 + draw.between(1, 7);
}

std::int64_t beside_a_power(Draw& draw) {
  const std::int64_t power = std::int64_t{1} << draw.between(2, 12);
  return power + (draw.below(2) == 0 ? -1 : 1);
}

Shape edge_shape(Draw& draw, const Bounds& bounds) {
  const int huge = bounds.on_cpu ? 18 : 21;
  switch (draw.below(7)) {
    case 0: {  // vectors
      const std::int64_t z = draw.log_uniform(0, 14);
      const std::int64_t y = draw.log_uniform(0, 14);
      return in_some_order(draw, 1, y, z);
    }
    case 1:
      return in_some_order(draw, 1, 1, draw.log_uniform(0, huge));
    case 2: {
      const std::int64_t m = draw.one_of(kPrimes);
      const std::int64_t n = draw.one_of(kPrimes);
      return {.m = m, .n = n, .k = draw.one_of(kPrimes)};
    }
    case 3: {  // tiny
      const std::int64_t m = draw.between(1, 32);
      const std::int64_t n = draw.between(1, 32);
      return {.m = m, .n = n, .k = draw.between(1, 64)};
    }
    case 4: {
      const std::int64_t z = draw.log_uniform(0, 7);
      const std::int64_t y = draw.log_uniform(0, 7);
      const std::int64_t x = draw.log_uniform(14, huge);
      return in_some_order(draw, x, y, z);
    }
    case 5: {
      const std::int64_t m = no_multiple_of_8(draw);
      const std::int64_t n = no_multiple_of_8(draw);
      return {.m = m, .n = n, .k = no_multiple_of_8(draw)};
    }
    default: {
      const std::int64_t m = beside_a_power(draw);
      const std::int64_t n = beside_a_power(draw);
      return {.m = m, .n = n, .k = beside_a_power(draw)};
    }
  }
}

// ---- models ----

std::set<Shape> all_layers() {
  std::set<Shape> shapes;
  for (const Projection& p : kProjections) {
    for (const int tokens : kTokens) shapes.insert({.m = tokens, .n = p.n, .k = p.k});
  }
  for (const Projection& p : kPatchProjections) {
    for (const int patches : kPatches) {
      for (const int images : kImages) shapes.insert({.m = patches * images, .n = p.n, .k = p.k});
    }
  }
  for (const Convolution& c : kConvolutions) {
    for (const int images : kImages) shapes.insert({.m = c.pixels * images, .n = c.n, .k = c.k});
  }
  for (const Heads& h : kHeads) {
    for (const int length : kLengths) {
      shapes.insert({.m = length, .n = length, .k = h.size, .batch = h.count});
      shapes.insert({.m = length, .n = h.size, .k = length, .batch = h.count});
    }
  }
  return shapes;
}

// At most `count` of them, in the order of their hashes.
std::vector<Shape> layers(const std::set<Shape>& all, ProblemSide side, const Bounds& bounds,
                          std::size_t count) {
  std::vector<std::pair<std::uint64_t, Shape>> ordered;
  for (const Shape& s : all) {
    const auto batch = static_cast<std::uint64_t>(s.groups > 0 ? s.groups : s.batch);
    if (side_of(hash_of_sizes(s)) == side && fits(s, bounds))
      ordered.emplace_back(mix(hash_of_sizes(s) ^ batch), s);
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<Shape> shapes;
  for (const auto& entry : ordered) {
    if (shapes.size() < count) shapes.push_back(entry.second);
  }
  return shapes;
}

// ---- sets ----

struct SetRow {
  std::string_view name;
  Shape (*shape)(Draw&, const Bounds&);  // null: the set holds layers only
  std::set<Shape> (*all_layers)();
  std::size_t drawn, drawn_unseen;
  std::size_t layers, layers_unseen;  // at most
  bool has_scales = false;            // which only operands of 8 bits have
};
constexpr std::array kSets = {
    SetRow{"wide", wide_shape, all_layers, 1000, 320, 200, 80},
    SetRow{"edge", edge_shape, all_layers, 500, 320, 0, 0},
    SetRow{"models", nullptr, all_layers, 0, 0, 100000, 100000},
    SetRow{"experts", expert_shape, expert_layers, 800, 320, 400, 120},
    SetRow{"block_scaled", scaled_shape, scaled_layers, 800, 320, 400, 120, true},
};
constexpr std::array kNames = {kSets[0].name, kSets[1].name, kSets[2].name, kSets[3].name,
                               kSets[4].name};

const SetRow& find_set(std::string_view name) {
  for (const SetRow& row : kSets) {
    if (row.name == name) return row;
  }
  refuse_problem_set(name, kNames);
}

Bounds bounds_of(const Target& target, DType dtype) {
  const double size = size_of(dtype);
  if (!is_gpu(target)) return {true, kCpuFlops, kCpuBytes, size};
  const Instruction* i = find_instruction(target, dtype, dtype, default_accumulator(dtype));
  if (i == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("target {} has no instruction for {}: it has no problems to learn from",
                            target.name, to_string(dtype)));
  }
  return {false, kGpuSeconds * peak_of(*i, target, target.units), kGpuBytes, size};
}

// Drawn shapes and layers take turns in the proportion of their numbers.
std::vector<Shape> interleaved(const std::vector<Shape>& one, const std::vector<Shape>& other) {
  std::vector<Shape> all;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < one.size() || j < other.size()) {
    const bool first = i * other.size() <= j * one.size();
    if (j == other.size() || (i < one.size() && first)) {
      all.push_back(one[i++]);
    } else {
      all.push_back(other[j++]);
    }
  }
  return all;
}

std::vector<Shape> shapes_of(const SetRow& row, ProblemSide side, const Bounds& bounds) {
  const bool unseen = side == ProblemSide::unseen;
  const std::vector<Shape> known =
      layers(row.all_layers(), side, bounds, unseen ? row.layers_unseen : row.layers);
  std::set<Shape> taken(known.begin(), known.end());
  std::vector<Shape> drawn;
  const std::size_t wanted = unseen ? row.drawn_unseen : row.drawn;
  const std::uint64_t stream = static_cast<std::uint64_t>(&row - kSets.data()) + 1;
  for (std::uint64_t index = 0; drawn.size() < wanted && index < kMaxDraws; ++index) {
    Draw draw(stream, index);
    const Shape s = row.shape(draw, bounds);
    if (side_of(hash_of_sizes(s)) == side && fits(s, bounds) && taken.insert(s).second)
      drawn.push_back(s);
  }
  return interleaved(drawn, known);
}

// Types without a word are fp32, and where operands have scales fp8, with outputs of 16 bits.
GemmProblem types_of(const SetRow& row, TypeWords words) {
  if (row.has_scales && words.dtype.empty()) words.dtype = to_string(DType::fp8);
  auto types = std::get<GemmProblem>(retyped(GemmProblem{}, words));
  if (!row.has_scales) return types;
  if (size_of(types.a) != 1 || types.a == DType::int8) {
    throw Error(ErrorCode::unsupported,
                fmt::format("the problem set {} has operands of fp8 and bf8, got {}", row.name,
                            to_string(types.a)));
  }
  types.out = types.d = DType::bf16;
  return types;
}

// Gradients of weights have both operands across k, which is where fast kernels of 16 bits read
// groups along k.
void set_shape(const Shape& s, GemmProblem& p) {
  p.m = s.m, p.n = s.n, p.k = s.k, p.batch = s.batch;
  p.grouping = s.grouping, p.groups = s.groups;
  if (s.grouping == GemmGrouping::along_k && size_of(p.a) > 1) p.layout = GemmLayout::crr;
  if (s.has_scales) p.scale_a = GemmScale::by_1x128, p.scale_b = GemmScale::by_128x128;
}

}  // namespace

std::int64_t rounded(Draw& draw, std::int64_t size) {
  static constexpr std::int64_t kUnits[] = {1, 8, 16, 32, 64, 64, 128, 128, 256};
  const std::int64_t unit = draw.one_of(kUnits);
  return unit > size ? size : (size + unit - 1) / unit * unit;
}

std::span<const std::string_view> problem_sets() { return kNames; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  const SetRow& row = find_set(set);
  const GemmProblem types = types_of(row, words);
  std::vector<Problem> problems;
  for (const Shape& s : shapes_of(row, side, bounds_of(target, types.a))) {
    GemmProblem p = types;
    set_shape(s, p);
    validate(p);
    problems.emplace_back(p);
  }
  return problems;
}

}  // namespace tessera::gemm
