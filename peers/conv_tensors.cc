#include "peers/conv_tensors.h"

#include <algorithm>

namespace tessera::peers {
namespace {

// Two neighbouring dimensions as one; empty where no single stride reaches all its elements.
struct Dimension {
  std::int64_t size, stride;
};
std::optional<Dimension> merged(Dimension outer, Dimension inner) {
  if (outer.size == 1) return inner;
  if (inner.size == 1) return outer;
  if (outer.stride != inner.size * inner.stride) return std::nullopt;
  return Dimension{outer.size * inner.size, inner.stride};
}

void append_places(const ConvProblem& p, std::int64_t places, const Spatial& sizes,
                   const ConvStrides& strides, ConvTensor& tensor) {
  const std::vector<std::int64_t> some = conv_places(p, places, sizes);
  tensor.dims.insert(tensor.dims.end(), some.begin(), some.end());
  tensor.strides.insert(tensor.strides.end(),
                        strides.end() - static_cast<std::ptrdiff_t>(some.size()), strides.end());
}

// Strides of images: {n, g, c, d, h, w}.
std::optional<ConvTensor> image_of(const ConvProblem& p, std::int64_t places, DType dtype,
                                   std::int64_t channels, const Spatial& sizes,
                                   const ConvStrides& strides) {
  const auto all = merged({p.g, strides[1]}, {channels / p.g, strides[2]});
  if (!all) return std::nullopt;
  ConvTensor tensor{dtype, {p.n, channels}, {strides[0], all->stride}};
  append_places(p, places, sizes, strides, tensor);
  return tensor;
}

// Strides of filters: {g, k, c, z, y, x}.
std::optional<ConvTensor> filter_of(const ConvProblem& p, std::int64_t places) {
  const ConvStrides& strides = p.weight_strides;
  const auto all = merged({p.g, strides[0]}, {p.k / p.g, strides[1]});
  if (!all) return std::nullopt;
  ConvTensor tensor{p.weight, {p.k, p.c / p.g}, {all->stride, strides[2]}};
  append_places(p, places, p.filter, strides, tensor);
  return tensor;
}

// Each filter reaches into the image, and no end of the image is left out.
bool has_usual_padding(const ConvProblem& p) {
  for (std::size_t i = 0; i < p.pad.size(); ++i) {
    const std::int64_t extent = p.dilation[i] * (p.filter[i] - 1) + 1;
    if (std::max(p.pad[i], p.pad_right[i]) >= extent || p.pad_right[i] < 0) return false;
  }
  return true;
}

// Whether several elements have one place.
bool repeats(const ConvTensor& tensor) {
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] > 1 && tensor.strides[i] == 0) return true;
  }
  return false;
}

}  // namespace

std::vector<std::int64_t> conv_places(const ConvProblem& problem, std::int64_t places,
                                      const Spatial& values) {
  const std::int64_t count = std::max(problem.ndim, places);
  return {values.end() - static_cast<std::ptrdiff_t>(count), values.end()};
}

std::optional<ConvTensors> conv_tensors(const ConvProblem& problem, std::int64_t places) {
  const ConvProblem p = with_strides(problem);
  if (!has_usual_padding(p)) return std::nullopt;
  const auto x = image_of(p, places, p.in, p.c, p.size, p.in_strides);
  const auto w = filter_of(p, places);
  const auto y = image_of(p, places, p.out, p.k, out_size(p), p.out_strides);
  if (!x || !w || !y || repeats(*x) || repeats(*w) || repeats(*y)) return std::nullopt;
  return ConvTensors{*x, *w, *y};
}

}  // namespace tessera::peers
