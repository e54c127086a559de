// Kernels for CPUs of convolutions with one channel of x in each group, see
// src/tessera/device/cpu/conv/depthwise_conv.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/device/conv.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/objects.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

constexpr int kMostWindow = 32;
constexpr double kWindowCycles = 0.5;  // of a product of vectors in a window, besides
constexpr double kTapCycles = 1.2;     // of each load of a source, which a window's taps share
constexpr double kAnyCycles = 2.2;     // of a product of vectors outside of windows
constexpr double kApartCycles = 36;    // of a product of vectors whose lanes lie apart
constexpr double kVectorCycles = 2;    // to store and finish a vector of results
constexpr double kCopyCycles = 3;      // to copy a vector of pixels, in nchw
constexpr double kCpuLineCycles = 60;  // of a line of results
constexpr double kUnhidden = 0.25;     // of the shorter time of computing and moving
constexpr int kMostInt8Taps = 1024;    // whose sums fp32 holds exactly

// A window has `taps` of a line (of a column in nchw) of pixels `step` places apart: warp_tile.k
// and tile.m.
int vector_lanes(const Target& target) { return target.vector_bytes / 4; }

int window_registers(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  return (w.m + w.k) * (w.n / vector_lanes(c.target)) + 1;
}

bool is_floating_point(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::tf32 || dtype == DType::fp16 ||
         dtype == DType::bf16;
}
bool is_int8(const ConvSignature& s) { return s.in == DType::int8 && s.weight == DType::int8; }

