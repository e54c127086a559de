// The cpasync kernels: which there are, which problems they serve, their text and predicted times.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/families/conv/cpasync_internal.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/bandwidth.h"
#include "tessera/families/tile/ceil_div.h"
#include "tessera/families/tile/gpu_estimate.h"
#include "tessera/families/tile/rules.h"
#include "tessera/families/tile/text.h"

namespace tessera::conv {
namespace {

constexpr int kMostSums = 128;       // per thread, without spills
constexpr int kFewSums = 64;         // beside which half of a thread's registers suffice
constexpr int kMostTransposed = 64;  // the same where 8-bit floats are also transposed
constexpr int kMmaBytes = 32;        // of the depth, that one mma takes
constexpr int kMostRingStages = 8;
constexpr int kMostOfSlices = 128;
constexpr double kMostPlace = 0x1p28;  // along a line of channels, with its padding
constexpr double kMostCount = 0x1p30;  // of rows, columns, steps and tiles
constexpr int kPlacesBytes = 24576;    // of a block, besides the ring
constexpr std::int64_t kMostSumBytes = std::int64_t{1} << 30;

// ---- legality ----

int block_threads(const Case& c) { return tile::block_threads(c.algorithm, c.target); }

int most_sums(const Case& c) {
  const tile::Product x = gather_product(c.signature);
  const bool converts = x.a == DType::fp8 || x.a == DType::bf8;
  return converts && !x.a_k_contiguous ? kMostTransposed : kMostSums;
}
int sums_of_thread(const Case& c) {
  return c.algorithm.tile.m * c.algorithm.tile.n / block_threads(c);
}

std::int64_t ring_bytes(const ConvSignature& s, const Algorithm& a) {
  return tile::shared_memory(gather_product(s), a).all;
}

constexpr tile::Rule<Case> kGatherRules[] = {
    {[](const Case& c) { return gather_product(c.signature).a != DType::fp32; },
     [](const Case& c) {
       return fmt::format("cpasync multiplies tf32, fp16, bf16, fp8, bf8 and int8, got {}",
                          to_string(gather_product(c.signature).a));
     }},
    {[](const Case& c) {
       const Shape3& w = c.algorithm.wave;
       return w.m >= 1 && w.n >= 1 && w.k == 1;
     },
     [](const Case& c) {
       return fmt::format("cpasync has warps over m and n (wave_k is 1), got {}",
                          to_string(c.algorithm.wave));
     }},
    {[](const Case& c) {
       const auto& listed =
           tile::warp_tiles_for(tile::space_of(Op::conv, c.target), gather_product(c.signature).a);
       return std::find(listed.begin(), listed.end(), c.algorithm.warp_tile) != listed.end();
     },
     [](const Case& c) {
       return fmt::format("cpasync multiplies by mma, and {} does not list a mma of {} for {}",
                          c.target.name, to_string(c.algorithm.warp_tile),
                          to_string(gather_product(c.signature).a));
     }},
    tile::kRowOf<Case, tile::kDividesOverWarps>,
    tile::kBlockThreads<Case>,
    {[](const Case& c) { return sums_of_thread(c) <= most_sums(c); },
     [](const Case& c) {
       return fmt::format("needs {} accumulators a thread ({}x{} over {} threads), at most {} fit",
                          sums_of_thread(c), c.algorithm.tile.m, c.algorithm.tile.n,
                          block_threads(c), most_sums(c));
     }},
    {[](const Case& c) {
       const int bytes = c.algorithm.tile.k * size_of(gather_product(c.signature).a);
       return bytes > 0 && bytes % kMmaBytes == 0 && c.algorithm.tile.k <= block_threads(c);
     },
     [](const Case& c) {
       return fmt::format("tile_k must be a multiple of {} up to {} threads for {}, got {}",
                          kMmaBytes / size_of(gather_product(c.signature).a), block_threads(c),
                          to_string(gather_product(c.signature).a), c.algorithm.tile.k);
     }},
    tile::kRowOfTiles<Case, gather_product, tile::kCopiedLines>,
    tile::kRowOfTiles<Case, gather_product, tile::kCopiedBytes>,
    tile::kRowOfTiles<Case, gather_product, tile::kCopiedRows>,
    {[](const Case& c) { return c.algorithm.stages >= 2 && c.algorithm.stages <= kMostRingStages; },
     [](const Case& c) {
       return fmt::format("stages must be between 2 and {}, got {}", kMostRingStages,
                          c.algorithm.stages);
     }},
    {[](const Case& c) {
       const Algorithm& a = c.algorithm;
       return a.slices >= 1 && a.slices <= kMostOfSlices &&
              a.split_k == (a.slices > 1 ? SplitK::ordered : SplitK::none);
     },
     [](const Case& c) {
       return fmt::format(
           "slices must be between 1 and {}, and split_k ordered with more than one, got {} and {}",
           kMostOfSlices, c.algorithm.slices, to_string(c.algorithm.split_k));
     }},
    {[](const Case& c) {
       return c.algorithm.slices == 1 || c.signature.direction == ConvDirection::backward_weight;
     },
     [](const Case& c) {
       return fmt::format("cpasync has slices of pixels (backward_weight), got {} slices of {}",
                          c.algorithm.slices, to_string(c.signature.direction));
     }},
    {[](const Case& c) {
       return ring_bytes(c.signature, c.algorithm) + kPlacesBytes <= c.target.shared_memory_bytes;
     },
     [](const Case& c) {
       return fmt::format(
           "needs {} bytes of shared memory ({} stages and {} for places), {} has {}",
           ring_bytes(c.signature, c.algorithm) + kPlacesBytes, c.algorithm.stages, kPlacesBytes,
           c.target.name, c.target.shared_memory_bytes);
     }},
};

// ---- problems ----

// The first size of a problem that 32 bits cannot count with all that is added to it; 0: none.
double too_large(const ConvProblem& p) {
  double pixels = double(p.n), steps = double(std::max(p.c, p.k));
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t right = std::max<std::int64_t>(p.pad_right[i], 0);
    const double extent = double(p.size[i]) + double(p.pad[i]) + double(right);
    const double line = i == 2 ? extent * double(p.c) / double(p.g) : extent;
    for (const double size : {line, extent, double(p.stride[i]), double(p.dilation[i])}) {
      if (size > kMostPlace) return size;
    }
    pixels *= extent;
    steps *= double(p.filter[i]);
  }
  for (const double size : {double(p.c), double(p.k)}) {
    if (size > kMostPlace) return size;
  }
  return pixels > kMostCount ? pixels : steps > kMostCount ? steps : 0;
}

std::string slices_unsupported(const Algorithm& a, const GatherPlan& plan) {
  if (a.slices == 1) return {};
  const std::int64_t steps = tile::ceil_div(plan.depth, a.tile.k);
  if (steps < a.slices) {
    return fmt::format("slices need a step of {} each, got {} slices of {} steps", a.tile.k,
                       a.slices, steps);
  }
  const std::int64_t bytes = plan.tiles * a.tile.m * a.tile.n * 4 * a.slices;
  if (bytes <= kMostSumBytes) return {};
  return fmt::format("slices keep at most {} bytes of sums, got {}", kMostSumBytes, bytes);
}

Verdict gather_serves(const KernelSpec& spec, const ConvProblem& p, const Target&) {
  if (p.n == 0) return {"cpasync needs n >= 1, got 0"};
  if (const double size = too_large(p); size > 0) {
    return {fmt::format(
        "cpasync counts places up to {:.0f} and pixels and steps up to {:.0f}, got {:.0f}",
        kMostPlace, kMostCount, size)};
  }
  const GatherPlan plan = gather_plan(p, spec.algorithm.tile);
  const double tiles = double(plan.tiles_down) * double(plan.tiles_right) * double(plan.residues) *
                       double(plan.products) * spec.algorithm.slices;
  const double counts[] = {double(plan.rows), double(plan.columns), double(plan.depth), tiles};
  const double most = *std::max_element(std::begin(counts), std::end(counts));
  if (most > kMostCount) {
    return {fmt::format("cpasync counts rows, columns, steps and tiles up to {:.0f}, got {:.0f}",
                        kMostCount, most)};
  }
  return {slices_unsupported(spec.algorithm, plan)};
}

// ---- the space ----

constexpr std::array kSliceCounts = {1, 2, 4, 8, 16, 32, 64};
constexpr int kListedDepth = 32;  // of the tiles that are listed for 16-bit operands
constexpr int kListedMmaDepth = 16;

// A warp has 32 or 64 rows and columns, and a block at least 4 warps.
bool shares_well(const Shape3& tile, const Shape3& wave) {
  const int rows = tile.m / wave.m, columns = tile.n / wave.n;
  if (rows > 64 || columns > 64 || rows < 32 || columns < 32 || wave.m * wave.n < 4) return false;
  return rows * columns == 2048 ? rows >= columns || tile.m == 64 : tile.m * tile.n == 4096;
}

void add_sliced(Algorithm a, std::vector<Algorithm>& all) {
  for (const int slices : kSliceCounts) {
    a.slices = slices;
    a.split_k = slices > 1 ? SplitK::ordered : SplitK::none;
    all.push_back(a);
  }
}

// Tiles are listed for 16-bit operands; others take as many bytes of the depth. 8-bit floats have
// the instruction of 16-bit ones, which may take twice the depth too.
std::vector<Algorithm> gather_algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Shape3> warp_tiles;
  for (const auto& [dtype, tiles] : space.warp_tiles) {
    warp_tiles.insert(warp_tiles.end(), tiles.begin(), tiles.end());
  }
  std::vector<Algorithm> all;
  for (const Shape3& listed : tile::in_name_order(space.tiles)) {
    if (listed.k != kListedDepth) continue;
    for (const Shape3& wave : tile::in_name_order(space.waves)) {
      if (!shares_well(listed, wave)) continue;
      for (const Shape3& warp_tile : tile::in_name_order(warp_tiles)) {
        Algorithm a = {
            .pipeline = Pipeline::cpasync, .tile = listed, .wave = wave, .warp_tile = warp_tile};
        a.tile.k = listed.k * warp_tile.k / kListedMmaDepth;
        a.stages = 4;
        add_sliced(a, all);
        if (warp_tile.k != kListedMmaDepth) continue;
        a.tile.k *= 2;
        a.stages = 3;
        add_sliced(a, all);
      }
    }
  }
  return all;
}

