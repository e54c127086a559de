// Kernels of the pipeline tmaws: a producer warp moves tiles by TMA, consumer warpgroups multiply
// by wgmma (src/tessera/device/cuda/gemm/tma_gemm.h). The rules are the limits that a measured
// prototype found and the PTX ISA's wgmma shapes. tmaws_algorithms.cc lists the algorithms,
// tmaws_bind.cc holds text and launch.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/device/cuda/abi.h"
#include "tessera/device/stream_work.h"
#include "tessera/families/gemm/cuda_groups.h"
#include "tessera/families/gemm/cuda_outputs.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/scaled.h"
#include "tessera/families/gemm/tmaws.h"
#include "tessera/families/gemm/ways.h"

namespace tessera::gemm {
namespace {

constexpr int kWgmmaBytesK = 32;        // bytes along k that one wgmma instruction takes
constexpr int kMaxWithSplits = 144;     // 160 spill with some epilogues
constexpr int kMaxWithStreamK = 100;    // more spill where parts of a tile are added
constexpr int kMaxWithStreamKOf3 = 60;  // of 3 consumers, which have fewer registers
constexpr int kColumnUnit = 8;          // wgmma's columns are multiples of this
constexpr int kMaxSplits = 8;           // blocks of a cluster
constexpr int kMaxMulticast = 4;        // cluster_m + cluster_n - 1
constexpr std::int64_t kMaxTmaStride = std::int64_t{1} << 40;

// ---- tmaws: a producer warp moves tiles by TMA, consumer warpgroups multiply by wgmma ---- tile_m
// counts the rows that feed wgmma's M, tile_n the rows that feed its N. They are rows of A and B,
// with swap_ab rows of B and A, which gives a tall tile for problems with few rows.

int accumulators_per_thread(const Case& c) { return tile::tmaws_accumulators(c.algorithm); }

int wgmma_k(const Case& c) { return kWgmmaBytesK / size_of(c.signature.a); }

// wgmma cannot transpose 8-bit and tf32 operands. A packed B already has the right order.
bool lines_fit(const Case& c) {
  if (size_of(c.signature.a) == 2) return true;
  return tmaws_a(c.signature, c.algorithm).k_contiguous &&
         tmaws_b(c.signature, c.algorithm).k_contiguous;
}

// The blocks of a cluster fetch equal shares of the lines of a tile, in swizzled units of 8.
bool shares_fit(const TmawsOperand& o, int tile_k) {
  return (o.k_contiguous ? o.rows : tile_k) % (8 * o.parts) == 0;
}

bool splits_k(const Algorithm& a) { return a.splits != 1 || a.slices != 1; }

// tile_n must be a multiple of this many columns, so that each block of a split owns whole parts.
int split_columns(const Algorithm& a) {
  return kColumnUnit * std::max(1, std::min(a.splits, a.tile.n / kColumnUnit));
}

// With splits, a thread also holds the sums that it owns.
int accumulators_with_splits(const Case& c) {
  const TmawsStore store = tmaws_store(c.algorithm);
  return accumulators_per_thread(c) + store.row_blocks * store.columns / 2;
}

int most_with_streamk(const Case& c) {
  return c.algorithm.wave.m == 3 ? kMaxWithStreamKOf3 : kMaxWithStreamK;
}

bool walks_alone(const GemmSignature& s) { return has_groups(s) || has_outputs(s); }

bool blocks_are_alone(const Algorithm& a) {
  return a.cluster_m * a.cluster_n * a.splits * a.slices == 1 && !a.streamk && !a.repack;
}

// The copy engine reads tiles that begin at whole 16 bytes of their lines, and groups begin
// anywhere. With scales, the tiles of a group along k begin where blocks of scales do.
bool groups_begin_lines(const GemmSignature& s) {
  if (s.grouping == GemmGrouping::along_k) return s.layout == GemmLayout::crr || has_scales(s);
  return s.grouping == GemmGrouping::none || s.grouping == GemmGrouping::masked ||
         a_is_row_major(s.layout);
}

constexpr Rule kTmaws[] = {
    kWaveRule,
    kStagesRule,
    kUnusedFieldsRule,
    kScalesOfTmaws,
    {[](const Case& c) { return find_instruction_named(c, "wgmma") != nullptr; },
     [](const Case& c) { return no_instruction(c, "wgmma"); }},
    {[](const Case& c) { return lines_fit(c); },
     [](const Case& c) {
       return fmt::format("wgmma takes {} operands with k contiguous only (rcr, or repack), got {}",
                          to_string(c.signature.a), to_string(c.signature.layout));
     }},
    kOutputsOfTmaws,
    {[](const Case& c) { return !walks_alone(c.signature) || blocks_are_alone(c.algorithm); },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "kernels for groups, gates and rows by index share nothing between blocks and copy no "
           "operand: they need a 1x1 cluster and splits=1 slices=1 streamk=0 repack=0, got {}x{} "
           "and splits={} slices={} "
           "streamk={} repack={}",
           a.cluster_m, a.cluster_n, a.splits, a.slices, a.streamk ? 1 : 0, a.repack ? 1 : 0);
     }},
    {[](const Case& c) { return groups_begin_lines(c.signature); },
     [](const Case& c) {
       const bool along_k = c.signature.grouping == GemmGrouping::along_k;
       return fmt::format(
           "tmaws reads from whole 16 bytes of a line on, where groups do not begin: layout must "
           "be "
           "{} with grouping={}, got {}",
           along_k ? "crr" : "rcr or rrr", to_string(c.signature.grouping),
           to_string(c.signature.layout));
     }},
    tile::kRowOf<Case, tile::kTmawsSchedulers>,
    tile::kRowOf<Case, tile::kTmawsConsumers>,
    tile::kRowOf<Case, tile::kTmawsPingpong>,
    {[](const Case& c) {
       const Shape3& w = c.algorithm.warp_tile;
       return w.m == device::kWgmmaRows && w.n == c.algorithm.tile.n && w.k == wgmma_k(c);
     },
     [](const Case& c) {
       return fmt::format("the warp tile is one wgmma: {}x{}x{} for {} with tile_n {}, got {}",
                          device::kWgmmaRows, c.algorithm.tile.n, wgmma_k(c),
                          to_string(c.signature.a), c.algorithm.tile.n,
                          to_string(c.algorithm.warp_tile));
     }},
    {[](const Case& c) {
       const int n = c.algorithm.tile.n;
       return n % 8 == 0 && n <= tile::kWgmmaColumns &&
              (c.signature.a != DType::int8 || n <= 32 || n % 16 == 0);
     },
     [](const Case& c) {
       return fmt::format(
           "wgmma takes {} columns of {} up to {}, got tile_n {}",
           c.signature.a == DType::int8 ? "8, 16, 24 and multiples of 16" : "multiples of 8",
           to_string(c.signature.a), tile::kWgmmaColumns, c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       return c.algorithm.tile.k % (kTmawsLineBytes / size_of(c.signature.a)) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_k must be a multiple of {} for {} ({} bytes), got {}",
                          kTmawsLineBytes / size_of(c.signature.a), to_string(c.signature.a),
                          kTmawsLineBytes, c.algorithm.tile.k);
     }},
    {[](const Case& c) { return tmaws_store(c.algorithm).row_blocks >= 1; },
     [](const Case& c) {
       const int consumers = tile::tmaws_consumers(c.algorithm);
       return fmt::format("tile_m {} is not a multiple of the {} rows of {} consumer{}",
                          c.algorithm.tile.m, device::kWgmmaRows * consumers, consumers,
                          consumers == 1 ? "" : "s");
     }},
    {[](const Case& c) { return accumulators_per_thread(c) <= tile::kTmawsAccumulators; },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a thread ({} x {} rows by {} columns over 128 "
           "threads), at most {} fit",
           accumulators_per_thread(c), tmaws_store(c.algorithm).row_blocks, device::kWgmmaRows,
           c.algorithm.tile.n, tile::kTmawsAccumulators);
     }},
    tile::kRowOf<Case, tile::kTmawsColumnsOf3>,
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.cluster_m >= 1 && a.cluster_n >= 1 && a.cluster_m <= kMaxMulticast &&
              a.cluster_n <= kMaxMulticast && a.cluster_m + a.cluster_n - 1 <= kMaxMulticast;
     },
     [](const Case& c) {
       return fmt::format("a cluster shares tiles between at most {} blocks, got {}x{}",
                          kMaxMulticast, c.algorithm.cluster_m, c.algorithm.cluster_n);
     }},
    {[](const Case& c) {
       return shares_fit(tmaws_a(c.signature, c.algorithm), c.algorithm.tile.k) &&
              shares_fit(tmaws_b(c.signature, c.algorithm), c.algorithm.tile.k);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format("tile {} does not split into parts of 8 lines over a {}x{} cluster",
                          to_string(a.tile), a.cluster_m, a.cluster_n);
     }},
    {[](const Case& c) { return c.algorithm.splits >= 1 && c.algorithm.splits <= kMaxSplits; },
     [](const Case& c) {
       return fmt::format("K is split over 1 to {} blocks of a cluster, got {}", kMaxSplits,
                          c.algorithm.splits);
     }},
    kSlicesRule,
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !a.streamk || (a.split_k == SplitK::ordered && !splits_k(a));
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "streamk cuts K where blocks run out of tiles and adds in order: it needs "
           "split_k=ordered splits=1 slices=1, got split_k={} splits={} slices={}",
           to_string(a.split_k), a.splits, a.slices);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return !a.streamk || (a.scheduler == Scheduler::cooperative && a.wave.m >= 2);
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "streamk runs one block on each unit: it needs the cooperative scheduler and 2 or 3 "
           "consumers, got {} and {}",
           to_string(a.scheduler), a.wave.m);
     }},
    {[](const Case& c) {
       return !c.algorithm.streamk || accumulators_per_thread(c) <= most_with_streamk(c);
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} accumulators a thread, at most {} fit with streamk and {} consumers",
           accumulators_per_thread(c), most_with_streamk(c), c.algorithm.wave.m);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return (splits_k(a) || a.streamk) == (a.split_k != SplitK::none);
     },
     [](const Case& c) {
       return fmt::format("split_k must be {} for splits={} and slices={}, got {}",
                          splits_k(c.algorithm) ? "ordered or atomic" : "none", c.algorithm.splits,
                          c.algorithm.slices, to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) { return c.algorithm.split_k != SplitK::atomic || c.algorithm.slices > 1; },
     [](const Case& c) {
       return fmt::format(
           "slices of K may be added atomically, splits are added in order: split_k=atomic needs "
           "at least 2 slices, got slices={} and splits={}",
           c.algorithm.slices, c.algorithm.splits);
     }},
    {[](const Case& c) {
       return !splits_k(c.algorithm) || c.algorithm.cluster_m * c.algorithm.cluster_n == 1;
     },
     [](const Case& c) {
       const Algorithm& a = c.algorithm;
       return fmt::format(
           "splits and slices of K need a 1x1 cluster, got {}x{} with splits={} and "
           "slices={}",
           a.cluster_m, a.cluster_n, a.splits, a.slices);
     }},
    {[](const Case& c) {
       return !splits_k(c.algorithm) || c.algorithm.scheduler != Scheduler::pingpong;
     },
     [](const Case& c) {
       return fmt::format(
           "splits and slices of K need the cooperative scheduler, got {} with splits={} and "
           "slices={}",
           to_string(c.algorithm.scheduler), c.algorithm.splits, c.algorithm.slices);
     }},
    {[](const Case& c) {
       return !splits_k(c.algorithm) || c.algorithm.tile.n % split_columns(c.algorithm) == 0;
     },
     [](const Case& c) {
       return fmt::format("tile_n must be a multiple of {} for {} splits of K, got {}",
                          split_columns(c.algorithm), c.algorithm.splits, c.algorithm.tile.n);
     }},
    {[](const Case& c) {
       return c.algorithm.splits == 1 || accumulators_with_splits(c) <= kMaxWithSplits;
     },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread for {} splits, at most {} fit",
                          accumulators_with_splits(c), c.algorithm.splits, kMaxWithSplits);
     }},
    {[](const Case& c) { return c.algorithm.store != Store::cshuffle; },
     [](const Case&) {
       return std::string("tmaws stores by tma, direct or standard (whichever fits), got cshuffle");
     }},
    {[](const Case& c) {
       return c.algorithm.store != Store::tma || tmaws_copies_out(c.signature, c.algorithm);
     },
     [](const Case& c) {
       return fmt::format(
           "tma stores 16-bit outputs after steps that read a bias and two matrices of 16 bits at "
           "most, all but relu and clamp beside at most 160 accumulators a thread, with swap_ab "
           "after nothing, got out={} swap_ab={} epilogue={}; use the standard store",
           to_string(c.signature.out), c.algorithm.swap_ab ? 1 : 0,
           to_string(c.signature.epilogue));
     }},
    {[](const Case& c) {
       return shared_memory(c.signature, c.algorithm).all <= c.target.shared_memory_bytes;
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} bytes of shared memory ({} stages of {} and the rest), {} has "
           "{}",
           shared_memory(c.signature, c.algorithm).all, c.algorithm.stages,
           shared_memory(c.signature, c.algorithm).stage, c.target.name,
           c.target.shared_memory_bytes);
     }},
};

