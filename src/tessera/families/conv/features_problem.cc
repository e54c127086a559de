// Features that do not depend on the candidate, and the facts that the other features start from.
#include <algorithm>
#include <array>
#include <bit>

#include "tessera/families/conv/features_internal.h"
#include "tessera/families/tile/epilogue.h"

namespace tessera::conv {
namespace {

using enum FeatureGroup;
using P = const ProblemFacts&;

constexpr std::int64_t kFewChannels = 16;  // of a group
constexpr std::int64_t kFewImages = 8;
constexpr std::int64_t kStemChannels = 4;

double volume_of(const Spatial& s) { return number(s[0]) * number(s[1]) * number(s[2]); }
bool any_above_one(const Spatial& s) { return *std::max_element(s.begin(), s.end()) > 1; }

double mod_of(double count, std::int64_t by) {
  return count < 0x1p62 ? number(static_cast<std::int64_t>(count) % by) : 0;
}
double log2_ratio(std::int64_t a, std::int64_t b) {
  return log2_from_1(number(a)) - log2_from_1(number(b));
}
double extent(P f, std::size_t i) {
  return number(f.p.dilation[i]) * number(f.p.filter[i] - 1) + 1;
}

// The share of a padded image that is padding.
double padding_share(P f) {
  double inside = 1;
  for (std::size_t i = 0; i < f.out.size(); ++i) {
    const double size = number(f.p.size[i]);
    const std::int64_t right = std::max<std::int64_t>(f.p.pad_right[i], 0);
    inside *= size / (size + number(f.p.pad[i]) + number(right));
  }
  return 1 - inside;
}

double functions_of(const Epilogue& epilogue) {
  return number(std::count_if(epilogue.ops.begin(), epilogue.ops.end(), tile::is_function));
}
double matrices_of(const Epilogue& epilogue) {
  const auto uses = d_uses(epilogue);
  return number(std::count_if(uses.begin(), uses.begin() + epilogue.num_d,
                              [](const DUse& use) { return !use.is_vector(); }));
}

// The words of the formulas. c_group, k_group: channels of a group. out: sizes of y. rows, columns,
// depth: of the product that the direction computes for each group, see View. taps: elements of the
// filter. unit: a core or SM.
constexpr auto kProblem = std::to_array<ProblemFeature>({
    // ---- sizes ----
    {{"n", "images", "n", problem}, [](P f) { return number(f.p.n); }},
    {{"c", "channels", "c", problem}, [](P f) { return number(f.p.c); }},
    {{"k", "channels", "k", problem}, [](P f) { return number(f.p.k); }},
    {{"g", "groups", "g", problem}, [](P f) { return f.g; }},
    {{"in_d", "pixels", "d", problem}, [](P f) { return number(f.p.size[0]); }},
    {{"in_h", "pixels", "h", problem}, [](P f) { return number(f.p.size[1]); }},
    {{"in_w", "pixels", "w", problem}, [](P f) { return number(f.p.size[2]); }},
    {{"filter_z", "1", "z", problem}, [](P f) { return number(f.p.filter[0]); }},
    {{"filter_y", "1", "y", problem}, [](P f) { return number(f.p.filter[1]); }},
    {{"filter_x", "1", "x", problem}, [](P f) { return number(f.p.filter[2]); }},
    {{"stride_d", "pixels", "stride_d", problem}, [](P f) { return number(f.p.stride[0]); }},
    {{"stride_h", "pixels", "stride_h", problem}, [](P f) { return number(f.p.stride[1]); }},
    {{"stride_w", "pixels", "stride_w", problem}, [](P f) { return number(f.p.stride[2]); }},
    {{"dilation_d", "pixels", "dilation_d", problem}, [](P f) { return number(f.p.dilation[0]); }},
    {{"dilation_h", "pixels", "dilation_h", problem}, [](P f) { return number(f.p.dilation[1]); }},
    {{"dilation_w", "pixels", "dilation_w", problem}, [](P f) { return number(f.p.dilation[2]); }},
    {{"pad_d", "pixels", "pad_d", problem}, [](P f) { return number(f.p.pad[0]); }},
    {{"pad_h", "pixels", "pad_h", problem}, [](P f) { return number(f.p.pad[1]); }},
    {{"pad_w", "pixels", "pad_w", problem}, [](P f) { return number(f.p.pad[2]); }},
    {{"pad_right_d", "pixels", "pad_right_d", problem},
     [](P f) { return number(f.p.pad_right[0]); }},
    {{"pad_right_h", "pixels", "pad_right_h", problem},
     [](P f) { return number(f.p.pad_right[1]); }},
    {{"pad_right_w", "pixels", "pad_right_w", problem},
     [](P f) { return number(f.p.pad_right[2]); }},
    {{"out_d", "pixels", "out_d", problem}, [](P f) { return number(f.out[0]); }},
    {{"out_h", "pixels", "out_h", problem}, [](P f) { return number(f.out[1]); }},
    {{"out_w", "pixels", "out_w", problem}, [](P f) { return number(f.out[2]); }},
    {{"ndim", "1", "ndim", problem}, [](P f) { return number(f.p.ndim); }},
    {{"log2_n", "log2", "log2(max(n, 1))", problem},
     [](P f) { return log2_from_1(number(f.p.n)); }},
    {{"log2_c", "log2", "log2(c)", problem}, [](P f) { return log2_of(number(f.p.c)); }},
    {{"log2_k", "log2", "log2(k)", problem}, [](P f) { return log2_of(number(f.p.k)); }},
    {{"log2_g", "log2", "log2(g)", problem}, [](P f) { return log2_of(f.g); }},
    {{"log2_in_h", "log2", "log2(h)", problem}, [](P f) { return log2_of(number(f.p.size[1])); }},
    {{"log2_in_w", "log2", "log2(w)", problem}, [](P f) { return log2_of(number(f.p.size[2])); }},
    {{"log2_in_pixels", "log2", "log2(d h w)", problem}, [](P f) { return log2_of(f.in_pixels); }},
    {{"log2_out_pixels", "log2", "log2(out_d out_h out_w)", problem},
     [](P f) { return log2_of(f.out_pixels); }},
    {{"taps", "1", "z y x", problem}, [](P f) { return f.taps; }},
    {{"log2_taps", "log2", "log2(taps)", problem}, [](P f) { return log2_of(f.taps); }},
    {{"extent_h", "pixels", "dilation_h (y - 1) + 1", problem}, [](P f) { return extent(f, 1); }},
    {{"extent_w", "pixels", "dilation_w (x - 1) + 1", problem}, [](P f) { return extent(f, 2); }},
    // ---- groups ----
    {{"c_group", "channels", "c / g", problem}, [](P f) { return f.c; }},
    {{"k_group", "channels", "k / g", problem}, [](P f) { return f.k; }},
    {{"log2_c_group", "log2", "log2(c_group)", problem}, [](P f) { return log2_of(f.c); }},
    {{"log2_k_group", "log2", "log2(k_group)", problem}, [](P f) { return log2_of(f.k); }},
    {{"log2_channels_product", "log2", "log2(c_group k_group)", problem},
     [](P f) { return log2_of(f.c * f.k); }},
    {{"group_density", "1", "g / c", problem}, [](P f) { return 1 / f.c; }},
    {{"k_over_c", "1", "k / c", problem}, [](P f) { return f.k / f.c; }},
    {{"images_groups", "1", "n g", problem}, [](P f) { return number(f.p.n) * f.g; }},
    {{"small_group", "1", "1: c_group < 16 or k_group < 16", problem},
     [](P f) { return flag(std::min(f.c, f.k) < kFewChannels); }},
    {{"small_batch_grouped", "1", "1: n < 8 and g > 1", problem},
     [](P f) { return flag(f.p.n < kFewImages && f.p.g > 1); }},
    {{"c_align", "log2", "log2 of the largest power of 2 up to 64 that divides c_group", problem},
     [](P f) { return alignment_of(f.p.c / f.p.g); }},
    {{"k_align", "log2", "the same of k_group", problem},
     [](P f) { return alignment_of(f.p.k / f.p.g); }},
    {{"line_align", "log2", "the same of out_w", problem},
     [](P f) { return alignment_of(f.out[2]); }},
    {{"c_mod64", "channels", "c_group mod 64", problem}, [](P f) { return mod_of(f.c, 64); }},
    {{"k_mod64", "channels", "k_group mod 64", problem}, [](P f) { return mod_of(f.k, 64); }},
    // ---- kinds ----
    {{"is_1x1", "1", "1: taps = 1", problem}, [](P f) { return flag(f.taps == 1); }},
    {{"is_3x3", "1", "1: y = x = 3", problem},
     [](P f) { return flag(f.p.filter[1] == 3 && f.p.filter[2] == 3); }},
    {{"is_pointwise", "1", "1: taps = 1, strides 1, no padding", problem},
     [](P f) { return flag(is_pointwise(f.p)); }},
    {{"is_3d", "1", "1: ndim = 3", problem}, [](P f) { return flag(f.p.ndim == 3); }},
    {{"is_1d", "1", "1: ndim = 1", problem}, [](P f) { return flag(f.p.ndim == 1); }},
    {{"is_grouped", "1", "1: g > 1", problem}, [](P f) { return flag(f.p.g > 1); }},
    {{"is_depthwise", "1", "1: c = g > 1", problem}, [](P f) { return flag(is_depthwise(f.p)); }},
    {{"is_stem", "1", "1: g = 1 and c <= 4", problem},
     [](P f) { return flag(f.p.g == 1 && f.p.c <= kStemChannels); }},
    {{"is_strided", "1", "1: any stride > 1", problem},
     [](P f) { return flag(any_above_one(f.p.stride)); }},
    {{"is_dilated", "1", "1: any dilation > 1", problem},
     [](P f) { return flag(any_above_one(f.p.dilation)); }},
    {{"aspect_image", "1", "h / w", problem},
     [](P f) { return number(f.p.size[1]) / number(f.p.size[2]); }},
    {{"aspect_filter", "1", "y / x", problem},
     [](P f) { return number(f.p.filter[1]) / number(f.p.filter[2]); }},
    {{"padding_share", "1", "1 - d h w / (the same with padding)", problem}, padding_share},
    {{"reuse", "1", "taps out_pixels / in_pixels: reads of an element of x", problem},
     [](P f) { return f.taps * f.out_pixels / f.in_pixels; }},
    {{"residues", "1", "product of min(stride, size): classes of x in strided gradients", problem},
     [](P f) {
       double classes = 1;
       for (std::size_t i = 0; i < f.out.size(); ++i) {
         classes *= number(std::min(f.p.stride[i], f.p.size[i]));
       }
       return classes;
     }},
    // ---- types ----
    {{"direction", "code", "forward 0, backward_data 1, backward_weight 2", problem},
     [](P f) { return double(f.p.direction); }},
    {{"channels_last", "1", "1: nhwgc, 0: nchw", problem},
     [](P f) { return flag(f.p.layout == ConvLayout::nhwgc); }},
    {{"x_type", "code", "fp32 0, tf32 1, fp16 2, bf16 3, fp8 4, bf8 5, int8 6, int32 7", problem},
     [](P f) { return double(f.p.in); }},
    {{"w_type", "code", "as x_type", problem}, [](P f) { return double(f.p.weight); }},
    {{"y_type", "code", "as x_type", problem}, [](P f) { return double(f.p.out); }},
    {{"acc_is_integer", "1", "1: sums are int32, 0: fp32", problem},
     [](P f) { return flag(is_integer(f.p.acc)); }},
    {{"epilogue_steps", "1", "steps of the chain", problem},
     [](P f) { return double(num_ops(f.p.epilogue)); }},
    {{"epilogue_functions", "1", "steps that are gelu, gelu_tanh, silu, sigmoid or tanh", problem},
     [](P f) { return functions_of(f.p.epilogue); }},
    {{"d_matrices", "1", "D tensors like y", problem},
     [](P f) { return matrices_of(f.p.epilogue); }},
    {{"d_vectors", "1", "D tensors along k", problem},
     [](P f) { return number(f.p.epilogue.num_d) - matrices_of(f.p.epilogue); }},
    {{"d_type", "code", "as x_type; 0 without D", problem},
     [](P f) { return f.p.epilogue.num_d > 0 ? double(f.p.d) : 0; }},
    {{"reads_c", "1", "beta != 0", problem}, [](P f) { return flag(f.p.beta != 0); }},
    {{"scales", "1", "alpha != 1", problem}, [](P f) { return flag(f.p.alpha != 1); }},
    // ---- the product ----
    {{"rows", "1", "rows", problem}, [](P f) { return number(f.view.rows); }},
    {{"columns", "1", "columns", problem}, [](P f) { return number(f.view.columns); }},
    {{"depth", "1", "depth", problem}, [](P f) { return number(f.view.depth); }},
    {{"log2_rows", "log2", "log2(max(rows, 1))", problem},
     [](P f) { return log2_from_1(number(f.view.rows)); }},
    {{"log2_columns", "log2", "log2(columns)", problem},
     [](P f) { return log2_from_1(number(f.view.columns)); }},
    {{"log2_depth", "log2", "log2(max(depth, 1))", problem},
     [](P f) { return log2_from_1(number(f.view.depth)); }},
    {{"log2_rows_over_columns", "log2", "log2_rows - log2_columns", problem},
     [](P f) { return log2_ratio(f.view.rows, f.view.columns); }},
    {{"log2_rows_over_depth", "log2", "log2_rows - log2_depth", problem},
     [](P f) { return log2_ratio(f.view.rows, f.view.depth); }},
    {{"log2_columns_over_depth", "log2", "log2_columns - log2_depth", problem},
     [](P f) { return log2_ratio(f.view.columns, f.view.depth); }},
    {{"depth_mod64", "1", "depth mod 64", problem},
     [](P f) { return mod_of(number(f.view.depth), 64); }},
    {{"rows_mod128", "1", "rows mod 128", problem},
     [](P f) { return mod_of(number(f.view.rows), 128); }},
    {{"columns_mod128", "1", "columns mod 128", problem},
     [](P f) { return mod_of(number(f.view.columns), 128); }},
    {{"log2_rows_over_units", "log2", "log2_rows - log2(units)", problem},
     [](P f) { return log2_from_1(number(f.view.rows)) - log2_of(f.machine.units); }},
    {{"fewer_rows_than_units", "1", "1: rows < units", problem},
     [](P f) { return flag(number(f.view.rows) < f.machine.units); }},
    // ---- work ----
    {{"log2_flops", "log2", "log2(1 + flops), flops = 2 n out_pixels k c_group taps", problem},
     [](P f) { return log2_of(1 + f.work.flops); }},
    {{"log2_bytes", "log2", "log2(1 + bytes), bytes: every operand once", problem},
     [](P f) { return log2_of(1 + f.work.bytes); }},
    {{"log2_x_bytes", "log2", "log2(1 + bytes of x)", problem},
     [](P f) { return log2_of(1 + f.x_bytes); }},
    {{"log2_w_bytes", "log2", "log2(1 + bytes of w)", problem},
     [](P f) { return log2_of(1 + f.w_bytes); }},
    {{"log2_y_bytes", "log2", "log2(1 + bytes of y)", problem},
     [](P f) { return log2_of(1 + f.y_bytes); }},
    {{"x_share", "1", "bytes of x / bytes", problem},
     [](P f) { return quotient(f.x_bytes, f.work.bytes); }},
    {{"w_share", "1", "bytes of w / bytes", problem},
     [](P f) { return quotient(f.w_bytes, f.work.bytes); }},
});

}  // namespace

std::span<const ProblemFeature> problem_features() { return kProblem; }

ProblemFacts problem_facts(const ConvProblem& problem, const Target& target, int threads) {
  ProblemFacts f;
  f.p = folded(problem);
  f.machine = tile::machine_facts(target, threads, roof(f.p, target));
  f.work = tile::work_facts(flops(f.p), bytes(f.p), f.machine);
  f.out = out_size(f.p);
  f.view = view_of(f.p);
  f.g = number(f.p.g);
  f.c = number(f.p.c / f.p.g), f.k = number(f.p.k / f.p.g);
  f.taps = volume_of(f.p.filter);
  f.in_pixels = volume_of(f.p.size);
  f.out_pixels = volume_of(f.out);
  f.x_bytes = number(f.p.n) * number(f.p.c) * f.in_pixels * size_of(f.p.in);
  f.w_bytes = number(f.p.k) * f.c * f.taps * size_of(f.p.weight);
  f.y_bytes = number(f.p.n) * number(f.p.k) * f.out_pixels * size_of(f.p.out);
  const bool by_w = f.p.direction == ConvDirection::backward_weight;
  const bool by_x = f.p.direction == ConvDirection::backward_data;
  f.slab = by_w ? number(f.view.depth) : by_x ? f.k : f.c;
  f.lines = number(by_x ? f.p.size[2] : f.out[2]);
  return f;
}

}  // namespace tessera::conv
