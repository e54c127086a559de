// The text of kernels, and the arguments and steps of a launch.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/base/error.h"
#include "tessera/device/cuda/fmha/direct_sizes.h"
#include "tessera/device/cuda/fmha/flash_sizes.h"
#include "tessera/device/fmha_dropout.h"
#include "tessera/families/fmha/arguments.h"
#include "tessera/families/fmha/backward.h"
#include "tessera/families/fmha/extend.h"
#include "tessera/families/fmha/flash_gpu.h"
#include "tessera/families/fmha/fmha.h"
#include "tessera/families/fmha/split_gpu.h"
#include "tessera/families/tile/blocks.h"
#include "tessera/families/tile/objects.h"
#include "tessera/families/tile/text.h"

namespace tessera::fmha {

std::string config_text(const KernelSpec& spec) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  return fmt::format(
      "  using In = {};\n"
      "  using Out = {};\n"
      "  using Bias = {};\n"
      "  static constexpr FmhaLengths kLengths = FmhaLengths::{};\n"
      "  static constexpr FmhaBias kBias = FmhaBias::{};\n"
      "  static constexpr FmhaPages kPages = FmhaPages::{};\n"
      "  static constexpr FmhaCacheLayout kCacheLayout = FmhaCacheLayout::{};\n"
      "  static constexpr FmhaQscale kQscale = FmhaQscale::{};\n"
      "  static constexpr bool kMasked = {}, kSoftCap = {}, kLse = {};\n"
      "  static constexpr bool kDropout = {}, kRandom = {};\n"
      "  static constexpr int kTileM = {}, kTileN = {}, kTileK = {}, kHdimV = {};\n"
      "  static constexpr int kWaveM = {}, kWarpM = {}, kWarpN = {};\n",
      tile::storage_type(s.in), tile::storage_type(s.out), tile::storage_type(s.dtype_bias),
      to_string(s.lengths), to_string(s.bias), to_string(s.pages), to_string(s.cache_layout),
      to_string(s.qscale), s.masked, s.soft_cap, s.lse, s.dropout, s.random, a.tile.m, a.tile.n,
      a.tile.k, most_hdim_v(a.tile.k), a.wave.m, a.warp_tile.m, a.warp_tile.n);
}

std::vector<tile::CpuObject> product_objects(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<FmhaSignature>(spec.signature);
  const Shape3& w = spec.algorithm.warp_tile;
  const std::string in(tile::storage_type(s.in));
  const auto panels = [&](bool adds) {
    return tile::Instantiation{
        "void", "multiply_panels",
        fmt::format("FlashMath<{}>, {}, {}, {}", in, w.m, w.n * 4 / target.vector_bytes, adds),
        "const FloatRows&, const float*, i64, i64, i64, const FloatRows&"};
  };
  const std::string placed = fmt::format("PlacedTokens<{}>", in);
  const std::string packing = fmt::format("{}, FlashMath<{}>::kPerWord, {}", w.n, in, placed);
  const std::string tokens = fmt::format("const {}&, i64, i64, ", placed);
  std::vector<tile::CpuObject> objects = {{"fmha/flash_block.h", {panels(false), panels(true)}}};
  if (size_of(s.in) == 1) return objects;  // packed with factors
  objects.push_back({"fmha/flash_pack.h",
                     {{"void", "pack_keys", packing, tokens + "float*"},
                      {"void", "pack_values", packing, tokens + "i64, float*"}}});
  return objects;
}

namespace {

// And products of few rows in place.
std::vector<tile::CpuObject> cpu_objects(const KernelSpec& spec, const Target& target) {
  const DType type = std::get<FmhaSignature>(spec.signature).in;
  std::vector<tile::CpuObject> objects = product_objects(spec, target);
  if (size_of(type) == 1) return objects;  // never read in place
  const std::string in(tile::storage_type(type));
  const std::string run = fmt::format("const TokenRun<{}>&, const FloatRows&", in);
  objects.push_back({"fmha/flash_few.h",
                     {{"void", "multiply_few_keys", in, "const FloatRows&, i64, " + run},
                      {"void", "add_few_values", in, "const FloatRows&, i64, " + run}}});
  return objects;
}

// The threads of a block. tmaws has a group of threads that loads besides those that compute.
int gpu_threads(const KernelSpec& spec) {
  const Algorithm& a = spec.algorithm;
  if (a.pipeline == Pipeline::tmaws) return device::flash_threads(a.wave.m);
  return 32 * std::max(1, a.wave.m) * a.wave.n;
}

// A GPU's blocks: of queries, of heads, of the batch.
void add_step(const KernelSpec& spec, const FmhaProblem& p, Launch& launch) {
  const Algorithm& a = spec.algorithm;
  Step step;
  step.grid = grid_of({tile::blocks_of(p.seqlen_q, a.tile.m), p.heads, p.batch});
  step.block = {static_cast<unsigned>(gpu_threads(spec)), 1, 1};
  step.shared_memory_bytes = static_cast<std::size_t>(
      device::fmha_direct_shared_bytes(a.tile.m, a.tile.k, most_hdim_v(a.tile.k), size_of(p.in)));
  launch.steps.push(step);
}

// The first step of a checked launch: one block looks at the pages.
void add_check(const KernelSpec& spec, Launch& launch) {
  Step step;
  step.entry = 1;
  step.block = {static_cast<unsigned>(gpu_threads(spec)), 1, 1};
  launch.steps.push(step);
}

void bind_forward(const KernelSpec& spec, const FmhaProblem& p, const FmhaOperands& o,
                  Launch& launch) {
  if (p.check_pages) add_check(spec, launch);
  if (spec.algorithm.pipeline != Pipeline::flash) {
    add_append_step(spec, p, gpu_threads(spec), launch);
  }
  if (spec.algorithm.pipeline == Pipeline::tmaws) {
    bind_flash_gpu(spec, p, o, launch);
  } else if (spec.algorithm.pipeline == Pipeline::splitkv) {
    bind_split_gpu(spec, p, o, launch);
  } else {
    set_arguments(arguments_of(p, o), p, o, launch);
    if (has_queries(p)) add_step(spec, p, launch);
    if (spec.algorithm.pipeline == Pipeline::flash) {
      launch.parts = flash_cpu_parts(spec.algorithm, p);
    }
  }
}

}  // namespace