// What the copy engine asks of a matrix that it reads or writes.
struct Window {
  std::string_view name;  // name of the operand
  std::string_view line;  // name of its contiguous dimension
  std::int64_t length, ld, batch_stride;
  DType dtype;
};

Verdict strides_are_small(const Window& w) {
  if (std::max(w.ld, w.batch_stride) < kMaxTmaStride / size_of(w.dtype)) return {};
  return {
      fmt::format("the strides of {0} must be below 2^40 bytes with tmaws, got ld_{0}={1} "
                  "batch_stride_{0}={2}",
                  w.name, w.ld, w.batch_stride)};
}

Verdict window_fits(const Window& w, std::string_view role) {
  const std::int64_t unit = kTmaBytes / size_of(w.dtype);
  const auto refusal = [&](std::string_view name, std::int64_t value) {
    return Verdict{fmt::format("{0} must be a multiple of {1} for {2} {3} with tmaws, got {0}={4}",
                               name, unit, to_string(w.dtype), role, value)};
  };
  if (w.ld % unit != 0) {
    if (w.ld == w.length) return refusal(w.line, w.length);
    return refusal(fmt::format("ld_{}", w.name), w.ld);
  }
  if (w.batch_stride % unit != 0) {
    return refusal(fmt::format("batch_stride_{}", w.name), w.batch_stride);
  }
  return strides_are_small(w);
}

