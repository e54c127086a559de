// Lists of problems to learn from, and of those that learning never sees.
//
// A list follows from its name, the kind of target (CPU or GPU), its peak and the types, and from
// nothing else. Kinds of problems take turns in fixed shares, so that every prefix is a fair mix.
// On CPUs a problem has at most 2^31 operations and 2^28 bytes; on GPUs at most 2^31 bytes and 4.4
// ms at the target's peak. The sizes decide the side of the split, so that a shape on the learned
// side of one list is on the unseen side of none.
#include <algorithm>
#include <array>
#include <set>

#include "tessera/families/conv/conv.h"
#include "tessera/families/conv/net_layers_internal.h"
#include "tessera/families/conv/nets_internal.h"
#include "tessera/families/draw.h"
#include "tessera/families/rule_counts.h"
#include "tessera/families/tile/defaults.h"

namespace tessera::conv {
namespace {

constexpr double kGpuBytes = 0x1p31;
constexpr double kLeastOutputs = 16;
constexpr std::uint64_t kMostTries = 100000;  // of a kind in a row without a problem that fits

constexpr std::array<std::int64_t, 9> kSizes = {7, 8, 14, 16, 28, 32, 56, 64, 112};

// ---- parts of a problem ----

// The spatial dimensions of a problem are its last ones.
std::size_t first_dimension(const ConvProblem& p) { return 3 - static_cast<std::size_t>(p.ndim); }

// An odd filter keeps the size. An even one that steps along has no padding, and one that does not
// is causal: it looks back.
void set_window(ConvProblem& p, std::size_t i, std::int64_t filter, std::int64_t stride,
                std::int64_t dilation) {
  p.filter[i] = filter, p.stride[i] = stride, p.dilation[i] = dilation;
  const std::int64_t extent = dilation * (filter - 1) + 1;
  p.pad[i] = p.pad_right[i] = filter % 2 == 1 ? extent / 2 : 0;
  if (filter % 2 == 0 && stride == 1) p.pad[i] = extent - 1;
}
void set_windows(ConvProblem& p, std::int64_t filter, std::int64_t stride, std::int64_t dilation) {
  for (std::size_t i = first_dimension(p); i < 3; ++i) set_window(p, i, filter, stride, dilation);
}

std::int64_t images(Draw& draw) {
  return draw.below(4) == 0 ? draw.log_uniform(0, 7) : std::int64_t{1} << draw.between(0, 7);
}

std::int64_t channels(Draw& draw) {
  static constexpr std::int64_t kUnits[] = {1, 8, 16, 32, 32, 64, 64, 64};
  const std::int64_t unit = draw.one_of(kUnits);
  const std::int64_t count = draw.log_uniform(3, 11);
  return (count + unit - 1) / unit * unit;
}

void set_size(Draw& draw, ConvProblem& p) {
  const std::int64_t usual = draw.one_of(kSizes);
  p.size[2] = draw.below(4) == 0 ? draw.between(7, 112) : usual;
  p.size[1] = draw.below(8) == 0 ? draw.one_of(kSizes) : p.size[2];
}

// Two dimensions, c and k alike.
void set_usual(Draw& draw, ConvProblem& p) {
  p.n = images(draw);
  p.c = p.k = channels(draw);
  set_size(draw, p);
}

// ---- kinds of problems ----

void draw_spatial(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kFilters[] = {3, 3, 3, 3, 3, 3, 5, 7};
  set_usual(draw, p);
  set_windows(p, draw.one_of(kFilters), 1, 1);
}

void draw_channels(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kFilters[] = {1, 3, 3, 5};
  set_usual(draw, p);
  p.k = channels(draw);
  set_windows(p, draw.one_of(kFilters), 1, 1);
}

// Layers of the form that residual networks have, for any number of images.
void draw_batches(Draw& draw, ProblemSide, ConvProblem& p) {
  const std::int64_t stage = draw.below(4);
  p.n = draw.between(1, 128);
  p.c = p.k = std::int64_t{64} << stage;
  p.size[1] = p.size[2] = 56 >> stage;
  set_windows(p, draw.below(3) == 0 ? 1 : 3, 1, 1);
}

void draw_pointwise(Draw& draw, ProblemSide, ConvProblem& p) {
  set_usual(draw, p);
  if (draw.below(4) != 0) p.k = channels(draw);
}

void draw_grouped(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kGroups[] = {2, 2, 3, 4, 4, 6, 8, 8, 16, 32};
  static constexpr std::int64_t kFilters[] = {1, 3, 3, 3, 5};
  set_usual(draw, p);
  p.g = draw.one_of(kGroups);
  const std::int64_t width = draw.log_uniform(2, 9);
  const std::int64_t c = draw.below(4) == 0 ? width : std::int64_t{1} << draw.between(2, 8);
  p.c = p.g * c;
  p.k = draw.below(4) == 0 ? 2 * p.c : p.c;
  const std::int64_t filter = draw.one_of(kFilters);
  set_windows(p, filter, draw.below(4) == 0 ? 2 : 1, 1);
}

void draw_depthwise(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kFilters[] = {3, 3, 3, 5, 5, 7};
  set_usual(draw, p);
  p.g = p.c;
  if (draw.below(8) == 0) p.k = 2 * p.c;
  const std::int64_t filter = draw.one_of(kFilters);
  set_windows(p, filter, draw.below(3) == 0 ? 2 : 1, 1);
}

void draw_strided(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kFilters[] = {1, 1, 2, 3, 3, 3, 5, 7};
  static constexpr std::int64_t kStrides[] = {2, 2, 2, 2, 2, 2, 3, 4};
  set_usual(draw, p);
  if (draw.below(2) == 0) p.k = 2 * p.c;
  const std::int64_t filter = draw.one_of(kFilters);
  set_windows(p, filter, draw.one_of(kStrides), 1);
}

void draw_volumes(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kDepths[] = {2, 3, 4, 8, 8, 16, 16, 32};
  set_usual(draw, p);
  p.ndim = 3;
  p.n = std::int64_t{1} << draw.between(0, 4);
  p.size[0] = draw.one_of(kDepths);
  if (draw.below(2) == 0) p.k = channels(draw);
  set_windows(p, draw.below(3) == 0 ? 1 : 3, 1, 1);
  set_window(p, 0, draw.below(3) == 0 ? 1 : 3, 1, 1);
  if (draw.below(4) != 0) return;
  const std::int64_t over_time = draw.between(1, 2);
  set_windows(p, p.filter[2], 2, 1);
  set_window(p, 0, p.filter[0], over_time, 1);
}

void draw_sequences(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kFilters[] = {1, 2, 3, 3, 5, 7, 10, 11};
  p.ndim = 1;
  p.n = images(draw);
  p.c = p.k = channels(draw);
  if (draw.below(2) == 0) p.k = channels(draw);
  const std::int64_t length = draw.log_uniform(6, 15);
  p.size[2] = draw.below(2) == 0 ? length : std::int64_t{1} << draw.between(6, 14);
  const std::int64_t filter = draw.one_of(kFilters);
  const std::int64_t kind = draw.below(4);
  const std::int64_t dilation = kind == 0 ? std::int64_t{1} << draw.between(1, 9) : 1;
  set_windows(p, filter, kind == 1 ? draw.between(2, 5) : 1, dilation);
}

void draw_stems(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kSides[] = {28, 32, 64, 112, 128, 224, 224, 224};
  static constexpr std::int64_t kOutputs[] = {8, 16, 24, 32, 32, 48, 64, 64, 96, 128, 320};
  p.n = images(draw);
  p.c = draw.below(2) == 0 ? 3 : draw.between(1, 4);
  p.k = draw.one_of(kOutputs);
  p.size[1] = p.size[2] = draw.one_of(kSides);
  const std::int64_t kind = draw.below(8);
  if (kind < 3) return set_windows(p, 3, 2, 1);
  if (kind < 5) return set_windows(p, 7, 2, 1);
  if (kind < 6) return set_windows(p, 4, 4, 1);
  set_windows(p, kind == 6 ? 5 : 3, 1, 1);
}

void draw_dilated(Draw& draw, ProblemSide, ConvProblem& p) {
  static constexpr std::int64_t kDilations[] = {2, 2, 2, 3, 4, 4, 6, 12};
  set_usual(draw, p);
  const std::int64_t dilation = draw.one_of(kDilations);
  if (draw.below(4) == 0) p.g = p.c;
  set_windows(p, draw.below(4) == 0 ? 5 : 3, 1, dilation);
}

// Any channels, and windows that differ by dimension.
void draw_odd(Draw& draw, ProblemSide, ConvProblem& p) {
  p.n = draw.between(1, 32);
  p.c = draw.log_uniform(0, 10);
  p.k = draw.log_uniform(0, 10);
  for (std::size_t i = 1; i < 3; ++i) {
    p.size[i] = draw.between(1, 112);
    const std::int64_t filter = draw.between(1, 7);
    const std::int64_t stride = draw.below(3) == 0 ? draw.between(2, 3) : 1;
    set_window(p, i, filter, stride, draw.below(8) == 0 ? 2 : 1);
    const std::int64_t extent = p.dilation[i] * (filter - 1) + 1;
    const std::int64_t kind = draw.below(4);
    if (kind == 0) p.pad[i] = p.pad_right[i] = 0;
    if (kind == 1) p.pad_right[i] = draw.between(0, extent - 1);
  }
}

void set_layer(const ImageLayer& layer, ConvProblem& p) {
  p.c = layer.c, p.k = layer.k, p.g = layer.g;
  p.size[1] = p.size[2] = layer.size;
  set_windows(p, layer.filter, layer.stride, 1);
}
void set_layer(const VideoLayer& layer, ConvProblem& p) {
  p.ndim = 3;
  p.c = layer.c, p.k = layer.k;
  p.size = {layer.d, layer.size, layer.size};
  set_windows(p, layer.filter, layer.stride, 1);
  set_window(p, 0, layer.z, layer.stride_d, 1);
}
void set_layer(const SoundLayer& layer, ConvProblem& p) {
  p.ndim = 1;
  p.c = layer.c, p.k = layer.k;
  p.size[2] = layer.size;
  set_windows(p, layer.filter, layer.stride, layer.dilation);
}

void set_one_of(Draw& draw, std::span<const ImageLayer> image, std::span<const VideoLayer> video,
                std::span<const SoundLayer> sound, ConvProblem& p) {
  const auto all = std::ssize(image) + std::ssize(video) + std::ssize(sound);
  auto at = static_cast<std::size_t>(draw.below(all));
  if (at < image.size()) return set_layer(image[at], p);
  at -= image.size();
  at < video.size() ? set_layer(video[at], p) : set_layer(sound[at - video.size()], p);
}

// Half of the unseen layers are of networks that no model learns from.
void draw_layers(Draw& draw, ProblemSide side, ConvProblem& p) {
  p.n = std::int64_t{1} << draw.between(0, 7);
  if (side == ProblemSide::unseen && draw.below(2) == 0) {
    return set_one_of(draw, kUnseenImageLayers, kUnseenVideoLayers, kUnseenSoundLayers, p);
  }
  set_one_of(draw, kImageLayers, kVideoLayers, kSoundLayers, p);
}

// Every net is equally likely, and so is every layer of a net.
const ConvProblem& one_layer(Draw& draw, std::span<const Net> nets) {
  const Net& net = nets[static_cast<std::size_t>(draw.below(std::ssize(nets)))];
  return net.layers[static_cast<std::size_t>(draw.below(std::ssize(net.layers)))];
}

// Few nets have groups of several channels. One problem in four has them nevertheless.
void draw_nets(Draw& draw, ProblemSide side, ConvProblem& p) {
  const std::span<const Net> nets = nets_of(side);
  p.n = draw.below(4) == 0 ? draw.between(1, 256) : std::int64_t{1} << draw.between(0, 8);
  const bool wants_groups = draw.below(4) == 0;
  const ConvProblem* layer = &one_layer(draw, nets);
  while (wants_groups && (layer->g == 1 || is_depthwise(*layer))) layer = &one_layer(draw, nets);
  p.c = layer->c, p.k = layer->k, p.g = layer->g, p.ndim = layer->ndim;
  p.size = layer->size, p.filter = layer->filter;
  p.stride = layer->stride, p.dilation = layer->dilation;
  p.pad = layer->pad, p.pad_right = layer->pad_right;
}

// ---- sets ----

// Shapes of a direction.
struct Counts {
  std::size_t learned, unseen;
};
constexpr Counts kOfMixed = {1400, 300}, kOfKind = {200, 60};

// A kind is a set of its own, and has a share of the sets that mix all kinds. Those were frozen
// before there were nets, which have no share of them.
struct Kind {
  std::string_view name;
  void (*draw)(Draw&, ProblemSide, ConvProblem&);
  std::int64_t share;
  Counts counts = kOfKind;
};
constexpr auto kKinds = std::to_array<Kind>({
    {"spatial", draw_spatial, 5},
    {"channels", draw_channels, 4},
    {"batches", draw_batches, 2},
    {"pointwise", draw_pointwise, 4},
    {"grouped", draw_grouped, 4},
    {"depthwise", draw_depthwise, 5},
    {"strided", draw_strided, 4},
    {"volumes", draw_volumes, 3},
    {"sequences", draw_sequences, 2},
    {"stems", draw_stems, 2},
    {"dilated", draw_dilated, 1},
    {"odd", draw_odd, 2},
    {"layers", draw_layers, 8},
    {"nets", draw_nets, 0, kOfMixed},
});

// Sets that mix all kinds: of every direction in turn, or of one.
constexpr std::size_t kMixed = 4;
constexpr std::array<std::string_view, kMixed> kMixedNames = {"wide", "forward", "backward_data",
                                                              "backward_weight"};
constexpr std::array kAllDirections = {ConvDirection::forward, ConvDirection::backward_data,
                                       ConvDirection::backward_weight};

constexpr auto kSetNames = [] {
  std::array<std::string_view, kMixed + kKinds.size()> names{};
  std::copy(kMixedNames.begin(), kMixedNames.end(), names.begin());
  for (std::size_t i = 0; i < kKinds.size(); ++i) names[kMixed + i] = kKinds[i].name;
  return names;
}();

using Bounds = tile::DrawBounds;

Bounds bounds_of(const ConvProblem& types, const Target& target) {
  return tile::draw_bounds(target, roof(types, target), kGpuBytes);
}

class Shapes {
 public:
  Shapes(ProblemSide side, const ConvProblem& types, const Bounds& bounds)
      : side_(side), types_(types), bounds_(bounds) {}

