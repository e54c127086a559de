// Convolutions by MFMA (src/tessera/device/hip/conv/): implicit products by GEMM's kernel, whose
// operands are gathered. Groups are batches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "tessera/device/hip/conv/conv_arguments.h"
#include "tessera/families/conv/mfma_internal.h"
#include "tessera/families/tile/algorithm_space.h"
#include "tessera/families/tile/ceil_div.h"

namespace tessera::conv::mfma {
namespace {

using tile::block_lanes;
using tile::ceil_div;

constexpr int kMaxTileSide = 256;
constexpr int kMostSlices = 64;
constexpr int kMostTaps = 15, kMostTapsOfThree = 10;  // of a side, with three dimensions
constexpr double kMostSpan = 0x1p31 - 1024;           // bytes
constexpr double kMostCount = 0x1p31 - 1024;          // of rows, steps and tiles
constexpr double kMostFilters = 0x1p30;               // bytes, where rows are gathered
constexpr double kMostPlace = 0x1p14;                 // where places have 16 bits
constexpr std::string_view kOther = "; use a direct kernel";

bool copies(const Algorithm& a) { return a.pipeline == Pipeline::async; }

// ---- rules ----

const Instruction* instruction_of(const Case& c) {
  const Types types = types_of(c.signature);
  return find_instruction(c.target, types.a, types.b, c.signature.acc);
}
bool multiplies(const Case& c) {
  const Types types = types_of(c.signature);
  return types.a == types.b && instruction_of(c) != nullptr;
}
// Reads of LDS transpose elements of 16 bits.
bool copies_elements(const Case& c) {
  return !copies(c.algorithm) || c.signature.direction == ConvDirection::forward ||
         element_bytes(c.signature) == 2;
}

bool stages_fit(const Case& c) {
  const auto found = c.target.pipeline_limits.find(c.algorithm.pipeline);
  return found != c.target.pipeline_limits.end() &&
         c.algorithm.stages >= found->second.min_stages &&
         c.algorithm.stages <= found->second.max_stages;
}
std::string stages_do_not_fit(const Case& c) {
  const auto found = c.target.pipeline_limits.find(c.algorithm.pipeline);
  const PipelineLimit limit =
      found == c.target.pipeline_limits.end() ? PipelineLimit{} : found->second;
  return fmt::format("{} takes {} to {} stages on {}, got {}", to_string(c.algorithm.pipeline),
                     limit.min_stages, limit.max_stages, c.target.name, c.algorithm.stages);
}

bool warp_tile_fits(const Case& c) {
  const Shape3& w = c.algorithm.warp_tile;
  const auto& listed =
      tile::warp_tiles_for(tile::space_of(Op::conv, c.target), types_of(c.signature).a);
  return w.m == w.n && (w.m == 16 || w.m == 32) &&
         w.k == tile::mfma_depth(w.m, element_bytes(c.signature)) &&
         std::find(listed.begin(), listed.end(), w) != listed.end();
}

// The loaders' own conditions (device/hip/conv/operand_*.h, transposed_tile.h): threads move whole
// tiles, and each of them what lies in one column of chunks or one dword of rows.
int chunks_of(const Case& c) {
  return c.algorithm.tile.k * element_bytes(c.signature) / tile::kLaneBytes;
}
bool copies_rows(const Algorithm& a, int side) {
  const int lanes = block_lanes(a), chunks = side / 8;
  if (chunks < 4 || lanes % chunks != 0 || a.tile.k * chunks % lanes != 0) return false;
  return lanes / chunks % 16 == 0 || a.tile.k * chunks == lanes;
}
bool moves_lines(const Case& c, int side) {
  return side * chunks_of(c) % block_lanes(c.algorithm) == 0;
}
bool gathers_filters(const Case& c) {
  const int lanes = block_lanes(c.algorithm);
  const int units = c.algorithm.tile.n * element_bytes(c.signature) / 4;
  return units * chunks_of(c) % lanes == 0 && (lanes % units == 0 || units % lanes == 0);
}
bool gathers_taps(const Case& c) {
  const int units = c.algorithm.tile.n * element_bytes(c.signature) / 4;
  return gathers_filters(c) && units % tile::kWaveLanes == 0 &&
         block_lanes(c.algorithm) % units == 0;
}
bool moves_rows_of_a(const Case& c) {
  const Algorithm& a = c.algorithm;
  if (!by_weight(c.signature)) return moves_lines(c, a.tile.m);
  return !copies(a) || copies_rows(a, a.tile.m);
}
bool moves_rows_of_b(const Case& c) {
  const Algorithm& a = c.algorithm;
  if (c.signature.direction == ConvDirection::forward) {
    return !copies(a) || moves_lines(c, a.tile.n);
  }
  if (copies(a)) return copies_rows(a, a.tile.n);
  return by_data(c.signature) ? gathers_filters(c) : gathers_taps(c);
}
std::string moves_no_rows(const Case& c, std::string_view name, int side) {
  return fmt::format(
      "{} lanes don't move tiles of {} {} and {} of the depth in whole rounds in {}, as {} does",
      block_lanes(c.algorithm), side, name, c.algorithm.tile.k, to_string(c.signature.direction),
      to_string(c.algorithm.pipeline));
}

int registers_left(const Case& c) { return tile::lane_registers_left(c.algorithm, c.target); }
int registers_of(const Case& c) {
  return device::mfma_registers(shape_of(c.signature, c.algorithm));
}
int lds_of(const Case& c) { return device::mfma_lds_bytes(shape_of(c.signature, c.algorithm)); }

constexpr tile::Rule<Case> kMfmaRules[] = {
    {multiplies,
     [](const Case& c) {
       const Types types = types_of(c.signature);
       return fmt::format("{} has no instruction mfma for {} x {} -> {}", c.target.name,
                          to_string(types.a), to_string(types.b), to_string(c.signature.acc));
     }},
    {copies_elements,
     [](const Case& c) {
       return fmt::format("async transposes elements of 16 bits for {}, got {}",
                          to_string(c.signature.direction), to_string(types_of(c.signature).a));
     }},
    {[](const Case& c) { return c.algorithm.repack || c.signature.layout == ConvLayout::nhwgc; },
     [](const Case& c) {
       return fmt::format("kernels by MFMA need neighbouring channels, layout nhwgc, got {}",
                          to_string(c.signature.layout));
     }},
    {stages_fit, stages_do_not_fit},
    {[](const Case& c) { return c.algorithm.scheduler == Scheduler::intrawave; },
     [](const Case& c) {
       return fmt::format("kernels for AMD GPUs are scheduled intrawave, got {}",
                          to_string(c.algorithm.scheduler));
     }},
    {[](const Case& c) { return c.algorithm.store == Store::standard; },
     [](const Case& c) {
       return fmt::format("kernels for AMD GPUs have the standard store, got {}",
                          to_string(c.algorithm.store));
     }},
    {[](const Case& c) {
       return c.algorithm.splits == 1 && !c.algorithm.persistent && !c.algorithm.streamk;
     },
     [](const Case& c) {
       return fmt::format(
           "convolutions by MFMA have splits=1 and blocks of one tile, got splits={} "
           "persistent={} streamk={}",
           c.algorithm.splits, c.algorithm.persistent, c.algorithm.streamk);
     }},
    {[](const Case& c) {
       const int slices = c.algorithm.slices;
       return slices == 1 || (by_weight(c.signature) && slices > 1 && slices <= kMostSlices);
     },
     [](const Case& c) {
       return fmt::format("the depth of backward_weight is cut into 1 to {} slices, got {} of {}",
                          kMostSlices, c.algorithm.slices, to_string(c.signature.direction));
     }},
    tile::kRowOf<Case, tile::kMfmaSplitK>,
    tile::kRowOf<Case, tile::kMfmaWaves>,
    {warp_tile_fits,
     [](const Case& c) {
       const int size = element_bytes(c.signature);
       return fmt::format("warp tiles of {} are 32x32x{} and 16x16x{} on {}, got {}",
                          to_string(types_of(c.signature).a), tile::mfma_depth(32, size),
                          tile::mfma_depth(16, size), c.target.name,
                          to_string(c.algorithm.warp_tile));
     }},
    tile::kRowOf<Case, tile::kMfmaCuts>,
    {[](const Case& c) {
       const Shape3& t = c.algorithm.tile;
       const int bytes = t.k * element_bytes(c.signature);
       return std::min(t.m, t.n) >= 1 && std::max(t.m, t.n) <= kMaxTileSide &&
              (bytes == 64 || bytes == 128);
     },
     [](const Case& c) {
       return fmt::format(
           "tiles are 1x1 to {0}x{0} and 64 or 128 bytes of the depth, got {1} of {2}",
           kMaxTileSide, to_string(c.algorithm.tile), to_string(types_of(c.signature).a));
     }},
    {moves_rows_of_a, [](const Case& c) { return moves_no_rows(c, "rows", c.algorithm.tile.m); }},
    {moves_rows_of_b,
     [](const Case& c) { return moves_no_rows(c, "columns", c.algorithm.tile.n); }},
    {[](const Case& c) { return registers_of(c) <= registers_left(c); },
     [](const Case& c) {
       return fmt::format(
           "needs about {} registers a lane ({}x{} sums over {} lanes and the rest), {} leaves {} "
           "to each of {} waves",
           registers_of(c), c.algorithm.tile.m, c.algorithm.tile.n, block_lanes(c.algorithm),
           c.target.name, registers_left(c), tile::all_waves(c.algorithm));
     }},
    {[](const Case& c) { return lds_of(c) <= c.target.shared_memory_bytes; },
     [](const Case& c) {
       return fmt::format("needs {} bytes of LDS, {} has {}", lds_of(c), c.target.name,
                          c.target.shared_memory_bytes);
     }},
};

// ---- problems ----

// The channels that chunks are of: all but those of y in forward, and of y in backward_weight where
// threads load pairs of them.
std::string channels_unfit(const ConvProblem& p, const Algorithm& a) {
  const bool needs_k = p.direction == ConvDirection::backward_data ||
                       (p.direction == ConvDirection::backward_weight && copies(a));
  const int unit = tile::kLaneBytes / bytes_of(p);
  const auto check = [&](std::string_view name, std::int64_t channels) {
    if (channels % unit == 0) return std::string();
    return fmt::format("{} needs multiples of {} channels in a group, got {}/g={}{}",
                       to_string(a.pipeline), unit, name, channels, kOther);
  };
  if (std::string why = check("c", p.c / p.g); !why.empty()) return why;
  return needs_k ? check("k", p.k / p.g) : std::string();
}

// Dwords are loaded: what lies apart is whole ones apart.
std::string odd_stride(std::string_view name, const ConvProblem& p, const Algorithm& a,
                       std::int64_t count, std::int64_t stride) {
  if (count <= 1 || stride * bytes_of(p) % 4 == 0) return {};
  return fmt::format("{} loads dwords: {} must be a multiple of {}, got {}{}",
                     to_string(a.pipeline), name, 4 / bytes_of(p), stride, kOther);
}
std::string image_strides_unfit(const ConvProblem& p, const Algorithm& a, std::string_view name,
                                const ConvStrides& s, const Spatial& size) {
  const std::int64_t counts[] = {p.n, p.g, 1, size[0], size[1], size[2]};
  constexpr std::array<std::string_view, 6> kEnds = {"n", "g", "c", "d", "h", "w"};
  for (std::size_t i = 0; i < kEnds.size(); ++i) {
    const std::string full = fmt::format("{}_stride_{}", name, kEnds[i]);
    if (std::string why = odd_stride(full, p, a, counts[i], s[i]); !why.empty()) return why;
  }
  return {};
}
std::string filter_strides_unfit(const ConvProblem& p, const Algorithm& a) {
  const ConvStrides& s = p.weight_strides;
  const std::int64_t counts[] = {p.g, p.k / p.g, 1, p.filter[0], p.filter[1], p.filter[2]};
  constexpr std::array<std::string_view, 6> kEnds = {"g", "k", "c", "z", "y", "x"};
  double span = 0;
  for (std::size_t i = 0; i < kEnds.size(); ++i) {
    const std::string full = fmt::format("weight_stride_{}", kEnds[i]);
    if (std::string why = odd_stride(full, p, a, counts[i], s[i]); !why.empty()) return why;
    if (i > 0) span += bytes_of(p) * double(counts[i] - 1) * double(s[i]);
  }
  const std::int64_t channels = p.c / p.g;
  span += bytes_of(p) * double(channels);
  if (span < kMostFilters) return {};
  return fmt::format("{} counts bytes of a group's filters up to {:.0f}, got {:.0f}{}",
                     to_string(a.pipeline), kMostFilters, span, kOther);
}

// What a direction reads besides dwords of the image, and how its result lies.
std::string places_unfit(const ConvProblem& p, const Algorithm& a) {
  if (p.direction == ConvDirection::backward_data) {
    if (std::string why = image_strides_unfit(p, a, "out", p.out_strides, out_size(p));
        !why.empty()) {
      return why;
    }
    return filter_strides_unfit(p, a);
  }
  if (std::string why = image_strides_unfit(p, a, "in", p.in_strides, p.size); !why.empty()) {
    return why;
  }
  if (!taps_adjoin(p)) {
    return fmt::format("{} needs the taps of a filter side by side, got strides of {}x{}x{}{}",
                       to_string(a.pipeline), p.weight_strides[kD], p.weight_strides[kH],
                       p.weight_strides[kW], kOther);
  }
  const std::int64_t distance = pixel_distance(p.out_strides, out_size(p), p.n, p.k);
  if (distance < 0) {
    return fmt::format("{} needs pixels of y at equal distances, got strides of {}x{}x{}x{}{}",
                       to_string(a.pipeline), p.out_strides[kN], p.out_strides[kD],
                       p.out_strides[kH], p.out_strides[kW], kOther);
  }
  if (p.direction == ConvDirection::forward) return {};
  if (distance < p.k / p.g) {
    return fmt::format("{} needs pixels of y apart, got a distance of {} for {} channels{}",
                       to_string(a.pipeline), distance, p.k / p.g, kOther);
  }
  if (!copies(a)) return {};
  return image_strides_unfit(p, a, "out", p.out_strides, out_size(p));
}

std::string filter_too_large(const ConvProblem& p, const Algorithm& a) {
  if (p.direction == ConvDirection::backward_weight) return {};
  const std::int64_t largest = *std::max_element(p.filter.begin(), p.filter.end());
  const std::int64_t most = p.ndim == 3 ? kMostTapsOfThree : kMostTaps;
  if (largest <= most) return {};
  return fmt::format("{} takes filters of up to {} taps a side, got {}x{}x{}{}",
                     to_string(a.pipeline), most, p.filter[0], p.filter[1], p.filter[2], kOther);
}

// The bytes that offsets count in 32 bits: of the images that a tile of pixels touches, with the
// places outside of them that taps name. The gradient by w counts from the first image on.
double span_of(const ConvProblem& p, const Algorithm& a) {
  const bool data = p.direction == ConvDirection::backward_data;
  const ConvStrides& s = data ? p.out_strides : p.in_strides;
  const Spatial size = data ? out_size(p) : p.size, grid = data ? p.size : out_size(p);
  double images = double(p.n);
  if (p.direction != ConvDirection::backward_weight) {
    double pixels = 1;
    for (const std::size_t i : {0, 1, 2}) {
      pixels *= std::max(1.0, std::floor(double(grid[i]) / double(data ? p.stride[i] : 1)));
    }
    images = std::min(images, std::floor(a.tile.m / pixels) + 2);
  }
  double span = images > 1 ? (images - 1) * double(s[kN]) : 0;
  for (const std::size_t i : {0, 1, 2}) {
    if (size[i] == 1) continue;
    const double outside = double(p.pad[i]) + double(p.dilation[i]) * double(p.filter[i]) +
                           double(std::abs(p.pad_right[i])) + double(p.stride[i]);
    span += (double(size[i]) + 2 * outside) * double(s[kD + i]);
  }
  return bytes_of(p) * (span + double(p.k + p.c));
}
// Places along the height and the width that threads count in 16 bits.
double place_of(const ConvProblem& p) {
  double most = 0;
  for (const std::size_t i : {0, 1, 2}) {
    most = std::max(most, double(p.size[i]) + 2 * double(p.pad[i]) + double(p.stride[i]) +
                              double(std::abs(p.pad_right[i])) +
                              double(p.dilation[i]) * double(p.filter[i]));
  }
  return most;
}

std::string too_far(const ConvProblem& p, const Algorithm& a) {
  const auto refuse = [&](std::string_view what, double most, double got) {
    return fmt::format("{} counts {} up to {:.0f}, got {:.0f}{}", to_string(a.pipeline), what, most,
                       got, kOther);
  };
  if (const double span = span_of(p, a); span > kMostSpan) {
    return refuse("bytes of the images that a block reads", kMostSpan, span);
  }
  const std::int64_t line = p.direction == ConvDirection::forward ? p.weight_strides[1] : 0;
  if (const double span = bytes_of(p) * double(line) * a.tile.n; span > kMostSpan) {
    return refuse("bytes of the filters of a tile", kMostSpan, span);
  }
  constexpr double kMostRows = std::numeric_limits<std::int32_t>::max();
  if (const double rows = by_data(p) ? farthest_result(p) : 0; rows > kMostRows) {
    return refuse("rows from a result to the next one", kMostRows, rows);
  }
  if (p.direction != ConvDirection::backward_weight) return {};
  const std::int64_t pixel = pixel_distance(p.out_strides, out_size(p), p.n, p.k);
  if (const double span = bytes_of(p) * double(pixel) * a.tile.k; span > kMostSpan) {
    return refuse("bytes of the pixels of y of a tile", kMostSpan, span);
  }
  if (const double place = place_of(p); !copies(a) && place > kMostPlace) {
    return refuse("places along a side of the image", kMostPlace, place);
  }
  return {};
}

// The residues of the strides, which no plan is made of yet.
double residues(const ConvProblem& p) {
  double count = 1;
  for (std::size_t i = 0; i < 3 && by_data(p); ++i) {
    count *= double(std::min(p.stride[i], p.size[i]));
  }
  return count;
}

std::string counts_unfit(const ConvProblem& p, const Algorithm& a) {
  const int most = a.repack ? device::kHipRepackParts : device::kHipConvParts;
  if (const double parts = residues(p); parts > most) {
    return fmt::format("{} takes up to {} residues of the strides, got {:.0f} of {}x{}x{}{}",
                       to_string(a.pipeline), most, parts, p.stride[0], p.stride[1], p.stride[2],
                       kOther);
  }
  const View view = view_of(p);
  const double tiles = std::ceil(double(view.rows) / a.tile.m) *
                       std::ceil(double(view.columns) / a.tile.n) * double(p.g);
  for (const double count : {double(view.rows), double(view.columns), double(view.depth),
                             double(p.g), tiles * a.slices, double(p.n)}) {
    if (count <= kMostCount) continue;
    return fmt::format("{} counts rows, columns, steps and tiles up to {:.0f}, got {:.0f}{}",
                       to_string(a.pipeline), kMostCount, count, kOther);
  }
  if (a.slices == 1) return {};
  if (ceil_div(view.depth, a.tile.k) < a.slices) {
    return fmt::format("{} slices need as many tiles of {} pixels, got {} pixels", a.slices,
                       a.tile.k, view.depth);
  }
  constexpr int kCounters = device::kHipCounterBytes / 4;
  if (tiles <= kCounters) return {};
  return fmt::format("slices are added for at most {} tiles, got {:.0f}", kCounters, tiles);
}

// backward_data: elements of x from a pixel of a residue to the next one.
std::int64_t farthest_step(const ConvProblem& p) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < 3 && by_data(p); ++i) {
    if (p.size[i] > 1) most = std::max(most, p.stride[i] * p.in_strides[kD + i]);
  }
  return most;
}

