// Kernels of tmaws with a gate or rows by index (src/tessera/device/cuda/gemm/tma_outputs_gemm.h):
// what they serve, algorithms, text and launch.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "tessera/device/cuda/gemm/outputs_arguments.h"
#include "tessera/device/norm.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/tmaws.h"

namespace tessera::gemm {
namespace {

using device::CudaTmaOutputArguments;

constexpr std::uint32_t kPartOfSwapped = device::kWgmmaRows;  // columns of x, then as many of y

bool has_gate(const Case& c) { return c.signature.gate != GemmGate::none; }

// How many columns of x, or of y, a tile of B has one behind the other.
std::uint32_t part_of(const Algorithm& a) {
  return a.swap_ab ? kPartOfSwapped : static_cast<std::uint32_t>(a.tile.n / 2);
}

// Parts are whole lines of shared memory, or units of 8 of them. A consumer has both of a pair.
int unit_of_gate(const Case& c) {
  const Algorithm& a = c.algorithm;
  if (a.swap_ab) return 2 * device::kWgmmaRows * tile::tmaws_consumers(a);
  const bool by_line = !tmaws_b(c.signature, a).k_contiguous;
  return 2 * (by_line ? kTmawsLineBytes / size_of(c.signature.b) : 8);
}
int side_of_gate(const Algorithm& a) { return a.swap_ab ? a.tile.m : a.tile.n; }

// The rows of A in a tile, and how many of them the threads of the producer find registers for.
int gathered_rows(const Case& c) { return tmaws_a(c.signature, c.algorithm).rows; }
int most_gathered_rows(const Algorithm& a) {
  constexpr int kOfOneWarp = 64, kOfOneWarpgroup = 128;
  return a.wave.m == 1 ? kOfOneWarp : a.wave.m == 2 ? kOfOneWarpgroup : 0;
}

constexpr int kMostSums = 160;  // of a thread; with more the compiler spills

// With quant=block, a tile has one block of columns of out. Scales of operands are what such
// problems have, and only kernels for these are made.
int quantised_side(const Case& c) { return device::kQuantBlock * (has_gate(c) ? 2 : 1); }
bool quantises(const Case& c) {
  return c.signature.quant == NormQuant::block && has_scales(c.signature);
}

constexpr Rule kOutputRules[] = {
    {[](const Case& c) { return c.signature.quant == NormQuant::none || quantises(c); },
     [](const Case& c) {
       return fmt::format(
           "tmaws quantises by blocks beside scales of blocks, got quant={} scale_a={}; use a "
           "cpasync kernel",
           to_string(c.signature.quant), to_string(c.signature.scale_a));
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !quantises(c) || (a.swap_ab && a.tile.m == quantised_side(c) && a.wave.m <= 2);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "a tile has one block of {} columns of out with quant=block: it needs swap_ab=1, tile_m "
           "= {} and 1 or 2 consumers, got {}, {} and {}",
           device::kQuantBlock, quantised_side(c), a.swap_ab ? 1 : 0, a.tile.m, a.wave.m);
     }},
    {[](const Case& c) { return c.signature.grouping != GemmGrouping::along_k; },
     [](const Case& c) {
       return fmt::format("tmaws has no gates with grouping=along_k, got gate={}",
                          to_string(c.signature.gate));
     }},
    {[](const Case& c) {
       return c.signature.indexing != GemmIndexing::gathered || a_is_row_major(c.signature.layout);
     },
     [](const Case& c) {
       return fmt::format(
           "tmaws gathers rows whose k is contiguous: layout must be rcr or rrr with "
           "indexing=gathered, got {}",
           to_string(c.signature.layout));
     }},
    {[](const Case& c) {
       return c.signature.indexing != GemmIndexing::gathered || c.signature.a != DType::tf32;
     },
     [](const Case&) {
       return std::string(
           "the copy engine rounds fp32 to tf32, and threads that copy gathered rows do not; use a "
           "cpasync kernel");
     }},
    {[](const Case& c) {
       return c.signature.indexing != GemmIndexing::gathered ||
              gathered_rows(c) <= most_gathered_rows(c.algorithm);
     },
     [](const Case& c) {
       return fmt::format(
           "the threads that copy gathered rows have registers for {} rows of a tile beside {} "
           "consumer{}, got {}",
           most_gathered_rows(c.algorithm), c.algorithm.wave.m, c.algorithm.wave.m == 1 ? "" : "s",
           gathered_rows(c));
     }},
    {[](const Case& c) { return tile::tmaws_accumulators(c.algorithm) <= kMostSums; },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a thread, at most {} fit beside a gate or rows by index",
           tile::tmaws_accumulators(c.algorithm), kMostSums);
     }},
    {[](const Case& c) {
       return (!has_gate(c) && !quantises(c)) || num_ops(c.signature.epilogue) == 0;
     },
     [](const Case& c) {
       return fmt::format(
           "a {} the sums with tmaws: epilogue must be none, got {}; use a cpasync kernel",
           has_gate(c) ? "gate follows" : "scale of out follows", to_string(c.signature.epilogue));
     }},
    {[](const Case& c) {
       return !c.signature.gate_interleaved || !b_is_row_major(c.signature.layout);
     },
     [](const Case& c) {
       return fmt::format(
           "the copy engine does not read every other element: layout must be rcr or ccr with "
           "gate_interleaved=1, got {}",
           to_string(c.signature.layout));
     }},
    {[](const Case& c) { return !has_gate(c) || side_of_gate(c.algorithm) % unit_of_gate(c) == 0; },
     [](const Case& c) {
       return fmt::format(
           "a thread needs both columns of a pair: {} must be a multiple of {} with gate={}, got "
           "{}",
           c.algorithm.swap_ab ? "tile_m" : "tile_n", unit_of_gate(c), to_string(c.signature.gate),
           side_of_gate(c.algorithm));
     }},
    {[](const Case& c) { return c.algorithm.store != Store::tma; },
     [](const Case&) {
       return std::string(
           "threads store what the copy engine cannot with a gate or rows by index: store must be "
           "standard or direct, got tma");
     }},
};

