// What a grouped convolution is asked for. Types and layouts are the kernels'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ck_tile::dispatcher {

enum class GroupedConvOp { Forward, BackwardData, BackwardWeight };

// Sizes are {depth, height, width}; C and K count the channels of all groups.
struct GroupedConvProblem {
  using Sizes = std::array<std::int64_t, 3>;

  std::int64_t N = 1, C = 64, K = 64, G = 1;
  Sizes input_spatial{1, 28, 28}, filter_spatial{1, 3, 3}, output_spatial{1, 26, 26};
  Sizes stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  GroupedConvOp op = GroupedConvOp::Forward;
  int split_k = 1;  // a wish: kernels split as they were made to

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

  // An output of no elements has the size 0.
  void compute_output_size() {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t reach = dilation[i] * (filter_spatial[i] - 1) + 1;
      const std::int64_t room = input_spatial[i] + 2 * padding[i] - reach;
      output_spatial[i] = room < 0 || stride[i] < 1 ? 0 : room / stride[i] + 1;
    }
  }
  // Whether batch, channels and groups fit; that the filter fits, the builder checks.
  bool is_valid() const { return N > 0 && C > 0 && K > 0 && G > 0 && C % G == 0 && K % G == 0; }
  std::int64_t Hi() const { return input_spatial[1]; }
  std::int64_t Wi() const { return input_spatial[2]; }
  std::int64_t Ho() const { return output_spatial[1]; }
  std::int64_t Wo() const { return output_spatial[2]; }
  std::int64_t Y() const { return filter_spatial[1]; }
  std::int64_t X() const { return filter_spatial[2]; }
  bool is_3d() const { return input_spatial[0] > 1 || filter_spatial[0] > 1 || padding[0] > 0; }
  bool is_depthwise() const { return G == C && G == K; }
  bool is_pointwise() const { return filter_spatial == Sizes{1, 1, 1}; }
  double get_flops() const {
    double count =
        2.0 * static_cast<double>(N) * static_cast<double>(K) * static_cast<double>(C / G);
    for (std::size_t i = 0; i < 3; ++i) {
      count *= static_cast<double>(output_spatial[i] * filter_spatial[i]);
    }
    return count;
  }
  std::string to_string() const {
    const auto part = [](const char* name, std::int64_t value) {
      return std::string(", ") + name + "=" + std::to_string(value);
    };
    return "GroupedConvProblem(N=" + std::to_string(N) + part("C", C) + part("K", K) +
           part("G", G) + part("Hi", Hi()) + part("Wi", Wi()) + part("Y", Y()) + part("X", X()) +
           part("Ho", Ho()) + part("Wo", Wo()) + ")";
  }
};

namespace detail {

inline std::string list_text(const GroupedConvProblem::Sizes& sizes) {
  return std::to_string(sizes[0]) + "," + std::to_string(sizes[1]) + "," + std::to_string(sizes[2]);
}
// {depth, height, width} of a list; dimensions that it leaves out are `flat`.
inline GroupedConvProblem::Sizes sizes_of_list(const char* name,
                                               const std::vector<std::int64_t>& list,
                                               std::int64_t flat) {
  if (list.empty() || list.size() > 3) {
    throw std::invalid_argument(std::string(name) + " takes 1 to 3 sizes, got " +
                                std::to_string(list.size()));
  }
  GroupedConvProblem::Sizes made{flat, flat, flat};
  std::copy(list.begin(), list.end(), made.end() - static_cast<std::ptrdiff_t>(list.size()));
  return made;
}

}  // namespace detail

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
  // The same one by one, as documents spell it. Lists have a size for each dimension, the depth
  // first of three; a list of one is a width.
  GroupedConvProblemBuilder& n(std::int64_t size) { return p_.N = size, *this; }
  GroupedConvProblemBuilder& c(std::int64_t channels) { return p_.C = channels, *this; }
  GroupedConvProblemBuilder& k(std::int64_t channels) { return p_.K = channels, *this; }
  GroupedConvProblemBuilder& g(std::int64_t count) { return p_.G = count, *this; }
#define CK_TILE_LIST(name, field, flat)                                     \
  GroupedConvProblemBuilder& name(const std::vector<std::int64_t>& sizes) { \
    return field = detail::sizes_of_list(#name, sizes, flat), *this;        \
  }
  CK_TILE_LIST(input_spatial, p_.input_spatial, 1)
  CK_TILE_LIST(filter_spatial, p_.filter_spatial, 1)
  CK_TILE_LIST(strides, p_.stride, 1)
  CK_TILE_LIST(dilations, p_.dilation, 1)
  CK_TILE_LIST(left_pads, p_.padding, 0)
  CK_TILE_LIST(right_pads, right_, 0)
#undef CK_TILE_LIST
  GroupedConvProblemBuilder& operation(GroupedConvOp op) { return p_.op = op, *this; }
  // Throws std::invalid_argument with the sizes.
  GroupedConvProblem build() const {
    GroupedConvProblem made = p_;
    if (right_ && *right_ != made.padding) {
      throw std::invalid_argument("a convolution pads both sides alike; got left_pads " +
                                  detail::list_text(made.padding) + " and right_pads " +
                                  detail::list_text(*right_));
    }
    made.compute_output_size();
    bool fits = made.is_valid();
    for (const std::int64_t size : made.output_spatial) fits = fits && size > 0;
    if (fits) return made;
    throw std::invalid_argument(
        "a convolution needs sizes of at least 1, groups that divide the channels, and a filter "
        "that fits; got " +
        made.to_string());
  }

 private:
  GroupedConvProblem p_;
  std::optional<GroupedConvProblem::Sizes> right_;
};

}  // namespace ck_tile::dispatcher