// The copy engine reads rows of any length, but it writes multiples of 16 bytes.
Verdict stores_fit(const Window& out) {
  const std::int64_t unit = kTmaBytes / size_of(out.dtype);
  if ((out.length | out.ld | out.batch_stride) % unit == 0) return {};
  return {fmt::format(
      "n and the strides of out must be multiples of {} for {} output stored by tma, got n={} "
      "ld_out={} batch_stride_out={}; use the standard store",
      unit, to_string(out.dtype), out.length, out.ld, out.batch_stride)};
}

// A window of the copy engine has one address and equal distances. Repacking brings other operands
// into that form. The kernel's threads write such an output.
Verdict arrays_fit(const Algorithm& a, const GemmProblem& p) {
  if (!p.pointer_arrays) return {};
  if (!a.repack) {
    return {
        "the copy engine of tmaws does not follow pointer_arrays; use a cpasync kernel or one "
        "with repack"};
  }
  if (a.store == Store::tma) {
    return {"the tma store does not follow pointer_arrays; use the standard store"};
  }
  return {};
}

// The copy engine's coordinates have 32 bits, and so has the number of a tile.
Verdict counts_fit(const Algorithm& a, const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}};
  for (const auto& [name, size] : sizes) {
    if (size > kMaxTmaSize) {
      return {fmt::format("{} must be at most {} with tmaws, got {}", name, kMaxTmaSize, size)};
    }
  }
  const int rows = a.swap_ab ? a.tile.n : a.tile.m;
  const int columns = a.swap_ab ? a.tile.m : a.tile.n;
  const double tiles = std::ceil(static_cast<double>(p.m) / rows + a.cluster_m + a.cluster_n) *
                       std::ceil(static_cast<double>(p.n) / columns + a.cluster_m + a.cluster_n) *
                       static_cast<double>(p.batch) * a.splits * a.slices;
  if (tiles <= static_cast<double>(kMaxTmaSize)) return {};
  return {fmt::format("tmaws counts its blocks up to {}, got about {:.0f} tiles of {}x{}",
                      kMaxTmaSize, tiles, rows, columns)};
}

