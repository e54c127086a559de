// Kernels of tmaws for groups of unequal sizes (src/tessera/device/cuda/gemm/tma_grouped_gemm.h):
// which problems they serve, text and launch.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/extras.h"
#include "tessera/families/gemm/tmaws.h"

namespace tessera::gemm {
namespace {

using device::CudaGroupArguments;

constexpr std::uint32_t kRowsOfStore = 64;  // rows of wgmma's output that one store writes
constexpr unsigned kWarpThreads = 32;

int rows_of_tile(const Algorithm& a) { return a.swap_ab ? a.tile.n : a.tile.m; }
int columns_of_tile(const Algorithm& a) { return a.swap_ab ? a.tile.m : a.tile.n; }

// How many sums of tiles a block keeps. Along k all groups have equally many tiles, and so have
// batches.
std::int64_t walk_places(const Algorithm& a, const GemmProblem& p) {
  if (p.grouping == GemmGrouping::along_k || !has_groups(p)) return 0;
  return p.grouping == GemmGrouping::indexed ? tiles(p.m, rows_of_tile(a)) : p.groups;
}

unsigned threads_of(const Algorithm& a) {
  return static_cast<unsigned>(device::tma_threads(a.wave.m));
}

// The most tiles of all groups; the kernel counts them in 32 bits.
double most_tiles(const Algorithm& a, const GemmProblem& p) {
  return most_group_tiles(p, rows_of_tile(a)) * static_cast<double>(tiles(p.n, columns_of_tile(a)));
}

Verdict group_counts_fit(const Algorithm& a, const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"groups", p.groups}};
  for (const auto& [name, size] : sizes) {
    if (size > kMaxTmaSize) {
      return {fmt::format("{} must be at most {} with tmaws, got {}", name, kMaxTmaSize, size)};
    }
  }
  if (most_tiles(a, p) <= static_cast<double>(kMaxTmaSize)) return {};
  return {fmt::format("tmaws counts its tiles up to {}, got up to {:.0f} of {}x{}", kMaxTmaSize,
                      most_tiles(a, p), rows_of_tile(a), columns_of_tile(a))};
}

Verdict walk_fits(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const Algorithm& a = spec.algorithm;
  const std::int64_t all = shared_memory(std::get<GemmSignature>(spec.signature), a).all;
  const std::int64_t walk = group_walk_bytes(a, p);
  if (all + walk <= target.shared_memory_bytes) return {};
  return {fmt::format(
      "a block keeps {} for each {}, which takes {} bytes of shared memory beside {}, {} has {}; "
      "use a cpasync kernel or fewer stages",
      "a sum of tiles",
      p.grouping == GemmGrouping::indexed ? fmt::format("{} of m={} rows", rows_of_tile(a), p.m)
                                          : fmt::format("of groups={}", p.groups),
      walk, all, target.name, target.shared_memory_bytes)};
}

}  // namespace

// ---- windows ----

bool copies_groups_out(const KernelSpec& spec, const GemmProblem& p, const void* out) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  if (!tmaws_copies_out(s, spec.algorithm) || tmaws_d_roles(s.epilogue).matrices > 0) return false;
  const std::int64_t stride =
      matrices(p, group_matrices(p.grouping).out) > 1 ? p.batch_stride_out : 0;
  const auto bytes = static_cast<std::uintptr_t>((p.n | p.ld_out | stride) * size_of(p.out));
  return (reinterpret_cast<std::uintptr_t>(out) | bytes) % kTmaBytes == 0;
}

void add_a_window(const KernelSpec& spec, const GemmProblem& p, const void* a, Launch& launch) {
  const bool by_row = a_is_row_major(p.layout);
  const TmaMatrix matrix = {"a",
                            a,
                            p.a,
                            by_row ? p.k : p.m,
                            by_row ? p.m : p.k,
                            p.ld_a,
                            matrices(p, group_matrices(p.grouping).a),
                            p.batch_stride_a};
  add_operand_window(launch, matrix, offsetof(CudaGroupArguments, a_map),
                     tmaws_a(std::get<GemmSignature>(spec.signature), spec.algorithm),
                     spec.algorithm.tile.k);
}