constexpr tile::Rule<Case> kCpuDepthwiseRules[] = {
    {[](const Case& c) {
       const ConvSignature& s = c.signature;
       return is_int8(s) ||
              (is_floating_point(s.in) && is_floating_point(s.weight) && is_floating_point(s.out));
     },
     [](const Case& c) {
       return fmt::format(
           "depthwise multiplies fp32, tf32, fp16, bf16 and int8, got {} and {} to {}",
           to_string(c.signature.in), to_string(c.signature.weight), to_string(c.signature.out));
     }},
    {[](const Case& c) { return !is_int8(c.signature) || c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format("depthwise multiplies int8 in nhwgc, got {}",
                          to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       const Shape3 &t = c.algorithm.tile, &w = c.algorithm.wave;
       return t.n == 1 && t.k == 1 && (t.m == 1 || t.m == 2) && w == Shape3{0, 0, 1};
     },
     [](const Case& c) {
       return fmt::format("depthwise has tile 1x1x1 or 2x1x1 and wave 0x0x1, got {} and {}",
                          to_string(c.algorithm.tile), to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       return c.signature.direction != ConvDirection::backward_data || c.algorithm.tile.m == 1;
     },
     [](const Case& c) {
       return fmt::format("tile_m must be 1 in backward_data, whose sources are neighbours, got {}",
                          c.algorithm.tile.m);
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return std::min({w.m, w.n, w.k - 1}) >= 1 && std::max(w.m, w.k) <= kMostWindow &&
              w.n % vector_lanes(c.target) == 0;
     },
     [](const Case& c) {
       return fmt::format(
           "warp_tile must have 1 to {0} rows, a multiple of {1} lanes and 2 to {0} steps, got {2}",
           kMostWindow, vector_lanes(c.target), to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) { return window_registers(c) <= c.target.vector_registers; },
     [](const Case& c) {
       return fmt::format("needs {} vector registers, {} has {}", window_registers(c),
                          c.target.name, c.target.vector_registers);
     }},
};

std::vector<Algorithm> cpu_depthwise_algorithms(const Target& target) {
  return blocked_algorithms(target, Pipeline::depthwise);
}

// Lanes are groups in nhwgc, which therefore have to be neighbours.
Verdict cpu_depthwise_serves(const KernelSpec& spec, const ConvProblem& p, const Target&) {
  if (p.c != p.g) {
    return {fmt::format("depthwise needs one channel of x in each group, got {} in {} groups", p.c,
                        p.g)};
  }
  const std::int64_t taps = p.filter[0] * p.filter[1] * p.filter[2];
  if (is_int8(std::get<ConvSignature>(spec.signature)) && taps > kMostInt8Taps) {
    return {
        fmt::format("depthwise adds up to {} products of int8, got {} taps", kMostInt8Taps, taps)};
  }
  if (p.layout != ConvLayout::nhwgc || p.g == 1) return {};
  constexpr std::size_t kGroup = device::kImageG;
  const std::int64_t x = p.in_strides[kGroup], y = p.out_strides[kGroup], k = p.k / p.g;
  if (x == 1 && y == k) return {};
  return {fmt::format("depthwise needs groups without gaps: strides of 1 and {}, got {} and {}", k,
                      x, y)};
}

// ---- text ----

struct CpuDepthwiseText {
  std::string types, operands, kind, parameters;
};
CpuDepthwiseText cpu_depthwise_text(const ConvSignature& s) {
  const bool is_last = s.layout == ConvLayout::nhwgc;
  const bool is_weights = s.direction == ConvDirection::backward_weight;
  const std::string_view x = tile::storage_type(s.in), w = tile::storage_type(s.weight);
  const std::string_view y = tile::storage_type(s.out);
  const std::string_view image = s.direction == ConvDirection::backward_data ? y : x;
  const std::string operands =
      fmt::format("{}, {}", is_last ? image : "float", is_last && is_weights ? y : "float");
  return {fmt::format("DepthwiseTypes<ConvDirection::{}, {}, {}, {}, {}>", to_string(s.direction),
                      is_last, x, w, y),
          operands, fmt::format("DepthwiseKind::{}", is_last || is_weights ? "vectors" : "splat"),
          fmt::format("const DepthwiseNest<{}>&, const DepthwiseSums&", operands)};
}

std::vector<tile::CpuObject> cpu_depthwise_objects(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const CpuDepthwiseText text = cpu_depthwise_text(s);
  const auto any = [&](std::string_view kind) {
    return tile::Instantiation{"void", "depthwise_any", fmt::format("{}, {}", text.operands, kind),
                               text.parameters};
  };
  const auto window = [&](int vectors) {
    return tile::Instantiation{"void", "depthwise_window",
                               fmt::format("{}, {}, {}, {}, {}, {}, {}", text.operands, text.kind,
                                           s.direction == ConvDirection::backward_weight, a.tile.m,
                                           a.warp_tile.m, a.warp_tile.k, vectors),
                               text.parameters};
  };
  const std::string shape = fmt::format("const DepthwiseShape<{}>&, const void*, ", text.types);
  std::vector<tile::CpuObject> objects = {
      {"conv/depthwise_driver.h",
       {{"void", "depthwise_conv_run", text.types, shape + "const CpuThread&"},
        {"i64", "depthwise_conv_workspace_bytes", text.types, shape + "int"}}},
      {"conv/depthwise_block.h", {any(text.kind)}},
      {"conv/depthwise_window.h", {window(1)}}};
  if (s.layout == ConvLayout::nhwgc && s.direction != ConvDirection::forward) {
    const bool is_data = s.direction == ConvDirection::backward_data;
    objects[1].functions.push_back(
        any(is_data ? "DepthwiseKind::source_apart" : "DepthwiseKind::apart"));
  }
  const int vectors = a.warp_tile.n / vector_lanes(target);
  if (vectors > 1) objects.push_back({"conv/depthwise_window.h", {window(vectors)}});
  return objects;
}

Source emit_cpu_depthwise(const KernelSpec& spec, const Target& target) {
  const std::string entry;
  Source source = tile::cpu_source(
      spec, target, kAbi,
      {"conv/depthwise_conv.h", "DepthwiseConv", "ConvArguments", config_text(spec, "float")},
      std::span(&entry, 1));
  tile::add_objects(cpu_depthwise_objects(spec, target), source);
  return source;
}

// ---- estimate ----

// Whether the kernel's window fits the problem along the dimension that its rows take.
bool has_cpu_window(const Algorithm& a, const ConvProblem& p) {
  const std::size_t dim = p.layout == ConvLayout::nhwgc ? device::kWidth : device::kHeight;
  if (p.dilation[dim] != 1) return false;
  if (p.direction != ConvDirection::backward_data) {
    return p.filter[dim] == a.warp_tile.k && p.stride[dim] == a.tile.m;
  }
  // A stride leaves a part of the taps to each class of pixels.
  const std::int64_t most = (p.filter[dim] + p.stride[dim] - 1) / p.stride[dim];
  return most == a.warp_tile.k;
}

Estimate estimate_cpu_depthwise(const KernelSpec& spec, const ConvProblem& p, const Target& target,
                                int threads) {
  const Problem problem = p;
  const Algorithm& a = spec.algorithm;
  const bool is_last = p.layout == ConvLayout::nhwgc;
  const double lanes = vector_lanes(target);
  const Spatial out = out_size(p);
  const double taps = double(p.filter[0] * p.filter[1] * p.filter[2]);
  const double lines = double(p.n) * double(out[0] * out[1]) * (is_last ? 1 : double(p.k));
  const double vectors = lines * std::ceil(double(is_last ? p.g : out[2]) / lanes) *
                         double(is_last ? out[2] * (p.k / p.g) : 1);
  const bool is_apart = is_last && p.direction != ConvDirection::forward && p.k > p.g;
  const double product = is_apart               ? kApartCycles
                         : has_cpu_window(a, p) ? kWindowCycles + kTapCycles / a.warp_tile.k
                                                : kAnyCycles;
  double cycles = vectors * (taps * product + kVectorCycles) + lines * kCpuLineCycles;
  const double sources = double(p.n) * double(p.size[0] * p.size[1]) * double(p.c);
  if (!is_last) cycles += sources * std::ceil(double(p.size[2]) / lanes) * kCopyCycles;
  const double used = units_used(threads, target);
  const double share = std::max(1.0, std::min(used, lines));
  const double compute = cycles / (target.clock_ghz * 1e9 * share);
  const double memory = bytes(problem) / tile::cpu_bandwidth(target, bytes(problem), used);
  return tile::total_of(compute, memory,
                        target.launch_us * 1e-6 + kUnhidden * std::min(compute, memory));
}

}  // namespace

const Way kDepthwiseCpu = {.backend = "cpu",
                           .pipeline = Pipeline::depthwise,
                           .rules = kCpuDepthwiseRules,
                           .serves = cpu_depthwise_serves,
                           .algorithms = cpu_depthwise_algorithms,
                           .emit = emit_cpu_depthwise,
                           .bind = bind_on_cpu,
                           .estimate = estimate_cpu_depthwise};

}  // namespace tessera::conv
