// Runs of pixels: where a pointwise layer reads few channels, neighbouring pixels of a line are one
// pixel of the product, with all their channels.
//
// The copy engine brings a line of 128 bytes for each pixel, of which few channels fill a small
// part, so that a run of pixels takes one line instead of several. Its pixels are groups with the
// same filters, and a product has all groups of a run together, with zeros between them: as many
// multiplications as with the line's empty part.
#include "tessera/families/conv/tmaws_internal.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kMostRun = 16;
constexpr std::size_t kRunG = 1, kRunC = 2, kRunW = 5;  // of an image's strides

bool adjoin(const ConvStrides& s, std::int64_t channels) {
  return (channels == 1 || s[kRunC] == 1) && s[kRunW] == channels;
}

}  // namespace

std::int64_t pixels_of_run(const ConvProblem& p) {
  const bool data = p.direction == ConvDirection::backward_data;
  const std::int64_t channels = data ? p.k : p.c;
  if (p.direction == ConvDirection::backward_weight || p.layout != ConvLayout::nhwgc) return 1;
  if (p.g > 1 || !is_pointwise(p) || channels < 1 || p.size[2] < 1) return 1;
  if (!adjoin(data ? p.out_strides : p.in_strides, channels)) return 1;
  std::int64_t run = 1;
  while (run < kMostRun && run * 2 * channels <= kTmawsDepth && p.size[2] % (run * 2) == 0) {
    run *= 2;
  }
  return run;
}

ConvProblem in_runs(const ConvProblem& problem, std::int64_t run) {
  ConvProblem p = problem;
  if (run == 1) return p;
  p.in_strides[kRunG] = p.in_strides[kRunW];
  p.out_strides[kRunG] = p.out_strides[kRunW];
  p.in_strides[kRunC] = p.out_strides[kRunC] = 1;  // a lone channel has any stride
  p.weight_strides[0] = 0;
  p.g = run;
  p.c *= run, p.k *= run;
  p.size[2] /= run;
  p.in_strides[kRunW] *= run;
  p.out_strides[kRunW] *= run;
  return p;
}

bool has_scattered_runs(const ConvProblem& p, std::int64_t run) {
  if (run == 1) return false;
  const bool forward = p.direction == ConvDirection::forward;
  const auto uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    if (uses[i].is_vector()) return true;
  }
  return !adjoin(forward ? p.out_strides : p.in_strides, forward ? p.k : p.c);
}

}  // namespace tessera::conv