void add_b_window(const KernelSpec& spec, const GemmProblem& p, const void* b, Launch& launch) {
  const bool by_row = b_is_row_major(p.layout);
  const TmaMatrix matrix = {"b",
                            b,
                            p.b,
                            by_row ? p.n : p.k,
                            by_row ? p.k : p.n,
                            p.ld_b,
                            matrices(p, group_matrices(p.grouping).b),
                            p.batch_stride_b};
  add_operand_window(launch, matrix, offsetof(CudaGroupArguments, b_map),
                     tmaws_b(std::get<GemmSignature>(spec.signature), spec.algorithm),
                     spec.algorithm.tile.k);
}

void add_out_window(const KernelSpec& spec, const GemmProblem& p, void* out, int chunk,
                    Launch& launch) {
  const bool swaps = spec.algorithm.swap_ab;
  const auto side = static_cast<std::uint32_t>(chunk);
  const std::uint32_t width = swaps ? kRowsOfStore : side;
  const std::uint32_t height = swaps ? side : kRowsOfStore;
  const int line = static_cast<int>(width) * size_of(p.out);
  const TmaMatrix matrix = {"out",
                            out,
                            p.out,
                            p.n,
                            p.m,
                            p.ld_out,
                            matrices(p, group_matrices(p.grouping).out),
                            p.batch_stride_out};
  add_window(launch, matrix, offsetof(CudaGroupArguments, out_map), {width, height},
             line < 32 ? 0 : line);
}

GemmProblem matrices_as_batches(const GemmProblem& p) {
  const GroupMatrices has = group_matrices(p.grouping);
  GemmProblem q = p;
  q.batch = p.groups;
  if (!has.a) q.batch_stride_a = 0;
  if (!has.b) q.batch_stride_b = 0;
  if (!has.out) q.batch_stride_out = 0;
  return q;
}

std::int64_t group_walk_bytes(const Algorithm& a, const GemmProblem& p) {
  return 4 * (walk_places(a, p) + threads_of(a) / kWarpThreads);
}

Step group_walk_step(const KernelSpec& spec, const GemmProblem& p) {
  const Algorithm& a = spec.algorithm;
  const auto blocks = static_cast<std::int64_t>(most_tiles(a, p));
  Step step = tmaws_step(std::get<GemmSignature>(spec.signature), a, blocks);
  step.shared_memory_bytes += static_cast<std::size_t>(group_walk_bytes(a, p));
  return step;
}

Verdict tmaws_serves_groups(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  if (Verdict fits = group_counts_fit(spec.algorithm, p); !fits) return fits;
  return walk_fits(spec, p, target);
}

Source tmaws_groups_source(const KernelSpec& spec, const std::string& shapes) {
  const CudaTemplate from = has_scales(std::get<GemmSignature>(spec.signature))
                                ? group_template("tma_scaled_groups.h", "TmaScaledGroups")
                                : group_template("tma_grouped_gemm.h", "TmaGroupedGemm");
  return cuda_source(spec, from, shapes + grouping_text(spec), wgmma_text(spec) + "\n",
                     group_check_text(spec));
}

Launch bind_groups_by_tma(const KernelSpec& spec, const GemmProblem& p, const Target&,
                          const GemmOperands& o) {
  Launch launch;
  auto& arguments = launch.arguments.make<CudaGroupArguments>();
  arguments = cuda_group_arguments(p, o);
  begin_groups(spec, p, o, launch);
  if (!computes_groups(p)) return launch;
  arguments.has_out_map = copies_groups_out(spec, p, o.out) ? 1 : 0;
  if (p.k > 0) {
    add_a_window(spec, p, o.a, launch);
    add_b_window(spec, p, o.b, launch);
  }
  if (arguments.has_out_map != 0) {
    const auto& s = std::get<GemmSignature>(spec.signature);
    add_out_window(spec, p, o.out, tmaws_out_chunk(s, spec.algorithm), launch);
  }
  launch.steps.push(group_walk_step(spec, p));
  return launch;
}

}  // namespace tessera::gemm
