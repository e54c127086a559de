// The reference: every element of the result is a sum over up to four loops, in fp64. Small
// problems are checked whole. In large problems the rows that hold the result's corners and others
// spread over it are checked, and some columns of each row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/parallel.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/conv/reference_internal.h"
#include "tessera/families/draw.h"
#include "tessera/families/tile/row_reference.h"
#include "tessera/families/tile/sum_error.h"
#include "tessera/spec/fields_internal.h"
#include "tessera/spec/numeric.h"

namespace tessera::conv {
namespace {

using tile::Bounded;
using i64 = std::int64_t;
// A value for each dimension of an image or of filters, in the order of ConvStrides.
using Place = std::array<i64, 6>;

constexpr std::size_t kChannel = 2;    // of an image's Place, and the innermost one of filters
constexpr i64 kColumnsTogether = 16;   // that share the reading of an operand
constexpr i64 kLineLength = 256;       // elements converted at a time
constexpr double kProductCost = 2;     // of one product, in multiplications
constexpr double kElementCost = 512;   // of one element besides its products
constexpr double kLeastElements = 32;  // checked at least, where the result has as many

// ---- the three tensors ----

struct Array {
  DType dtype = DType::fp32;
  const void* data = nullptr;
  Place sizes{};
  Place strides{};
};

struct Arrays {
  Array x, w, y;
};

Arrays arrays_of(const ConvProblem& p, const ConvOperands& o) {
  const i64 g = std::max<i64>(p.g, 1);
  const i64 c = p.c / g, k = p.k / g;
  const Spatial& in = p.size;
  const Spatial& f = p.filter;
  const Spatial out = out_size(p);
  Arrays all{{p.in, o.in, {p.n, g, c, in[0], in[1], in[2]}, p.in_strides},
             {p.weight, o.weight, {g, k, c, f[0], f[1], f[2]}, p.weight_strides},
             {p.out, o.grad_out, {p.n, g, k, out[0], out[1], out[2]}, p.out_strides}};
  if (p.direction == ConvDirection::forward) all.y.data = o.out;
  if (p.direction == ConvDirection::backward_data) all.x.data = o.grad_in;
  if (p.direction == ConvDirection::backward_weight) all.w.data = o.grad_weight;
  for (Array* array : {&all.x, &all.w, &all.y}) {
    if (array->dtype == DType::tf32) array->dtype = DType::fp32;  // as it is stored
  }
  return all;
}

const Array& result_of(const Arrays& all, ConvDirection direction) {
  if (direction == ConvDirection::forward) return all.y;
  return direction == ConvDirection::backward_data ? all.x : all.w;
}

// The dimensions of the result in memory, innermost first; the last one counts batches.
Place order_of(const ConvProblem& p) {
  if (p.layout == ConvLayout::nchw) return {5, 4, 3, 2, 1, 0};
  if (p.direction == ConvDirection::backward_weight) return {2, 5, 4, 3, 1, 0};
  return {2, 1, 5, 4, 3, 0};
}

// ---- which elements ----

i64 number_of(const Array& array) {
  i64 count = 1;
  for (const i64 size : array.sizes) count *= size;
  return count;
}

// The i-th of `count` indices below `size`, one from each of equal parts: the first index, the last
// one, and pseudo-random ones between them.
i64 spread_index(i64 size, i64 count, i64 i, std::uint64_t seed) {
  if (count == size || i == 0) return i;
  if (i == count - 1) return size - 1;
  const auto begin = static_cast<i64>(double(size) * double(i) / double(count));
  const auto end = static_cast<i64>(double(size) * double(i + 1) / double(count));
  const auto width = static_cast<std::uint64_t>(std::max<i64>(end - begin, 1));
  return begin + static_cast<i64>(mix(seed ^ mix(static_cast<std::uint64_t>(i))) % width);
}

// The rows that lie at an end of each dimension.
std::vector<i64> corner_rows(const Array& result, const Place& order) {
  std::vector<i64> corners = {0};
  i64 distance = 1;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const i64 size = result.sizes[static_cast<std::size_t>(order[i])];
    const std::size_t before = corners.size();
    for (std::size_t j = 0; size > 1 && j < before; ++j) {
      corners.push_back(corners[j] + (size - 1) * distance);
    }
    distance *= size;
  }
  return corners;
}

// Where the corners do not leave room for other rows, half of the rows are corners, the first and
// the last row among them.
std::vector<i64> sample_rows(const Array& result, const Place& order, i64 all, i64 count,
                             std::uint64_t seed) {
  std::vector<i64> rows;
  if (count < all) {
    const std::vector<i64> corners = corner_rows(result, order);
    const i64 used = std::ssize(corners) < count ? std::ssize(corners) : (count + 1) / 2;
    for (i64 i = 0; i < used; ++i) {
      rows.push_back(
          corners[static_cast<std::size_t>(spread_index(std::ssize(corners), used, i, seed))]);
    }
    count -= used;
  }
  for (i64 i = 0; i < count; ++i) rows.push_back(spread_index(all, count, i, seed));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// `products` is how many each element sums up at most.
Sample sample_of(const Array& result, const Place& order, double products,
                 const ReferenceLimits& limits) {
  Sample sample;
  const i64 all = number_of(result);
  if (all == 0) return sample;
  sample.width = sample.columns = result.sizes[static_cast<std::size_t>(order[0])];
  const i64 all_rows = all / sample.width;
  i64 rows = limits.rows > 0 ? std::min(all_rows, limits.rows) : all_rows;
  const double affordable = std::min(
      double(limits.elements), limits.multiplications / (products * kProductCost + kElementCost));
  const auto elements = [&] { return double(rows) * double(sample.columns); };
  while (elements() > affordable && elements() >= 2 * kLeastElements) {
    i64& many = rows >= 4 * sample.columns ? rows : sample.columns;  // rows hold more corners
    many = (many + 1) / 2;
  }
  sample.seed = mix(limits.seed ^ mix(static_cast<std::uint64_t>(all)));
  sample.rows = sample_rows(result, order, all_rows, rows, sample.seed);
  return sample;
}

Place place_of(const Array& result, const Place& order, i64 row, i64 column) {
  Place at{};
  at[static_cast<std::size_t>(order[0])] = column;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto dimension = static_cast<std::size_t>(order[i]);
    at[dimension] = row % result.sizes[dimension];
    row /= result.sizes[dimension];
  }
  return at;
}

i64 offset_of(const Array& array, const Place& at) {
  i64 offset = 0;
  for (std::size_t i = 0; i < at.size(); ++i) offset += at[i] * array.strides[i];
  return offset;
}

// ---- sums of products ----

// A sum over loops, the innermost last: the products a[.] * b[.] whose offsets begin at `a` and `b`
// and advance by the steps of each loop.
struct Loop {
  i64 count = 1, a = 0, b = 0;
};
struct Sum {
  i64 a = 0, b = 0;
  std::array<Loop, 4> loops;
};

// Which of the indices first, first + step, ... lie in [0, size).
struct Range {
  i64 begin = 0, end = 0;
};
Range inside(i64 first, i64 step, i64 size, i64 count) {
  if (step < 0) return inside(size - 1 - first, -step, size, count);
  Range range;
  range.begin = first < 0 ? (step - 1 - first) / step : 0;
  range.end = first < size ? std::min(count, (size - 1 - first) / step + 1) : 0;
  range.end = std::max(range.begin, range.end);
  return range;
}

// The products along one spatial dimension, before those are left out whose index into `a` is
// outside of the image.
struct Walk {
  i64 a = 0, a_step = 1, a_size = 0;
  i64 b = 0, b_step = 1, count = 0;
};

// The walk of a gradient by x: it meets the filter's elements f for which at + pad - f * dilation
// is a multiple of the stride. That number is then the index into y times the stride.
Walk walk_back(i64 at, i64 size, i64 filter, i64 stride, i64 dilation) {
  const i64 common = std::gcd(stride, dilation);
  Walk walk{.a_size = size, .b_step = stride / common};
  const i64 last = std::min(filter, walk.b_step);
  while (walk.b < last && (at - walk.b * dilation) % stride != 0) ++walk.b;
  if (walk.b == last) return walk;
  walk.a = (at - walk.b * dilation) / stride;
  walk.a_step = -(dilation / common);
  walk.count = (filter - 1 - walk.b) / walk.b_step + 1;
  return walk;
}

// Elements of one row that differ in their channel alone.
using Block = std::vector<Place>;

class Convolution {
 public:
  Convolution(const ConvProblem& p, const ConvOperands& o)
      : p_(p), o_(o), all_(arrays_of(p, o)), order_(order_of(p)) {}