Verdict mfma_serves(const KernelSpec& spec, const ConvProblem& given, const Target&) {
  const Algorithm& a = spec.algorithm;
  if (a.repack) {
    if (std::string why = unrepackable(given); !why.empty()) return {why};
    if (double(farthest_step(given)) > std::numeric_limits<std::int32_t>::max()) {
      return {fmt::format("{} counts elements from a result to the next one up to {}, got {}{}",
                          to_string(a.pipeline), std::numeric_limits<std::int32_t>::max(),
                          farthest_step(given), kOther)};
    }
  }
  const ConvProblem p = a.repack ? repack(given).problem : given;
  for (const auto& look : {channels_unfit, places_unfit, filter_too_large, counts_unfit, too_far}) {
    if (std::string why = look(p, a); !why.empty()) return {why};
  }
  return {};
}

// ---- algorithms ----

constexpr int kSliceCounts[] = {2, 4, 8, 16, 32, 64};
constexpr int kAtomicSlices[] = {4, 16};

void add_variants(const Target& target, const Algorithm& base, std::vector<Algorithm>& all) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  const auto limits = target.pipeline_limits.find(base.pipeline);
  if (limits == target.pipeline_limits.end()) return;
  for (const int stages : space.stages) {
    if (stages < limits->second.min_stages || stages > limits->second.max_stages) continue;
    Algorithm a = base;
    a.scheduler = Scheduler::intrawave;
    a.stages = stages;
    all.push_back(a);
    const auto add = [&](SplitK kind, std::span<const int> counts) {
      a.split_k = kind;
      for (const int slices : counts) {
        a.slices = slices;
        all.push_back(a);
      }
    };
    add(SplitK::ordered, kSliceCounts);
    add(SplitK::atomic, kAtomicSlices);
  }
}

