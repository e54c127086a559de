// What the stages that learn, report and exchange data need to know about a convolution.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/defaults.h"

namespace tessera::conv {
namespace {

constexpr double kFewOperations = 20;  // for each byte: below it, bytes limit the time

std::string_view kind_of(const ConvProblem& p) {
  if (is_depthwise(p)) return "depthwise";
  if (p.g > 1) return "grouped";
  if (is_pointwise(p)) return "pointwise";
  return p.c <= 4 ? "stem" : "dense";
}

// The keys of other programs, and the keys of a problem's line that they stand for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kForeignKeys = {{
    {"hi", "h"},
    {"wi", "w"},
    {"di", "d"},
    {"input_d", "d"},
    {"input_h", "h"},
    {"input_w", "w"},
    {"filter_z", "z"},
    {"filter_y", "y"},
    {"filter_x", "x"},
    {"variant", "direction"},
    {"ndim_spatial", "ndim"},
}};

constexpr std::array<std::string_view, 28> kKeysOfRows = {
    "direction",   "n",           "c",           "k",          "g",      "ndim",     "d",
    "h",           "w",           "z",           "y",          "x",      "stride_d", "stride_h",
    "stride_w",    "dilation_d",  "dilation_h",  "dilation_w", "pad_d",  "pad_h",    "pad_w",
    "pad_right_d", "pad_right_h", "pad_right_w", "dtype",      "layout", "epilogue", "out"};

}  // namespace

// The direction, and the types: one model learns the kernels of one direction, in both layouts,
// which have the same algorithms and a feature.
std::string model_key(const Signature& signature) {
  const auto& s = std::get<ConvSignature>(signature);
  return fmt::format("{}_{}", to_string(s.direction), to_string(s.in));
}

tessera::Facts facts(const Problem& problem) {
  const ConvProblem p = with_strides(conv_of(problem));
  const View view = view_of(p);
  std::uint64_t hash = mix(static_cast<std::uint64_t>(p.n));
  const auto add = [&](std::int64_t size) { hash = mix(hash ^ static_cast<std::uint64_t>(size)); };
  for (const std::int64_t size : {p.c, p.k, p.g}) add(size);
  for (const Spatial* sizes : {&p.size, &p.filter, &p.stride, &p.dilation, &p.pad, &p.pad_right}) {
    for (const std::int64_t size : *sizes) add(size);
  }
  return {.dtype = p.in,
          .types = {{"dtype", std::string(to_string(p.in))},
                    {"direction", std::string(to_string(p.direction))},
                    {"layout", std::string(to_string(p.layout))}},
          .sizes = {{"kind", std::string(kind_of(p))}, {"ndim", std::to_string(p.ndim)}},
          .axes = {Axis{"rows", view.rows}, Axis{"columns", view.columns}},
          .shape_hash = hash,
          .bandwidth_bound = flops(problem) < kFewOperations * bytes(problem)};
}

const Instruction* roof(const Problem& problem, const Target& target) {
  const ConvProblem& p = conv_of(problem);
  const DType other = p.direction == ConvDirection::forward ? p.in : p.out;
  const DType one = p.direction == ConvDirection::backward_weight ? p.in : p.weight;
  return find_instruction(target, other, one, p.acc);
}

Problem plain(const Problem& problem) {
  ConvProblem p = conv_of(problem);
  p.epilogue = {};
  return p;
}

// Tensor cores multiply fp16 at the rate of bf16, and everything else depends on the bytes of an
// element.
Problem twin(const Problem& problem, const Target& target) {
  ConvProblem p = conv_of(problem);
  if (target.backend != "cuda" || p.in != DType::fp16) return p;
  for (DType* type : {&p.in, &p.weight, &p.out, &p.d}) {
    if (*type == DType::fp16) *type = DType::bf16;
  }
  return p;
}

Problem retyped(const Problem& problem, const TypeWords& words) {
  const std::string layout = words.layout.empty() ? "" : " layout=" + words.layout;
  const std::string dtype = words.dtype.empty() ? "" : " dtype=" + words.dtype;
  const ConvProblem types =
      conv_of(parse_problem("conv direction=forward n=1 c=1 k=1" + layout + dtype));
  ConvProblem p = conv_of(problem);
  if (!words.layout.empty()) p.layout = types.layout;
  if (words.dtype.empty()) return p;
  p.in = types.in, p.weight = types.weight, p.acc = types.acc, p.out = types.out, p.d = types.d;
  // An int32 output takes no epilogue. After an epilogue a network stores floating-point numbers.
  if (p.out == DType::int32 && num_ops(p.epilogue) > 0) p.out = p.d = DType::fp32;
  return p;
}

Problem from_words(const ProblemWords& words) {
  ProblemWords own = words;
  for (const auto& [key, word] : kForeignKeys) {
    const auto found = words.find(std::string(key));
    if (found != words.end()) own.emplace(word, found->second);
  }
  own.emplace("direction", "forward");
  return tile::from_words(Op::conv, own, kKeysOfRows);
}

