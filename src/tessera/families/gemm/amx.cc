// Kernels on the tiles of Intel AMX: the pipeline `amx`
// (src/tessera/device/cpu/gemm/tile_kernel.h). Their predicted time is that of the products of
// tiles at the rate of the target's row, packing, finishing, and the traffic between caches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/families/gemm/amx.h"
#include "tessera/families/gemm/estimate_internal.h"
#include "tessera/families/gemm/outputs.h"
#include "tessera/families/gemm/packed.h"
#include "tessera/families/gemm/rules.h"
#include "tessera/families/gemm/ways.h"
#include "tessera/families/tile/objects.h"

namespace tessera::gemm {
namespace {

// ---- rules ----

constexpr int kTileVectorBytes = 64;  // the vectors that pack a row of a tile

constexpr std::array kTileInstructions = {
    TileInstruction{DType::int8, "tdpbssd", "amxtile and amxint8"},
    TileInstruction{DType::bf16, "tdpbf16ps", "amxtile and amxbf16"},
};

constexpr Rule kAmx[] = {
    {[](const Case& c) { return c.target.vector_bytes == kTileVectorBytes; },
     [](const Case& c) {
       return fmt::format("amx is written for vectors of {} bytes, {} has {}", kTileVectorBytes,
                          c.target.name, c.target.vector_bytes);
     }},
    kUnusedFieldsRule,
    kThreadsRule,
    {[](const Case& c) {
       return find_tile_instruction(c.signature.a) != nullptr && c.signature.a == c.signature.b;
     },
     [](const Case& c) {
       return fmt::format("amx multiplies int8 or bf16, both operands of one type, got {} x {}",
                          to_string(c.signature.a), to_string(c.signature.b));
     }},
    {[](const Case& c) {
       const TileInstruction* i = find_tile_instruction(c.signature.a);
       return find_instruction_named(c, i->name) != nullptr;
     },
     [](const Case& c) {
       const TileInstruction* i = find_tile_instruction(c.signature.a);
       return fmt::format("{}; a processor with {} has it", no_instruction(c, i->name),
                          i->features);
     }},
    {[](const Case& c) { return c.algorithm.warp_tile == tile_block(c.signature.a); },
     [](const Case& c) {
       return fmt::format("amx multiplies tiles of {0}: the warp tile must be {1}, got {2}",
                          to_string(c.signature.a), to_string(tile_block(c.signature.a)),
                          to_string(c.algorithm.warp_tile));
     }},
    kPackedBytesRule<device::kTileWords>,
};

// ---- text ----

std::vector<tile::CpuObject> tile_objects(const KernelSpec& spec, const CpuTypes& t) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const auto arguments = [&](std::string_view type, bool k_contiguous) {
    return fmt::format("{}, {}, {}", type, t.math, yes_no(k_contiguous));
  };
  return {
      {"tile_block.h",
       {{"void", "multiply_tiles", std::string(t.math), "const BlockTask&, i64, int"}}},
      blocked_driver(
          {"gemm/tile_kernel.h", "gemm/grouped_tile_kernel.h", "gemm/outputs_tile_kernel.h"}, t, s),
      packed_panel("tile_block.h", "pack_a_tiles", t.a, arguments(t.a, a_is_row_major(s.layout))),
      packed_panel("tile_block.h", "pack_b_tiles", t.b, arguments(t.b, !b_is_row_major(s.layout)))};
}

Source emit_amx(const KernelSpec& spec, const Target& target) {
  const CpuTypes types = cpu_types(spec);
  const bool has_others = has_outputs(std::get<GemmSignature>(spec.signature));
  const CpuTemplate from = has_others         ? CpuTemplate{"outputs_tile", "OutputsTile"}
                           : has_groups(spec) ? CpuTemplate{"grouped_tile", "GroupedTile"}
                                              : CpuTemplate{"tile", "Tile"};
  return cpu_source(spec, target, from, types, tile_objects(spec, types));
}

void amx_variants(const Target&, const Algorithm& shape, std::vector<Algorithm>& all) {
  if (is_tile_block(shape.warp_tile)) all.push_back(shape);
}

std::int64_t amx_packed_bytes(const KernelSpec& spec, const GemmProblem& p) {
  return cpu_packed_bytes(spec, p, device::kTileWords);
}

// ---- estimate ----

// Every constant that is not in the target's row. Provenance: product_latency is of the Intel 64
// and IA-32 Architectures Optimization Reference Manual, chapter on AMX. issue, l2_line and l3_line
// are of an Emerald Rapids core whose blocks read panels of 4 KB to 128 KB. store and call_us are
// choices: with them the estimate ranks 80 drawn problems of that machine better than before, while
// a fit gave 124 to 135 cycles and 0.6 to 1.2 us. The others are those of two-pipe cores in
// estimate_cpu.cc. "Cycles" are clock cycles of a core.
struct AmxModel {
  double product_latency = 52;       // cycles until a tile of sums can be added to again
  double issue = 1.25;               // cycles of products and loads for each cycle of products
  double l2_line = 0.9;              // further cycles for each line that a tile loads from L2
  double l3_line = 5.4;              // the same from L3
  double store = 60;                 // cycles to store a tile of sums, or to load one
  double block = 30;                 // cycles to enter and leave a register block
  double pack_row = 0.04;            // cycles to pack a byte of a row-major A
  double pack_word[2] = {0.4, 0.8};  // cycles to pack a word of anything else: bf16, int8
  double configure = 220;            // cycles to configure tiles and to release them
  double finish = 1.5;               // cycles for each output vector scaled, fused or converted
  double step = 2;                   // cycles for each vector and cheap step of an epilogue
  double function = 30;              // cycles for each vector and function of an epilogue
  double over_k = 1.05;              // factor of sharing k: the team waits for its slowest thread
  double core_memory_share = 0.35;   // share of the machine's bandwidth that one core reaches
  double blocked_share = 0.75;       // share of that bandwidth that blocked kernels reach
  double call_us = 0.6;              // microseconds of a launch on one thread
  double barrier_us = 1;             // microseconds of a barrier of the whole team
};
constexpr AmxModel kAmxModel;

struct AmxCase {
  const GemmProblem& p;
  const Algorithm& a;
  const Target& target;
  double rate;  // products of tiles in a cycle
  double lanes;
  double per_word;                  // elements of k in a word
  double l1, l2, l2_rate, l3_rate;  // bytes, bytes in a cycle
};

// The part of the problem that one thread computes.
struct AmxShare {
  double batches, rows, columns, k;
};

AmxCase amx_case(const KernelSpec& spec, const GemmProblem& p, const Target& target) {
  const auto& s = std::get<GemmSignature>(spec.signature);
  const TileInstruction* known = find_tile_instruction(s.a);
  double rate = 1.0 / device::kTileRows;
  for (const Instruction& i : target.instructions) {
    if (known != nullptr && i.name == known->name) rate = std::max(i.per_cycle, 1e-3);
  }
  return {.p = p,
          .a = spec.algorithm,
          .target = target,
          .rate = rate,
          .lanes = std::max(1, target.vector_bytes / 4) * 1.0,
          .per_word = 4.0 / size_of(s.a),
          .l1 = level_bytes(target, 0),
          .l2 = level_bytes(target, 1),
          .l2_rate = level_rate(target, 1, 32),
          .l3_rate = level_rate(target, 2, 16)};
}

// ---- cycles of a thread ----

// A register block of so many tiles: a step of k takes as long as its products, or as waiting for
// the sums of the step before, and longer where tiles of A or of B come from beyond L1.
double tile_block_cycles(const AmxCase& x, const AmxShare& s, double down, double across) {
  const double depth = std::min<double>(s.k, x.a.tile.k);
  const double a_block = depth / x.per_word * 4 * std::min<double>(s.rows, x.a.tile.m);
  const double panel = depth / x.per_word * 4 * device::kTileBlock;
  const double a_line = a_block <= x.l1 / 2   ? 0
                        : a_block <= x.l2 / 2 ? kAmxModel.l2_line
                                              : kAmxModel.l3_line;
  const double b_line = panel <= x.l1 / 2 ? 0 : kAmxModel.l2_line;
  const double products = down * across / x.rate * kAmxModel.issue;
  const double step = std::max(products, kAmxModel.product_latency) +
                      device::kTileRows * (down * a_line + across * b_line);
  const double parts = blocks(s.k, x.a.tile.k);
  const double sums = down * across * kAmxModel.store * (2 * parts - 1);
  return blocks(s.k, x.a.warp_tile.k) * step + sums + parts * kAmxModel.block;
}

// Calls visit(count, tiles) for the whole register blocks along a side, then for the last one.
template <class Visit>
void for_each_tile_block(double size, Visit visit) {
  const double whole = std::floor(size / device::kTileBlock);
  const double left = size - whole * device::kTileBlock;
  if (whole > 0) visit(whole, 2.0);
  if (left > 0) visit(1.0, blocks(left, device::kTileRows));
}

double tile_products_cycles(const AmxCase& x, const AmxShare& s) {
  double cycles = 0;
  for_each_tile_block(s.rows, [&](double rows, double down) {
    for_each_tile_block(s.columns, [&](double columns, double across) {
      cycles += rows * columns * tile_block_cycles(x, s, down, across);
    });
  });
  return cycles;
}

// The rows whose partial sums are kept at once, as in packed_gemm.h: B is packed for each anew.
double rows_of_partial(const AmxCase& x, const AmxShare& s) {
  const Shape3& t = x.a.tile;
  if (s.k <= t.k) return std::max(1.0, s.rows);
  const std::int64_t fit = device::kPartialBytes / (std::int64_t{t.n} * 4) / t.m * t.m;
  return static_cast<double>(std::max<std::int64_t>(fit, t.m));
}

double tile_packing_cycles(const AmxCase& x, const AmxShare& s) {
  const double word = kAmxModel.pack_word[x.p.a == DType::bf16 ? 0 : 1];
  const double words = blocks(s.k, x.a.warp_tile.k) * device::kTileWords;
  const double a_words = blocks(s.rows, device::kTileBlock) * device::kTileBlock * words;
  const double a_word = a_is_row_major(x.p.layout) ? 4 * kAmxModel.pack_row : word;
  double cycles = a_words * a_word * blocks(s.columns, x.a.tile.n);
  if (!x.p.preshuffled_b) {
    const double columns = blocks(s.columns, device::kTileBlock) * device::kTileBlock;
    cycles += columns * words * word * blocks(s.rows, rows_of_partial(x, s));
  }
  return cycles;
}

// Every block of A's rows reads the panels of B again.
double tile_reread_cycles(const AmxCase& x, const AmxShare& s) {
  const double all = s.k / x.per_word * 4 * s.columns;
  const double block =
      std::min<double>(s.k, x.a.tile.k) / x.per_word * 4 * std::min<double>(s.columns, x.a.tile.n);
  const double rate = block <= x.l2 / 2 ? x.l2_rate : x.l3_rate;
  const auto rows = static_cast<std::int64_t>(std::ceil(s.rows));
  return all * static_cast<double>(device::row_blocks(rows, x.a.tile.m) - 1) / rate;
}

double tile_finish_cycles(const AmxCase& x, const AmxShare& s) {
  const GemmProblem& p = x.p;
  if (p.acc == p.out && num_ops(p.epilogue) == 0 && p.alpha == 1.0F && p.beta == 0) return 0;
  double each = kAmxModel.finish;
  for (int i = 0; i < num_ops(p.epilogue); ++i) {
    const EpilogueOp op = p.epilogue.ops[static_cast<std::size_t>(i)];
    each += tile::is_function(op) ? kAmxModel.function : kAmxModel.step;
  }
  return s.rows * blocks(s.columns, x.lanes) * each;
}

// ---- the problem ----

// Seconds to read every operand once, from L3 or from memory.
double amx_traffic_seconds(const AmxCase& x, int threads) {
  const double size = bytes_of(x.p);
  const double hertz = busy_hertz(x.target);
  if (size <= x.l2 / 2 * threads) return size / (x.l2_rate * threads * hertz);
  const double l3 = x.l3_rate * threads * hertz * kAmxModel.blocked_share;
  if (x.target.caches.size() > 2 && size <= level_bytes(x.target, 2) / 2) return size / l3;
  const double machine = std::max(x.target.memory_gb_per_s, 1.0) * 1e9;
  return size /
         (machine * std::min(1.0, kAmxModel.core_memory_share * threads) * kAmxModel.blocked_share);
}

Estimate amx_total(const AmxCase& x, double seconds, int used, int barriers) {
  const double team = used > 1 ? x.target.launch_us + barriers * kAmxModel.barrier_us : 0;
  const double overhead = (kAmxModel.call_us + team) * 1e-6;
  const double block = static_cast<double>(device::kTileRows) * device::kTileRows;
  const double peak = x.rate * block * x.a.warp_tile.k * busy_hertz(x.target) * std::max(1, used);
  const double useful = seconds > 0 ? std::min(1.0, flops_of(x.p) / 2 / (peak * seconds)) : 1;
  return total_of(seconds, amx_traffic_seconds(x, used), overhead, useful);
}

Estimate amx_over_grid(const AmxCase& x, int threads) {
  const GemmProblem& p = x.p;
  device::GemmArguments g{};
  g.m = p.m, g.n = p.n, g.batch = p.batch;
  const device::Grid grid =
      device::best_grid(g, threads, x.a.wave.m, x.a.wave.n, device::kTileBlock, device::kTileBlock,
                        static_cast<int>(x.lanes));
  const auto split = [](std::int64_t size, int block, int parts) {
    const auto whole = static_cast<double>(size);
    return std::min(whole, blocks(blocks(whole, block), parts) * block);
  };
  const AmxShare s = {split(p.batch, 1, grid.batch), split(p.m, device::kTileBlock, grid.m),
                      split(p.n, device::kTileBlock, grid.n), static_cast<double>(p.k)};
  const double cycles = tile_products_cycles(x, s) + tile_packing_cycles(x, s) +
                        tile_reread_cycles(x, s) + tile_finish_cycles(x, s);
  const double seconds = (s.batches * cycles + kAmxModel.configure) / busy_hertz(x.target);
  return amx_total(x, seconds, grid.batch * grid.m * grid.n, 0);
}

// Threads share k and then add their sums, of which each is written once and read once.
Estimate amx_over_k(const AmxCase& x, int parts) {
  const GemmProblem& p = x.p;
  const AmxShare s = {static_cast<double>(p.batch), static_cast<double>(p.m),
                      static_cast<double>(p.n), blocks(static_cast<double>(p.k), parts)};
  const AmxShare finished = {s.batches, blocks(s.rows, parts), s.columns, s.k};
  const double sums = 2 * s.rows * s.columns * 4 / x.l3_rate;
  const double cycles = tile_products_cycles(x, s) + tile_packing_cycles(x, s) +
                        tile_reread_cycles(x, s) + tile_finish_cycles(x, finished) + sums;
  const double seconds =
      (s.batches * cycles + kAmxModel.configure) / busy_hertz(x.target) * kAmxModel.over_k;
  return amx_total(x, seconds, parts, 2 * static_cast<int>(p.batch));
}

Estimate estimate_amx(const KernelSpec& spec, const GemmProblem& p, const Target& target,
                      int threads) {
  const AmxCase x = amx_case(spec, p, target);
  if (p.m == 0 || p.n == 0 || p.batch == 0) return amx_total(x, 0, 1, 0);
  const int wave_k = spec.algorithm.wave.k;
  if (wave_k == 1) return amx_over_grid(x, threads);
  const std::int64_t limit = wave_k == 0 ? threads : std::min(wave_k, threads);
  const std::int64_t grain = k_grain(p, spec.algorithm, device::kTileWords);
  const std::int64_t parts = std::min(limit, (p.k + grain - 1) / grain);
  return parts > 1 ? amx_over_k(x, static_cast<int>(parts)) : amx_over_grid(x, threads);
}

}  // namespace

const TileInstruction* find_tile_instruction(DType operand) {
  const auto found = std::find_if(kTileInstructions.begin(), kTileInstructions.end(),
                                  [&](const TileInstruction& i) { return i.operand == operand; });
  return found == kTileInstructions.end() ? nullptr : &*found;
}

const Way kAmxWay = {.backend = "cpu",
                     .pipeline = Pipeline::amx,
                     .rules = kAmx,
                     .emit = emit_amx,
                     .bind = bind_cpu,
                     .estimate = estimate_amx,
                     .own = {.add_variants = amx_variants,
                             .packed_bytes = amx_packed_bytes,
                             .pack = pack_on_cpu,
                             .bind_groups = bind_groups_on_cpu,
                             .runs_lists = true,
                             .bind_outputs = bind_outputs_on_cpu,
                             .is_described = no_feature_does,
                             .packs_a = true,
                             .packs_b = true,
                             .words_of_step = device::kTileWords}};

}  // namespace tessera::gemm