  const Array& result() const { return result_of(all_, p_.direction); }
  const Place& order() const { return order_; }

  // The most products that an element sums up.
  double products() const {
    const Place& w = all_.w.sizes;
    const Place& y = all_.y.sizes;
    const bool by_weight = p_.direction == ConvDirection::backward_weight;
    double count = static_cast<double>(by_weight                                ? y[0]
                                       : p_.direction == ConvDirection::forward ? w[2]
                                                                                : w[1]);
    for (std::size_t i = 3; i < 6; ++i) count *= static_cast<double>(by_weight ? y[i] : w[i]);
    return count;
  }

  std::vector<Bounded> run(const Sample& sample, int threads, Fp8Encoding fp8) const {
    const i64 columns = sample.columns;
    const auto rows = std::ssize(sample.rows);
    std::vector<Bounded> wanted(static_cast<std::size_t>(rows * columns));
    const double reads = products() * static_cast<double>(wanted.size());
    const tile::Values a(image().dtype, image().data, reads, fp8);
    const tile::Values b(other().dtype, other().data, reads, fp8);
    const i64 together = order_[0] == kChannel ? kColumnsTogether : 1;
    const i64 blocks = (columns + together - 1) / together;
    const auto work = [&](std::size_t, std::size_t begin, std::size_t end) {
      Block block;
      for (auto i = static_cast<i64>(begin); i < static_cast<i64>(end); ++i) {
        const i64 row = i / blocks, first = i % blocks * together;
        const i64 last = std::min(columns, first + together);
        block.clear();
        for (i64 j = first; j < last; ++j) {
          const auto place = static_cast<std::size_t>(row);
          block.push_back(place_of(result(), order_, sample.rows[place], sample.column(place, j)));
        }
        compute(a, b, block, &wanted[static_cast<std::size_t>(row * columns + first)]);
      }
    };
    share_work(threads, static_cast<std::size_t>(rows * blocks), work);
    return wanted;
  }

