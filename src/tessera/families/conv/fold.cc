// Folding: gradients by x of filters that do not overlap along the width.
//
// Where the filter is as wide as its stride and nothing is padded, each run of so many pixels of x
// meets one column of the filter after the other, and no other run. In nhwgc the run is contiguous,
// and so is a line of the filter. The run is then one pixel with as many channels, and the filter
// has a width of 1: the same products, but one residue instead of one for each column, and a
// product of x * c columns instead of c. Patch embeddings and transposed 2x2 convolutions are such.
#include "tessera/families/conv/conv.h"

namespace tessera::conv {
namespace {

constexpr std::size_t kRunWidth = 2;                                          // of Spatial
constexpr std::size_t kRunStrideG = 1, kRunStrideC = 2, kRunStrideWidth = 5;  // of x
constexpr std::size_t kRunFilterC = 2, kRunFilterWidth = 5;                   // of w

bool lies_side_by_side(std::int64_t channels, std::int64_t stride_c, std::int64_t stride_width) {
  return (channels == 1 || stride_c == 1) && stride_width == channels;
}

bool folds(const ConvProblem& p) {
  const std::int64_t run = p.stride[kRunWidth];
  return p.direction == ConvDirection::backward_data && p.layout == ConvLayout::nhwgc && p.g == 1 &&
         p.c > 0 && run > 1 && p.filter[kRunWidth] == run && p.dilation[kRunWidth] == 1 &&
         p.pad[kRunWidth] == 0 && p.pad_right[kRunWidth] == 0 && p.size[kRunWidth] % run == 0 &&
         lies_side_by_side(p.c, p.in_strides[kRunStrideC], p.in_strides[kRunStrideWidth]) &&
         lies_side_by_side(p.c, p.weight_strides[kRunFilterC], p.weight_strides[kRunFilterWidth]);
}

}  // namespace

ConvProblem folded(const ConvProblem& problem) {
  ConvProblem p = with_strides(problem);
  if (!folds(p)) return p;
  p.c *= p.stride[kRunWidth];
  p.size[kRunWidth] /= p.stride[kRunWidth];
  p.filter[kRunWidth] = p.stride[kRunWidth] = 1;
  p.in_strides[kRunStrideC] = p.weight_strides[kRunFilterC] = 1;
  p.in_strides[kRunStrideG] = p.in_strides[kRunStrideWidth] = p.weight_strides[kRunFilterWidth] =
      p.c;
  return p;
}

}  // namespace tessera::conv