// ---- text ----

// Registers of a thread. 8-bit floats are converted in some; so many spill none.
int registers_of(const ConvSignature& s, const Algorithm& a, const Target& target) {
  if (a.tile.m * a.tile.n / tile::block_threads(a, target) > kFewSums)
    return target.registers_per_thread;
  const DType operand = gather_product(s).a;
  const bool converts = operand == DType::fp8 || operand == DType::bf8;
  const bool finishes = s.layout == ConvLayout::nchw && num_ops(s.epilogue) > 0;
  return converts || finishes ? 168 : 128;
}

// How many blocks share a multiprocessor.
int ceil_div(const ConvSignature& s, const Algorithm& a, const Target& target) {
  const int registers = registers_of(s, a, target) * tile::block_threads(a, target);
  return std::max(1, target.registers_per_unit / registers);
}

Source emit_gather(const KernelSpec& spec, const Target& target) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Algorithm& a = spec.algorithm;
  const std::array<tile::GpuEntry, 2> entries = {
      {{"", "run", ceil_div(s, a, target)}, {"_sum", "run_sum"}}};
  const std::string config =
      config_text(spec, "tf32") +
      fmt::format("  static constexpr int kSharedBytes = {};\n", ring_bytes(s, a));
  return tile::cuda_source(
      spec, kAbi, {"conv/gather_conv.h", "GatherConv", "GatherArguments", config},
      tile::block_threads(a, target), std::span(entries).first(a.slices > 1 ? 2 : 1));
}