// Tiles are listed for 16-bit operands; others take as many bytes of the depth, which their warp
// tiles tell.
template <Pipeline kPipeline>
std::vector<Algorithm> algorithms(const Target& target) {
  const AlgorithmSpace& space = tile::space_of(Op::conv, target);
  std::vector<Shape3> warp_tiles;
  for (const auto& [dtype, tiles] : space.warp_tiles) {
    warp_tiles.insert(warp_tiles.end(), tiles.begin(), tiles.end());
  }
  std::vector<Algorithm> all;
  for (Algorithm base : tile::shapes_with(space, kPipeline, warp_tiles)) {
    base.tile.k = base.tile.k * base.warp_tile.k / tile::mfma_depth(base.warp_tile.m, 2);
    if (base.wave.k == 1 && tile::mfma_cuts_tiles(base)) add_variants(target, base, all);
  }
  return all;
}
template <Pipeline kPipeline>
std::vector<Algorithm> for_problem(const ConvProblem& p, const Target& target) {
  std::vector<Algorithm> all = algorithms<kPipeline>(target);
  if (p.direction != ConvDirection::backward_weight) {
    std::erase_if(all, [](const Algorithm& a) { return a.slices > 1; });
  }
  if (!wants_repack(with_strides(p))) return all;
  if (p.layout == ConvLayout::nhwgc) {
    const std::size_t plain = all.size();
    all.reserve(2 * plain);
    std::copy_n(all.begin(), plain, std::back_inserter(all));
    std::for_each(all.begin() + static_cast<std::ptrdiff_t>(plain), all.end(),
                  [](Algorithm& a) { a.repack = true; });
  } else {
    for (Algorithm& a : all) a.repack = true;
  }
  return all;
}