// Kernels with streamk count the steps of K of all tiles that they share out.
Verdict stream_fits(const Algorithm& a, const GemmProblem& p) {
  const std::int64_t steps = tiles(p.k, a.tile.k);
  if (!a.streamk || steps <= device::kMostStreamSteps) return {};
  return {fmt::format("streamk takes at most {} tiles of {} along K, got {} of k={}",
                      device::kMostStreamSteps, a.tile.k, steps, p.k)};
}

// What the copy engine asks of the operands and of the output.
Verdict windows_fit(const KernelSpec& spec, const GemmProblem& p) {
  const bool a_rows = a_is_row_major(p.layout);
  const bool b_rows = b_is_row_major(p.layout);
  const bool strided = p.batch > 1 && !p.pointer_arrays;
  const auto stride = [strided](std::int64_t value) { return strided ? value : 0; };
  const Window a = {"a",    a_rows ? "k" : "m",       a_rows ? p.k : p.m,
                    p.ld_a, stride(p.batch_stride_a), p.a};
  const Window b = {"b",    b_rows ? "n" : "k",       b_rows ? p.n : p.k,
                    p.ld_b, stride(p.batch_stride_b), p.b};
  const Window out = {"out", "n", p.n, p.ld_out, stride(p.batch_stride_out), p.out};
  const bool repack = spec.algorithm.repack;
  if (Verdict fits = window_fits(a, "operands"); !fits && !repack) return fits;
  if (Verdict fits = window_fits(b, "operands"); !fits && !repack && !p.preshuffled_b) return fits;
  if (Verdict fits = strides_are_small(out); !fits) return fits;
  return spec.algorithm.store == Store::tma ? stores_fit(out) : Verdict{};
}

