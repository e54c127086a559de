// What the lists of problems are drawn from: sizes, and the largest problem that is drawn.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "tessera/families/draw.h"
#include "tessera/families/gemm/gemm_internal.h"

namespace tessera::gemm {

struct Shape {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t groups = 0;
  GemmGrouping grouping = GemmGrouping::none;
  bool has_scales = false;  // a scale for 1x128 elements of A, and for 128x128 of B
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

struct Bounds {
  bool on_cpu;
  double flops, bytes, size;  // `size` is the bytes of an element
};

// Most sizes in networks are multiples of a power of 2. Other sizes are read more slowly.
std::int64_t rounded(Draw& draw, std::int64_t size);

// expert_sets.cc
Shape expert_shape(Draw& draw, const Bounds& bounds);
Shape scaled_shape(Draw& draw, const Bounds& bounds);
std::set<Shape> expert_layers();
std::set<Shape> scaled_layers();

}  // namespace tessera::gemm
