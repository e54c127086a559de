// Problems that tests of convolutions begin with.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "tessera/spec/problem.h"

namespace tessera::conv {

inline constexpr ConvDirection kDirections[] = {
    ConvDirection::forward, ConvDirection::backward_data, ConvDirection::backward_weight};

// A convolution of one channel along the width.
inline ConvProblem line(std::int64_t width, std::int64_t filter) {
  ConvProblem p;
  p.ndim = 1;
  p.c = p.k = 1;
  p.size[2] = width;
  p.filter[2] = filter;
  return p;
}

// Two dimensions, three groups, a pad on each side.
inline ConvProblem small_problem(ConvDirection direction, ConvLayout layout) {
  ConvProblem p;
  p.direction = direction;
  p.layout = layout;
  p.n = 2, p.c = 6, p.k = 9, p.g = 3;
  p.size = {1, 7, 8};
  p.filter = {1, 3, 3};
  p.pad = {0, 1, 1};
  return p;
}

class RandomConvs {
 public:
  explicit RandomConvs(std::uint64_t seed) : engine_(seed) {}

  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool coin() { return integer(0, 1) == 1; }
  double real() { return std::uniform_real_distribution<double>(-1, 1)(engine_); }

  // Any sizes, pads, strides and gaps, in fp32 and forward. Every third problem is depthwise, and
  // every eighth has patches.
  ConvProblem problem();

  // Lets elements of what the direction reads share a place, by strides of 0: half of all problems.
  void share_places(ConvProblem& p);

  // Every fourth is as wide as the filter or wider, and every fourth on the right leaves out an end
  // of the image.
  void draw_padding(std::size_t dim, ConvProblem& p);

 private:
  // Filters that lie side by side along the width, over one group.
  void make_patches(ConvProblem& p);

  // Strides of dimensions of these sizes, innermost first, with gaps between some of them.
  void spread_out(ConvStrides& strides, const std::vector<std::pair<std::size_t, std::int64_t>>&);

  std::mt19937_64 engine_;
};

inline void RandomConvs::spread_out(
    ConvStrides& strides, const std::vector<std::pair<std::size_t, std::int64_t>>& dimensions) {
  std::int64_t span = 1;
  for (const auto& [dimension, size] : dimensions) {
    if (span > 1 && integer(0, 2) == 0) span += integer(1, 5);
    strides[dimension] = size == 1 && coin() ? integer(0, 99) : span;  // of no consequence
    span *= size;
  }
}

inline void RandomConvs::draw_padding(std::size_t dim, ConvProblem& p) {
  const std::int64_t reach = p.dilation[dim] * (p.filter[dim] - 1);
  p.pad[dim] = integer(0, 3) == 0 ? reach + integer(1, 3) : integer(0, reach);
  const std::int64_t kind = integer(0, 7);
  p.pad_right[dim] = kind < 4    ? kPacked
                     : kind == 4 ? reach + integer(1, 3)
                     : kind == 5 ? integer(0, reach)
                                 : -integer(0, p.size[dim] + p.pad[dim] - 1);
}

// An innermost dimension of several elements keeps its stride of 1.
inline void RandomConvs::share_places(ConvProblem& p) {
  if (coin()) return;
  const ConvProblem full = with_strides(p);
  p.in_strides = full.in_strides;
  p.weight_strides = full.weight_strides, p.out_strides = full.out_strides;
  const std::size_t inner = p.layout == ConvLayout::nhwgc ? 2 : 5;
  const Spatial out = out_size(p);
  const auto share = [&](ConvStrides& strides, std::int64_t innermost) {
    const std::int64_t thirds = integer(1, 3);  // of the dimensions
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if ((i != inner || innermost == 1) && integer(1, 3) <= thirds) strides[i] = 0;
    }
  };
  const bool last = p.layout == ConvLayout::nhwgc;
  if (p.direction != ConvDirection::backward_data && coin()) {
    share(p.in_strides, last ? p.c / p.g : p.size[2]);
  }
  if (p.direction != ConvDirection::backward_weight && coin()) {
    share(p.weight_strides, last ? p.c / p.g : p.filter[2]);
  }
  if (p.direction != ConvDirection::forward && coin()) {
    share(p.out_strides, last ? p.k / p.g : out[2]);
  }
}

inline void RandomConvs::make_patches(ConvProblem& p) {
  p.c /= p.g, p.k /= p.g, p.g = 1;
  p.filter[2] = p.stride[2] = integer(2, 4);
  p.size[2] = p.stride[2] * integer(1, 3);
  p.dilation[2] = 1, p.pad[2] = 0, p.pad_right[2] = kPacked;
}

inline ConvProblem RandomConvs::problem() {
  ConvProblem p;
  p.layout = coin() ? ConvLayout::nhwgc : ConvLayout::nchw;
  p.ndim = integer(1, 3);
  p.n = integer(1, 3);
  p.g = integer(1, 3);
  const bool is_depthwise = integer(0, 2) == 0;
  const std::int64_t c = is_depthwise ? 1 : integer(1, 5), k = is_depthwise ? 1 : integer(1, 5);
  p.c = p.g * c, p.k = p.g * k;
  p.size = {1, 1, 1};
  for (std::size_t i = 3 - static_cast<std::size_t>(p.ndim); i < 3; ++i) {
    do {
      p.size[i] = integer(1, p.ndim == 3 ? 5 : 9);
      p.filter[i] = integer(1, 4);
      p.stride[i] = integer(1, 4);
      p.dilation[i] = integer(1, 4);
      draw_padding(i, p);
    } while (out_size(p)[i] == 0);
  }
  if (integer(0, 7) == 0) make_patches(p);
  if (coin()) return p;
  const Spatial out = out_size(p);
  const Spatial &in = p.size, &f = p.filter;
  if (p.layout == ConvLayout::nhwgc) {
    spread_out(p.in_strides, {{2, c}, {1, p.g}, {5, in[2]}, {4, in[1]}, {3, in[0]}, {0, p.n}});
    spread_out(p.out_strides, {{2, k}, {1, p.g}, {5, out[2]}, {4, out[1]}, {3, out[0]}, {0, p.n}});
    spread_out(p.weight_strides, {{2, c}, {5, f[2]}, {4, f[1]}, {3, f[0]}, {1, k}, {0, p.g}});
  } else {
    spread_out(p.in_strides, {{5, in[2]}, {4, in[1]}, {3, in[0]}, {2, c}, {1, p.g}, {0, p.n}});
    spread_out(p.out_strides, {{5, out[2]}, {4, out[1]}, {3, out[0]}, {2, k}, {1, p.g}, {0, p.n}});
    spread_out(p.weight_strides, {{5, f[2]}, {4, f[1]}, {3, f[0]}, {2, c}, {1, k}, {0, p.g}});
  }
  return p;
}

}  // namespace tessera::conv