Verdict tmaws_serves(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  if (Verdict fits = tmaws_serves_outputs(spec, p); !fits) return fits;
  if (has_groups(p)) {
    if (Verdict fits = tmaws_serves_groups(spec, p, target); !fits) return fits;
    return windows_fit(spec, matrices_as_batches(p));
  }
  if (Verdict fits = arrays_fit(spec.algorithm, p); !fits) return fits;
  if (Verdict fits = counts_fit(spec.algorithm, p); !fits) return fits;
  if (Verdict fits = parts_fit(spec.algorithm, p, tmaws_slice_groups(spec.algorithm)); !fits)
    return fits;
  if (Verdict fits = stream_fits(spec.algorithm, p); !fits) return fits;
  return windows_fit(spec, p);
}

}  // namespace

TmawsCopies tmaws_copies(const GemmProblem& problem) {
  // The copy engine reads batches at equal distances, not through pointers.
  if (problem.pointer_arrays) return {true, true};
  const GemmProblem p = with_strides(problem);
  const auto stride = [&p](std::int64_t value) { return p.batch > 1 ? value : 0; };
  const bool fits_a = a_is_row_major(p.layout) || size_of(p.a) == 2;
  const bool fits_b = !b_is_row_major(p.layout) || size_of(p.b) == 2;
  return {!fits_a || !tmaws_reads(p.a, p.ld_a, stride(p.batch_stride_a)),
          !p.preshuffled_b && (!fits_b || !tmaws_reads(p.b, p.ld_b, stride(p.batch_stride_b)))};
}

namespace {

// When no operand needs repacking, a kernel with repack does the same as the one without.
void drop_repack(const GemmProblem& p, std::vector<Algorithm>& all) {
  const TmawsCopies copies = tmaws_copies(p);
  if (!copies.a && !copies.b) std::erase_if(all, [](const Algorithm& a) { return a.repack; });
}

}  // namespace

const Way kTmawsWay = {.backend = "cuda",
                       .pipeline = Pipeline::tmaws,
                       .rules = kTmaws,
                       .serves = tmaws_serves,
                       .emit = emit_tmaws,
                       .bind = bind_tmaws,
                       .estimate = estimate_gpu,
                       .own = {.add_variants = tmaws_variants,
                               .add_own = add_fitted,
                               .drop_spare = drop_repack,
                               .packed_bytes = tmaws_packed_bytes,
                               .pack = pack_by_tmaws,
                               .bind_groups = bind_groups_by_tma,
                               .bind_outputs = bind_outputs_by_tma,
                               .bind_scaled = bind_scaled_on_cuda,
                               .scales_outputs = true,
                               .by_copy_engine = true}};

}  // namespace tessera::gemm