// The problem as its output is stored.
GemmProblem stored(const GemmProblem& p) {
  GemmProblem q = p;
  q.n = stored_columns_out(p);
  return q;
}

// The window on B where out has a gate: the halves are a dimension of their own.
void add_pairs_window(const KernelSpec& spec, const GemmProblem& p, const void* b, Launch& launch) {
  const Algorithm& a = spec.algorithm;
  const bool by_row = b_is_row_major(p.layout);
  add_b_window(spec, p, b, launch);
  TensorMap& map = *(launch.tensor_maps.end() - 1);
  const auto half = static_cast<std::uint64_t>(p.n / 2);
  const auto size = static_cast<std::uint64_t>(size_of(p.b));
  const std::uint64_t line = static_cast<std::uint64_t>(p.ld_b) * size;
  const std::uint64_t of_group = map.strides[1];
  const std::uint64_t groups = map.sizes[2];
  const auto line_elements = static_cast<std::uint32_t>(kTmawsLineBytes / size_of(p.b));
  map.rank = 4;
  if (by_row) {
    map.sizes = {half, static_cast<std::uint64_t>(p.k), 2, groups};
    map.strides = {line, half * size, of_group};
    map.box = {line_elements, static_cast<std::uint32_t>(a.tile.k), 1, 1};
  } else {
    map.sizes = {static_cast<std::uint64_t>(p.k), half, 2, groups};
    map.strides = {p.gate_interleaved ? 2 * line : line, p.gate_interleaved ? line : half * line,
                   of_group};
    map.box = {line_elements, part_of(a), 1, 1};
  }
}

// ---- algorithms ----

// Tiles for few rows of each group. Two blocks share a unit.
constexpr int kGatedRows[] = {8, 16, 32, 64};
constexpr int kGatedColumns = 128;
constexpr int kMostGatedStages = 8;
constexpr int kLeastGatedStages = 3;

}  // namespace

bool outputs_fit_tmaws(const Case& c) {
  return !has_outputs(c.signature) || tile::first_broken<Case>(kOutputRules, c) == nullptr;
}
std::string outputs_do_not_fit_tmaws(const Case& c) {
  return tile::first_broken<Case>(kOutputRules, c)->sentence(c);
}

Verdict tmaws_serves_outputs(const KernelSpec& spec, const GemmProblem& p) {
  if (p.gate == GemmGate::none) return {};
  const GemmScale scale = p.scale_b;
  const std::int64_t whole = 2 * (scale == GemmScale::none ? 1 : block_of(scale).rows);
  if (!p.gate_interleaved && p.n % whole != 0) {
    return {fmt::format(
        "a tile has columns of one block of scales in each half of B: n must be a multiple of {} "
        "with scale_b={} and gate={}, got {}; use a cpasync kernel",
        whole, to_string(scale), to_string(p.gate), p.n)};
  }
  if (p.beta != 0) {
    return {fmt::format("beta must be 0 with gate={} and tmaws, got {}; use a cpasync kernel",
                        to_string(p.gate), p.beta)};
  }
  const std::int64_t unit = 2 * kTmaBytes / size_of(p.b);
  if (!b_is_row_major(p.layout) || p.n % unit == 0) return {};
  return {fmt::format(
      "n must be a multiple of {} for {} operands with gate={} and layout={}, got n={}; use a "
      "cpasync kernel",
      unit, to_string(p.b), to_string(p.gate),
      to_string(std::get<GemmSignature>(spec.signature).layout), p.n)};
}