void copy_strides(const FmhaStrides& from, device::i64 (&to)[device::kTokenStrides]) {
  std::copy(from.begin(), from.end(), to);
}

std::array<unsigned, 3> grid_of(const std::array<std::int64_t, 3>& blocks) {
  constexpr std::array<std::int64_t, 3> kMost = {1 << 30, 65535, 65535};
  std::array<unsigned, 3> grid{};
  for (std::size_t i = 0; i < grid.size(); ++i) {
    grid[i] = static_cast<unsigned>(std::min(blocks[i], kMost[i]));
  }
  return grid;
}

device::FmhaArguments arguments_of(const FmhaProblem& p, const FmhaOperands& o) {
  device::FmhaArguments g{};
  g.q = queries_of(p, o), g.k = o.k, g.v = values_of(p, o), g.bias = o.bias, g.slopes = o.slopes;
  g.seqlens_q = o.seqlens_q, g.seqlens_k = o.seqlens_k;
  g.out = o.out, g.lse = o.lse;
  g.batch = p.batch, g.heads = p.heads, g.heads_kv = p.heads_kv;
  g.seqlen_q = p.seqlen_q, g.seqlen_k = p.seqlen_k;
  g.tokens_q = p.tokens_q, g.tokens_k = p.tokens_k;
  g.hdim = p.hdim, g.hdim_v = p.hdim_v;
  copy_strides(query_strides(p), g.q_stride), copy_strides(p.k_strides, g.k_stride);
  copy_strides(p.v_strides, g.v_stride), copy_strides(p.out_strides, g.out_stride);
  copy_strides(p.bias_strides, g.bias_stride);
  if (p.lengths == FmhaLengths::packed) {
    g.q_stride[0] = g.out_stride[0] = 0;
    if (p.pages == FmhaPages::none) g.k_stride[0] = g.v_stride[0] = 0;
  }
  const LseLayout lse = lse_layout(p);
  std::copy(lse.strides.begin(), lse.strides.end(), g.lse_stride);
  g.slope_stride = p.slope_stride;
  g.window_left = p.window_left, g.window_right = p.window_right;
  g.sink = p.sink, g.skip_q = p.skip_q;
  g.num_splits = p.num_splits;
  g.scale = p.scale, g.soft_cap = p.soft_cap;
  g.at_end = p.mask == FmhaMask::bottom_right ? 1 : 0;
  g.kept = device::dropout_kept(p.p_drop);
  g.dropout_rng = reinterpret_cast<const device::u64*>(o.dropout_rng);
  g.seed = o.seed, g.offset = o.offset;
  g.random_values = o.random_values;
  set_page_fields(p, o, g);
  g.descale_q = o.descale_q, g.descale_k = o.descale_k, g.descale_v = o.descale_v;
  g.scale_o = o.scale_o;
  g.block_q = p.qscale_block_q, g.block_k = p.qscale_block_k;
  g.blocks_q = blocks_of_queries(p), g.blocks_k = blocks_of_keys(p);
  return g;
}

Source emit(const KernelSpec& spec, const Target& target) {
  if (appends(spec) && (target.backend == "cpu" || target.backend == "cuda")) {
    return emit_append(spec, target);
  }
  if (goes_back(spec) && (target.backend == "cpu" || target.backend == "cuda")) {
    return emit_backward(spec, target);
  }
  const std::string config = config_text(spec);
  if (target.backend == "cpu") {
    Source source = attention_on_cpu(spec, target,
                                     {"fmha/flash_fmha.h", "FmhaKernel", "FmhaArguments", config});
    tile::add_objects(cpu_objects(spec, target), source);
    return source;
  }
  if (spec.algorithm.pipeline == Pipeline::tmaws) return emit_flash_gpu(spec);
  if (spec.algorithm.pipeline == Pipeline::splitkv) return emit_split_gpu(spec);
  if (target.backend == "cuda") {
    return attention_on_gpu(spec, {"fmha/direct_fmha.h", "FmhaKernel", "FmhaArguments", config},
                            gpu_threads(spec));
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: this build emits attention for cpu and cuda targets, {} is a {} "
                          "target",
                          name_of(spec), target.name, target.backend));
}

Launch bind(const KernelSpec& spec, const Problem& problem, const Operands& operands) {
  const FmhaProblem p = with_strides(fmha_of(problem));
  const auto& o = std::get<FmhaOperands>(operands);
  Launch launch;
  if (appends(spec)) {
    bind_append(spec, p, o, launch);
  } else if (goes_back(spec)) {
    bind_backward(spec, p, o, launch);
  } else {
    bind_forward(spec, p, o, launch);
  }
  for (const Tensor& tensor : tensors(problem)) {
    if (!tensor.is_empty()) launch.pointers.push(pointer(operands, tensor.operand));
  }
  return launch;
}

}  // namespace tessera::fmha