 private:
  // The operands: an image, and filters or the other image.
  const Array& image() const {
    return p_.direction == ConvDirection::backward_data ? all_.y : all_.x;
  }
  const Array& other() const {
    return p_.direction == ConvDirection::backward_weight ? all_.y : all_.w;
  }

  // Products with elements outside of x are left out, so that no infinity meets a padding zero.
  Walk walk_of(std::size_t i, i64 at) const {
    const i64 stride = p_.stride[i], dilation = p_.dilation[i], pad = p_.pad[i];
    const i64 out = all_.y.sizes[3 + i];
    switch (p_.direction) {
      case ConvDirection::forward:
        return {at * stride - pad, dilation, p_.size[i], 0, 1, p_.filter[i]};
      case ConvDirection::backward_weight:
        return {at * dilation - pad, stride, p_.size[i], 0, 1, out};
      default:
        return walk_back(at + pad, out, p_.filter[i], stride, dilation);
    }
  }

  Loop along(std::size_t i, i64 at, Sum& sum) const {
    const Walk walk = walk_of(i, at);
    const i64 a = image().strides[3 + i];
    const i64 b = other().strides[3 + i];
    const Range range = inside(walk.a, walk.a_step, walk.a_size, walk.count);
    sum.a += (walk.a + range.begin * walk.a_step) * a;
    sum.b += (walk.b + range.begin * walk.b_step) * b;
    return {range.end - range.begin, walk.a_step * a, walk.b_step * b};
  }

  Sum sum_at(const Place& at) const {
    const Place& a = image().strides;
    const Place& b = other().strides;
    Sum sum;
    Loop channels;  // or, for gradients by w, the images of a batch
    if (p_.direction == ConvDirection::forward) {
      sum = {at[0] * a[0] + at[1] * a[1], at[1] * b[0] + at[2] * b[1], {}};
      channels = {all_.w.sizes[2], a[2], b[2]};
    } else if (p_.direction == ConvDirection::backward_data) {
      sum = {at[0] * a[0] + at[1] * a[1], at[1] * b[0] + at[2] * b[2], {}};
      channels = {all_.w.sizes[1], a[2], b[1]};
    } else {
      sum = {at[0] * a[1] + at[2] * a[2], at[0] * b[1] + at[1] * b[2], {}};
      channels = {all_.y.sizes[0], a[0], b[0]};
    }
    const bool by_weight = p_.direction == ConvDirection::backward_weight;
    for (std::size_t i = 0; i < 3; ++i) {
      sum.loops[by_weight ? i + 1 : i] = along(i, at[3 + i], sum);
    }
    sum.loops[by_weight ? 0 : 3] = channels;
    return sum;
  }

