// What a grouped convolution is asked for.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tessera_ck/machine.hpp"

namespace tessera_ck {

enum class GroupedConvOp { Forward, BackwardData, BackwardWeight };

namespace detail {

// By the number of a GroupedConvOp.
inline constexpr std::array kDirections = {tessera::ConvDirection::forward,
                                           tessera::ConvDirection::backward_data,
                                           tessera::ConvDirection::backward_weight};

// The tensors of forward (X, W, Y), backward data (dY, W, dX), backward weight (X, dY, dW).
inline tessera::ConvOperands conv_operands(tessera::ConvDirection direction, const void* first,
                                           const void* second, void* result) {
  tessera::ConvOperands operands;
  switch (direction) {
    case tessera::ConvDirection::forward:
      operands.in = first, operands.weight = second, operands.out = result;
      break;
    case tessera::ConvDirection::backward_data:
      operands.grad_out = first, operands.weight = second, operands.grad_in = result;
      break;
    case tessera::ConvDirection::backward_weight:
      operands.in = first, operands.grad_out = second, operands.grad_weight = result;
      break;
  }
  return operands;
}

}  // namespace detail

// Sizes are {depth, height, width}; C and K count the channels of all groups.
struct GroupedConvProblem {
  std::int64_t N = 1, C = 1, K = 1, G = 1;
  std::array<std::int64_t, 3> input_spatial{1, 1, 1}, filter_spatial{1, 1, 1};
  std::array<std::int64_t, 3> output_spatial{1, 1, 1};
  std::array<std::int64_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  GroupedConvOp op = GroupedConvOp::Forward;
  int split_k = 1;  // a wish: kernels split as they were made to
  std::string dtype = "fp16";

  GroupedConvProblem() = default;
  GroupedConvProblem(std::int64_t n, std::int64_t c, std::int64_t k, std::int64_t hi,
                     std::int64_t wi, std::int64_t y, std::int64_t x, std::int64_t stride_h = 1,
                     std::int64_t stride_w = 1, std::int64_t pad_h = 0, std::int64_t pad_w = 0,
                     std::int64_t dilation_h = 1, std::int64_t dilation_w = 1)
      : N(n),
        C(c),
        K(k),
        input_spatial{1, hi, wi},
        filter_spatial{1, y, x},
        stride{1, stride_h, stride_w},
        padding{0, pad_h, pad_w},
        dilation{1, dilation_h, dilation_w} {
    compute_output_size();
  }

  void compute_output_size() {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t reach = dilation[i] * (filter_spatial[i] - 1) + 1;
      const std::int64_t room = input_spatial[i] + 2 * padding[i] - reach;
      output_spatial[i] = room < 0 || stride[i] < 1 ? 0 : room / stride[i] + 1;
    }
  }
  bool is_valid() const {
    if (N < 1 || C < 1 || K < 1 || G < 1 || C % G != 0 || K % G != 0) return false;
    for (std::size_t i = 0; i < 3; ++i) {
      if (input_spatial[i] < 1 || filter_spatial[i] < 1 || output_spatial[i] < 1) return false;
      if (stride[i] < 1 || dilation[i] < 1 || padding[i] < 0) return false;
    }
    return true;
  }
  std::int64_t Hi() const { return input_spatial[1]; }
  std::int64_t Wi() const { return input_spatial[2]; }
  std::int64_t Ho() const { return output_spatial[1]; }
  std::int64_t Wo() const { return output_spatial[2]; }
  std::int64_t Y() const { return filter_spatial[1]; }
  std::int64_t X() const { return filter_spatial[2]; }
  bool is_3d() const { return input_spatial[0] > 1 || filter_spatial[0] > 1 || padding[0] > 0; }
  double get_flops() const {
    double count =
        2.0 * static_cast<double>(N) * static_cast<double>(K) * static_cast<double>(C / G);
    for (std::size_t i = 0; i < 3; ++i) {
      count *= static_cast<double>(output_spatial[i] * filter_spatial[i]);
    }
    return count;
  }
  bool is_depthwise() const { return G == C && G == K; }
  bool is_pointwise() const { return filter_spatial == std::array<std::int64_t, 3>{1, 1, 1}; }
  // Tessera's line.
  std::string to_string() const { return tessera::to_string(tessera::Problem(asked())); }

  tessera::ConvProblem asked() const { return asked(is_3d()); }
  // Without the depth where it is not `deep`.
  tessera::ConvProblem asked(bool deep) const {
    const tessera::ConvDirection direction = detail::kDirections[static_cast<std::size_t>(op)];
    const tessera::DType type = tessera::parse_dtype(dtype);
    const auto& i = input_spatial;
    const auto& f = filter_spatial;
    tessera::ConvProblem made =
        deep ? tessera::conv_problem(type, direction, N, C, K, {i[0], i[1], i[2]},
                                     {f[0], f[1], f[2]})
             : tessera::conv_problem(type, direction, N, C, K, {i[1], i[2]}, {f[1], f[2]});
    detail::changes_nothing("split_k", split_k != 1);
    made.g = G, made.stride = stride, made.pad = padding, made.dilation = dilation;
    if (!deep) made.stride[0] = made.dilation[0] = 1, made.pad[0] = 0;
    return made;
  }
};

class GroupedConvProblemBuilder {
 public:
  GroupedConvProblemBuilder& batch(std::int64_t n) { return p_.N = n, *this; }
  GroupedConvProblemBuilder& channels(std::int64_t c, std::int64_t k) {
    return p_.C = c, p_.K = k, *this;
  }
  GroupedConvProblemBuilder& groups(std::int64_t g) { return p_.G = g, *this; }
  // Sizes of two dimensions, and of three, the depth first; `flat` is the depth of two.
#define CK_TILE_SIZES(name, field, flat)                                                       \
  GroupedConvProblemBuilder& name(std::int64_t h, std::int64_t w) { return name(flat, h, w); } \
  GroupedConvProblemBuilder& name(std::int64_t d, std::int64_t h, std::int64_t w) {            \
    return p_.field = {d, h, w}, *this;                                                        \
  }
  CK_TILE_SIZES(input_size, input_spatial, 1)
  CK_TILE_SIZES(filter_size, filter_spatial, 1)
  CK_TILE_SIZES(stride, stride, 1)
  CK_TILE_SIZES(padding, padding, 0)
  CK_TILE_SIZES(dilation, dilation, 1)
#undef CK_TILE_SIZES
  GroupedConvProblemBuilder& operation(GroupedConvOp op) { return p_.op = op, *this; }
  GroupedConvProblemBuilder& data_type(const std::string& dtype) { return p_.dtype = dtype, *this; }
  // Throws std::invalid_argument with the sizes.
  GroupedConvProblem build() const {
    GroupedConvProblem made = p_;
    made.compute_output_size();
    if (!made.is_valid()) {
      throw std::invalid_argument(
          "a convolution needs sizes of at least 1, groups that divide the channels, and a filter "
          "that fits; got N=" +
          std::to_string(made.N) + " C=" + std::to_string(made.C) + " K=" + std::to_string(made.K) +
          " G=" + std::to_string(made.G) + " Ho=" + std::to_string(made.Ho()) +
          " Wo=" + std::to_string(made.Wo()));
    }
    return made;
  }

 private:
  GroupedConvProblem p_;
};

}  // namespace tessera_ck