  // The next problem of a kind that fits; nothing where there seems to be none. Equal padding on
  // both sides is spelled as a user's line spells it.
  std::optional<ConvProblem> next(std::size_t kind) {
    for (std::uint64_t tries = 0; tries < kMostTries; ++tries) {
      Draw draw(kind + 1, drawn_[kind]++);
      ConvProblem p = types_;
      p.size = {1, 1, 1};
      kKinds[kind].draw(draw, side_, p);
      for (std::size_t i = 0; i < 3; ++i) {
        if (p.pad_right[i] == p.pad[i]) p.pad_right[i] = kPacked;
      }
      if (fits(p) && taken_.insert(to_string(Problem(p))).second) return p;
    }
    return std::nullopt;
  }

 private:
  bool fits(const ConvProblem& p) const {
    const Spatial out = out_size(p);
    if (*std::min_element(out.begin(), out.end()) == 0) return false;
    const std::int64_t outputs = p.k / p.g;  // of a group
    const double computed = flops(p) * std::max(1.0, kLeastOutputs / double(outputs));
    return computed <= bounds_.flops && bytes(p) <= bounds_.bytes &&
           side_of(facts(p).shape_hash) == side_;
  }

  ProblemSide side_;
  const ConvProblem& types_;
  Bounds bounds_;
  std::array<std::uint64_t, kKinds.size()> drawn_{};
  std::set<std::string> taken_;
};

// The kind whose part of the list is the furthest below its share.
std::size_t next_kind(std::span<const std::int64_t> taken, std::int64_t size) {
  std::int64_t all = 0;
  for (const Kind& kind : kKinds) all += kind.share;
  std::size_t best = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const std::int64_t behind = kKinds[i].share * (size + 1) - taken[i] * all;
    if (behind > most) most = behind, best = i;
  }
  return best;
}

std::vector<ConvProblem> mixed_shapes(Shapes& shapes, std::size_t count) {
  std::array<std::int64_t, kKinds.size()> taken{};
  std::vector<ConvProblem> all;
  while (all.size() < count) {
    const std::size_t kind = next_kind(taken, std::ssize(all));
    const std::optional<ConvProblem> p = shapes.next(kind);
    if (!p) break;
    ++taken[kind];
    all.push_back(*p);
  }
  return all;
}

std::vector<ConvProblem> shapes_of_kind(Shapes& shapes, std::size_t kind, std::size_t count) {
  std::vector<ConvProblem> all;
  while (all.size() < count) {
    const std::optional<ConvProblem> p = shapes.next(kind);
    if (!p) break;
    all.push_back(*p);
  }
  return all;
}

// The directions of a set that have kernels for the types.
std::vector<ConvDirection> directions_of(std::size_t set, const ConvProblem& types) {
  if (set >= 1 && set < kMixed) return {kAllDirections[set - 1]};
  std::vector<ConvDirection> all;
  ConvProblem p = types;
  for (const ConvDirection direction : kAllDirections) {
    p.direction = direction;
    if (signature_reason(std::get<ConvSignature>(signature_of(p))).empty()) {
      all.push_back(direction);
    }
  }
  return all;
}

}  // namespace

std::span<const std::string_view> problem_sets() { return kSetNames; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  const auto name = std::find(kSetNames.begin(), kSetNames.end(), set);
  if (name == kSetNames.end()) refuse_problem_set(set, kSetNames);
  const auto at = static_cast<std::size_t>(name - kSetNames.begin());
  const ConvProblem types = conv_of(retyped(ConvProblem{}, words));
  const Counts& counts = at < kMixed ? kOfMixed : kKinds[at - kMixed].counts;
  const std::size_t count = side == ProblemSide::unseen ? counts.unseen : counts.learned;
  Shapes shapes(side, types, bounds_of(types, target));
  std::vector<Problem> problems;
  for (ConvProblem& p :
       at < kMixed ? mixed_shapes(shapes, count) : shapes_of_kind(shapes, at - kMixed, count)) {
    for (const ConvDirection direction : directions_of(at, types)) {
      p.direction = direction;
      validate(p);
      problems.emplace_back(p);
    }
  }
  return problems;
}

}  // namespace tessera::conv
