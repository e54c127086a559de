// Pointwise convolutions as products of matrices, by GEMM's own kernels: both operations have the
// same source, so that a kernel which was built for one of them serves the other.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "tessera/base/forever.h"
#include "tessera/base/fork.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/sets.h"
#include "tessera/families/tile/strides.h"

namespace tessera::conv {
namespace {

const Family& gemm() { return family_of(Op::gemm); }

// ---- the product ----

// Which tensors are A, B and the output, and how A and B lie. nhwgc: pixels are rows of images,
// and of filters channels of y. nchw: pixels are columns of images.
GemmLayout layout_of(const ConvSignature& s) {
  constexpr GemmLayout kLast[] = {GemmLayout::rcr, GemmLayout::rrr, GemmLayout::crr};
  constexpr GemmLayout kFirst[] = {GemmLayout::rrr, GemmLayout::crr, GemmLayout::rcr};
  const auto direction = static_cast<std::size_t>(s.direction);
  return s.layout == ConvLayout::nhwgc ? kLast[direction] : kFirst[direction];
}

// Forward and nchw: A is w. Gradients by w: A is y's. Otherwise A is the image that is read.
bool weight_is_a(const ConvSignature& s) {
  return s.layout == ConvLayout::nchw && s.direction != ConvDirection::backward_weight;
}

GemmSignature product_signature(const ConvSignature& s) {
  const DType image = s.direction == ConvDirection::forward ? s.in : s.out;
  const DType other = s.direction == ConvDirection::backward_weight ? s.in : s.weight;
  GemmSignature product;
  product.a = weight_is_a(s) ? other : image;
  product.b = weight_is_a(s) ? image : other;
  product.acc = s.acc;
  product.out = s.direction == ConvDirection::forward         ? s.out
                : s.direction == ConvDirection::backward_data ? s.in
                                                              : s.weight;
  product.d = s.d;
  product.layout = layout_of(s);
  product.epilogue = s.epilogue;
  return product;
}

// Between pixels of an image with `channels` in a group; over all images of a batch for nhwgc.
std::optional<std::int64_t> pixel_distance(const ConvProblem& p, const ConvStrides& s,
                                           std::int64_t channels) {
  const bool last = p.layout == ConvLayout::nhwgc;
  return tile::common_distance(
      {{p.size[2], s[5]}, {p.size[1], s[4]}, {p.size[0], s[3]}, {last ? p.n : 1, s[0]}},
      last ? channels : 1);
}

// What is fed to GEMM; `ld`s are the distances between rows (of filters between channels of y).
struct Lines {
  std::int64_t x, w, y;
};

// Rows of `width` elements, `ld` apart.
struct Rows {
  std::int64_t ld, width;
};

// nchw: the image and the group cannot both be counted by GEMM's batch. The gradient by w is a sum
// over the images, also over none.
bool batch_counts_images(const ConvProblem& p) {
  return p.layout == ConvLayout::nchw && p.g == 1 && p.direction != ConvDirection::backward_weight;
}

// Why the layer is no product of matrices; empty where it is, and `lines` is set.
std::string no_product(const ConvProblem& p, Lines& lines) {
  if (!is_pointwise(p)) return "pointwise kernels need a filter of 1, strides of 1 and no padding";
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  const auto x = pixel_distance(p, p.in_strides, c), y = pixel_distance(p, p.out_strides, k);
  if (!x || !y) return "pointwise kernels need pixels at equal distances";
  const ConvStrides& w = p.weight_strides;
  if (c > 1 && w[2] != 1) {
    return fmt::format("pointwise kernels need weight_stride_c=1, got {}", w[2]);
  }
  const auto line = [](std::int64_t count, std::int64_t stride, std::int64_t alone) {
    return count > 1 ? stride : alone;
  };
  lines = {*x, line(k, w[1], c), *y};
  std::int64_t x_width = c, y_width = k;
  if (p.layout == ConvLayout::nchw) {
    const std::int64_t pixels = p.size[0] * p.size[1] * p.size[2];
    if (*x != 1 || *y != 1) return "pointwise kernels need pixels side by side in nchw";
    if (p.g > 1 && p.n > 1) {
      return fmt::format("pointwise kernels take one group or one image in nchw, got g={} n={}",
                         p.g, p.n);
    }
    if (p.direction == ConvDirection::backward_weight && p.n > 1) {
      return fmt::format("pointwise kernels sum up the pixels of one image in nchw, got n={}", p.n);
    }
    lines.x = line(c, p.in_strides[2], pixels);
    lines.y = line(k, p.out_strides[2], pixels);
    x_width = y_width = pixels;
  }
  for (const auto [ld, width] : {Rows{lines.x, x_width}, {lines.w, c}, {lines.y, y_width}}) {
    if (ld < width) {
      return fmt::format("pointwise kernels need rows apart, got a stride of {} for {} elements",
                         ld, width);
    }
  }
  return {};
}

// One of the three tensors as a matrix.
struct Matrix {
  std::int64_t ld, batch_stride;
};

void set_output(const Matrix& out, const ConvProblem& p, GemmProblem& product) {
  product.ld_c = product.ld_out = out.ld;
  product.batch_stride_c = product.batch_stride_out = out.batch_stride;
  std::array<DUse, kMaxD> uses{};
  if (p.epilogue.num_d > 0) uses = d_uses(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.num_d; ++i) {
    product.ld_d[i] = out.ld;
    product.batch_stride_d[i] = uses[i].is_vector() ? p.k / p.g : out.batch_stride;
  }
}

// The problem must be a product.
GemmProblem product_of(const ConvProblem& p, const Lines& lines) {
  const GemmSignature s = product_signature(std::get<ConvSignature>(signature_of(p)));
  GemmProblem product;
  product.a = s.a, product.b = s.b, product.acc = s.acc, product.out = s.out, product.d = s.d;
  product.layout = s.layout;
  product.alpha = p.alpha, product.beta = p.beta;
  product.epilogue = p.epilogue, product.clamp_lo = p.clamp_lo, product.clamp_hi = p.clamp_hi;

  const bool images = batch_counts_images(p);
  const std::size_t batch = images ? 0 : 1;  // of the strides of images
  product.batch = images ? p.n : p.g;
  const Matrix x = {lines.x, p.in_strides[batch]};
  const Matrix w = {lines.w, images ? 0 : p.weight_strides[0]};
  const Matrix y = {lines.y, p.out_strides[batch]};
  const std::int64_t c = p.c / p.g, k = p.k / p.g;
  const std::int64_t pixels = p.size[0] * p.size[1] * p.size[2] * (images ? 1 : p.n);
  const auto set = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth, const Matrix& a,
                       const Matrix& b, const Matrix& out) {
    product.m = rows, product.n = columns, product.k = depth;
    product.ld_a = a.ld, product.batch_stride_a = a.batch_stride;
    product.ld_b = b.ld, product.batch_stride_b = b.batch_stride;
    set_output(out, p, product);
  };
  const bool last = p.layout == ConvLayout::nhwgc;
  if (p.direction == ConvDirection::backward_weight) {
    set(k, c, pixels, y, x, w);
  } else if (p.direction == ConvDirection::forward) {
    last ? set(pixels, k, c, x, w, y) : set(k, pixels, c, w, x, y);
  } else {
    last ? set(pixels, c, k, y, w, x) : set(c, pixels, k, w, y, x);
  }
  return with_strides(product);
}

GemmOperands operands_of(const ConvProblem& p, const ConvOperands& o) {
  GemmOperands product;
  product.c = o.c;
  product.d = o.d;
  const bool last = p.layout == ConvLayout::nhwgc;
  if (p.direction == ConvDirection::backward_weight) {
    product.a = o.grad_out, product.b = o.in, product.out = o.grad_weight;
    return product;
  }
  const bool forward = p.direction == ConvDirection::forward;
  const void* const image = forward ? o.in : o.grad_out;
  product.a = last ? image : o.weight;
  product.b = last ? o.weight : image;
  product.out = forward ? o.out : o.grad_in;
  return product;
}

// ---- the kernels ----

std::vector<Algorithm> find_algorithms(const Target& target) {
  std::vector<KernelSpec> specs;
  for (const std::string& name : tile::essential_names(Op::gemm, target)) {
    const KernelSpec spec = parse_name(name);
    const auto& s = std::get<GemmSignature>(spec.signature);
    const bool is_dense = s.grouping == GemmGrouping::none && s.scale_a == GemmScale::none;
    if (!is_dense) continue;  // chosen for products that no layer has
    specs.push_back({GemmSignature{}, spec.algorithm, target.name});
    specs.back().algorithm.pointwise = true;
  }
  tile::sort_by_name(specs);
  std::vector<Algorithm> all;
  for (const KernelSpec& spec : specs) {
    if (all.empty() || !(all.back() == spec.algorithm)) all.push_back(spec.algorithm);
  }
  return all;
}

// The algorithms of GEMM's essential kernels, which are shipped ready-built.
std::vector<Algorithm> pointwise_algorithms(const Target& target) {
  static Forever<Mutex> mutex;
  static Forever<std::map<std::string, std::vector<Algorithm>>> found;
  const std::lock_guard lock(*mutex);
  const auto [entry, is_new] = found->try_emplace(target.name);
  if (is_new) entry->second = find_algorithms(target);
  return entry->second;
}

std::string pointwise_reason(const Case& c) {
  const ConvSignature& s = c.signature;
  if (s.layout == ConvLayout::nchw) {
    for (std::size_t i = 0; i < s.epilogue.num_d; ++i) {
      if (d_uses(s.epilogue)[i].is_vector()) {
        return fmt::format(
            "pointwise kernels have channels along rows in nchw, where GEMM's "
            "kernels add no vector, got {}",
            to_string(s.epilogue));
      }
    }
  }
  return gemm().is_legal(product_kernel({s, c.algorithm, c.target.name}), c.target).reason;
}

constexpr tile::Rule<Case> kPointwiseRules[] = {
    {[](const Case& c) { return pointwise_reason(c).empty(); }, pointwise_reason},
};

Verdict pointwise_serves(const KernelSpec& spec, const ConvProblem& p, const Target& target) {
  Lines lines{};
  if (std::string why = no_product(p, lines); !why.empty()) return {why};
  return gemm().supports(product_kernel(spec), product_of(p, lines), target);
}

Source pointwise_emit(const KernelSpec& spec, const Target& target) {
  return gemm().emit(product_kernel(spec), target);
}

Launch pointwise_bind(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                      const ConvOperands& o) {
  Lines lines{};
  no_product(p, lines);
  Launch launch =
      gemm().bind(product_kernel(spec), product_of(p, lines), target, operands_of(p, o));
  launch.pointers = {};
  return launch;
}

Estimate pointwise_estimate(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                            int threads) {
  Lines lines{};
  no_product(p, lines);
  return gemm().estimate(product_kernel(spec), product_of(p, lines), target, threads);
}

constexpr Way pointwise_way(std::string_view backend) {
  return {.backend = backend,
          .rules = kPointwiseRules,
          .serves = pointwise_serves,
          .algorithms = pointwise_algorithms,
          .emit = pointwise_emit,
          .bind = pointwise_bind,
          .estimate = pointwise_estimate,
          .pointwise = true};
}

}  // namespace

KernelSpec product_kernel(const KernelSpec& spec) {
  KernelSpec product = {product_signature(std::get<ConvSignature>(spec.signature)), spec.algorithm,
                        spec.target};
  product.algorithm.pointwise = false;
  return product;
}

bool is_described(const KernelSpec& spec) {
  return !spec.algorithm.pointwise || gemm().is_described(product_kernel(spec));
}

const Way kPointwiseCpu = pointwise_way("cpu"), kPointwiseCuda = pointwise_way("cuda"),
          kPointwiseHip = pointwise_way("hip");

}  // namespace tessera::conv
