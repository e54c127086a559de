// A convolution as its definition stands: every product is visited once, and added to the one
// element that it belongs to, whatever the direction.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/families/conv/conv.h"
#include "tessera/spec/numeric.h"

namespace tessera::conv {

// Where a product's factors and its sum lie: offsets of elements of x, w and y.
struct PlainProduct {
  std::int64_t x, w, y;
};

// Calls visit(product) for every product; `p` has its strides. `apart`: x has only the pixels whose
// places are multiples of it, side by side.
template <class Visit>
void for_each_product(const ConvProblem& p, const Visit& visit, const Spatial& apart = {1, 1, 1}) {
  const Spatial out = out_size(p);
  const ConvStrides &xs = p.in_strides, &ws = p.weight_strides, &ys = p.out_strides;
  const auto visit_place = [&](const Spatial& o, const Spatial& f, const Spatial& i) {
    std::int64_t x0 = 0, w0 = 0, y0 = 0;
    for (std::size_t s = 0; s < 3; ++s) {
      const std::int64_t pixel = i[s] / apart[s];
      if (i[s] < 0 || i[s] % apart[s] != 0 || pixel >= p.size[s]) return;
      x0 += pixel * xs[3 + s];
      w0 += f[s] * ws[3 + s];
      y0 += o[s] * ys[3 + s];
    }
    for (std::int64_t n = 0; n < p.n; ++n) {
      for (std::int64_t g = 0; g < p.g; ++g) {
        for (std::int64_t k = 0; k < p.k / p.g; ++k) {
          for (std::int64_t c = 0; c < p.c / p.g; ++c) {
            visit(PlainProduct{x0 + n * xs[0] + g * xs[1] + c * xs[2],
                               w0 + g * ws[0] + k * ws[1] + c * ws[2],
                               y0 + n * ys[0] + g * ys[1] + k * ys[2]});
          }
        }
      }
    }
  };
  const auto each = [](const Spatial& sizes, const auto& body) {
    for (std::int64_t a = 0; a < sizes[0]; ++a) {
      for (std::int64_t b = 0; b < sizes[1]; ++b) {
        for (std::int64_t c = 0; c < sizes[2]; ++c) body(Spatial{a, b, c});
      }
    }
  };
  each(out, [&](const Spatial& o) {
    each(p.filter, [&](const Spatial& f) {
      Spatial i{};
      for (std::size_t s = 0; s < 3; ++s) {
        i[s] = o[s] * p.stride[s] - p.pad[s] + f[s] * p.dilation[s];
      }
      visit_place(o, f, i);
    });
  });
}

// Operands in memory of their own, whose gaps hold 0xff: NaN in every floating-point type.
class PlainCase {
 public:
  explicit PlainCase(const ConvProblem& given)
      : problem(given), p(with_strides(given)), list(tensors(given)), operands(no_operands(given)) {
    family().validate(given);
    for (const Tensor& tensor : list) {
      memory.emplace_back(std::max<std::size_t>(tensor.bytes(), 1), std::byte{0xff});
      family().set_pointer(operands, tensor.operand, memory.back().data());
    }
  }

  std::size_t out() const { return list.size() - 1; }
  std::size_t index_of(std::string_view name) const {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].name == name) return i;
    }
    return list.size();
  }

  // Calls visit(offset) for every element of a tensor, a row after the other.
  template <class Visit>
  void each(std::size_t tensor, const Visit& visit) const {
    const Tensor& t = list[tensor];
    if (t.is_empty()) return;
    for (std::int64_t row = 0; row < t.rows() * t.batches; ++row) {
      for (std::int64_t i = 0; i < t.sizes[0]; ++i) visit(t.row_offset(row) + i * t.strides[0]);
    }
  }

  // tf32 is stored as fp32.
  DType dtype(std::size_t tensor) const {
    return list[tensor].dtype == DType::tf32 ? DType::fp32 : list[tensor].dtype;
  }
  double load(std::size_t tensor, std::int64_t at) const {
    return load_element(dtype(tensor), memory[tensor].data(), at);
  }
  void store(std::size_t tensor, std::int64_t at, double value) {
    store_element(dtype(tensor), memory[tensor].data(), at, value);
  }
  // Gives every element of a tensor the value draw().
  template <class DrawValue>
  void fill(std::size_t tensor, const DrawValue& draw) {
    each(tensor, [&](std::int64_t at) { store(tensor, at, draw()); });
  }
  template <class DrawValue>
  void fill_inputs(const DrawValue& draw) {
    for (std::size_t i = 0; i < out(); ++i) fill(i, draw);
  }

  // Writes the result, with steps of the epilogue that are exact for small whole numbers.
  void run();

  ConvProblem problem;
  ConvProblem p;  // with strides
  Tensors list;
  Operands operands;
  std::vector<std::vector<std::byte>> memory;  // of each tensor

 private:
  double finish(std::int64_t at, std::int64_t channel, double sum) const;
};

inline double PlainCase::finish(std::int64_t at, std::int64_t channel, double sum) const {
  double x = sum * double{p.alpha};
  if (p.beta != 0) x += load(index_of("c"), at) * double{p.beta};
  std::size_t d = index_of("d0");
  for (const EpilogueOp op : p.epilogue.ops) {
    if (op == EpilogueOp::bias) x += load(d++, channel);
    if (op == EpilogueOp::add) x += load(d++, at);
    if (op == EpilogueOp::multiply) x *= load(d++, at);
    if (op == EpilogueOp::col_scale) x *= load(d++, channel);
    if (op == EpilogueOp::relu && x < 0) x = 0;
    if (op == EpilogueOp::clamp) {
      x = x < double{p.clamp_lo} ? p.clamp_lo : x > double{p.clamp_hi} ? p.clamp_hi : x;
    }
  }
  return x;
}

inline void PlainCase::run() {
  std::vector<double> sums(static_cast<std::size_t>(list[out()].elements()));
  const auto of = [](std::int64_t at) { return static_cast<std::size_t>(at); };
  for_each_product(p, [&](const PlainProduct& at) {
    if (p.direction == ConvDirection::forward) sums[of(at.y)] += load(0, at.x) * load(1, at.w);
    if (p.direction == ConvDirection::backward_data) {
      sums[of(at.x)] += load(0, at.w) * load(1, at.y);
    }
    if (p.direction == ConvDirection::backward_weight) {
      sums[of(at.w)] += load(0, at.x) * load(1, at.y);
    }
  });
  const bool is_forward = p.direction == ConvDirection::forward;
  const std::int64_t k = p.k / p.g;
  const Spatial size = out_size(p);
  std::int64_t visited = 0;  // elements of y, in the order of memory
  each(out(), [&](std::int64_t at) {
    const std::int64_t pixels = size[0] * size[1] * size[2];
    std::int64_t channel = 0;
    if (is_forward) {
      channel = p.layout == ConvLayout::nhwgc ? visited % (p.g * k) : visited / pixels % (p.g * k);
    }
    ++visited;
    store(out(), at, finish(at, channel, sums[of(at)]));
  });
}

}  // namespace tessera::conv
