// The tensors of a convolution as other libraries describe them: images with all their channels in
// one dimension, filters by output channel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/tools.hpp"

namespace tessera::peers {

struct ConvTensor {
  DType dtype = DType::fp32;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;  // in elements
};

// x and y: {n, channels, places}. w: {k, c / g, places of the filter}.
struct ConvTensors {
  ConvTensor x, w, y;
};

// The tensors with `places` spatial dimensions or as many as the problem has, if these are more.
// Empty where the channels of neighbouring groups do not follow each other at one stride, so that
// groups have no dimension in common, where elements share a place, and where a filter does not
// reach into the image from everywhere or leaves out an end of it.
std::optional<ConvTensors> conv_tensors(const ConvProblem& problem, std::int64_t places);

// The same number of entries of a value of each spatial dimension.
std::vector<std::int64_t> conv_places(const ConvProblem& problem, std::int64_t places,
                                      const Spatial& values);

}  // namespace tessera::peers
