// What the bits of an image follow besides its own operands, and which problems stand for any
// number of images. Gradients by filters are sums over all images, so that no image has bits of its
// own.
#include <algorithm>

#include "tessera/families/conv/conv.h"

namespace tessera::conv {
namespace {

constexpr std::int64_t kUsualImages[] = {8, 1, 64};
constexpr std::int64_t kUnusualImages[] = {3, 256};
// So many elements kernels count at least.
constexpr double kCountedElements = double{1 << 30};

// Not more images than kernels count when each image is large.
std::int64_t most_images(const ConvProblem& p, std::int64_t wanted) {
  ConvProblem one = p;
  one.n = 1;
  double largest = 1;
  for (const Tensor& tensor : tensors(one)) {
    double elements = 1;
    for (std::size_t i = 0; i < tensor.rank; ++i) elements *= double(tensor.sizes[i]);
    largest = std::max(largest, elements);
  }
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(kCountedElements / largest), 1, wanted);
}

}  // namespace

Verdict is_batch_invariant(const KernelSpec& spec, const Target& target) {
  if (!spec.algorithm.pointwise) return {};
  return family_of(Op::gemm).is_batch_invariant(product_kernel(spec), target);
}

// No kernel is known to add up as another one does, but for the threads of a CPU that share tiles.
std::string order_of_sums(const KernelSpec& spec, const Problem&, const Target& target) {
  KernelSpec alike = spec;
  if (target.backend == "cpu") alike.algorithm.wave.m = alike.algorithm.wave.n = 0;
  return name_of(alike);
}

AnyBatch any_batch(const Problem& problem) {
  const ConvProblem& p = conv_of(problem);
  if (p.direction == ConvDirection::backward_weight) return {problem, {problem}, {}};
  const auto with = [one = p](std::int64_t n) {
    ConvProblem q = one;
    q.n = most_images(q, n);
    return q;
  };
  AnyBatch any{problem, {}, {}};
  for (const std::int64_t n : kUsualImages) any.usual.emplace_back(with(n));
  for (const std::int64_t n : kUnusualImages) any.unusual.emplace_back(with(n));
  return any;
}

}  // namespace tessera::conv
