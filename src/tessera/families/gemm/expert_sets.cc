// Problems with groups and with scales of blocks: the layers of experts of published nets
// (data/nets/experts.txt), as whole layers and as the parts of one that several machines share,
// and sizes drawn from a wider world.
//
// How many rows each group gets is no part of a problem. Measurements draw it: balanced, skewed or
// random (Fill::ends in src/tessera/measure/operands.cc).
#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "tessera/base/embedded.h"
#include "tessera/base/error.h"
#include "tessera/base/forever.h"
#include "tessera/base/text.h"
#include "tessera/families/gemm/model_shapes_internal.h"
#include "tessera/families/gemm/problem_sets_internal.h"

namespace tessera::gemm {
namespace {

// ---- layers ----

struct ExpertLayer {
  std::int64_t experts, top_k, hidden, inner;
};

std::int64_t size_of_layer(std::string_view line, std::string_view word) {
  std::int64_t size = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, size);
  if (error == std::errc() && stop == end && size > 0) return size;
  throw Error(
      ErrorCode::parse_error,
      fmt::format("experts: '{}': a size must be a whole number from 1 on, got '{}'", line, word));
}

// NAME EXPERTS TOP_K HIDDEN INTERMEDIATE
std::vector<ExpertLayer> read_expert_layers() {
  std::vector<ExpertLayer> all;
  for (const std::string_view line : split(net_files()[1].content, '\n')) {
    const auto words = split_words(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words.size() != 5) {
      throw Error(ErrorCode::parse_error,
                  fmt::format("experts: '{}': a layer has 5 words, got {}", line, words.size()));
    }
    const auto size = [&](std::size_t i) { return size_of_layer(line, words[i]); };
    all.push_back({size(1), size(2), size(3), size(4)});
  }
  return all;
}

const std::vector<ExpertLayer>& nets_with_experts() {
  static const Forever<std::vector<ExpertLayer>> kLayers(read_expert_layers());
  return *kLayers;
}

constexpr auto kLayerTokens =
    std::to_array<std::int64_t>({1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
constexpr auto kMachines = std::to_array<std::int64_t>({1, 8, 32});
constexpr std::int64_t kMostMasked = 256;  // tokens of a step of decoding

// Gate and up as one product, and down: n, k.
std::array<Projection, 2> products_of(const ExpertLayer& layer) {
  return {Projection{static_cast<int>(2 * layer.inner), static_cast<int>(layer.hidden)},
          Projection{static_cast<int>(layer.hidden), static_cast<int>(layer.inner)}};
}

// The products of a layer's experts on one of `machines`, which share them out.
void add_expert_layer(const ExpertLayer& layer, std::int64_t machines, std::int64_t tokens,
                      std::set<Shape>& all) {
  if (layer.experts % machines != 0) return;
  const std::int64_t groups = layer.experts / machines;
  const std::int64_t rows = std::max<std::int64_t>(1, tokens * layer.top_k / machines);
  for (const Projection& p : products_of(layer)) {
    Shape shape = {.m = rows, .n = p.n, .k = p.k, .groups = groups};
    shape.grouping = GemmGrouping::contiguous;
    all.insert(shape);
    if (tokens <= kMostMasked) {
      shape.grouping = GemmGrouping::masked, shape.m = tokens;
      all.insert(shape);
    } else {  // the gradient of the weights
      all.insert(
          {.m = p.n, .n = p.k, .k = rows, .groups = groups, .grouping = GemmGrouping::along_k});
    }
  }
}

// ---- drawn ----

std::int64_t some_groups(Draw& draw) {
  static constexpr std::int64_t kUsual[] = {8, 16, 32, 64, 128, 256};
  const bool is_usual = draw.below(2) == 0;
  return is_usual ? draw.one_of(kUsual) : draw.between(1, 256);
}

// The room of all groups, in which each has 1 to 2047 on average.
std::int64_t some_room(Draw& draw, std::int64_t groups) {
  const std::int64_t mean = draw.log_uniform(0, 11);
  return groups * mean - draw.below(groups);
}

std::int64_t some_room_of_each(Draw& draw, const Bounds& bounds) {
  return draw.log_uniform(0, bounds.on_cpu ? 7 : 11);
}

}  // namespace

Shape expert_shape(Draw& draw, const Bounds& bounds) {
  static constexpr GemmGrouping kKinds[] = {GemmGrouping::contiguous, GemmGrouping::contiguous,
                                            GemmGrouping::masked, GemmGrouping::along_k};
  const int most = bounds.on_cpu ? 11 : 13;
  Shape shape;
  shape.grouping = draw.one_of(kKinds);
  shape.groups = some_groups(draw);
  const std::int64_t one = rounded(draw, draw.log_uniform(6, most));
  const std::int64_t other = rounded(draw, draw.log_uniform(6, most));
  const std::int64_t room = shape.grouping == GemmGrouping::masked ? some_room_of_each(draw, bounds)
                                                                   : some_room(draw, shape.groups);
  if (shape.grouping == GemmGrouping::along_k) {
    shape.m = one, shape.n = other, shape.k = room;
  } else {
    shape.m = room, shape.n = one, shape.k = other;
  }
  return shape;
}

// One in four has groups.
Shape scaled_shape(Draw& draw, const Bounds& bounds) {
  constexpr std::int64_t kBlock = 128;
  const int most = bounds.on_cpu ? 12 : 14;
  const auto whole = [&] { return tiles(draw.log_uniform(7, most), kBlock) * kBlock; };
  Shape shape;
  shape.has_scales = true;
  shape.n = whole();
  shape.k = whole();
  if (draw.below(4) != 0) {
    shape.m = draw.log_uniform(0, 13) + 1;
    return shape;
  }
  shape.groups = some_groups(draw);
  const bool is_masked = draw.below(2) == 0;
  shape.grouping = is_masked ? GemmGrouping::masked : GemmGrouping::contiguous;
  shape.m = is_masked ? some_room_of_each(draw, bounds) : some_room(draw, shape.groups);
  return shape;
}

std::set<Shape> expert_layers() {
  std::set<Shape> all;
  for (const ExpertLayer& layer : nets_with_experts()) {
    for (const std::int64_t machines : kMachines) {
      for (const std::int64_t tokens : kLayerTokens) {
        add_expert_layer(layer, machines, tokens, all);
      }
    }
  }
  return all;
}

std::set<Shape> scaled_layers() {
  std::set<Shape> all;
  for (const Projection& p : kProjections) {
    for (const int tokens : kTokens) {
      all.insert({.m = tokens, .n = p.n, .k = p.k, .has_scales = true});
    }
  }
  for (Shape shape : expert_layers()) {
    shape.has_scales = true;
    if (shape.grouping != GemmGrouping::along_k) all.insert(shape);
  }
  return all;
}

}  // namespace tessera::gemm