  // How far apart the operands of neighbouring channels of the result are; one of them is shared.
  Loop channel_step() const {
    const Place& a = image().strides;
    const Place& b = other().strides;
    if (p_.direction == ConvDirection::forward) return {1, 0, b[1]};
    if (p_.direction == ConvDirection::backward_data) return {1, 0, b[2]};
    return {1, a[2], 0};
  }

  // Adds the products of a line of the innermost loop. Elements of a block differ in their channel
  // alone, so that they share one of the operands.
  void add_line(const tile::Values& a, const tile::Values& b, const Block& block, i64 at_a,
                i64 at_b, const Loop& loop, tile::Products* all) const {
    double shared[kLineLength], own[kLineLength];
    const Loop step = channel_step();
    for (i64 done = 0; done < loop.count; done += kLineLength) {
      const i64 count = std::min(kLineLength, loop.count - done);
      const i64 line_a = at_a + done * loop.a, line_b = at_b + done * loop.b;
      if (step.a == 0) {
        a.read(line_a, loop.a, count, shared);
      } else {
        b.read(line_b, loop.b, count, shared);
      }
      for (std::size_t i = 0; i < block.size(); ++i) {
        const i64 channels = block[i][kChannel] - block[0][kChannel];
        if (step.a == 0) {
          b.read(line_b + channels * step.b, loop.b, count, own);
        } else {
          a.read(line_a + channels * step.a, loop.a, count, own);
        }
        tile::add_products(shared, own, count, all[i]);
      }
    }
  }

  // Loops of one turn are left out, so that lines are long.
  void add_up(const tile::Values& a, const tile::Values& b, const Block& block,
              tile::Products* all) const {
    const Sum sum = sum_at(block[0]);
    std::array<Loop, 4> loops;
    std::size_t place = loops.size();
    for (std::size_t i = loops.size(); i-- > 0;) {
      if (sum.loops[i].count != 1) loops[--place] = sum.loops[i];
    }
    const auto& [l0, l1, l2, line] = loops;
    for (i64 i = 0; i < l0.count; ++i) {
      for (i64 j = 0; j < l1.count; ++j) {
        for (i64 k = 0; k < l2.count; ++k) {
          add_line(a, b, block, sum.a + i * l0.a + j * l1.a + k * l2.a,
                   sum.b + i * l0.b + j * l1.b + k * l2.b, line, all);
        }
      }
    }
  }

  void compute(const tile::Values& a, const tile::Values& b, const Block& block,
               Bounded* wanted) const {
    std::array<tile::Products, kColumnsTogether> all{};
    add_up(a, b, block, all.data());
    for (std::size_t i = 0; i < block.size(); ++i) wanted[i] = finish(block[i], all[i]);
  }

  Bounded finish(const Place& at, const tile::Products& products) const {
    const tile::SumTypes types = {a_type(), b_type(), p_.acc, result().dtype};
    const Bounded sum = tile::sum_of(types, products);
    const i64 offset = offset_of(result(), at);
    const double c = p_.beta != 0 ? load_element(types.out, o_.c, offset) : 0;
    tile::DValues d{};
    const auto uses = d_uses(p_.epilogue);
    for (std::size_t i = 0; i < p_.epilogue.num_d; ++i) {
      const i64 channel = at[1] * result().sizes[kChannel] + at[kChannel];
      d[i] = load_element(p_.d, o_.d[i], uses[i].is_vector() ? channel : offset);
    }
    return tile::finish_sum({types, p_.alpha, p_.beta, {p_.epilogue, p_.clamp_lo, p_.clamp_hi}},
                            sum, c, d);
  }