template <Pipeline kPipeline>
constexpr Way way_of_pipeline() {
  return {.backend = "hip",
          .pipeline = kPipeline,
          .rules = kMfmaRules,
          .serves = mfma_serves,
          .algorithms = algorithms<kPipeline>,
          .emit = emit,
          .bind = bind,
          .estimate = estimate,
          .own = {.for_problem = for_problem<kPipeline>}};
}

}  // namespace

bool has_whole_taps(const ConvSignature& s, const Algorithm& a) {
  return !by_weight(s) || !copies(a);
}

bool lies_in_whole_taps(const ConvProblem& p, const Algorithm& a) {
  if (by_weight(p)) return p.c / p.g % a.tile.n == 0;
  return (by_data(p) ? p.k : p.c) / p.g % a.tile.k == 0;
}

Types types_of(const ConvSignature& s) {
  if (by_weight(s)) return {s.out, s.in, s.weight, s.weight};
  if (by_data(s)) return {s.out, s.weight, s.in, s.in};
  return {s.in, s.weight, s.out, s.d};
}

int element_bytes(const ConvSignature& s) { return size_of(types_of(s).a); }

device::MfmaShape shape_of(const ConvSignature& s, const Algorithm& a) {
  const int size = element_bytes(s);
  return tile::mfma_shape(a, {size, size, by_weight(s), s.direction != ConvDirection::forward});
}

}  // namespace tessera::conv::mfma

namespace tessera::conv {

using mfma::way_of_pipeline;
const Way kMfmaCompv3 = way_of_pipeline<Pipeline::compv3>(),
          kMfmaCompv4 = way_of_pipeline<Pipeline::compv4>(),
          kMfmaMem = way_of_pipeline<Pipeline::mem>(),
          kMfmaAsync = way_of_pipeline<Pipeline::async>();

}  // namespace tessera::conv