// Whole tiles, edges, strides, dilation, groups, and no images at all.
std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  struct Sample {
    std::int64_t n, c, k, g, size, filter, stride, dilation, pad;
  };
  constexpr Sample kSamples[] = {
      // Whole tiles and edges, strides, dilation, groups, no images.
      {2, 64, 64, 1, 9, 3, 1, 1, 1},
      {1, 96, 32, 1, 14, 3, 2, 1, 1},
      {2, 64, 128, 1, 7, 1, 1, 1, 0},
      {1, 32, 64, 1, 15, 3, 1, 2, 2},
      {1, 24, 12, 4, 11, 5, 1, 1, 2},
      {3, 16, 16, 16, 10, 3, 1, 1, 1},
      {1, 3, 20, 1, 13, 7, 2, 1, 3},
      {0, 8, 8, 1, 5, 3, 1, 1, 0},
      // Products of matrices with few rows and columns, and with a long depth.
      {1, 6, 7, 1, 2, 1, 1, 1, 0},
      {1, 384, 320, 1, 6, 1, 1, 1, 0},
      {1, 64, 48, 1, 64, 1, 1, 1, 0},
      // Small groups, a stem, odd channels.
      {1, 128, 128, 32, 9, 3, 1, 1, 1},
      {1, 256, 256, 32, 8, 3, 2, 1, 1},
      {2, 3, 64, 1, 20, 7, 2, 1, 3},
      {1, 37, 53, 1, 9, 3, 2, 1, 1},
      // One channel of x in each group: every window and stride, dilation, two channels of y.
      {1, 40, 40, 40, 9, 5, 1, 1, 2},
      {1, 48, 48, 48, 14, 7, 1, 1, 3},
      {2, 33, 33, 33, 11, 3, 2, 1, 1},
      {2, 36, 36, 36, 13, 3, 2, 1, 1},
      {1, 24, 24, 24, 13, 5, 2, 1, 2},
      {1, 20, 20, 20, 12, 3, 1, 2, 2},
      {1, 18, 36, 18, 8, 3, 1, 1, 1},
      {2, 7, 7, 7, 10, 5, 1, 1, 2},
      {2, 128, 64, 16, 8, 3, 2, 1, 1},
      {1, 4, 36, 1, 12, 5, 1, 1, 2},
      // Patches, groups of many channels, pixels of few channels.
      {1, 16, 24, 1, 12, 2, 2, 1, 0},
      {1, 144, 240, 3, 6, 3, 1, 1, 1},
      {2, 16, 40, 1, 12, 1, 1, 1, 0},
      // Filters that do not reach into the image from everywhere.
      {2, 64, 64, 1, 6, 1, 1, 1, 2},
      {1, 32, 40, 2, 5, 3, 2, 1, 4},
      {1, 16, 16, 16, 7, 3, 1, 1, 5},
  };
  const auto& s = std::get<ConvSignature>(spec.signature);
  std::vector<Problem> problems;
  std::vector<Sample> all(std::begin(kSamples), std::end(kSamples));
  if (spec.algorithm.pipeline == Pipeline::grouped) {
    // Their shapes are for a number of channels: whole ones, and some that are filled up.
    const bool by_data = s.direction == ConvDirection::backward_data;
    for (const int less : {0, 2}) {
      const std::int64_t depth = 3 * (spec.algorithm.tile.k - less);
      const std::int64_t columns = 3 * (spec.algorithm.tile.n - less);
      const std::int64_t c = by_data ? columns : depth, k = by_data ? depth : columns;
      all.push_back({2, c, k, 3, 9, 3, 1, 1, 1});
      all.push_back({3, c, k, 3, 14, 3, 2, 1, 1});
      all.push_back({1, c, k, 3, 17, 2, 3, 2, 4});
    }
  }
  for (const Sample& sample : all) {
    ConvProblem p;
    p.direction = s.direction, p.layout = s.layout, p.ndim = s.ndim;
    p.in = s.in, p.weight = s.weight, p.acc = s.acc, p.out = s.out, p.d = s.d;
    p.epilogue = s.epilogue;
    p.n = sample.n, p.c = sample.c, p.k = sample.k, p.g = sample.g;
    p.size = {1, 1, 1};
    for (std::size_t i = 3 - static_cast<std::size_t>(s.ndim); i < 3; ++i) {
      p.size[i] = sample.size, p.filter[i] = sample.filter, p.stride[i] = sample.stride;
      p.dilation[i] = sample.dilation, p.pad[i] = sample.pad;
    }
    // Kernels with slices need a depth for each, which gradients by w have by their images.
    for (const std::int64_t times : {1, 16, 256}) {
      p.n = sample.n * times;
      if (!family().supports(spec, p, target)) continue;
      problems.emplace_back(p);
      break;
    }
  }
  return problems;
}

}  // namespace tessera::conv