void add_gated(const OwnQuery& query, std::vector<Algorithm>& all) {
  const int size = size_of(query.signature.a);
  for (const int rows : kGatedRows) {
    Algorithm a{.pipeline = Pipeline::tmaws,
                .tile = {kGatedColumns, rows, kTmawsLineBytes / size},
                .wave = {1, 1, 1},
                .warp_tile = {device::kWgmmaRows, rows, 32 / size},
                .scheduler = Scheduler::cooperative,
                .swap_ab = true};
    a.stages = 1;
    const tile::SharedMemory one = shared_memory(query.signature, a);
    const std::int64_t room = query.target.shared_memory_bytes / 2 - device::kSharedReserve;
    a.stages = static_cast<int>(
        std::min<std::int64_t>(kMostGatedStages, 1 + (room - one.all) / one.stage));
    const bool is_new = std::find(all.begin(), all.end(), a) == all.end();
    if (a.stages >= kLeastGatedStages && is_new) all.push_back(a);
  }
}

Source tmaws_outputs_source(const KernelSpec& spec, const std::string& shapes) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const bool is_scaled = has_scales(s);
  const std::string_view arguments =
      is_scaled ? scaled_arguments_name(s) : "CudaTmaOutputArguments";
  const std::string_view groups =
      is_scaled ? "arguments.cuda.product.groups" : "arguments.product.groups";
  const CudaTemplate from = {is_scaled ? "tma_scaled_outputs_gemm.h" : "tma_outputs_gemm.h",
                             is_scaled ? "TmaScaledOutputsGemm" : "TmaOutputsGemm", has_groups(s),
                             arguments};
  return cuda_source(spec, from, shapes + grouping_text(spec) + outputs_text(s),
                     wgmma_text(spec) + "\n",
                     has_groups(s) ? group_check_text(spec, arguments, groups) : "");
}

namespace {

Launch bind_without_scales(const KernelSpec& spec, const GemmProblem& p, const GemmOperands& o) {
  static_assert(offsetof(CudaTmaOutputArguments, product) == 0, "windows have offsets in that");
  const Algorithm& a = spec.algorithm;
  Launch launch;
  auto& arguments = launch.arguments.make<CudaTmaOutputArguments>();
  arguments.product.groups = output_arguments(p, o).groups;
  if (!has_groups(p)) arguments.product.groups.groups = p.batch;
  arguments.product.raster_group = kRasterGroup;
  arguments.row_index = o.row_index;
  arguments.index_room = p.index_room;
  begin_groups(spec, p, o, launch);
  if (p.indexing != GemmIndexing::none) launch.pointers.push(o.row_index);
  if (!computes_groups(p)) return launch;
  if (p.k > 0) {
    if (p.indexing == GemmIndexing::gathered) {
      refuse_misaligned({.name = "a", .data = o.a});
    } else {
      add_a_window(spec, p, o.a, launch);
    }
    if (p.gate == GemmGate::none) {
      add_b_window(spec, p, o.b, launch);
    } else {
      add_pairs_window(spec, p, o.b, launch);
    }
  }
  const bool scatters = p.indexing == GemmIndexing::scattered;
  arguments.product.has_out_map = !scatters && copies_groups_out(spec, stored(p), o.out) ? 1 : 0;
  if (arguments.product.has_out_map != 0) {
    const bool halves = p.gate != GemmGate::none && !a.swap_ab;
    const int chunk = device::chunk_of(halves ? a.tile.n / 2 : a.tile.n, a.swap_ab);
    add_out_window(spec, stored(p), o.out, chunk, launch);
  }
  launch.steps.push(group_walk_step(spec, p));
  return launch;
}

}  // namespace

Launch bind_outputs_by_tma(const KernelSpec& spec, const GemmProblem& p, const Target&,
                           const GemmOperands& o) {
  Launch launch = bind_without_scales(spec, p, o);
  if (has_scales(p)) add_scales_of_outputs_by_tma(p, o, launch);
  return launch;
}

}  // namespace tessera::gemm