// ---- time ----

// Cycles of a unit for each byte of an operand, by how it is copied: a copy costs as much as its
// place, three times what GEMM's copies do. With that, 16 -> 16 channels of 112 x 112 pixels and
// the gradient of a 7x7 stem by x take what was measured on an H200 (62 us and 0.8 ms), within a
// third.
double copy_cycles(int width) {
  constexpr double kIssue = 3 * tile::kGpuModel.issue / 32;  // of a thread's copy
  switch (width) {
    case device::kBy16:
      return kIssue * 3 / 16;
    case device::kBy8:
      return kIssue * 2.5 / 8;
    case device::kBy4:
      return kIssue * 2.5 / 4;
    case device::kByVector:
      return kIssue * 16 / 16;
    default:
      return kIssue * 3;
  }
}

tile::GpuKernel gather_on(const ConvSignature& s, const Algorithm& a, const GatherPlan& plan,
                          const Target& target) {
  const tile::Product product = gather_product(s);
  tile::GpuKernel x = tile::gpu_kernel(a);
  x.rows = double(plan.rows), x.columns = double(plan.columns);
  x.size_m = x.size_n = size_of(product.a);
  x.macs = tile::gpu_macs_per_cycle(product.a, product.b, target, false);
  const std::int64_t bytes = ring_bytes(s, a) + kPlacesBytes / 2;
  x.shared_bytes = double(bytes);
  return x;
}

