// What the stages that learn, report and exchange data need to know about a convolution.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/families/conv/conv.h"
#include "tessera/families/refusals.h"
#include "tessera/families/tile/usual.h"

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

// ---- problems to learn from ----

constexpr std::array<std::string_view, 1> kSets = {"wide"};
constexpr std::array<std::int64_t, 8> kSizes = {7, 8, 14, 16, 28, 32, 56, 112};

std::int64_t channels(Draw& numbers) {
  const std::int64_t count = numbers.log_uniform(3, 11);
  return numbers.below(4) == 0 ? count : (count + 31) / 32 * 32;
}

// Layers as networks have them: sizes of 7 to 112, few channels where images are large, filters of
// 1 to 7, a quarter with strides of 2, some grouped, some depthwise, some 1-D and 3-D.
std::optional<Problem> draw_layer(std::uint64_t index, const ConvProblem& types,
                                  std::int64_t most_flops) {
  Draw numbers(1, index);
  ConvProblem p = types;
  p.n = numbers.log_uniform(0, 8);
  p.c = channels(numbers);
  p.k = numbers.below(2) == 0 ? p.c : channels(numbers);
  const std::int64_t kind = numbers.below(8);
  if (kind == 0) p.g = p.k = p.c;
  if (kind == 1) {
    p.g = std::int64_t{1} << numbers.between(1, 5);
    p.c = (p.c + p.g - 1) / p.g * p.g;
    p.k = (p.k + p.g - 1) / p.g * p.g;
  }
  if (kind == 2) p.c = numbers.between(1, 4);
  const std::int64_t ndim = std::array<std::int64_t, 8>{1, 2, 2, 2, 2, 2, 2, 3}.at(
      static_cast<std::size_t>(numbers.below(8)));
  p.ndim = ndim;
  const std::int64_t filter = numbers.one_of(std::array<std::int64_t, 6>{1, 1, 3, 3, 5, 7});
  const std::int64_t stride = numbers.below(4) == 0 ? 2 : 1;
  const std::int64_t size = numbers.one_of(kSizes);
  for (std::size_t i = 3 - static_cast<std::size_t>(ndim); i < 3; ++i) {
    p.size[i] = ndim == 1 ? size * size : i == 0 ? std::max<std::int64_t>(size / 4, 3) : size;
    p.filter[i] = std::min(filter, p.size[i]);
    p.stride[i] = stride;
    p.pad[i] = (p.filter[i] - 1) / 2;
  }
  if (flops(p) > double(most_flops) || bytes(p) > 0x1p31) return std::nullopt;
  return p;
}

}  // namespace

// The direction, and the types: one model learns the kernels of one direction.
std::string model_key(const Signature& signature) {
  const auto& s = std::get<ConvSignature>(signature);
  return fmt::format("{}_{}", to_string(s.direction), to_string(s.in));
}

tessera::Facts facts(const Problem& problem) {
  const ConvProblem& p = conv_of(problem);
  const View view = view_of(p);
  std::uint64_t hash = mix(static_cast<std::uint64_t>(p.n));
  const auto add = [&](std::int64_t size) { hash = mix(hash ^ static_cast<std::uint64_t>(size)); };
  for (const std::int64_t size : {p.c, p.k, p.g}) add(size);
  for (const Spatial* sizes : {&p.size, &p.filter, &p.stride, &p.dilation, &p.pad}) {
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

std::span<const std::string_view> problem_sets() { return kSets; }

std::vector<Problem> draw(std::string_view set, ProblemSide side, const Target& target,
                          const TypeWords& words) {
  if (set != kSets[0]) refuse_problem_set(set, kSets);
  const std::int64_t most = std::int64_t{1} << (is_gpu(target) ? 42 : 32);
  const ConvProblem types = conv_of(retyped(ConvProblem{}, words));
  return tile::draw_problems(side == ProblemSide::unseen ? 300 : 1500, side,
                             [&](std::uint64_t i) { return draw_layer(i, types, most); });
}

// Whole tiles, edges, strides, dilation, groups, and no images at all.
std::vector<Problem> samples(const KernelSpec& spec, const Target& target) {
  struct Sample {
    std::int64_t n, c, k, g, size, filter, stride, dilation, pad;
  };
  constexpr Sample kSamples[] = {
      {2, 64, 64, 1, 9, 3, 1, 1, 1},  {1, 96, 32, 1, 14, 3, 2, 1, 1},
      {2, 64, 128, 1, 7, 1, 1, 1, 0}, {1, 32, 64, 1, 15, 3, 1, 2, 2},
      {1, 24, 12, 4, 11, 5, 1, 1, 2}, {3, 16, 16, 16, 10, 3, 1, 1, 1},
      {1, 3, 20, 1, 13, 7, 2, 1, 3},  {0, 8, 8, 1, 5, 3, 1, 1, 0},
  };
  const auto& s = std::get<ConvSignature>(spec.signature);
  std::vector<Problem> problems;
  for (const Sample& sample : kSamples) {
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
    if (supports(spec, p, target)) problems.emplace_back(p);
  }
  return problems;
}

}  // namespace tessera::conv
