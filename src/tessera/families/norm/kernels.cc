// Which kernels there are, and what their ways share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/device/cuda/abi.h"
#include "tessera/device/norm.h"
#include "tessera/families/norm/norm.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/fields.h"
#include "tessera/spec/words_internal.h"

namespace tessera::norm {
namespace {

constexpr int kLeastTile = 256;
constexpr int kMostTile = 32768;
constexpr int kMostSlices = 256;
constexpr std::int64_t kMostSlicedRows = 65536;
constexpr std::int64_t kMostTiles = 65535;  // of a grid along y
constexpr std::int64_t kAligned = 16;       // bytes of a row's address for the widest loads

constexpr tile::Rule<Case> kCommonRules[] = {
    {[](const Case& c) { return tile::has_pipeline(Op::norm, c.target, c.algorithm.pipeline); },
     [](const Case& c) {
       return fmt::format("{} has no pipeline {}", c.target.name, to_string(c.algorithm.pipeline));
     }},
    {[](const Case& c) { return signature_reason(c.signature).empty(); },
     [](const Case& c) { return signature_reason(c.signature); }},
    tile::kRowOf<Case, tile::kUnusedFields>,
    {[](const Case& c) { return c.signature.quant == NormQuant::none || c.algorithm.slices == 1; },
     [](const Case& c) {
       return fmt::format("slices must be 1 with quant={}, got {}", to_string(c.signature.quant),
                          c.algorithm.slices);
     }},
    {[](const Case& c) { return !is_elementwise(c.signature.kind) || c.algorithm.slices == 1; },
     [](const Case& c) {
       return fmt::format("slices must be 1 with kind={}, got {}", to_string(c.signature.kind),
                          c.algorithm.slices);
     }},
    {[](const Case& c) { return c.algorithm.slices >= 1 && c.algorithm.slices <= kMostSlices; },
     [](const Case& c) {
       return fmt::format("slices must be between 1 and {}, got {}", kMostSlices,
                          c.algorithm.slices);
     }},
};

std::string config_text(const KernelSpec& spec) {
  const auto& s = std::get<NormSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  return fmt::format(
      "  using In = {};\n"
      "  using Weight = {};\n"
      "  using Out = {};\n"
      "  static constexpr NormKind kKind = NormKind::{};\n"
      "  static constexpr bool kScale = {}, kShift = {}, kResidual = {};\n"
      "  static constexpr NormQuant kQuant = NormQuant::{};\n"
      "  static constexpr bool kInterleaved = {};\n"
      "  static constexpr int kTileN = {}, kWaveM = {}, kWaveN = {}, kSlices = {};\n",
      tile::storage_type(s.in), tile::storage_type(s.weight), tile::storage_type(s.out),
      to_string(s.kind), s.scale, s.shift, s.residual, to_string(s.quant), s.interleaved, a.tile.n,
      a.wave.m, a.wave.n, a.slices);
}

// A CPU runs the same steps, and takes no notice of blocks and of the workspace.
void add_steps(const Algorithm& a, const NormProblem& p, Launch& launch) {
  const std::int64_t most_blocks = std::numeric_limits<std::int32_t>::max() / a.cluster_n;
  const int height = std::max(1, a.wave.m) * a.warp_tile.m;
  const std::int64_t blocks = tile::ceil_div(p.rows, height);
  const std::int64_t layers = tile::ceil_div(blocks, most_blocks);
  Step step;
  step.grid = {static_cast<unsigned>(tile::ceil_div(blocks, layers) * a.cluster_n),
               static_cast<unsigned>(a.slices), static_cast<unsigned>(layers)};
  step.block = {static_cast<unsigned>(a.wave.n * kWarp),
                static_cast<unsigned>(std::max(1, a.wave.m)), 1};
  step.cluster = {static_cast<unsigned>(a.cluster_n), 1, 1};
  launch.steps.push(step);
  if (a.slices == 1) return;
  step.entry = 1;
  launch.steps.push(step);
  reserve_statistics(a, p, launch);
}

std::string_view dtype_of(const Signature& signature) {
  return to_string(std::get<NormSignature>(signature).in);
}
constexpr std::array kDerived = {DerivedField{"dtype", known_words<DType>, dtype_of}};

}  // namespace

std::span<const Way* const> Types::ways() {
  static constexpr std::array kAll = {&kRowsCpu, &kRowsCuda, &kRowsHip};
  return kAll;
}

std::span<const tile::Rule<Case>> Types::common_rules() { return kCommonRules; }

std::string Types::no_way(const KernelSpec& spec, const Target& target) {
  return tile::no_backend("norm kernels", spec, target);
}

// What networks use: all of one type, or half precision with weights or probabilities in fp32.
std::vector<Signature> Types::signatures() {
  std::vector<tessera::Signature> all;
  for (const DType in : {DType::fp32, DType::fp16, DType::bf16}) {
    for (const DType other : {in, DType::fp32}) {
      all.push_back(NormSignature{.in = in, .weight = in, .out = other});
      for (const NormKind kind : {NormKind::rmsnorm, NormKind::layernorm}) {
        for (const bool residual : {false, true}) {
          all.push_back(
              NormSignature{kind, in, other, in, true, kind == NormKind::layernorm, residual});
        }
      }
      if (in == DType::fp32) break;
    }
    for (const NormKind kind :
         {NormKind::silu_mul, NormKind::gelu_mul, NormKind::gelu_tanh_mul, NormKind::copy}) {
      all.push_back(NormSignature{.kind = kind, .in = in, .weight = in, .out = in});
    }
  }
  return all;
}

std::vector<Algorithm> Types::algorithms_for(const tessera::Problem&, const Target& target) {
  return tile::algorithms_of<Types>(target);
}

bool tile_fits(const Shape3& tile, int rows, int unit) {
  return tile.m == rows && tile.k == 1 && tile.n >= kLeastTile && tile.n <= kMostTile &&
         tile.n % unit == 0;
}
std::string tile_does_not_fit(const Shape3& tile, int rows, int unit) {
  return fmt::format("tile must be {} x n x 1, n a multiple of {} from {} to {}, got {}", rows,
                     unit, kLeastTile, kMostTile, to_string(tile));
}

std::vector<Algorithm> rows_algorithms(const Target& target, int (*rows)(const Algorithm&)) {
  const AlgorithmSpace& space = tile::space_of(Op::norm, target);
  std::vector<Algorithm> all;
  tile::for_each_shape(space, space.tiles, {Shape3{}}, [&](Algorithm a) {
    a.tile.m = rows(a);
    for (const int slices : {1, 8, 32, 128}) {
      a.slices = slices;
      if (slices == 1 || a.wave.m <= 1) all.push_back(a);
    }
  });
  return all;
}

Verdict rows_serve(const KernelSpec& spec, const NormProblem& p, const Target&) {
  if (spec.algorithm.slices == 1 || p.rows <= kMostSlicedRows) return {};
  return {fmt::format("slices serve at most {} rows, got {}", kMostSlicedRows, p.rows)};
}

unsigned tiles_of(const Algorithm& a, const NormProblem& p) {
  return static_cast<unsigned>(tile::ceil_div(p.columns, std::int64_t{a.tile.n}));
}

Verdict cut_rows_serve(const Algorithm& a, const NormProblem& p) {
  const std::int64_t most = kMostTiles * a.tile.n;
  if (p.columns > most) {
    return {fmt::format("columns must be at most {}, which are {} tiles, got {}", most, kMostTiles,
                        p.columns)};
  }
  if (p.quant != NormQuant::block || p.columns <= a.tile.n || a.tile.n % device::kQuantBlock == 0) {
    return {};
  }
  return {fmt::format("columns must be at most {} where tile_n is no multiple of {}, got {}",
                      a.tile.n, device::kQuantBlock, p.columns)};
}

tile::Template rows_template(const KernelSpec& spec) {
  return {"norm/norm_kernel.h", "NormKernel", "NormArguments", config_text(spec)};
}

int steps_of(const Algorithm& a) { return a.slices > 1 ? 2 : 1; }

device::NormArguments rows_arguments(const NormProblem& p, const NormOperands& o) {
  // What is added to what must not follow the number of rows, nor the scales' addresses.
  NormProblem plain = p;
  plain.rows = std::max<std::int64_t>(p.rows, 2), plain.quant = NormQuant::none;
  const bool is_aligned = tile::rows_aligned(family(), plain, o, kAligned);
  const std::int64_t blocks =
      p.quant == NormQuant::block ? tile::ceil_div(p.columns, device::kQuantBlock) : 1;
  return {p.rows,
          p.columns,
          o.in,
          o.residual,
          o.scale,
          o.shift,
          o.out,
          o.sum,
          p.ld_in,
          p.ld_residual,
          p.ld_out,
          p.ld_sum,
          p.epsilon,
          is_aligned ? 1 : 0,
          nullptr,
          static_cast<const float*>(o.out_scale),
          static_cast<float*>(o.out_scales),
          p.scales_by_column ? 1 : blocks,
          p.scales_by_column ? p.rows : 1,
          0};
}

void reserve_statistics(const Algorithm& a, const NormProblem& p, Launch& launch) {
  const auto slices = static_cast<std::size_t>(p.rows * a.slices);
  launch.workspace.bytes = device::kCounterBytes + slices * sizeof(device::ScaledStatistics);
  launch.workspace.address_offset = offsetof(device::NormArguments, workspace);
}

Launch bind_rows(const KernelSpec& spec, const NormProblem& p, const Target&,
                 const NormOperands& o) {
  Launch launch;
  launch.arguments.set(rows_arguments(p, o));
  launch.max_threads = spec.algorithm.wave.m;  // CPU: 1, or 0 for as many as there are
  if (p.rows > 0 && p.columns > 0) add_steps(spec.algorithm, p, launch);
  for (const Tensor& tensor : tensors(p)) launch.pointers.push(pointer(o, tensor.operand));
  return launch;
}

double bytes_again(const Algorithm& a, const NormProblem& p) {
  const bool is_held = p.columns <= a.tile.n && a.slices == 1;
  const bool is_read_once = is_held || is_cut(p);
  return is_read_once ? 0 : elements(p) * (is_gated(p.kind) ? 2 : 1) * size_of(p.in);
}

std::span<const DerivedField> derived() { return kDerived; }

KernelSpec general(const Problem& problem, const Target& target) {
  KernelSpec spec = {signature_of(problem), kRowsCuda.own.general, target.name};
  if (const Way* const way = tile::find_way<Types>(spec, target)) {
    const auto& s = std::get<NormSignature>(spec.signature);
    const bool is_quantised = s.quant != NormQuant::none && !is_cut(s);
    spec.algorithm = is_quantised ? way->own.quantised : way->own.general;
  }
  return tile::legal_or_refused(family(), std::move(spec), target);
}

Estimate estimate(const KernelSpec& spec, const Problem& problem, const Target& target,
                  int threads) {
  const auto& p = std::get<NormProblem>(problem);
  if (p.rows == 0 || p.columns == 0) return tile::total_of(0, 0, target.launch_us * 1e-6);
  return tile::estimate<Types>(spec, problem, target, threads);
}

}  // namespace tessera::norm