// The order matters, because each number depends on earlier ones.
void count_gather(const tile::GpuCase& c, const GatherPlan& plan, tile::GpuKernel& x) {
  x.tiles_m = double(plan.tiles_down), x.tiles_n = double(plan.tiles_right);
  tile::count_steps(c, x);
  x.load_cycles = tile::load_cycles(c, x);
  x.store_times = tile::store_times(c, x);
  x.slices = 1;  // a second step adds them up
  x.finish_cycles = tile::finish_cycles(c, x);
  x.busy_seconds = tile::busy_seconds(c, x);
}

constexpr double kSecondStep = 3e-6;  // seconds, besides its bytes; as of tmaws
constexpr double kCacheSpeed = 2;     // how much faster than memory L2 moves the sums

// How much longer kernels near the best computed on an H200 than is counted, in the mean.
double gather_factor(ConvDirection direction) {
  constexpr double kForward = 1.6, kByX = 2.0, kByW = 1.75;
  if (direction == ConvDirection::forward) return kForward;
  return direction == ConvDirection::backward_data ? kByX : kByW;
}

Estimate estimate_gather(const KernelSpec& spec, const ConvProblem& p, const Target& target, int) {
  const auto& s = std::get<ConvSignature>(spec.signature);
  const Problem problem = p;
  const GatherPlan plan = gather_plan(p, spec.algorithm.tile);
  const device::GatherArguments arguments = gather_arguments(p, plan, {});
  const tile::Product product = gather_product(s);
  tile::GpuKernel x = gather_on(s, spec.algorithm, plan, target);
  tile::GpuCase c = tile::gpu_case(target, product.a, product.out, s.epilogue);
  // The taps of a filter are divided among the residues of pixels.
  c.k = double(plan.depth) / double(plan.residues);
  c.batch = double(plan.products) * double(plan.residues);
  c.flops = flops(problem);
  c.bytes = bytes(problem);
  const bool by_weight = s.direction == ConvDirection::backward_weight;
  const double image = copy_cycles(arguments.image.width),
               other = copy_cycles(arguments.other.width);
  const double rows = by_weight ? other : image, columns = by_weight ? image : other;
  c.copy_cycles = (rows * x.tile_m + columns * x.tile_n) / (x.tile_m + x.tile_n);
  c.is_loaded = tile::flag(std::min(arguments.image.width, arguments.other.width) < device::kBy4);
  c.is_aligned = tile::flag(arguments.pairs != 0);
  count_gather(c, plan, x);
  const tile::GpuSeconds seconds = tile::gpu_seconds(c, x);
  const double sums = double(plan.tiles) * x.tile_mn * 4 * spec.algorithm.slices;
  const double more =
      spec.algorithm.slices == 1 ? 0 : kSecondStep + 2 * sums / (c.bandwidth * kCacheSpeed);
  const double compute = seconds.compute * gather_factor(s.direction);
  Estimate total = tile::total_of(compute, seconds.memory, seconds.overhead + more);
  total.utilisation = seconds.utilisation;
  return total;
}

}  // namespace

tile::Product gather_product(const ConvSignature& s) {
  static const Epilogue kNone;
  const bool last = s.layout == ConvLayout::nhwgc;
  switch (s.direction) {
    case ConvDirection::forward:
      return {s.in, s.weight, s.out, s.d, last, true, false, s.epilogue};
    case ConvDirection::backward_data:
      return {s.out, s.weight, s.in, s.in, last, false, false, kNone};
    default:
      return {s.out, s.in, s.weight, s.weight, !last, !last, false, kNone};
  }
}

const Way kCpasync = {.backend = "cuda",
                      .pipeline = Pipeline::cpasync,
                      .rules = kGatherRules,
                      .serves = gather_serves,
                      .algorithms = gather_algorithms,
                      .emit = emit_gather,
                      .bind = bind_cpasync,
                      .estimate = estimate_gather};

}  // namespace tessera::conv
