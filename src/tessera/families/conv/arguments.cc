// What kernels of every pipeline are told: their configuration and their arguments.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/conv.h"
#include "tessera/families/conv/conv.h"
#include "tessera/families/tile/epilogue.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

template <std::size_t n>
void copy(const std::array<std::int64_t, n>& from, device::i64 (&to)[n]) {
  std::copy(from.begin(), from.end(), to);
}

}  // namespace

std::string config_text(const KernelSpec& spec, std::string_view tf32) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const bool is_last = s.layout == ConvLayout::nhwgc;
  std::string text = fmt::format(
      "  using X = {};\n"
      "  using W = {};\n"
      "  using Y = {};\n"
      "  using D = {};\n"
      "  using Acc = {};\n"
      "  static constexpr ConvDirection kDirection = ConvDirection::{};\n"
      "  static constexpr bool kChannelsLast = {};\n"
      "  static constexpr int kNdim = {};\n",
      tile::storage_type(s.in, tf32), tile::storage_type(s.weight, tf32),
      tile::storage_type(s.out, tf32), tile::storage_type(s.d, tf32),
      s.acc == DType::int32 ? "int" : "float", to_string(s.direction), is_last, s.ndim);
  text += fmt::format(
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {};\n"
      "  static constexpr int kWaveM = {}, kWaveN = {}, kWaveK = {};\n"
      "  static constexpr int kWarpTileM = {}, kWarpTileN = {}, kWarpTileK = {};\n"
      "  static constexpr int kStages = {}, kSlices = {};\n",
      a.tile.m, a.tile.n, a.tile.k, a.wave.m, a.wave.n, a.wave.k, a.warp_tile.m, a.warp_tile.n,
      a.warp_tile.k, a.stages, a.slices);
  return text + tile::epilogue_fields(s.epilogue);
}

device::ConvArguments arguments_of(const ConvProblem& p, const ConvOperands& o) {
  device::ConvArguments g{};
  g.n = p.n, g.groups = p.g, g.c = p.c / p.g, g.k = p.k / p.g;
  copy(p.size, g.size);
  copy(p.filter, g.filter);
  copy(out_size(p), g.out_size);
  copy(p.stride, g.stride);
  copy(p.dilation, g.dilation);
  copy(p.pad, g.pad);
  const bool is_forward = p.direction == ConvDirection::forward;
  const bool is_data = p.direction == ConvDirection::backward_data;
  g.x = is_data ? nullptr : o.in;
  g.w = is_forward || is_data ? o.weight : nullptr;
  g.y = is_forward ? nullptr : o.grad_out;
  g.out = is_forward ? o.out : is_data ? o.grad_in : o.grad_weight;
  g.before = p.beta == 0 ? nullptr : o.c;
  std::copy(o.d.begin(), o.d.end(), g.d);
  copy(p.in_strides, g.x_stride);
  copy(p.weight_strides, g.w_stride);
  copy(p.out_strides, g.y_stride);
  g.alpha = p.alpha, g.beta = p.beta, g.clamp_lo = p.clamp_lo, g.clamp_hi = p.clamp_hi;
  return g;
}

Launch bind_on_cpu(const KernelSpec& spec, const ConvProblem& p, const Target&,
                   const ConvOperands& o) {
  Launch launch;
  launch.arguments.set(arguments_of(p, o));
  launch.max_threads = spec.algorithm.wave.m;
  launch.steps.push(Step{});
  return launch;
}

}  // namespace tessera::conv