  // The types that are multiplied; what is tf32 counts as such.
  DType a_type() const { return p_.direction == ConvDirection::backward_data ? p_.out : p_.in; }
  DType b_type() const {
    return p_.direction == ConvDirection::backward_weight ? p_.out : p_.weight;
  }

  const ConvProblem& p_;
  const ConvOperands& o_;
  Arrays all_;
  Place order_;
};

// ---- the comparison ----

// "out[n=0, g=1, k=2, h=3, w=4]"
std::string name_of_element(const ConvProblem& p, std::string_view tensor, const Place& at) {
  const auto& keys = p.direction == ConvDirection::forward         ? kOfOutput
                     : p.direction == ConvDirection::backward_data ? kOfImage
                                                                   : kOfFilters;
  std::string name;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (i >= 3 && static_cast<i64>(i) < 6 - p.ndim) continue;
    name += fmt::format("{}{}={}", name.empty() ? "" : ", ", keys[i], at[i]);
  }
  return fmt::format("{}[{}]", tensor, name);
}

}  // namespace

i64 Sample::column(std::size_t row, i64 i) const {
  return spread_index(width, columns, i, seed ^ mix(static_cast<std::uint64_t>(rows[row])));
}

Reference reference(const Problem& problem, const Operands& operands,
                    const ReferenceLimits& limits) {
  const ConvProblem p = with_strides(std::get<ConvProblem>(problem));
  const Convolution convolution(p, std::get<ConvOperands>(operands));
  const Array& result = convolution.result();
  auto elements = std::make_shared<SampledElements>();
  const Sample& sample = elements->sample =
      sample_of(result, convolution.order(), convolution.products(), limits);
  elements->wanted = convolution.run(sample, limits.threads, limits.fp8);
  Reference found;
  const std::size_t tensor = tensors(problem).size() - 1;
  for (std::size_t i = 0; i < sample.rows.size(); ++i) {
    const auto offset = [&](i64 column) {
      const Place at = place_of(result, convolution.order(), sample.rows[i], column);
      return offset_of(result, at) * size_of(result.dtype);
    };
    const i64 first = offset(sample.column(i, 0));
    const i64 last = offset(sample.column(i, sample.columns - 1));
    found.runs.push_back({tensor, 0, first, last - first + size_of(result.dtype)});
  }
  found.elements = std::move(elements);
  return found;
}

Mismatch compare(const Problem& problem, const Operands& operands, const Reference& reference) {
  const ConvProblem p = with_strides(std::get<ConvProblem>(problem));
  const Convolution convolution(p, std::get<ConvOperands>(operands));
  const Array& result = convolution.result();
  const auto& elements = *static_cast<const SampledElements*>(reference.elements.get());
  const Bounded* x = elements.wanted.data();
  Mismatch found;
  double worst = -1;
  for (std::size_t i = 0; i < elements.sample.rows.size(); ++i) {
    for (i64 j = 0; j < elements.sample.columns; ++j, ++x) {
      const Place at = place_of(result, convolution.order(), elements.sample.rows[i],
                                elements.sample.column(i, j));
      const double got = load_element(result.dtype, result.data, offset_of(result, at));
      const double ratio = tile::error_ratio(result.dtype, got, *x);
      ++found.checked;
      if (within_tolerance(result.dtype, got, *x)) {
        if (std::isfinite(ratio)) found.worst_ratio = std::max(found.worst_ratio, ratio);
        continue;
      }
      ++found.bad;
      found.worst_ratio = std::max(found.worst_ratio, ratio);
      if (ratio <= worst) continue;
      worst = ratio;
      const Tensors all = tensors(problem);
      found.message =
          fmt::format("conv: {} is {:.9g}, the reference is {:.9g} with tolerance {:.3g}",
                      name_of_element(p, all[all.size() - 1].name, at), got, x->value,
                      tile::tolerance_of(result.dtype, *x));
    }
  }
  found.ok = found.bad == 0;
  if (!found.ok) {
    found.message += fmt::format(" ({} of {} elements checked {} outside)", found.bad,
                                 found.checked, found.bad == 1 ? "is" : "are");
  }
  return found;
}

Mismatch verify(const Problem& problem, const Operands& operands) {
  tile::require_unchanged_inputs(family(), problem, operands);
  return compare(problem, operands, reference(problem, operands, {}));
}

}  // namespace tessera::conv
